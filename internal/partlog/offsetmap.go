package partlog

import "hash/maphash"

// offsetMap remembers the last offset of each key, in memory that is bounded: it holds hashes, never keys. Two seeds of 64 bits make an accidental
// collision, which would lose a record, as unlikely as a disk's undetected error; the seeds are random, so that nobody can make one.
type offsetMap struct {
	seeds [2]maphash.Seed
	slots []slot // a power of two; open addressing
	n     int
	max   int // slots, not entries
}

type slot struct {
	hash   [2]uint64
	offset int64 // one more than the offset: 0 is an empty slot
}

const slotSize = 24

func newOffsetMap(maxBytes int) *offsetMap {
	m := &offsetMap{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, max: 1 << 10}
	for m.max*2*slotSize <= maxBytes {
		m.max *= 2
	}
	m.slots = make([]slot, 1<<10)
	return m
}

func (m *offsetMap) hash(key []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)}
}

// put takes the offset as the key's latest; false if the map is full.
func (m *offsetMap) put(key []byte, offset int64) bool {
	h := m.hash(key)
	s := m.find(h)
	if s.offset == 0 {
		if m.n*4 >= len(m.slots)*3 {
			if len(m.slots) >= m.max {
				return false
			}
			m.grow()
			s = m.find(h)
		}
		m.n++
	}
	*s = slot{hash: h, offset: offset + 1}
	return true
}

// latest is the offset of the key's last record, -1 if the map does not have the key.
func (m *offsetMap) latest(key []byte) int64 { return m.find(m.hash(key)).offset - 1 }

func (m *offsetMap) find(h [2]uint64) *slot {
	mask := uint64(len(m.slots) - 1)
	for i := h[0] & mask; ; i = (i + 1) & mask {
		if s := &m.slots[i]; s.offset == 0 || s.hash == h {
			return s
		}
	}
}

func (m *offsetMap) grow() {
	old := m.slots
	m.slots = make([]slot, 2*len(old))
	for _, s := range old {
		if s.offset != 0 {
			*m.find(s.hash) = s
		}
	}
}
