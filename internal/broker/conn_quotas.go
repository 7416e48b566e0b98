package broker

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/quota"
)

// Quotas as Apache Kafka has them since KIP-219: a request that goes above one is answered at once, the answer says how long the client is to wait, and for so long
// nothing more is read from its connection. A handler charges what it knows of (bytes, partitions); the time that it took is charged for it.

// debt is how long a client has to wait for the request that is being served, and for which quota.
type debt struct {
	wait time.Duration
	kind quota.Kind
}

// throttled is a reply that tells the client how long it is to wait.
type throttled interface{ setThrottle(millis int32) }

func (m message) setThrottle(millis int32) { setThrottle(m.Response, millis) }

func (r *produced) setThrottle(millis int32) { setThrottle(r.Response, millis) }

func (f *fetched) setThrottle(millis int32) { f.resp.ThrottleMillis = millis }

func setThrottle(r kmsg.Response, millis int32) {
	if t, ok := r.(kmsg.SetThrottleResponse); ok {
		t.SetThrottle(millis)
	}
}

// user is the name that quotas know the client by.
func (c *conn) user() string { return strings.TrimPrefix(c.who.Principal, "User:") }

// charge counts an amount against a quota of the client's. Whatever its quotas, what it asked for is done.
func (c *conn) charge(k quota.Kind, amount float64) {
	if q := c.srv.quotas; q != nil {
		c.owe(k, q.Take(k, c.user(), c.clientID, amount, c.srv.now()))
	}
}

// overdrawn tells whether the client is above a quota already, which its answer will then tell it.
func (c *conn) overdrawn(k quota.Kind) bool {
	if c.srv.quotas == nil {
		return false
	}
	wait := c.srv.quotas.Take(k, c.user(), c.clientID, 0, c.srv.now())
	c.owe(k, wait)
	return wait > 0
}

// mayMutate counts partitions that are to be made or deleted. strict: a client that is above its quota is refused; else it is only made to wait.
func (c *conn) mayMutate(partitions int32, strict bool) bool {
	if c.srv.quotas == nil {
		return true
	}
	if !strict {
		c.charge(quota.Mutation, float64(partitions))
		return true
	}
	wait := c.srv.quotas.TakeIfWithin(quota.Mutation, c.user(), c.clientID, float64(partitions), c.srv.now())
	c.owe(quota.Mutation, wait)
	return wait == 0
}

// mayMutateAside is mayMutate, strict, for partitions of topics that come into being on the way: the client is not told to wait for them.
func (c *conn) mayMutateAside(partitions int32) bool {
	return c.srv.quotas == nil || c.srv.quotas.TakeIfWithin(quota.Mutation, c.user(), c.clientID, float64(partitions), c.srv.now()) == 0
}

func (c *conn) owe(k quota.Kind, wait time.Duration) {
	if wait > c.debt.wait {
		c.debt = debt{wait, k}
	}
}

// waited says that the handler has waited, for data or for other clients: that is not counted as time of the request.
func (c *conn) waited(d time.Duration) { c.idle += d }

// waiters are the requests whose handlers wait for other clients all the time; of them the time is not counted.
var waiters = map[int16]bool{keyJoinGroup: true, keySyncGroup: true}

// settle charges the time that a request took, and tells its client how long it has to wait, if at all.
func (c *conn) settle(req *request, r reply, took time.Duration) time.Duration {
	if c.srv.quotas == nil || req.Key == keySaslHandshake || req.Key == keySaslAuthenticate {
		c.debt = debt{}
		return 0
	}
	if !waiters[req.Key] {
		c.charge(quota.Request, max(0, took-c.idle).Seconds()*100)
	}
	owed := c.debt
	c.debt = debt{}
	if owed.wait <= 0 {
		return 0
	}
	if t, ok := r.(throttled); ok {
		t.setThrottle(int32(owed.wait.Milliseconds()))
	}
	if c.srv.stats.throttled != nil {
		c.srv.stats.throttled(owed.kind.String(), owed.wait)
	}
	return owed.wait
}

// mute keeps the connection from being read and served for a time; its answers go out meanwhile.
func (c *conn) mute(d time.Duration) {
	c.muted.Store(int64(time.Since(c.srv.began) + d))
	c.pause(d)
}

// awaitTurn waits until the connection is not muted. A client that goes away meanwhile is noticed, unless it has sent more before than there is place to look at: it may have to
// wait for days, and does not keep its connection for so long. What it has left is served at once, for nobody waits: a producer with acks=0 may send and leave.
func (c *conn) awaitTurn() error {
	for {
		left := time.Duration(c.muted.Load()) - time.Since(c.srv.began)
		if left <= 0 || c.ended {
			return nil
		}
		c.nc.SetReadDeadline(time.Now().Add(left))
		if _, err := c.r.Peek(min(c.r.Buffered()+1, c.r.Size())); err == nil {
			if c.r.Buffered() == c.r.Size() {
				c.pause(left)
			}
		} else if errors.Is(err, io.EOF) && c.r.Buffered() > 0 {
			c.ended = true
			close(c.noMore)
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			return errGone
		}
		if c.ctx.Err() != nil {
			return errGone
		}
	}
}

// maxTurnedAway bounds the connections that wait for their end, as does an eighth of those that there are descriptors for: the others that are one too many are closed at once.
const maxTurnedAway = 1000

func (s *server) mostTurnedAway() int32 {
	return int32(min(maxTurnedAway, max(1, s.limits.connections/8)))
}

// turnAway closes a connection of an address that makes too many, after a while: who is closed at once comes again at once.
func (s *server) turnAway(nc net.Conn) bool {
	if s.quotas == nil {
		return false
	}
	at, err := netip.ParseAddrPort(nc.RemoteAddr().String())
	if err != nil {
		return false
	}
	wait := s.quotas.Connect(at.Addr(), s.now())
	if wait <= 0 {
		return false
	}
	if s.stats.throttled != nil {
		s.stats.throttled("connection", wait)
	}
	s.log.Debug("connection refused: its address makes too many", "peer", nc.RemoteAddr().String(), "wait", wait)
	if s.turnedAway.Add(1) > s.mostTurnedAway() {
		s.turnedAway.Add(-1)
		nc.Close()
		return true
	}
	s.done.Add(1)
	go func() {
		defer s.done.Done()
		defer s.turnedAway.Add(-1)
		defer nc.Close()
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.ctx.Done():
		}
	}()
	return true
}
