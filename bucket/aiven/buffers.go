package aiven

import (
	"math/bits"
	"sync"
)

// buffers lends memory for chunks. Sizes are rounded up to an eighth of a power of two, so that chunks of about one size share buffers and little is wasted.
type buffers struct {
	classes [classCount]sync.Pool // of *[]byte
}

const (
	minClassBits = 12
	// maxClassBits: the size of a chunk that is maxChunk large and sealed is still within.
	maxClassBits = 29
	classCount   = (maxClassBits - minClassBits + 1) * 8
)

// class is the place of size n, and the size of that class.
func class(n int) (place, size int) {
	n = max(n, 1<<minClassBits+1)
	exp := bits.Len(uint(n-1)) - 1 // 2^exp < n <= 2^(exp+1)
	step := 1 << (exp - 3)
	eighths := (n - 1 - 1<<exp) / step
	return (exp-minClassBits)*8 + eighths, 1<<exp + (eighths+1)*step
}

// lentFor is the memory that a buffer of length n takes.
func lentFor(n int64) int64 {
	_, size := class(int(n))
	return int64(size)
}

// get gives a buffer of length n; its bytes are whatever they were.
func (b *buffers) get(n int) []byte {
	place, size := class(n)
	if p, _ := b.classes[place].Get().(*[]byte); p != nil {
		return (*p)[:n]
	}
	return make([]byte, n, size)
}

// put takes back what get gave.
func (b *buffers) put(p []byte) {
	if p == nil {
		return
	}
	place, size := class(cap(p))
	if cap(p) != size {
		panic("aiven: a buffer that was not lent")
	}
	p = p[:0]
	b.classes[place].Put(&p)
}
