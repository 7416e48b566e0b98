package clientconn

import (
	"net"
	"syscall"
)

// cork has the kernel send full segments only until the returned function is called: the head and the end of a frame then leave with its body instead of waking who reads them
// once more each. Where it cannot be had the frame leaves all the same.
func cork(c *net.TCPConn) (uncork func()) {
	raw, err := c.SyscallConn()
	if err != nil {
		return func() {}
	}
	set := func(to int) {
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, to)
		})
	}
	set(1)
	return func() { set(0) }
}
