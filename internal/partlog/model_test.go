package partlog

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// model is the log spelled out: every batch with what there is to know of it.
type model struct {
	t        *rapid.T
	o        Options
	log      *Log
	batches  []modelBatch
	end      int64
	seq      map[int64]int32
	open     map[int64]int64 // producer: first offset of its transaction
	aborted  []modelTxn
	logStart int64
}

type modelBatch struct {
	raw        []byte
	base, last int64
	times      []int64
}

type modelTxn struct{ pid, first, last int64 }

func (m *model) append(pid int64) {
	t := m.t
	s := plain(rapid.IntRange(1, 4).Draw(t, "records"), 0, rapid.IntRange(0, 200).Draw(t, "size"))
	var times []int64
	for i := range s.records {
		s.records[i].ts = int64(rapid.IntRange(1, 1000).Draw(t, "time"))
		times = append(times, s.records[i].ts)
	}
	s.codec = int8(rapid.IntRange(0, 4).Draw(t, "codec"))
	if pid >= 0 {
		s = s.producer(pid, 0, m.seq[pid])
		m.seq[pid] += int32(len(s.records))
		if s.transactional = pid >= 10; s.transactional {
			if _, ok := m.open[pid]; !ok {
				m.open[pid] = m.end
			}
		}
	}
	m.take(s.build(t), times, Client)
}

func (m *model) take(b []byte, times []int64, origin Origin) {
	info, err := m.log.Append(b, origin)
	if err != nil || info.BaseOffset != m.end {
		m.t.Fatalf("append: %+v, %v; the log ends at %d", info, err, m.end)
	}
	m.batches = append(m.batches, modelBatch{raw: bytes.Clone(b), base: info.BaseOffset, last: info.LastOffset, times: times})
	m.end = info.LastOffset + 1
}

func (m *model) decide(pid int64, commit bool) {
	first, ok := m.open[pid]
	delete(m.open, pid)
	if ok && !commit {
		m.aborted = append(m.aborted, modelTxn{pid, first, m.end})
	}
	m.take(marker(pid, 0, commit, 0, 500), []int64{500}, Internal)
}

func (m *model) stable() int64 {
	s := m.end
	for _, first := range m.open {
		s = min(s, first)
	}
	return s
}

func (m *model) reopen(clean bool) {
	if err := m.log.Close(); err != nil {
		m.t.Fatal(err)
	}
	m.o.RecoveryPoint, m.o.LogStartOffset, m.o.Clean = m.log.Offsets().Recovery, m.logStart, clean
	var err error
	if m.log, err = Open(m.o); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) check() {
	t, o := m.t, m.log.Offsets()
	if o.LogEnd != m.end || o.LastStable != m.stable() || o.LogStart != m.logStart {
		t.Fatalf("%+v; the model has %d to %d, stable %d", o, m.logStart, m.end, m.stable())
	}
	local := m.logStart
	at := local
	for _, b := range m.batches {
		if b.last < local {
			continue
		}
		d, err := m.log.Read(at, rapid.IntRange(0, 500).Draw(t, "limit"), o.LogEnd, true)
		if err != nil || d.FirstBaseOffset != b.base || !bytes.HasPrefix(d.Records.Bufs[0], b.raw) {
			t.Fatalf("reading at %d: base %d, %v; want %d", at, d.FirstBaseOffset, err, b.base)
		}
		d.Records.Release()
		at = b.last + 1
	}
	m.checkTimes(local)
	m.checkAborted(local)
}

func (m *model) checkTimes(local int64) {
	asked := int64(rapid.IntRange(0, 1001).Draw(m.t, "ask"))
	want, largest := int64(-1), int64(-1)
	wantMax := int64(-1)
	for _, b := range m.batches {
		for i, ts := range b.times {
			if o := b.base + int64(i); o >= local {
				if want < 0 && ts >= asked {
					want = o
				}
				if ts > largest {
					largest, wantMax = ts, o
				}
			}
		}
	}
	if got, _, _, ok, err := m.log.OffsetForTimestamp(asked); err != nil || ok != (want >= 0) || got != want {
		m.t.Fatalf("time %d: offset %d, %v %v; want %d", asked, got, ok, err, want)
	}
	// A batch that begins below the log start may hide its largest record there: then nothing, or a later one, is said.
	if got, ts, _, ok, err := m.log.MaxTimestamp(); err != nil || m.logStart == 0 && (ok != (wantMax >= 0) || got != wantMax || ts != largest && ok) {
		m.t.Fatalf("max time: %d at %d, %v %v; want %d at %d", ts, got, ok, err, largest, wantMax)
	}
}

