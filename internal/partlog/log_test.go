package partlog

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// fill appends n batches, and gives what a reader must find.
func fill(t testing.TB, l *Log, n, size int) (want [][]byte) {
	t.Helper()
	for i := range n {
		b := plain(1+i%4, epoch0.UnixMilli()+int64(i), size).build(t)
		info := mustAppend(t, l, b)
		if h, err := batch.Parse(b); err != nil || h.BaseOffset != info.BaseOffset || h.LastOffset() != info.LastOffset {
			t.Fatalf("batch %d: %+v, %v, told %+v", i, h, err, info)
		}
		want = append(want, b)
	}
	return want
}

func sameBatches(t testing.TB, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d batches, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("batch %d differs", i)
		}
	}
}

func TestAppendReadReopen(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": vfs.Default} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(fs)
			if name == "disk" {
				o.Dir = t.TempDir() + "/t-0"
			}
			l := mustOpen(t, o)
			want := fill(t, l, 100, 100)
			sameBatches(t, readAll(t, l), want)
			if s := l.Stats(); s.Segments < 5 {
				t.Fatalf("%d segments, want several", s.Segments)
			}
			end := l.Offsets().LogEnd
			o.RecoveryPoint, o.Clean = mustClose(t, l), true
			if o.RecoveryPoint != end {
				t.Fatalf("recovery point %d, want %d", o.RecoveryPoint, end)
			}
			for _, clean := range []bool{true, false, true} {
				o.Clean = clean
				l = mustOpen(t, o)
				if l.Offsets().LogEnd != end {
					t.Fatalf("clean %v: end %d, want %d", clean, l.Offsets().LogEnd, end)
				}
				sameBatches(t, readAll(t, l), want)
				want = append(want, fill(t, l, 10, 50)...)
				end = l.Offsets().LogEnd
				if err := l.Sync(context.Background(), end); err != nil {
					t.Fatal(err)
				}
				sameBatches(t, readAll(t, l), want)
				o.RecoveryPoint = mustClose(t, l)
			}
		})
	}
}

func TestReadBounds(t *testing.T) {
	l := mustOpen(t, testOptions(vfs.NewMem()))
	fill(t, l, 40, 100)
	o := l.Offsets()
	for _, at := range []int64{-1, o.LogEnd + 1} {
		if _, err := l.Read(at, 100, o.HighWatermark, true); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("offset %d: %v", at, err)
		}
	}
	for at := int64(0); at <= o.LogEnd; at++ {
		for _, limit := range []int{0, 1, 200, 777, 100000} {
			for _, upTo := range []int64{at, at + 1, at + 5, o.HighWatermark} {
				for _, whole := range []bool{true, false} {
					checkRead(t, l, at, limit, upTo, whole)
				}
			}
		}
	}
}

func checkRead(t *testing.T, l *Log, at int64, limit int, upTo int64, whole bool) {
	t.Helper()
	d, err := l.Read(at, limit, upTo, whole)
	if err != nil {
		t.Fatal(err)
	}
	if d.Records.Release != nil {
		defer d.Records.Release()
	}
	n := d.Records.Len()
	if at >= min(upTo, l.Offsets().LogEnd) {
		if n != 0 {
			t.Errorf("read at %d up to %d gave %d bytes", at, upTo, n)
		}
		return
	}
	if n == 0 {
		if whole {
			t.Errorf("read at %d limit %d up to %d whole gave nothing", at, limit, upTo)
		}
		return
	}
	first, err := batch.ParseHeader(d.Records.Bufs[0])
	if err != nil || first.BaseOffset > at || first.LastOffset() < at || first.BaseOffset != d.FirstBaseOffset {
		t.Errorf("read at %d begins with %+v (%v)", at, first, err)
	}
	if n > limit && (!whole || n != first.Size()) {
		t.Errorf("read at %d limit %d gave %d bytes", at, limit, n)
	}
	next := at
	if _, err := batch.Each(d.Records.Bufs[0], func(h batch.Header, _ []byte) error {
		if h.BaseOffset >= upTo {
			t.Errorf("read up to %d holds base %d", upTo, h.BaseOffset)
		}
		next = h.LastOffset() + 1
		return nil
	}); err != nil {
		t.Error(err)
	}
	if next != d.NextOffset {
		t.Errorf("next offset %d, want %d", d.NextOffset, next)
	}
}

func TestIdempotence(t *testing.T) {
	l := mustOpen(t, testOptions(vfs.NewMem()))
	ts := epoch0.UnixMilli()
	at := make([]AppendInfo, 8)
	for i := range at {
		at[i] = mustAppend(t, l, plain(2, ts, 10).producer(7, 0, int32(2*i)).build(t))
	}
	for i := 3; i < 8; i++ {
		info := mustAppend(t, l, plain(2, ts, 10).producer(7, 0, int32(2*i)).build(t))
		if !info.Duplicate || info.BaseOffset != at[i].BaseOffset {
			t.Errorf("retry of %d: %+v", i, info)
		}
	}
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"gap":              {plain(1, ts, 10).producer(7, 0, 17).build(t), ErrOutOfOrderSequence},
		"before window":    {plain(2, ts, 10).producer(7, 0, 0).build(t), ErrOutOfOrderSequence},
		"new epoch, not 0": {plain(2, ts, 10).producer(7, 1, 5).build(t), ErrOutOfOrderSequence},
	} {
		if _, err := l.Append(c.b, Client); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	mustAppend(t, l, plain(2, ts, 10).producer(7, 1, 0).build(t))
	if _, err := l.Append(plain(2, ts, 10).producer(7, 0, 16).build(t), Client); !errors.Is(err, ErrInvalidProducerEpoch) {
		t.Errorf("old epoch: %v", err)
	}
	mustAppend(t, l, plain(2, ts, 10).producer(8, 0, 1<<31-2).build(t))
	if info := mustAppend(t, l, plain(3, ts, 10).producer(8, 0, 0).build(t)); info.Duplicate {
		t.Error("sequence wraps to 0")
	}
}

func TestWindowAcrossRestart(t *testing.T) {
	o := testOptions(vfs.NewMem())
	ts := epoch0.UnixMilli()
	l := mustOpen(t, o)
	var at [8]AppendInfo
	for i := range at {
		at[i] = mustAppend(t, l, plain(2, ts, 10).producer(7, 3, int32(2*i)).build(t))
	}
	for _, clean := range []bool{true, false} {
		o.RecoveryPoint, o.Clean = mustClose(t, l), clean
		l = mustOpen(t, o)
		for i := 3; i < 8; i++ {
			info, err := l.Append(plain(2, ts, 10).producer(7, 3, int32(2*i)).build(t), Client)
			if err != nil || !info.Duplicate || info.BaseOffset != at[i].BaseOffset {
				t.Errorf("clean %v: retry of %d: %+v, %v", clean, i, info, err)
			}
		}
		if _, err := l.Append(plain(2, ts, 10).producer(7, 3, 0).build(t), Client); !errors.Is(err, ErrOutOfOrderSequence) {
			t.Errorf("before the window: %v", err)
		}
	}
}
