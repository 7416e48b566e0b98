//go:build unix

package broker

import "syscall"

// processDescriptors asks the system. The soft limit is the hard one already: Go's runtime has raised it.
func processDescriptors() descriptors {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return limitedTo(anyNumber) // what the limit is will be found out
	}
	return limitedTo(uint64(r.Cur))
}
