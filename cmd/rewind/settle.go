package main

import (
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// settleTime is how long after its start a server gives back what only the start needed.
const settleTime = time.Second

// settle gives memory back once, after wait: the heap that the start has left behind, and the pages of the program's own file that the start has read. Initialising
// three clouds' clients touches nearly all of that, and it would stay resident until the kernel is short of memory. What is needed again comes from the
// page cache, sixteen pages at a fault. It has a goroutine, which has ended when stop returns.
func settle(wait time.Duration, log *slog.Logger) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-end:
			return
		case <-t.C:
		}
		debug.FreeOSMemory()
		if err := dropProgramPages(); err != nil {
			log.Debug("pages of the program stay resident that nobody needs", "err", err)
		}
	}()
	return func() { close(end); <-done }
}

// mapping is a part of the address space.
type mapping struct{ from, to uint64 }

// droppable are the mappings in the text of /proc/self/smaps of which every page can be had from the file again: ones of this file that cannot be written to
// and have no page that differs from it (where a loader has relocated addresses, or a debugger set a breakpoint).
func droppable(smaps, file string) (list []mapping) {
	var m mapping
	candidate, same := false, 0
	for line := range strings.Lines(smaps) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if from, to, ok := strings.Cut(f[0], "-"); ok && len(f) >= 6 {
			var err, err2 error
			m.from, err = strconv.ParseUint(from, 16, 64)
			m.to, err2 = strconv.ParseUint(to, 16, 64)
			path := strings.TrimSuffix(line[max(0, strings.IndexByte(line, '/')):], "\n") // which may have spaces in it
			candidate = err == nil && err2 == nil && m.from < m.to && (f[1] == "r--p" || f[1] == "r-xp") && path == file
			same = 0
			continue
		}
		if candidate && (f[0] == "Anonymous:" || f[0] == "Swap:") && f[1] == "0" {
			if same++; same == 2 {
				list = append(list, m)
			}
		}
	}
	return list
}
