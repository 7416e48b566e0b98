package killtest

import (
	"maps"
	"slices"
	"testing"

	"github.com/rewind-kafka/rewind"
)

// checkRecords reads everything four ways, which have to agree, and holds it against what was acknowledged.
func (l *load) checkRecords(topics []string) map[place]*whole {
	t := l.t
	t.Helper()
	d := newDialer(t)
	readings := []reading{
		{name: "plain reader"}, {name: "plain reader, committed", committed: true},
		{name: "direct reader", dialer: d}, {name: "direct reader, committed", committed: true, dialer: d},
	}
	var first map[place]*whole
	for _, r := range readings {
		got, err := l.readAll(r, topics...)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
			continue
		}
		for p, w := range got {
			if w.digest != first[p].digest && p.topic != compacted { // compaction goes on
				t.Errorf("%s: the %s saw other records than the %s: %d from %d on, and %d from %d on", p, r.name, readings[0].name,
					len(w.offsets), w.start, len(first[p].offsets), first[p].start)
			}
		}
	}
	if n := d.Stats().DirectBytes; n == 0 {
		t.Error("the direct reader has read nothing directly")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for p, w := range first {
		l.checkPlace(p, w)
	}
	return first
}

func newDialer(t *testing.T) *rewind.Dialer {
	d, err := rewind.NewDialer(rewind.Options{MemoryBudget: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// checkPlace holds one partition against the ledger.
func (l *load) checkPlace(p place, w *whole) {
	t := l.t
	t.Helper()
	l.ledger.mu.Lock()
	defer l.ledger.mu.Unlock()
	if !slices.IsSorted(w.offsets) {
		t.Errorf("%s: offsets came out of order", p)
	}
	if p.topic != compacted {
		for n, offset := range w.offsets {
			if offset != w.start+int64(n) {
				t.Errorf("%s: offset %d is where %d should be", p, offset, w.start+int64(n))
				break
			}
		}
	}
	for offset, i := range l.ledger.seen[p] {
		if got, ok := w.ids[offset]; (p.topic != compacted && offset >= w.start || ok) && got != i {
			t.Errorf("%s: a reader saw record %s at offset %d, where now there is %s", p, i, offset, got)
		}
	}
	for client, s := range l.ledger.sent[p] {
		if p.topic == compacted {
			checkCompacted(t, p, client, s, w)
		} else {
			checkClient(t, p, client, s, w)
		}
	}
}

// checkClient: what is acknowledged is there, where it was said to be, once, and in order; what is not acknowledged is there once at most. Without
// idempotence a record may be there again.
func checkClient(t *testing.T, p place, client int, s *sent, w *whole) {
	t.Helper()
	var last int64
	found := map[int64]int64{}
	for _, offset := range w.offsets {
		i := w.ids[offset]
		if i.client() != client {
			continue
		}
		n := i.number()
		if _, again := found[n]; again && s.idempotent {
			t.Errorf("%s: record %s is there twice, at %d and at %d", p, i, found[n], offset)
		} else if !again {
			found[n] = offset
			if n < last {
				t.Errorf("%s: record %s at %d comes after number %d", p, i, offset, last)
			}
		}
		if n > s.produced {
			t.Errorf("%s: record %s at %d was never produced", p, i, offset)
		}
		last = max(last, n)
	}
	for n, offset := range s.acked {
		at, ok := found[n]
		switch {
		case offset < 0 && !ok && w.start == 0:
			t.Errorf("%s: record %s was acknowledged and is lost", p, newID(client, n))
		case offset >= w.start && w.ids[offset] != newID(client, n):
			t.Errorf("%s: record %s was acknowledged at %d, where %s is; it is at %d (%t)", p, newID(client, n), offset, w.ids[offset], at, ok)
		}
	}
}

// checkCompacted: of each key the last record is there, which is the last acknowledged one or one after it.
func checkCompacted(t *testing.T, p place, client int, s *sent, w *whole) {
	t.Helper()
	latest, acked := map[int64]int64{}, map[int64]int64{}
	for _, offset := range w.offsets {
		if i := w.ids[offset]; i.client() == client {
			key := i.number() % compactedKeys
			if i.number() <= latest[key] {
				t.Errorf("%s: record %s at %d comes after number %d of the same key", p, i, offset, latest[key])
			}
			latest[key] = i.number()
		}
	}
	for n := range s.acked {
		acked[n%compactedKeys] = max(acked[n%compactedKeys], n)
	}
	for _, key := range slices.Sorted(maps.Keys(acked)) {
		if latest[key] < acked[key] {
			t.Errorf("%s: of key %d number %d was acknowledged, the last one there is %d", p, key, acked[key], latest[key])
		}
	}
}
