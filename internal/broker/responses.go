package broker

import "golang.org/x/sync/semaphore"

// freeResponse is what a fetch may read however little is left: so it goes on for everybody, slower, and what it takes is bounded by the number of
// connections.
const freeResponse = 64 << 10

// responseMemory is the memory of fetch answers on their way (fetch.response.memory.bytes): it bounds the record bytes of all answers that were read and not yet
// written. A client that does not take its answer keeps them.
type responseMemory struct{ left *semaphore.Weighted }

func newResponseMemory(bytes int64) *responseMemory {
	return &responseMemory{semaphore.NewWeighted(bytes)}
}

// responseGrant is one answer's part of it. Only one goroutine at a time has it.
type responseGrant struct {
	memory *responseMemory
	held   int64
}

func (m *responseMemory) grant() *responseGrant { return &responseGrant{memory: m} }

// reserve takes what is there of want, at least freeResponse, and never waits: a fetch that waits for memory would keep its connection from being read.
func (g *responseGrant) reserve(want int) int {
	for n := int64(want); n > freeResponse; n /= 2 {
		if g.memory.left.TryAcquire(n) {
			g.held = n
			return int(n)
		}
	}
	return freeResponse
}

// used gives back what was reserved and not read.
func (g *responseGrant) used(bytes int) {
	if rest := g.held - int64(bytes); rest > 0 {
		g.memory.left.Release(rest)
		g.held -= rest
	}
}

func (g *responseGrant) release() {
	if g != nil && g.held > 0 {
		g.memory.left.Release(g.held)
		g.held = 0
	}
}
