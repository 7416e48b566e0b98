package assignor

import (
	"encoding/binary"
	"slices"
	"unicode/utf16"
)

// table is Java's HashMap as far as the order of its entries goes: chains in the order of arrival, doubled at three quarters, never made smaller.
type table[K comparable, V any] struct {
	hash    func(K) int32
	buckets [][]entry[K, V]
	n       int
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newTable[K comparable, V any](hash func(K) int32, capacity int) *table[K, V] {
	return &table[K, V]{hash: hash, buckets: make([][]entry[K, V], capacity)}
}

// capacityFor is how large a HashSet is made for a collection of n.
func capacityFor(n int) int { return max(tableSize(float32(n)/0.75+1), 16) }

// tableSize is the power of two at or above.
func tableSize(n float32) int {
	c := 1
	for c < int(n) {
		c *= 2
	}
	return c
}

// setOf is a HashSet that was made of a collection.
func setOf(parts []int32) *table[int32, struct{}] {
	t := newTable[int32, struct{}](hashInt, capacityFor(len(parts)))
	for _, p := range parts {
		t.put(p, struct{}{})
	}
	return t
}

func (t *table[K, V]) slot(k K) int {
	h := uint32(t.hash(k))
	return int((h ^ h>>16) & uint32(len(t.buckets)-1))
}

func (t *table[K, V]) put(k K, v V) {
	s := t.slot(k)
	for i := range t.buckets[s] {
		if t.buckets[s][i].key == k {
			t.buckets[s][i].value = v
			return
		}
	}
	t.buckets[s] = append(t.buckets[s], entry[K, V]{k, v})
	if t.n++; t.full() {
		t.grow()
	}
}

func (t *table[K, V]) full() bool { return t.n > len(t.buckets)*3/4 }

func (t *table[K, V]) grow() {
	old := t.buckets
	t.buckets = make([][]entry[K, V], 2*len(old))
	for _, b := range old {
		for _, e := range b {
			s := t.slot(e.key)
			t.buckets[s] = append(t.buckets[s], e)
		}
	}
}

func (t *table[K, V]) remove(k K) {
	s := t.slot(k)
	if i := slices.IndexFunc(t.buckets[s], func(e entry[K, V]) bool { return e.key == k }); i >= 0 {
		t.buckets[s] = slices.Delete(t.buckets[s], i, i+1)
		t.n--
	}
}

func (t *table[K, V]) entries() []entry[K, V] {
	out := make([]entry[K, V], 0, t.n)
	for _, b := range t.buckets {
		out = append(out, b...)
	}
	return out
}

func (t *table[K, V]) keys() []K {
	out := make([]K, 0, t.n)
	for _, b := range t.buckets {
		for _, e := range b {
			out = append(out, e.key)
		}
	}
	return out
}

func (t *table[K, V]) toMap() map[K]V {
	out := make(map[K]V, t.n)
	for _, e := range t.entries() {
		out[e.key] = e.value
	}
	return out
}

func hashInt(n int32) int32 { return n }

// HashString is Java's String.hashCode.
func HashString(s string) int32 {
	var h int32
	for _, u := range utf16Of(s) {
		h = 31*h + int32(u)
	}
	return h
}

func utf16Of(s string) []uint16 { return utf16.Encode([]rune(s)) }

// HashUUID is Uuid.hashCode.
func HashUUID(id TopicID) int32 {
	most, least := halves(id)
	x := most ^ least
	return int32(x>>32) ^ int32(x)
}

func halves(id TopicID) (most, least uint64) {
	return binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
}

// TopicSet are ids in the order of a HashSet that was made of names, of which id gives the ids. Names for which it gives none are left out.
func TopicSet(names []string, id func(string) (TopicID, bool)) []TopicID {
	byName := newTable[string, struct{}](HashString, capacityFor(len(names)))
	for _, n := range names {
		byName.put(n, struct{}{})
	}
	var ids []TopicID
	for _, n := range byName.keys() {
		if t, ok := id(n); ok {
			ids = append(ids, t)
		}
	}
	return ids
}

// asSet is the order of the HashSet that is made of ids.
func asSet(ids []TopicID) []TopicID {
	t := newTable[TopicID, struct{}](HashUUID, capacityFor(len(ids)))
	for _, id := range ids {
		t.put(id, struct{}{})
	}
	return t.keys()
}

// MemberOrder is the order in which a coordinator of Apache Kafka keeps members that joined in the order of ids, of whom there have been peak at once.
func MemberOrder(ids []string, peak int) []string {
	capacity := 2
	for n := 1; n <= peak; n++ {
		if float64(n)*0.75 > float64(capacity) {
			capacity *= 2
		}
	}
	shift := 64
	for c := capacity; c > 1; c /= 2 {
		shift--
	}
	slots := make([][]string, capacity)
	const fibonacci = -7046029254386353131
	for _, id := range ids {
		s := uint64(int64(HashString(id))*fibonacci) >> shift
		slots[s] = append(slots[s], id)
	}
	for _, slot := range slots {
		slices.Reverse(slot) // they are walked from the last on
	}
	return slices.Concat(slots...)
}

// HashOrder is the order in which a HashMap goes through keys that were put into it in this order.
func HashOrder(keys []string) []string {
	t := newTable[string, struct{}](HashString, 16)
	for _, k := range keys {
		t.put(k, struct{}{})
	}
	return t.keys()
}

// ComputedOrder is the order in which a HashMap that was made for so many goes through keys, each another, that got their values by computeIfAbsent: that adds to a
// chain's beginning, and makes the table larger before it does, not after.
func ComputedOrder(keys []string, capacity int) []string {
	t := newTable[string, struct{}](HashString, tableSize(float32(capacity)))
	for _, k := range keys {
		if t.full() {
			t.grow()
		}
		s := t.slot(k)
		t.buckets[s] = slices.Insert(t.buckets[s], 0, entry[string, struct{}]{key: k})
		t.n++
	}
	return t.keys()
}
