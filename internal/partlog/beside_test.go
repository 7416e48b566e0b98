package partlog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// beside is a log that everything is done to at once, and whose answers are checked one by one. A record has one offset for one millisecond, so that each answer tells
// whether it is right.
type beside struct {
	t    *testing.T
	log  *Log
	done chan struct{}
	wg   sync.WaitGroup
}

// loop does something until all has been appended.
func (b *beside) loop(fn func(rng *rand.Rand)) {
	b.wg.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-b.done:
				return
			default:
				fn(rng)
			}
		}
	})
}

func (b *beside) no(err error, allowed ...error) {
	for _, a := range allowed {
		if errors.Is(err, a) {
			return
		}
	}
	if err != nil {
		b.t.Error(err)
	}
}

// TestReadsBesideEverything: reads, searches by time and copies of a log that is appended to, rolled, cut off at its start, retained, tiered, cooled and flushed meanwhile.
func TestReadsBesideEverything(t *testing.T) {
	for _, tiered := range []bool{false, true} {
		t.Run(map[bool]string{false: "local", true: "tiered"}[tiered], func(t *testing.T) { testBeside(t, tiered) })
	}
}

func testBeside(t *testing.T, tiered bool) {
	o := testOptions(vfs.NewMem())
	o.Config.SegmentBytes, o.Config.RetentionBytes, o.Config.RetentionMs, o.Config.FileDeleteDelayMs = 3000, 20_000, -1, 0
	o.Config.RemoteStorage = tiered
	o.Files = NewFiles(3)
	defer o.Files.Close()
	b := &beside{t: t, log: mustOpen(t, o), done: make(chan struct{})}
	l := b.log
	mustAppend(t, l, plain(1, epoch0.UnixMilli(), 10).build(t))
	for range 2 {
		b.loop(b.read)
	}
	b.loop(b.search)
	b.loop(b.largest)
	b.loop(func(*rand.Rand) { b.bounds() })
	b.loop(func(*rand.Rand) { b.copies(tiered) })
	b.loop(func(*rand.Rand) {
		_, err := l.ApplyRetention(epoch0.Add(time.Second))
		b.no(err)
		b.no(l.Flush(context.Background()))
	})
	b.loop(func(rng *rand.Rand) {
		b.no(l.ReleaseIdle())
		if o := l.Offsets(); rng.IntN(20) == 0 {
			_, err := l.DeleteRecords(o.LogStart + rng.Int64N(max(1, (o.LogEnd-o.LogStart)/4)))
			b.no(err)
		}
		time.Sleep(time.Duration(rng.IntN(200)) * time.Microsecond)
	})
	for n := int64(1); n < 8000; {
		records := 1 + int(n%3)
		mustAppend(t, l, plain(records, epoch0.UnixMilli()+n, 10+int(n%50)).build(t))
		n += int64(records)
	}
	close(b.done)
	b.wg.Wait()
}

// read reads on from somewhere: the batch that holds the offset comes first, and the others follow without a gap.
func (b *beside) read(rng *rand.Rand) {
	o := b.log.Offsets()
	at := o.LocalLogStart + rng.Int64N(max(1, o.LogEnd-o.LocalLogStart))
	for range 10 {
		end := b.log.Offsets().HighWatermark
		d, err := b.log.Read(at, 700, end, true)
		if errors.Is(err, ErrOutOfRange) || errors.Is(err, ErrBelowLocal) {
			if now := b.log.Offsets(); at >= now.LocalLogStart {
				b.t.Errorf("reading at %d: %v, though the log has %+v", at, err, now)
			}
			return
		}
		if b.no(err); err != nil || d.Records.Len() == 0 {
			if err == nil && at < end {
				b.t.Errorf("reading at %d below %d gives nothing", at, end)
			}
			return
		}
		next := at
		_, err = batch.Each(d.Records.Bufs[0], func(h batch.Header, raw []byte) error {
			if h.BaseOffset > next || h.LastOffset() < next || h.BaseTimestamp != epoch0.UnixMilli()+h.BaseOffset {
				b.t.Errorf("reading at %d: batch %d to %d instead of %d", at, h.BaseOffset, h.LastOffset(), next)
			}
			next = h.LastOffset() + 1
			return batch.CheckCRC(&h, raw)
		})
		b.no(err)
		d.Records.Release()
		if next != d.NextOffset {
			b.t.Errorf("reading at %d ends at %d, it says %d", at, next, d.NextOffset)
		}
		at = next
	}
}

