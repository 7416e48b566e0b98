package clientconn

import (
	"net"
	"syscall"
	"unsafe"
)

// untaken tells whether some of what was written has not arrived at the other side's kernel yet.
func untaken(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var left int32
	err = raw.Control(func(fd uintptr) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&left))); errno != 0 {
			left = 0
		}
	})
	return err == nil && left > 0
}
