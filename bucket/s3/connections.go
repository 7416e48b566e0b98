package s3

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// connections are those of one store. The SDK clones its transport whenever it changes something, and keeps the last clone to itself: nobody else can close what is idle in it. So
// they are kept here, from their dialling on.
type connections struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu     sync.Mutex
	open   map[*connection]struct{}
	closed bool
}

// errStoreClosed: the store has been closed, and nothing is dialled for it any more.
var errStoreClosed = errors.New("the store is closed")

// track makes the transport's connections known.
func (c *connections) track(t *http.Transport) {
	c.dial, c.open = t.DialContext, make(map[*connection]struct{})
	if c.dial == nil {
		c.dial = new(net.Dialer).DialContext
	}
	t.DialContext = c.dialContext
}

func (c *connections) dialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := c.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := &connection{nc, c}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.Join(errStoreClosed, nc.Close())
	}
	c.open[conn] = struct{}{}
	return conn, nil
}

// close ends them all: a store is closed when nobody reads from it.
func (c *connections) close() error {
	c.mu.Lock()
	open := c.open
	c.open, c.closed = nil, true
	c.mu.Unlock()
	for conn := range open {
		_ = conn.Conn.Close() // whatever was to be had over it has been had
	}
	return nil
}

type connection struct {
	net.Conn
	of *connections
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