func (b *beside) search(rng *rand.Rand) {
	o := b.log.Offsets()
	want := o.LocalLogStart + rng.Int64N(max(1, o.LogEnd-o.LocalLogStart))
	got, ts, _, ok, err := b.log.OffsetForTimestamp(epoch0.UnixMilli() + want)
	if b.no(err); err != nil {
		return
	}
	if after := b.log.Offsets(); want >= after.LocalLogStart && want < o.LogEnd && (!ok || got != want || ts != epoch0.UnixMilli()+want) {
		b.t.Errorf("time of %d: %d, %t", want, got, ok)
	}
}

func (b *beside) largest(*rand.Rand) {
	least := b.log.Offsets().LogEnd - 1
	got, ts, _, ok, err := b.log.MaxTimestamp()
	if b.no(err); err != nil {
		return
	}
	if start := b.log.Offsets().LogStart; least >= start && (!ok || got < least || ts != epoch0.UnixMilli()+got) {
		b.t.Errorf("largest time: %d at %d, %t, the log ended at %d before", ts, got, ok, least+1)
	}
}

func (b *beside) bounds() {
	o := b.log.Offsets()
	if o.LogStart > o.LocalLogStart || o.LocalLogStart > o.LastStable || o.LastStable > o.HighWatermark || o.Recovery > o.LogEnd {
		b.t.Errorf("bounds %+v", o)
	}
	if n := b.log.Available(o.LocalLogStart, o.HighWatermark); n == 0 && o.LocalLogStart < o.HighWatermark && b.log.Offsets().LocalLogStart == o.LocalLogStart {
		b.t.Errorf("nothing available at %d of %+v", o.LocalLogStart, o)
	}
}

// copies reads what is to be tiered, and says that it is remote.
func (b *beside) copies(tiered bool) {
	for _, f := range b.log.Tierable() {
		files := map[string]remotestorage.SegmentFile{"log": f.Data.Log, "index": f.Data.OffsetIndex, "timeindex": f.Data.TimeIndex, "snapshot": f.Data.ProducerSnapshot}
		content := map[string][]byte{}
		for name, file := range files {
			r, err := file.Open()
			if err != nil {
				b.no(err, fs.ErrNotExist)
				return
			}
			all, err := io.ReadAll(r)
			b.no(errors.Join(err, r.Close()))
			if content[name] = all; int64(len(all)) != file.Size {
				b.t.Errorf("segment %d: %s has %d bytes, %d were said", f.Base, name, len(all), file.Size)
			}
		}
		b.checkCopy(&f, content)
		if tiered {
			b.log.SetHighestRemoteOffset(f.End)
		}
	}
}

func (b *beside) checkCopy(f *SegmentFiles, content map[string][]byte) {
	next := f.Base
	largest := int64(-1)
	_, err := batch.Each(content["log"], func(h batch.Header, raw []byte) error {
		if h.BaseOffset != next {
			b.t.Errorf("segment %d: batch at %d instead of %d", f.Base, h.BaseOffset, next)
		}
		next, largest = h.LastOffset()+1, h.MaxTimestamp
		return batch.CheckCRC(&h, raw)
	})
	b.no(err)
	if next != f.End+1 || largest != f.MaxTimestampMs {
		b.t.Errorf("segment %d to %d, time %d: copy ends at %d, time %d", f.Base, f.End, f.MaxTimestampMs, next, largest)
	}
	x, err := segment.ParseOffsetIndex(content["index"], f.Base)
	if b.no(err); err == nil && x.Size() != len(content["index"]) {
		b.t.Errorf("segment %d: offset index is not whole", f.Base)
	}
	times, err := segment.ParseTimeIndex(content["timeindex"], f.Base)
	if ts, _ := times.Last(); err != nil || ts != largest {
		b.t.Errorf("segment %d: time index ends at %d, want %d: %v", f.Base, ts, largest, err)
	}
	_, err = producerstate.ParseSnapshot(content["snapshot"])
	b.no(err)
	entries, err := epoch.ParseCheckpoint(bytes.Clone(f.Data.LeaderEpochIndex))
	if b.no(err); b.log.Offsets().LogStart <= f.Base && (len(f.LeaderEpochs) == 0 || f.LeaderEpochs[0].StartOffset != f.Base || len(entries) == 0) {
		b.t.Errorf("segment %d: leader epochs %v", f.Base, f.LeaderEpochs)
	}
}
