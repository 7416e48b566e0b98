package clientconn

import (
	"io"
	"net"
	"sync"
	"time"
)

// life knows whether something is under way: a request being taken, or a response owed. A connection that drains, or is idle, ends when nothing is.
type life struct {
	drained chan struct{} // closed once the connection drains and nothing is under way any more

	mu       sync.Mutex
	taking   bool
	owed     int
	draining bool
	opaque   bool      // bytes pass both ways, and nobody knows what is owed
	quiet    time.Time // since when nothing has been under way
	silent   time.Time // since when the client's bytes have been waited for; zero while they are not
}

func newLife() *life { return &life{drained: make(chan struct{}), quiet: time.Now()} }

// begin is asked when a request's first bytes are there: false if it must not be taken.
func (l *life) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taking = !l.draining
	return l.taking
}

// end follows begin, when the request is written on or in the handler's hands. Its response is owed by then.
func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taking = false
	l.restLocked()
}

func (l *life) owe() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed++
}

func (l *life) paid() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed--
	l.restLocked()
}

// owes tells whether the client waits for something.
func (l *life) owes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taking || l.owed > 0
}

func (l *life) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.draining {
		l.draining = true
		l.restLocked()
	}
}

func (l *life) restLocked() {
	if l.taking || l.owed > 0 {
		return
	}
	l.quiet = time.Now()
	if !l.draining {
		return
	}
	select {
	case <-l.drained:
	default:
		close(l.drained)
	}
}

// listen is called before a read of the client's bytes, heard after it.
func (l *life) listen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = time.Now()
}

func (l *life) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = time.Time{}
}

// blind says that what passes is not looked into any more.
func (l *life) blind() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opaque = true
}

// idleLocked is how long the connection has been idle: nothing has been under way, or a request has begun whose rest does not come.
func (l *life) idleLocked() time.Duration {
	switch {
	case l.opaque, l.taking && l.silent.IsZero():
		return 0
	case l.taking:
		return time.Since(l.silent)
	case l.owed > 0:
		return 0
	case l.silent.After(l.quiet): // some of a request's size has come
		return time.Since(l.silent)
	}
	return time.Since(l.quiet)
}

// watch calls end when the connection has been idle for so long. stop ends the watch.
func (l *life) watch(timeout time.Duration, end func()) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stopped := false
	var timer *time.Timer
	timer = time.AfterFunc(timeout, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		left := timeout - l.idleLocked()
		switch {
		case stopped:
		case left > 0:
			timer.Reset(left)
		default:
			go end() // not under the lock
		}
	})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// clientReader reads what the client sends, and lets life know when nothing comes.
type clientReader struct{ c *Conn }

func (r clientReader) Read(p []byte) (int, error) {
	r.c.life.listen()
	defer r.c.life.heard()
	return r.c.client.Read(p)
}

// farewell is how long a drained connection waits for the client to hang up. Closing with its bytes unread would send a reset, and that may overtake the last response.
const farewell = 500 * time.Millisecond

// awaitDrained ends the connection when it has drained.
func (c *Conn) awaitDrained() error {
	select {
	case <-c.life.drained:
		return c.sayGoodbye()
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// sayGoodbye ends a drained connection. What was written may lie in our own socket for as long as the client is slow to take it, and in the client's; one that goes on to ask has not
// come to the end of it. So it waits until nothing lies here and nothing more is asked, for the farewell from then on. Whoever drains, and the idle time, bound it: by Close.
func (c *Conn) sayGoodbye() error {
	half, ok := c.client.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	if err := half.CloseWrite(); err != nil {
		return nil // it cannot be told, or has gone already
	}
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	for waits, refused := c.untaken(), c.refused.Load(); ; {
		select {
		case <-timer.C:
		case <-c.ctx.Done(): // the reader of requests has seen the client hang up
			return nil
		}
		before, heard := waits, refused
		waits, refused = c.untaken(), c.refused.Load()
		if !waits && !before && refused == heard {
			return nil
		}
		timer.Reset(farewell)
	}
}

// untaken tells whether some of what was written to the client is still on this side, as far as that can be known.
func (c *Conn) untaken() bool {
	s, ok := c.client.(socket)
	if !ok {
		return false
	}
	tcp := socketUnder(s.Conn)
	return tcp != nil && untaken(tcp)
}

// socketUnder is the TCP connection that carries another; nil if there is none.
func socketUnder(c net.Conn) *net.TCPConn {
	for c != nil {
		if tcp := tcpOf(c); tcp != nil {
			return tcp
		}
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = inner.NetConn()
	}
	return nil
}

// refuse takes no request any more: what still comes is thrown away.
func (c *Conn) refuse() error {
	if _, err := io.Copy(refusing{c}, c.client); err != nil {
		return err
	}
	return io.EOF
}

// refusing counts what it throws away.
type refusing struct{ c *Conn }

func (r refusing) Write(b []byte) (int, error) {
	r.c.refused.Add(int64(len(b)))
	return len(b), nil
}
