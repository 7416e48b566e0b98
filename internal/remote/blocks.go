package remote

import "weak"

// blockBytes is the size of the blocks that all of a budget's memory comes in. Every block stands in for every other, so that what was given back serves the next
// request, whatever its size: buffers of many sizes would become garbage faster than they are collected, and a process would hold far more than its budget.
const blockBytes = 64 << 10

type block [blockBytes]byte

// buffer is size bytes in blocks, all whole but the last. The memory of a copied tail is one block cut short.
type buffer struct {
	blocks [][]byte
	size   int
}

// from are the bytes from at on to the end of their block.
func (m *buffer) from(at int) []byte {
	i := at / blockBytes
	end := min(blockBytes, m.size-i*blockBytes)
	return m.blocks[i][at-i*blockBytes : end : end]
}

// appendTo appends slices of the bytes [from, to).
func (m *buffer) appendTo(bufs [][]byte, from, to int) [][]byte {
	for from < to {
		b := m.from(from)
		n := min(len(b), to-from)
		bufs = append(bufs, b[:n:n])
		from += n
	}
	return bufs
}

// copyFrom copies all of o to at and returns how much that was.
func (m *buffer) copyFrom(at int, o *buffer, from int) int {
	began := at
	for from < o.size {
		n := copy(m.from(at), o.from(from))
		at, from = at+n, from+n
	}
	return at - began
}

// charge is what n bytes cost: whole blocks.
func charge(n int) int64 { return int64(blocksOf(n)) * blockBytes }

func blocksOf(n int) int { return (n + blockBytes - 1) / blockBytes }

// charge is what giving m back releases.
func (m *buffer) charge() int64 { return int64(len(m.blocks)) * blockBytes }

// wholeBlocks is the most bytes, n at most, that waste nothing of a block; at least minChunk.
func wholeBlocks(n int64) int { return int(max(n&^(blockBytes-1), minChunk)) }

// take returns memory for n bytes that were granted before as charge(n). It is not cleared.
func (b *Budget) take(n int) buffer {
	want := blocksOf(n)
	m := buffer{size: n, blocks: make([][]byte, 0, want)}
	b.mu.Lock()
	b.taken += want
	m.blocks = b.reuseLocked(m.blocks, want)
	b.made += want - len(m.blocks)
	b.mu.Unlock()
	for len(m.blocks) < want {
		m.blocks = append(m.blocks, new(block)[:])
	}
	return m
}

func (b *Budget) reuseLocked(blocks [][]byte, want int) [][]byte {
	n := min(want, len(b.free))
	rest := b.free[len(b.free)-n:]
	blocks = append(blocks, rest...)
	clear(rest)
	b.free = b.free[:len(b.free)-n]
	for len(blocks) < want && len(b.loose) > 0 {
		last := len(b.loose) - 1
		if p := b.loose[last].Value(); p != nil {
			blocks = append(blocks, p[:])
		}
		b.loose = b.loose[:last]
	}
	return blocks
}

// give gives the memory and its grant back.
func (b *Budget) give(m buffer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= len(m.blocks)
	for _, p := range m.blocks {
		if b.active > 0 && int64(b.taken+len(b.free)+1)*blockBytes <= b.roomLocked() {
			b.free = append(b.free, p)
		} else {
			b.loosenLocked(p)
		}
	}
	b.releaseLocked(m.charge())
}

// loosenLocked leaves a block to the garbage collector. Until that has come it can be had back, so that readers that pause and go on do not make new memory beside
// old that is not collected yet.
func (b *Budget) loosenLocked(p []byte) { b.loose = append(b.loose, weak.Make((*block)(p))) }

// restLocked leaves all free blocks to the garbage collector, as nobody reads.
func (b *Budget) restLocked() {
	for _, p := range b.free {
		b.loosenLocked(p)
	}
	b.free = nil
}
