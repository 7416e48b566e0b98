package partlog

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/klauspost/compress/zstd"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
)

// recompressing are the options of a log that keeps what comes in a codec of its own.
func recompressing(c int8, change func(c *Config)) Options {
	o := testOptions(vfs.NewCrashableMem())
	if err := errors.Join(o.FS.MkdirAll("data", 0o755), atomicfile.SyncDir(o.FS, "/")); err != nil {
		panic(err)
	}
	o.Config.SegmentBytes = 64 << 20
	o.Config.Recompress, o.Config.Codec, o.Config.Level = true, c, defaultLevel(c)
	if change != nil {
		change(&o.Config)
	}
	return o
}

// giveAll: nobody holds any of the memory for opened batches.
func giveAll(t *testing.T, l *Log) {
	t.Helper()
	if !l.files.coders.memory.TryAcquire(coderMemory) {
		t.Error("memory for opened batches was not given back")
		return
	}
	l.files.coders.memory.Release(coderMemory)
}

// mixed are records whose times go up and down, with nulls among them.
func mixed(c int8) spec {
	s := spec{pid: -1, epoch: -1, seq: -1, codec: c}
	for i, ts := range []int64{50, 0, 100, 100, 7} {
		r := kv{key: fmt.Appendf(nil, "k%d", i), value: bytes.Repeat([]byte("value "), i*100), ts: epoch0.UnixMilli() + ts}
		switch i {
		case 1:
			r.key = nil
		case 3:
			r.value = nil
		}
		s.records = append(s.records, r)
	}
	return s
}

