//go:build !linux

package clientconn

import "net"

func cork(*net.TCPConn) (uncork func()) { return func() {} }
