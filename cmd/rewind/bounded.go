package main

import (
	"net"
	"sync"
	"sync/atomic"
)

// boundedListener closes connections beyond a number that are open at one time. Whoever opens thousands and says nothing must not take the file descriptors that the logs
// need; a client that is turned away here reads through the broker.
type boundedListener struct {
	*net.TCPListener
	most int64
	open atomic.Int64
}

func bounded(l *net.TCPListener, most int) *boundedListener {
	return &boundedListener{TCPListener: l, most: int64(most)}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &boundedConn{TCPConn: c, gone: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		c.Close()
	}
}

// boundedConn has all that a TCP connection has: net/http sends files past the process by its ReadFrom.
type boundedConn struct {
	*net.TCPConn
	gone func()
}

func (c *boundedConn) Close() error {
	defer c.gone() // the descriptor first
	return c.TCPConn.Close()
}