func decoded(t *testing.T, raw []byte) (batch.Header, []kv) {
	t.Helper()
	h, err := batch.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	var d codec.Decoder
	defer d.Close()
	payload, err := d.Decode(nil, h.Codec(), batch.Payload(raw), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	var records []kv
	next := int32(0)
	if err := batch.EachRecord(payload, h.NumRecords, func(r *batch.Record) error {
		if r.OffsetDelta != next || r.Attributes != 0 {
			t.Errorf("record %d: %+v", next, r)
		}
		next++
		records = append(records, kv{slices.Clone(r.Key), slices.Clone(r.Value), h.BaseTimestamp + r.TimestampDelta})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return h, records
}

// TestRecompressed: whatever comes is kept in the topic's codec, with all that is known of it, and is there after a crash.
func TestRecompressed(t *testing.T) {
	for to := int8(codec.None); to <= codec.Zstd; to++ {
		for _, appendTime := range []bool{false, true} {
			t.Run(fmt.Sprintf("to %d, append time %t", to, appendTime), func(t *testing.T) {
				o := recompressing(to, func(c *Config) { c.LogAppendTime = appendTime })
				l := mustOpen(t, o)
				var want []kv
				for from := int8(codec.None); from <= codec.Zstd; from++ {
					s := mixed(from).producer(9, 1, int32(from)*5)
					want = append(want, s.records...)
					if info := mustAppend(t, l, s.build(t)); info.BaseOffset != int64(from)*5 || info.LastOffset != int64(from)*5+4 {
						t.Errorf("from %d: %+v", from, info)
					}
					if again := mustAppend(t, l, s.build(t)); !again.Duplicate || again.BaseOffset != int64(from)*5 {
						t.Errorf("from %d, again: %+v", from, again)
					}
				}
				checkRecompressed(t, readAll(t, l), want, to, appendTime)
				if offset, ts, _, ok, err := l.OffsetForTimestamp(epoch0.UnixMilli() + 60); !appendTime && (offset != 2 || ts != epoch0.UnixMilli()+100 || !ok || err != nil) {
					t.Errorf("by time: offset %d, %d, %t, %v", offset, ts, ok, err)
				}
				giveAll(t, l)
				if err := l.Sync(t.Context(), 25); err != nil {
					t.Fatal(err)
				}
				o.FS = o.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
				checkRecompressed(t, readAll(t, mustOpen(t, o)), want, to, appendTime)
			})
		}
	}
}

func checkRecompressed(t *testing.T, batches [][]byte, want []kv, to int8, appendTime bool) {
	t.Helper()
	var got []kv
	for i, raw := range batches {
		h, records := decoded(t, raw)
		if h.Codec() != to || h.IsLogAppendTime() != appendTime || h.ProducerID != 9 || h.ProducerEpoch != 1 || h.BaseSequence != int32(i*5) || h.NumRecords != 5 || h.LastOffsetDelta != 4 || h.BaseOffset != int64(i*5) {
			t.Errorf("batch %d: %+v", i, h)
		}
		if largest := epoch0.UnixMilli() + 100; !appendTime && h.MaxTimestamp != largest || appendTime && h.MaxTimestamp != epoch0.UnixMilli() {
			t.Errorf("batch %d: largest time %d", i, h.MaxTimestamp)
		}
		got = append(got, records...)
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		w, g := want[i], got[i]
		if g.ts != w.ts || !bytes.Equal(g.key, w.key) || !bytes.Equal(g.value, w.value) || (g.key == nil) != (w.key == nil) || (g.value == nil) != (w.value == nil) {
			t.Errorf("record %d: %q=%d bytes at %d, want %q=%d bytes at %d", i, g.key, len(g.value), g.ts, w.key, len(w.value), w.ts)
		}
	}
}

// TestRecompressedLeavesOthersAlone: batches of the broker's own, and those that are as they should be.
func TestRecompressedLeavesOthersAlone(t *testing.T) {
	l := mustOpen(t, recompressing(codec.Gzip, nil))
	same, own, end := mixed(codec.Gzip).build(t), mixed(codec.None).build(t), marker(3, 0, true, 1, epoch0.UnixMilli())
	mustAppend(t, l, slices.Clone(same))
	for _, raw := range [][]byte{own, end} {
		if _, err := l.Append(slices.Clone(raw), Internal); err != nil {
			t.Fatal(err)
		}
	}
	c := l.Config()
	c.Recompress = false
	l.SetConfig(c)
	mustAppend(t, l, slices.Clone(own))
	for i, want := range [][]byte{same, own, end, own} {
		if got := readAll(t, l)[i]; !bytes.Equal(got[21:], want[21:]) { // from the attributes on
			t.Errorf("batch %d was changed", i)
		}
	}
}

// TestRecompressedSizes: max.message.bytes is for what comes, and for what becomes of it.
func TestRecompressedSizes(t *testing.T) {
	large := plain(1, epoch0.UnixMilli(), 100_000)
	for to := int8(codec.None); to <= codec.Zstd; to++ {
		l := mustOpen(t, recompressing(to, func(c *Config) { c.MaxMessageBytes = 10_000 }))
		for from := int8(codec.None); from <= codec.Zstd; from++ {
			large.codec = from
			_, err := l.Append(large.build(t), Client)
			if tooLarge := from == codec.None || to == codec.None; errors.Is(err, ErrMessageTooLarge) != tooLarge || !tooLarge && err != nil {
				t.Errorf("from %d to %d: %v", from, to, err)
			}
		}
		giveAll(t, l)
		l = mustOpen(t, recompressing(to, func(c *Config) { c.MaxMessageBytes = batch.HeaderSize })) // no record has room
		if _, err := l.Append(plain(1, epoch0.UnixMilli(), 1).build(t), Client); !errors.Is(err, ErrMessageTooLarge) {
			t.Errorf("to %d without room: %v", to, err)
		}
		giveAll(t, l)
	}
}

// TestRecompressedRefusals: nothing is kept of what is refused, in memory either.
func TestRecompressedRefusals(t *testing.T) {
	zeros := plain(1, epoch0.UnixMilli(), maxOpened)
	late := plain(3, epoch0.UnixMilli()+5000, 10)
	keyless := plain(2, epoch0.UnixMilli(), 10)
	keyless.records[1].key = nil
	broken := func(c int8) []byte {
		h, err := batch.ParseHeader(plain(1, 0, 1).build(t))
		if err != nil {
			t.Fatal(err)
		}
		h.Attributes = int16(c)
		return batch.AppendHeader(nil, &h, []byte("what no codec writes"))
	}
	for from := int8(codec.None); from <= codec.Zstd; from++ {
		to := (from + 1) % 5
		l := mustOpen(t, recompressing(to, func(c *Config) { c.Compact, c.TimestampAfterMaxMs, c.MaxMessageBytes = true, 1000, 1<<31-1 }))
		for _, tc := range []struct {
			what string
			raw  func() []byte
			want error
		}{
			{"a late time", func() []byte { late.codec = from; return late.build(t) }, ErrInvalidTimestamp},
			{"no key", func() []byte { keyless.codec = from; return keyless.build(t) }, ErrInvalidRecord},
			{"damage", func() []byte { return broken(from) }, ErrDecompress},
			{"more than may be opened", func() []byte { zeros.codec = from; return zeros.build(t) }, ErrMessageTooLarge},
		} {
			if from == codec.None && tc.want == ErrDecompress {
				tc.want = ErrInvalidRecord
			}
			if from != codec.LZ4 && from != codec.Zstd && tc.want == ErrMessageTooLarge {
				continue // one that tells its size, and one that does not
			}
			if _, err := l.Append(tc.raw(), Client); !errors.Is(err, tc.want) {
				t.Errorf("from %d, %s: %v", from, tc.what, err)
			}
			giveAll(t, l)
		}
		if o := l.Offsets(); o.LogEnd != 0 {
			t.Errorf("from %d: the log ends at %d", from, o.LogEnd)
		}
	}
}

// TestRecordsAreBoundedBeforeTheyAreThere: what is larger than max.decompressed.message.bytes allows takes no memory, whatever the batch's codec and the topic's.
func TestRecordsAreBoundedBeforeTheyAreThere(t *testing.T) {
	for c := int8(codec.Gzip); c <= codec.Zstd; c++ {
		for _, recompress := range []bool{false, true} {
			l := mustOpen(t, recompressing(codec.None, func(x *Config) { x.Recompress, x.MaxRecordBytes, x.MaxMessageBytes = recompress, 1000, 64<<20 }))
			bomb := plain(1, epoch0.UnixMilli(), 16<<20)
			bomb.codec = c
			raw := bomb.build(t)
			if _, err := l.Append(slices.Clone(raw), Client); !errors.Is(err, ErrInvalidRecord) {
				t.Errorf("codec %d: %v", c, err)
			}
			mine := slices.Clone(raw)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := l.Append(mine, Client)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 || err == nil {
				t.Errorf("codec %d, recompressing %t: %d bytes were taken, %v", c, recompress, took, err)
			}
			fits := plain(3, epoch0.UnixMilli(), 900)
			fits.codec = c
			mustAppend(t, l, fits.build(t))
			giveAll(t, l)
		}
	}
}

// TestOpenedBatchesShareTheirMemory: who finds none waits for others, of whatever log, and comes in.
func TestOpenedBatchesShareTheirMemory(t *testing.T) {
	o := recompressing(codec.Zstd, nil)
	o.Files = NewFiles(20)
	var logs []*Log
	for i := range 4 {
		o.Dir = fmt.Sprintf("data/t-%d", i)
		logs = append(logs, mustOpen(t, o))
	}
	taken := o.Files.coders.take(coderMemory)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for range 10 {
				if _, err := logs[i%4].Append(mixed(int8(i%4)).build(t), Client); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Go(func() { o.Files.coders.memory.Release(taken) })
	all.Wait()
	for _, l := range logs {
		if o := l.Offsets(); o.LogEnd != 4*10*5 {
			t.Errorf("the log ends at %d", o.LogEnd)
		}
		giveAll(t, l)
	}
}

// TestRecordsInManyBlocks: a frame of zstd that does not tell its size may be of blocks that are smaller than they could be, and its records are within bounds all the same.
func TestRecordsInManyBlocks(t *testing.T) {
	l := mustOpen(t, recompressing(codec.None, func(c *Config) { c.Recompress, c.MaxRecordBytes = false, 1000 }))
	raw := plain(8, epoch0.UnixMilli(), 900).build(t)
	h, err := batch.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(batch.Payload(raw), 1000) {
		if _, err := z.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := z.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	h.Attributes = codec.Zstd
	mustAppend(t, l, batch.AppendHeader(nil, &h, out.Bytes()))
	giveAll(t, l)
}
