// Package usage reads what this process has used of the machine, for figures that belong to one process: the demo and the bench run
// store, broker and client as processes of their own for this reason. Any package may import it.
package usage

import (
	"fmt"
	"syscall"
)

// Self is what the calling process has used since it started.
type Self struct {
	CPUSeconds float64 `json:"cpu_s"`       // user and system, of all threads, by getrusage (microseconds, not clock ticks)
	MaxRSS     int64   `json:"max_rss_kib"` // largest resident set so far, KiB
}

// Read asks the kernel. It allocates nothing.
func Read() (Self, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return Self{}, fmt.Errorf("reading this process's usage: %w", err)
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return Self{CPUSeconds: seconds(r.Utime) + seconds(r.Stime), MaxRSS: r.Maxrss}, nil
}

// Since reads again and gives what was used after before was read. MaxRSS is that of the whole life: the kernel keeps no other.
func Since(before Self) (Self, error) {
	now, err := Read()
	if err != nil {
		return Self{}, err
	}
	return Self{CPUSeconds: now.CPUSeconds - before.CPUSeconds, MaxRSS: now.MaxRSS}, nil
}