func (m *model) checkAborted(local int64) {
	stable := m.stable()
	if local >= stable {
		return
	}
	from := rapid.Int64Range(local, stable-1).Draw(m.t, "from")
	upTo := rapid.Int64Range(from+1, stable).Draw(m.t, "up to")
	entries, complete := m.log.AbortedEntries(from, upTo)
	if !complete {
		m.t.Fatal("not complete")
	}
	var got, want []wire.AbortedTransaction
	for _, e := range entries {
		got = append(got, wire.AbortedTransaction{ProducerID: e.ProducerID, FirstOffset: e.FirstOffset})
	}
	for _, a := range m.aborted {
		if a.last >= from && a.first < upTo {
			want = append(want, wire.AbortedTransaction{ProducerID: a.pid, FirstOffset: a.first})
		}
	}
	if !slices.Equal(got, want) && len(got)+len(want) > 0 {
		m.t.Fatalf("aborted in [%d, %d): %v, want %v", from, upTo, got, want)
	}
}

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{t: rt, seq: map[int64]int32{}, open: map[int64]int64{}, o: testOptions(vfs.NewMem())}
		m.o.Config.SegmentBytes = rapid.SampledFrom([]int{600, 2000, 1 << 20}).Draw(rt, "segment.bytes")
		m.o.Config.IndexIntervalBytes = rapid.SampledFrom([]int{1, 300, 4096}).Draw(rt, "interval")
		m.o.Config.RetentionMs = -1
		m.o.Config.SegmentBytes = max(m.o.Config.SegmentBytes, 1200)
		var err error
		if m.log, err = Open(m.o); err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = m.log.Close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"plain":       func(t *rapid.T) { m.t = t; m.append(-1) },
			"idempotent":  func(t *rapid.T) { m.t = t; m.append(int64(rapid.IntRange(1, 2).Draw(t, "pid"))) },
			"transaction": func(t *rapid.T) { m.t = t; m.append(int64(rapid.IntRange(10, 12).Draw(t, "pid"))) },
			"commit":      func(t *rapid.T) { m.t = t; m.decide(int64(rapid.IntRange(10, 12).Draw(t, "pid")), true) },
			"abort":       func(t *rapid.T) { m.t = t; m.decide(int64(rapid.IntRange(10, 12).Draw(t, "pid")), false) },
			"roll": func(t *rapid.T) {
				if err := m.log.Roll(); err != nil {
					t.Fatal(err)
				}
			},
			"release": func(t *rapid.T) {
				if err := m.log.ReleaseIdle(); err != nil {
					t.Fatal(err)
				}
			},
			"delete records": func(t *rapid.T) {
				m.logStart = max(m.logStart, rapid.Int64Range(0, m.stable()).Draw(t, "start")/2)
				if _, err := m.log.DeleteRecords(m.logStart); err != nil {
					t.Fatal(err)
				}
				if _, err := m.log.ApplyRetention(epoch0); err != nil {
					t.Fatal(err)
				}
			},
			"restart":     func(t *rapid.T) { m.t = t; m.reopen(true) },
			"dirty start": func(t *rapid.T) { m.t = t; m.reopen(false) },
			"":            func(t *rapid.T) { m.t = t; m.check() },
		})
	})
}

// TestGroupCommit: many who wait share few fsyncs, and each is told the truth.
func TestGroupCommit(t *testing.T) {
	l := mustOpen(t, testOptions(vfs.NewMem()))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				info, err := l.Append(plain(1, epoch0.UnixMilli(), 50).build(t), Client)
				if err == nil {
					err = l.Sync(context.Background(), info.LastOffset+1)
				}
				if err != nil {
					t.Error(err)
					return
				}
				l.commit.mu.Lock()
				if l.commit.synced <= info.LastOffset {
					t.Errorf("%d was confirmed, synced up to %d", info.LastOffset, l.commit.synced)
				}
				l.commit.mu.Unlock()
			}
		})
	}
	wg.Wait()
	if end := l.Offsets().LogEnd; end != 400 {
		t.Errorf("log ends at %d", end)
	}
	if err := l.Sync(context.Background(), 401); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("beyond the end: %v", err)
	}
}

// TestConcurrentReaders: readers, a writer, retention and rolls at once; every reader sees each batch once, in order, whole.
func TestConcurrentReaders(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.RetentionMs, o.Config.RetentionBytes = -1, 20_000
	l := mustOpen(t, o)
	const batches = 600
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range batches {
			b := plain(1+i%3, epoch0.UnixMilli(), 80).build(t)
			if _, err := l.Append(b, Client); err != nil {
				t.Error(err)
				return
			}
			if i%50 == 0 {
				if _, err := l.ApplyRetention(epoch0); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 3 {
		wg.Go(func() { follow(t, l, 2*batches) })
	}
	wg.Wait()
}

func follow(t *testing.T, l *Log, upTo int64) {
	wake := make(chan struct{}, 1)
	defer l.Notify(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})()
	for at := int64(0); at < upTo; {
		d, err := l.Read(at, 4000, l.Offsets().HighWatermark, true)
		if errors.Is(err, ErrOutOfRange) {
			at = l.Offsets().LogStart // retention was faster
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		if d.Records.Len() == 0 {
			select {
			case <-wake:
			case <-time.After(10 * time.Second):
				t.Error("nobody woke the reader")
				return
			}
			continue
		}
		next := at
		if _, err := batch.Each(d.Records.Bufs[0], func(h batch.Header, raw []byte) error {
			if h.BaseOffset > next || h.LastOffset() < next {
				t.Errorf("read at %d gave %d to %d", next, h.BaseOffset, h.LastOffset())
			}
			next = h.LastOffset() + 1
			return batch.CheckCRC(&h, raw)
		}); err != nil {
			t.Error(err)
		}
		at = next
		d.Records.Release()
	}
}
