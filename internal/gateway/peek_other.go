//go:build !unix

package gateway

import "net"

func peek(nc net.Conn) ([]byte, net.Conn, error) { return takeFirst(nc) }
