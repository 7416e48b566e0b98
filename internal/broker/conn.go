package broker

import "net"

// conn is one client's connection.
type conn struct {
	nc       net.Conn
	peer     string
	clientID string
}
