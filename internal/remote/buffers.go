package remote

import "math/bits"

// sizeClass is what a buffer of n bytes is charged and allocated as: n rounded up to a quarter of its power of two, so that buffers of nearly
// the same size can stand in for each other, at a waste of at most a quarter.
func sizeClass(n int) int {
	if n <= minChunk {
		return minChunk
	}
	step := 1 << (bits.Len(uint(n-1)) - 3)
	return (n + step - 1) &^ (step - 1)
}

// takeBuffer returns memory for n bytes that were granted before as sizeClass(n). It is not cleared.
func (b *Budget) takeBuffer(n int) []byte {
	class := sizeClass(n)
	b.mu.Lock()
	if l := b.free[class]; len(l) > 0 {
		buf := l[len(l)-1]
		l[len(l)-1] = nil
		b.free[class] = l[:len(l)-1]
		b.freeBytes -= int64(class)
		b.mu.Unlock()
		return buf[:n]
	}
	b.trimLocked()
	b.mu.Unlock()
	return make([]byte, class)[:n]
}

// giveBuffer gives the memory and its grant back.
func (b *Budget) giveBuffer(buf []byte) {
	class := cap(buf)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active > 0 && int64(class) <= b.limit/4 {
		b.free[class] = append(b.free[class], buf[:0])
		b.freeBytes += int64(class)
	}
	b.releaseLocked(int64(class))
	b.trimLocked()
}

// trimLocked forgets free buffers that, with what is in use, are more than the limit; all of them when nobody reads.
func (b *Budget) trimLocked() {
	keep := max(b.limit-b.inUse, 0)
	if b.active == 0 {
		keep = 0
	}
	for class, l := range b.free {
		for len(l) > 0 && b.freeBytes > keep {
			l[len(l)-1] = nil
			l = l[:len(l)-1]
			b.freeBytes -= int64(class)
		}
		b.free[class] = l
		if len(l) == 0 {
			delete(b.free, class)
		}
	}
}

// floorClass is the largest size class of at most n bytes, but at least minChunk.
func floorClass(n int64) int {
	if n <= minChunk {
		return minChunk
	}
	step := int64(1) << (bits.Len64(uint64(n)) - 3)
	return int(n &^ (step - 1))
}
