//go:build unix

package partlog

import "syscall"

func ftruncate(fd uintptr, size int64) error { return syscall.Ftruncate(int(fd), size) }

// takenUp is how much of the disk a file takes up.
func takenUp(fd uintptr) (int64, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(fd), &st); err != nil {
		return 0, err
	}
	return st.Blocks * 512, nil
}
