//go:build unix

package gateway

import (
	"io"
	"net"
	"syscall"
)

// peek waits for the first bytes of a connection and leaves them where they are, if it can: a connection that carries what was read before cannot be written to as fast.
func peek(nc net.Conn) ([]byte, net.Conn, error) {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return takeFirst(nc)
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return nil, nc, err
	}
	b, n := make([]byte, maxProbe), 0
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, failed = syscall.Recvfrom(int(fd), b, syscall.MSG_PEEK)
			if failed != syscall.EINTR {
				return failed != syscall.EAGAIN
			}
		}
	})
	switch {
	case err != nil:
		return nil, nc, err
	case failed != nil:
		return nil, nc, failed
	case n == 0:
		return nil, nc, io.EOF
	}
	return b[:n], nc, nil
}
