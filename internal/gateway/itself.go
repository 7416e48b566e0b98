package gateway

import (
	"fmt"
	"net"
)

// errItself: every connection to such a broker would make the gateway open the next one, until no descriptors are left.
var errItself = fmt.Errorf("%w: that is the gateway's own address: upstream.bootstrap.servers, and what the brokers advertise on the listener that it names, must lead to the brokers themselves",
	errUnfit)

// isItself tells whether a connection to a broker has come to a listener of this gateway.
func (g *Gateway) isItself(nc net.Conn) bool {
	to, ok := nc.RemoteAddr().(*net.TCPAddr)
	from, also := nc.LocalAddr().(*net.TCPAddr)
	if !ok || !also {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bootstrap != nil && g.bootstrap.takes(from, to) {
		return true
	}
	for _, l := range g.listeners {
		if l.takes(from, to) {
			return true
		}
	}
	return false
}

// takes tells whether a connection of this machine between these addresses has come to the listener.
func (l *listener) takes(from, to *net.TCPAddr) bool {
	at := l.l.Addr().(*net.TCPAddr) // listen has seen that it is one
	if at.Port != to.Port {
		return false
	}
	// Of a listener on every interface: the machine connects to an address of its own from that address, or from another of the loopback interface.
	return at.IP.Equal(to.IP) || at.IP.IsUnspecified() && (to.IP.Equal(from.IP) || to.IP.IsLoopback())
}
