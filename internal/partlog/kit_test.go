package partlog

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch0 = time.UnixMilli(1_700_000_000_000)

// kv is a record to be built.
type kv struct {
	key, value []byte
	ts         int64
}

// spec is a batch to be built.
type spec struct {
	records       []kv
	codec         int8
	pid           int64
	epoch         int16
	seq           int32
	transactional bool
}

func plain(n int, ts int64, size int) spec {
	s := spec{pid: -1, epoch: -1, seq: -1}
	for i := range n {
		s.records = append(s.records, kv{key: fmt.Appendf(nil, "k%d", i), value: make([]byte, size), ts: ts + int64(i)})
	}
	return s
}

func (s spec) producer(pid int64, epoch int16, seq int32) spec {
	s.pid, s.epoch, s.seq = pid, epoch, seq
	return s
}

func appendField(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func appendRecord(dst []byte, tsDelta int64, offsetDelta int32, key, value []byte) []byte {
	body := []byte{0}
	body = binary.AppendVarint(body, tsDelta)
	body = binary.AppendVarint(body, int64(offsetDelta))
	body = appendField(appendField(body, key), value)
	body = binary.AppendVarint(body, 0)
	return append(binary.AppendVarint(dst, int64(len(body))), body...)
}

// failer is what a builder needs of a test; rapid's has it too.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func (s spec) build(t failer) []byte {
	t.Helper()
	var payload []byte
	largest := int64(-1)
	for i, r := range s.records {
		payload = appendRecord(payload, r.ts-s.records[0].ts, int32(i), r.key, r.value)
		largest = max(largest, r.ts)
	}
	payload, err := codec.Encode(nil, s.codec, payload)
	if err != nil {
		t.Fatal(err)
	}
	h := batch.Header{LeaderEpoch: -1, Attributes: int16(s.codec), LastOffsetDelta: int32(len(s.records) - 1), BaseTimestamp: s.records[0].ts,
		MaxTimestamp: largest, ProducerID: s.pid, ProducerEpoch: s.epoch, BaseSequence: s.seq, NumRecords: int32(len(s.records))}
	if s.transactional {
		h.Attributes |= batch.Transactional
	}
	return batch.AppendHeader(nil, &h, payload)
}

// marker builds the end of a transaction.
func marker(pid int64, epoch int16, commit bool, coordinatorEpoch int32, ts int64) []byte {
	key, value := []byte{0, 0, 0, 0}, []byte{0, 0, 0, 0, 0, 0}
	if commit {
		key[3] = 1
	}
	binary.BigEndian.PutUint32(value[2:], uint32(coordinatorEpoch))
	payload := appendRecord(nil, 0, 0, key, value)
	h := batch.Header{LeaderEpoch: -1, Attributes: batch.Transactional | batch.Control, BaseTimestamp: ts, MaxTimestamp: ts, ProducerID: pid, ProducerEpoch: epoch,
		BaseSequence: -1, NumRecords: 1}
	return batch.AppendHeader(nil, &h, payload)
}

// clock is a time that tests move.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func testOptions(fs vfs.FS) Options {
	c := DefaultConfig()
	c.SegmentBytes, c.IndexIntervalBytes = 4096, 256
	c.TimestampAfterMaxMs = 1<<63 - 1
	return Options{FS: fs, Dir: "data/t-0", TP: remotestorage.TopicIDPartition{Topic: "t"}, Config: c, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Clock: func() time.Time { return epoch0 }}
}

func mustOpen(t testing.TB, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustAppend(t testing.TB, l *Log, b []byte) AppendInfo {
	t.Helper()
	info, err := l.Append(b, Client)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func mustClose(t testing.TB, l *Log) int64 {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Offsets().Recovery
}

// readAll reads everything from the local start on, and gives the batches' bytes.
func readAll(t testing.TB, l *Log) (batches [][]byte) {
	t.Helper()
	o := l.Offsets()
	for at := o.LocalLogStart; at < o.HighWatermark; {
		d, err := l.Read(at, 1000, o.HighWatermark, true)
		if err != nil {
			t.Fatalf("reading at %d: %v", at, err)
		}
		if d.NextOffset <= at {
			var segs []string
			for _, s := range l.segments() {
				segs = append(segs, fmt.Sprintf("%d:%d", s.base, s.size.Load()))
			}
			t.Fatalf("reading at %d does not advance: %+v, segments %v", at, o, segs)
		}
		for _, b := range d.Records.Bufs {
			if _, err := batch.Each(b, func(h batch.Header, raw []byte) error {
				if err := batch.CheckCRC(&h, raw); err != nil {
					t.Error(err)
				}
				batches = append(batches, append([]byte(nil), raw...))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		d.Records.Release()
		at = d.NextOffset
	}
	return batches
}

func slurp(t testing.TB, f remotestorage.SegmentFile) []byte {
	t.Helper()
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}
