package clientconn

import (
	"bufio"
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// lifetime is how long the client's authentication is good for, by the broker's word (KIP-368). After that a broker ends the connection on which anything but an authentication comes. The
// client looks to itself; what is asked here of our own waits until the client has authenticated again.
type lifetime struct {
	ends   time.Time     // zero: it does not
	begins chan struct{} // closed when the client begins to authenticate again; nil: nobody waits for that
}

const (
	// lifetimeSlack is what part of it is taken for its end: the broker began to count before its answer was here.
	lifetimeSlack, minLifetimeSlack, maxLifetimeSlack = 20, time.Second, 5 * time.Second
	// mostLifetimeSlack is the largest part of a short one.
	mostLifetimeSlack = 4
	// expiredPatience is how long a request of our own waits while the client is owed something: it authenticates again only when it has got that, and that may wait for the request.
	expiredPatience = 3 * time.Second
)

// noteLifetime looks at the broker's answer to a step of an authentication, which stays in the reader. One that does not fit into it tells nothing.
func (c *Conn) noteLifetime(br *bufio.Reader, size int, p *pending) {
	if p.slot == nil || p.raw || p.key != keySaslAuthenticate || p.version < 1 || 4+size > br.Size() {
		return
	}
	frame, err := br.Peek(4 + size)
	if err != nil {
		return // whoever reads it meets the same
	}
	_, body, err := wire.ResponseBody(frame[4:], p.key, p.version)
	resp := kmsg.SASLAuthenticateResponse{Version: p.version}
	if err == nil {
		err = resp.ReadFrom(body)
	}
	if err != nil || resp.ErrorCode != 0 {
		return // the client's to judge
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.login.ends = time.Time{}
	if ms := resp.SessionLifetimeMillis; ms > 0 {
		d := time.Duration(min(ms, int64(100*365*24*time.Hour/time.Millisecond))) * time.Millisecond
		c.login.ends = time.Now().Add(d - min(d/mostLifetimeSlack, max(d/lifetimeSlack, minLifetimeSlack), maxLifetimeSlack))
	}
}

// expiredLocked tells whether a request of our own is to wait for the client's next authentication, and gives what is closed when that begins.
func (c *Conn) expiredLocked() (begins <-chan struct{}, expired bool) {
	if c.login.ends.IsZero() || time.Now().Before(c.login.ends) {
		return nil, false
	}
	if c.login.begins == nil {
		c.login.begins = make(chan struct{})
	}
	return c.login.begins, true
}

// beginsLocked is called when the client begins to authenticate.
func (c *Conn) beginsLocked() {
	if c.login.begins != nil {
		close(c.login.begins)
		c.login.begins = nil
	}
}

// awaitLogin waits for the client's next authentication to begin; over says that it has waited enough.
func (c *Conn) awaitLogin(ctx context.Context, begins <-chan struct{}) (over bool, err error) {
	tick := time.NewTimer(expiredPatience)
	defer tick.Stop()
	for {
		select {
		case <-begins:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-c.ctx.Done():
			return false, ErrClosed
		case <-tick.C:
			if c.life.owes() {
				return true, nil
			}
			tick.Reset(expiredPatience)
		}
	}
}
