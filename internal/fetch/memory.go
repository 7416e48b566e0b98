package fetch

import "golang.org/x/sync/semaphore"

// FreeAnswer is what an answer may hold however little memory is left: so it goes on for everybody, slower, and what it takes is bounded by the number of
// connections.
const FreeAnswer = 64 << 10

// Memory is what answers on their way may hold together: the record bytes that were read and not yet written. A client that does not take its answer keeps them.
type Memory struct{ left *semaphore.Weighted }

// NewMemory makes one of so many bytes.
func NewMemory(bytes int64) *Memory { return &Memory{semaphore.NewWeighted(bytes)} }

// Grant is one answer's part of a Memory; nil is an answer without a bound. Only one goroutine at a time has it.
type Grant struct {
	memory *Memory
	held   int64
}

// Grant begins an answer.
func (m *Memory) Grant() *Grant {
	if m == nil {
		return nil
	}
	return &Grant{memory: m}
}

// Reserve takes what is there of want, at least FreeAnswer, and never waits: a fetch that waits for memory would keep its connection from being read. It is
// Limits.Reserve.
func (g *Grant) Reserve(want int) int {
	if g == nil {
		return want
	}
	for n := int64(want); n > FreeAnswer; n /= 2 {
		if g.memory.left.TryAcquire(n) {
			g.held = n
			return int(n)
		}
	}
	return FreeAnswer
}

// Used gives back what was reserved and not read.
func (g *Grant) Used(bytes int) {
	if g == nil {
		return
	}
	if rest := g.held - int64(bytes); rest > 0 {
		g.memory.left.Release(rest)
		g.held -= rest
	}
}

// Release is called when the answer was written or dropped.
func (g *Grant) Release() {
	if g != nil && g.held > 0 {
		g.memory.left.Release(g.held)
		g.held = 0
	}
}
