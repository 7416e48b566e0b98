package partlog

import (
	"math/bits"
	"sync"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// buffer is pooled memory for one read. release is made once, so that handing the buffer out allocates nothing.
type buffer struct {
	mem     []byte
	bufs    [1][]byte
	class   int
	pool    *buffers
	release func()
}

// records gives the first n bytes as what a fetch answers with; its Release puts the buffer back.
func (b *buffer) records(n int) wire.Records {
	b.bufs[0] = b.mem[:n]
	return wire.Records{Bufs: b.bufs[:], Release: b.release}
}

// buffers has a pool for each power of two from 4 KiB to 64 MiB; larger reads (one huge batch) are not kept.
type buffers struct {
	classes [maxClass - minClass + 1]sync.Pool
}

const (
	minClass = 12
	maxClass = 26
)

func (p *buffers) get(n int) *buffer {
	class := max(minClass, bits.Len(uint(max(n, 1)-1)))
	if class > maxClass {
		b := &buffer{mem: make([]byte, n)}
		b.release = nop
		return b
	}
	if b, _ := p.classes[class-minClass].Get().(*buffer); b != nil {
		return b
	}
	b := &buffer{mem: make([]byte, 1<<class), class: class, pool: p}
	b.release = func() { p.put(b) }
	return b
}

// bufferSize is how much memory a buffer for n bytes takes.
func bufferSize(n int64) int64 {
	if n > 1<<maxClass {
		return n
	}
	return 1 << max(minClass, bits.Len64(uint64(max(n, 1)-1)))
}

func (p *buffers) put(b *buffer) {
	if b.pool == nil {
		return
	}
	p.classes[b.class-minClass].Put(b)
}
