package partlog

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
)

// changed rebuilds a batch with a changed header, and a right CRC.
func changed(t *testing.T, b []byte, change func(h *batch.Header)) []byte {
	t.Helper()
	h, err := batch.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	change(&h)
	return batch.AppendHeader(nil, &h, batch.Payload(b))
}

func TestAppendRefuses(t *testing.T) {
	ts := epoch0.UnixMilli()
	good := plain(3, ts, 10).build(t)
	gap := batch.AppendHeader(nil, &batch.Header{LastOffsetDelta: 0, BaseTimestamp: ts, MaxTimestamp: ts, ProducerID: -1, BaseSequence: -1, NumRecords: 1},
		appendRecord(nil, 0, 1, []byte("k"), []byte("v")))
	noKey := plain(1, ts, 10)
	noKey.records[0].key = nil
	noKeyZstd := noKey
	noKeyZstd.codec = codec.Zstd
	for _, x := range []struct {
		name string
		b    []byte
		conf func(c *Config)
		want error
	}{
		{name: "nothing", want: ErrInvalidRecord},
		{name: "garbage", b: []byte("this is no batch at all, however long it may be, and it will not become one"), want: ErrCorruptMessage},
		{name: "cut", b: good[:len(good)-1], want: ErrCorruptMessage},
		{name: "CRC", b: func() []byte { b := append([]byte(nil), good...); b[len(b)-1] ^= 1; return b }(), want: ErrCorruptMessage},
		{name: "magic 1", b: func() []byte { b := append([]byte(nil), good...); b[16] = 1; return b }(), want: ErrUnsupportedFormat},
		{name: "magic 3", b: func() []byte { b := append([]byte(nil), good...); b[16] = 3; return b }(), want: ErrInvalidRecord},
		{name: "bytes after it", b: append(append([]byte(nil), good...), 0, 0), want: ErrCorruptMessage},
		{name: "two batches", b: append(append([]byte(nil), good...), good...), want: ErrInvalidRecord},
		{name: "control", b: marker(1, 0, true, 0, ts), want: ErrInvalidRecord},
		{name: "last offset delta", b: changed(t, good, func(h *batch.Header) { h.LastOffsetDelta = 3 }), want: ErrInvalidRecord},
		{name: "count", b: changed(t, good, func(h *batch.Header) { h.NumRecords = 0 }), want: ErrInvalidRecord},
		{name: "record offsets", b: gap, want: ErrInvalidRecord},
		{name: "count above the records", b: changed(t, good, func(h *batch.Header) { h.NumRecords, h.LastOffsetDelta = 4, 3 }), want: ErrInvalidRecord},
		{name: "producer without sequence", b: changed(t, good, func(h *batch.Header) { h.ProducerID = 5 }), want: ErrInvalidRecord},
		{name: "transactional without producer", b: changed(t, good, func(h *batch.Header) { h.Attributes |= batch.Transactional }), want: ErrInvalidRecord},
		{name: "codec 7", b: changed(t, good, func(h *batch.Header) { h.Attributes |= 7 }), want: ErrInvalidRecord},
		{name: "LogAppendTime", b: changed(t, good, func(h *batch.Header) { h.Attributes |= batch.LogAppendTime }), want: ErrInvalidTimestamp},
		{name: "delete horizon", b: changed(t, good, func(h *batch.Header) { h.Attributes |= batch.DeleteHorizonFlag }), want: ErrInvalidRecord},
		{name: "max.message.bytes", b: good, conf: func(c *Config) { c.MaxMessageBytes = len(good) - 1 }, want: ErrMessageTooLarge},
		{name: "max.message.bytes, just", b: good, conf: func(c *Config) { c.MaxMessageBytes = len(good) }},
		{name: "segment.bytes", b: good, conf: func(c *Config) { c.SegmentBytes = len(good) - 1 }, want: ErrBatchListTooLarge},
		{name: "too old", b: plain(1, ts-1001, 10).build(t), conf: func(c *Config) { c.TimestampBeforeMaxMs = 1000 }, want: ErrInvalidTimestamp},
		{name: "old enough", b: plain(1, ts-1000, 10).build(t), conf: func(c *Config) { c.TimestampBeforeMaxMs = 1000 }},
		{name: "too new", b: plain(1, ts+1001, 10).build(t), conf: func(c *Config) { c.TimestampAfterMaxMs = 1000 }, want: ErrInvalidTimestamp},
		{name: "new enough", b: plain(1, ts+1000, 10).build(t), conf: func(c *Config) { c.TimestampAfterMaxMs = 1000 }},
		{name: "negative time", b: plain(1, -5, 10).build(t), want: ErrInvalidTimestamp},
		{name: "no time", b: plain(1, -1, 10).build(t), conf: func(c *Config) { c.TimestampBeforeMaxMs = 1000 }},
		{name: "too old, compacted", b: plain(1, ts-1001, 10).build(t), conf: func(c *Config) { c.TimestampBeforeMaxMs, c.LogAppendTime = 1000, true }},
		{name: "no key", b: noKey.build(t)},
		{name: "no key, compacted", b: noKey.build(t), conf: func(c *Config) { c.Compact = true }, want: ErrInvalidRecord},
		{name: "no key, compacted, zstd", b: noKeyZstd.build(t), conf: func(c *Config) { c.Compact = true }, want: ErrInvalidRecord},
	} {
		t.Run(x.name, func(t *testing.T) {
			o := testOptions(vfs.NewMem())
			if x.conf != nil {
				x.conf(&o.Config)
			}
			l := mustOpen(t, o)
			if _, err := l.Append(x.b, Client); !errors.Is(err, x.want) {
				t.Errorf("%v, want %v", err, x.want)
			}
			if end := l.Offsets().LogEnd; (end == 0) != (x.want != nil) {
				t.Errorf("log ends at %d", end)
			}
		})
	}
}

