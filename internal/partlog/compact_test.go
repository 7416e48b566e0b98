package partlog

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// rec is a record as a reader sees it.
type rec struct {
	offset, ts int64
	key, value string
	tombstone  bool
}

// records reads the whole log, record by record; aborted transactions are left out.
func records(t testing.TB, l *Log) (all []rec) {
	t.Helper()
	var d codec.Decoder
	aborted, _ := l.AbortedEntries(0, l.Offsets().LogEnd)
	for _, raw := range readAll(t, l) {
		h, err := batch.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if h.IsControl() || slices.ContainsFunc(aborted, func(a segment.AbortedTxn) bool {
			return h.IsTransactional() && a.ProducerID == h.ProducerID && a.FirstOffset <= h.BaseOffset && h.BaseOffset <= a.LastOffset
		}) {
			continue
		}
		payload, err := d.Decode(nil, h.Codec(), batch.Payload(raw), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := batch.EachRecord(payload, h.NumRecords, func(r *batch.Record) error {
			all = append(all, rec{offset: h.BaseOffset + int64(r.OffsetDelta), ts: h.Timestamp(r), key: string(r.Key), value: string(r.Value), tombstone: r.Value == nil})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// latest is what a table built from the log holds.
func latest(all []rec) map[string]rec {
	m := map[string]rec{}
	for _, r := range all {
		if r.tombstone {
			delete(m, r.key)
		} else {
			m[r.key] = r
		}
	}
	return m
}

func compactOptions(fs vfs.FS, c *clock) Options {
	o := testOptions(fs)
	o.Config.Delete, o.Config.Compact = false, true
	o.Config.SegmentBytes, o.Config.RetentionMs = 3000, -1
	o.Config.DeleteRetentionMs, o.Config.FileDeleteDelayMs = 1000, 0
	o.Clock = c.Now
	return o
}

// fillKeys appends n batches over few keys, with tombstones, codecs, producers and transactions.
func fillKeys(t testing.TB, l *Log, rng *rand.Rand, n int, seq map[int64]int32) {
	t.Helper()
	for range n {
		s := spec{pid: -1, epoch: -1, seq: -1, codec: int8(rng.IntN(5))}
		for range 1 + rng.IntN(4) {
			r := kv{key: fmt.Appendf(nil, "key-%d", rng.IntN(15)), value: fmt.Appendf(nil, "value-%d", rng.Int64()), ts: epoch0.UnixMilli() + int64(rng.IntN(1000))}
			if rng.IntN(5) == 0 {
				r.value = nil
			}
			s.records = append(s.records, r)
		}
		if pid := int64(rng.IntN(4)); pid > 0 {
			s = s.producer(pid, 0, seq[pid])
			s.transactional = pid == 3
			seq[pid] += int32(len(s.records))
		}
		mustAppend(t, l, s.build(t))
		if rng.IntN(8) == 0 {
			if _, err := l.Append(marker(3, 0, rng.IntN(2) == 0, 0, epoch0.UnixMilli()), Internal); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := l.Append(marker(3, 0, false, 0, epoch0.UnixMilli()), Internal); err != nil {
		t.Fatal(err)
	}
}

func TestCompactKeepsTheLatest(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			c := &clock{now: epoch0}
			o := compactOptions(vfs.NewMem(), c)
			if seed == 4 {
				o.Config.CompactionMapBytes = 1 // the smallest map; enough here
			}
			l := mustOpen(t, o)
			seq := map[int64]int32{}
			for round := range 4 {
				fillKeys(t, l, rng, 60, seq)
				before := records(t, l)
				size := l.Stats().Size
				if l.Compactable() <= 0 {
					t.Error("nothing to compact, it says")
				}
				if err := l.Compact(context.Background()); err != nil {
					t.Fatal(err)
				}
				after := records(t, l)
				if l.Stats().Size >= size || len(after) >= len(before) {
					t.Errorf("round %d: %d bytes, %d records; before %d and %d", round, l.Stats().Size, len(after), size, len(before))
				}
				if !maps.Equal(latest(after), latest(before)) {
					t.Fatalf("round %d: the table differs:\n%v\n%v", round, latest(after), latest(before))
				}
				checkSubset(t, before, after)
				checkCompacted(t, l, after)
				o.RecoveryPoint, o.Clean = mustClose(t, l), round%2 == 0
				l = mustOpen(t, o)
				if got := records(t, l); !slices.Equal(got, after) {
					t.Fatalf("round %d: other records after reopening", round)
				}
				checkRetries(t, l)
				c.now = c.now.Add(5 * time.Second) // tombstones' time is over for the next round
			}
		})
	}
}

// checkSubset: what is left was there before, unchanged, in the same order.
func checkSubset(t *testing.T, before, after []rec) {
	t.Helper()
	i := 0
	for _, r := range after {
		for i < len(before) && before[i] != r {
			i++
		}
		if i == len(before) {
			t.Fatalf("record %+v was not there before", r)
		}
	}
}

// checkCompacted: below the active segment each key is there once at most.
func checkCompacted(t *testing.T, l *Log, after []rec) {
	t.Helper()
	active := l.segments()[len(l.segments())-1].base
	seen := map[string]int64{}
	for _, r := range after {
		if r.offset >= active {
			break
		}
		if at, ok := seen[r.key]; ok {
			t.Errorf("key %s is there twice, at %d and %d", r.key, at, r.offset)
		}
		seen[r.key] = r.offset
	}
}

// checkRetries: the last batch of each producer is still known.
func checkRetries(t *testing.T, l *Log) {
	t.Helper()
	for _, e := range l.producers.Snapshot() {
		if e.LastOffset < 0 {
			continue
		}
		h := batch.Header{ProducerID: e.ProducerID, ProducerEpoch: e.Epoch, BaseSequence: e.LastSequence - e.OffsetDelta, LastOffsetDelta: e.OffsetDelta}
		if _, ok := l.producers.Duplicate(&h); !ok {
			t.Errorf("last batch of producer %d is not known", e.ProducerID)
		}
	}
}

func TestCompactDropsTombstonesAfterTheirTime(t *testing.T) {
	c := &clock{now: epoch0}
	l := mustOpen(t, compactOptions(vfs.NewMem(), c))
	s := plain(1, epoch0.UnixMilli(), 0)
	s.records[0].key, s.records[0].value = []byte("gone"), nil
	mustAppend(t, l, s.build(t))
	tombstones := func() (n int) {
		for _, r := range records(t, l) {
			if r.tombstone {
				n++
				if r.ts != epoch0.UnixMilli() {
					t.Errorf("its timestamp is now %d", r.ts)
				}
			}
		}
		return n
	}
	for i, step := range []struct {
		pass time.Duration
		want int
	}{{0, 1}, {500 * time.Millisecond, 1}, {600 * time.Millisecond, 0}} {
		c.now = c.now.Add(step.pass)
		mustAppend(t, l, plain(1, epoch0.UnixMilli(), 10).build(t))
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		if err := l.Compact(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := tombstones(); got != step.want {
			t.Errorf("step %d: %d tombstones, want %d", i, got, step.want)
		}
	}
}

// TestCompactCrashAnywhere loses power before every write of a compaction.
func TestCompactCrashAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	mem := vfs.NewCrashableMem()
	if err := mem.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.SyncDir(mem, "/"); err != nil {
		t.Fatal(err)
	}
	var crashes []*vfs.MemFS
	watching := false
	c := &clock{now: epoch0}
	o := compactOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if watching && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			for _, percent := range []int{0, 50, 100} {
				crashes = append(crashes, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
			}
		}
		return nil
	})), c)
	l := mustOpen(t, o)
	fillKeys(t, l, rng, 100, map[int64]int32{})
	if err := l.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	before := records(t, l)
	rp := l.Offsets().Recovery
	watching = true
	if err := l.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	watching = false
	if len(crashes) < 60 {
		t.Fatalf("only %d crashes", len(crashes))
	}
	for i, fs := range crashes {
		o := compactOptions(fs, c)
		o.RecoveryPoint = rp
		l, err := Open(o)
		if err != nil {
			t.Fatalf("crash %d: %v\n%s", i, err, fs)
		}
		got := records(t, l)
		if !maps.Equal(latest(got), latest(before)) {
			t.Fatalf("crash %d: the table differs\n%s", i, fs)
		}
		checkSubset(t, before, got)
		checkRetries(t, l)
		if err := l.Compact(context.Background()); err != nil {
			t.Fatalf("crash %d: %v", i, err)
		}
		if got := records(t, l); !maps.Equal(latest(got), latest(before)) {
			t.Fatalf("crash %d: the table differs after another compaction", i)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOffsetMap(t *testing.T) {
	m := newOffsetMap(2 * 1024 * slotSize)
	n := 0
	for ; m.put(fmt.Appendf(nil, "%d", n), int64(n)); n++ {
		if n > 10_000 {
			t.Fatal("it is not bounded")
		}
	}
	if n < 1024 {
		t.Errorf("only %d keys", n)
	}
	for i := range n {
		if got := m.latest(fmt.Appendf(nil, "%d", i)); got != int64(i) {
			t.Errorf("key %d: %d", i, got)
		}
	}
	if !m.put([]byte("5"), 99) || m.latest([]byte("5")) != 99 || m.latest([]byte("x")) != -1 {
		t.Error("a full map still takes what it knows")
	}
}
