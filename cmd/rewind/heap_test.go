package main

import (
	"math"
	"runtime/debug"
	"testing"
)

// The collector is given room for what connections take, and no limit where none is wanted.
func TestHeapLimitBearsConnections(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	debug.SetMemoryLimit(math.MaxInt64)
	(&heapLimit{}).bear(1_000_000)
	if n := debug.SetMemoryLimit(-1); n != math.MaxInt64 {
		t.Errorf("a limit of %d where none is wanted", n)
	}
	h := &heapLimit{least: 1 << 30}
	for _, tt := range []struct {
		connections int
		want        int64
	}{{0, 1 << 30}, {freeConnections, 1 << 30}, {freeConnections + 10, 1<<30 + 10*perConnection}, {1, 1 << 30}} {
		h.bear(tt.connections)
		if n := debug.SetMemoryLimit(-1); n != tt.want {
			t.Errorf("%d connections: %d, want %d", tt.connections, n, tt.want)
		}
	}
}
