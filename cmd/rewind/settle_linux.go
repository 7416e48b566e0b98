package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// dropProgramPages takes the pages of the program's file out of the process. They stay in the kernel's page cache.
func dropProgramPages() error {
	file, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range droppable(string(smaps), file) {
		if _, _, no := syscall.Syscall(syscall.SYS_MADVISE, uintptr(m.from), uintptr(m.to-m.from), syscall.MADV_DONTNEED); no != 0 {
			errs = append(errs, fmt.Errorf("madvise %x to %x: %w", m.from, m.to, no))
		}
	}
	return errors.Join(errs...)
}