func TestLogAppendTime(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Config.LogAppendTime = true
	l := mustOpen(t, o)
	info := mustAppend(t, l, plain(3, 5, 10).build(t))
	if info.LogAppendTimeMs != epoch0.UnixMilli() {
		t.Errorf("told %d", info.LogAppendTimeMs)
	}
	h, err := batch.Parse(readAll(t, l)[0])
	if err != nil || !h.IsLogAppendTime() || h.MaxTimestamp != epoch0.UnixMilli() {
		t.Errorf("%+v, %v", h, err)
	}
	if offset, ts, _, ok, err := l.OffsetForTimestamp(6); err != nil || !ok || offset != 0 || ts != epoch0.UnixMilli() {
		t.Errorf("found %d at %d, %v %v", offset, ts, ok, err)
	}
}

// TestWrongMaxTimestampIsMended: searches by time live on the header's largest timestamp.
func TestWrongMaxTimestampIsMended(t *testing.T) {
	l := mustOpen(t, testOptions(vfs.NewMem()))
	ts := epoch0.UnixMilli()
	mustAppend(t, l, changed(t, plain(3, ts, 10).build(t), func(h *batch.Header) { h.MaxTimestamp = 1 }))
	h, err := batch.Parse(readAll(t, l)[0])
	if err != nil || h.MaxTimestamp != ts+2 {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestRollRules: by size, by the records' time, by a full index, by an offset that does not fit an index.
func TestRollRules(t *testing.T) {
	ts := epoch0.UnixMilli()
	size := len(plain(1, ts, 100).build(t))
	for _, x := range []struct {
		name  string
		conf  func(c *Config)
		times []int64
		want  int // segments
	}{
		{"none", func(*Config) {}, []int64{0, 1, 2, 3}, 1},
		{"size", func(c *Config) { c.SegmentBytes = 2 * size }, []int64{0, 1, 2, 3, 4}, 3},
		{"time", func(c *Config) { c.SegmentMs = 1000 }, []int64{0, 1000, 1001, 2001, 2002}, 3},
		{"time goes back", func(c *Config) { c.SegmentMs = 1000 }, []int64{5000, 0, 100, 6001}, 2},
		{"full index", func(c *Config) { c.IndexIntervalBytes, c.SegmentIndexBytes = 1, 48 }, []int64{0, 0, 0, 0, 0, 0, 0, 0}, 2},
		{"full time index", func(c *Config) { c.IndexIntervalBytes, c.SegmentIndexBytes = 1, 36 }, []int64{0, 1, 2, 3, 4}, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			o := testOptions(vfs.NewMem())
			x.conf(&o.Config)
			l := mustOpen(t, o)
			for _, at := range x.times {
				mustAppend(t, l, plain(1, ts+at, 100).build(t))
			}
			if got := l.Stats().Segments; got != x.want {
				t.Errorf("%d segments, want %d", got, x.want)
			}
		})
	}
	l := mustOpen(t, testOptions(vfs.NewMem()))
	mustAppend(t, l, plain(1, ts, 10).build(t))
	l.state.logEnd += 1<<31 - 1 // as if two thousand million records had been compacted away
	mustAppend(t, l, plain(1, ts, 10).build(t))
	if got := l.Stats().Segments; got != 2 {
		t.Errorf("offset overflow: %d segments, want 2", got)
	}
}

func FuzzAppend(f *testing.F) {
	f.Add(batch.AppendSimple(nil, epoch0.UnixMilli(), []byte("k"), []byte("v")))
	f.Add(marker(1, 0, true, 0, 5))
	b := batch.AppendSimple(nil, 5, nil, nil)
	binary.BigEndian.PutUint32(b[57:], 1<<31-1)
	batch.FixCRC(b)
	f.Add(b)
	l, err := Open(testOptions(vfs.NewMem()))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = l.Close() })
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := batch.PeekSize(b); err == nil && n == len(b) && n >= batch.HeaderSize {
			batch.FixCRC(b) // get past the CRC
		}
		before := l.Offsets().LogEnd
		info, err := l.Append(b, Client)
		if after := l.Offsets().LogEnd; err != nil && after != before || err == nil && !info.Duplicate && after != info.LastOffset+1 {
			t.Fatalf("end %d, then %d: %+v, %v", before, after, info, err)
		}
	})
}
