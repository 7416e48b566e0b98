package locate_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestGoldenFromAfar: the same partitions with only the first segments copied, and no local log to be seen. A committed reader is given, from every offset, a beginning of the range
// that there is with everything in hand, with the aborted transactions that overlap it and the records that Apache Kafka's consumer got; or nothing.
func TestGoldenFromAfar(t *testing.T) {
	whole, cut, undecided := 0, 0, 0
	eachPartition(t, func(t *testing.T, b *bench) {
		afar := undecidedView{b.view}
		for _, last := range b.index.Partition(b.p.TopicIDPartition).All() {
			r := locate.New(locate.Options{RSM: golden.Store{Dir: b.set.ObjectsDir()}, Index: upTo(t, b, last.EndOffset), TxnIndexEmptyKnown: true})
			for offset := b.view.Start; offset <= min(last.EndOffset, b.tiered); offset++ {
				want, err := b.resolver.Resolve(context.Background(), b.p.TopicIDPartition, b.view, offset, true)
				if err != nil {
					t.Fatal(err)
				}
				got, err := r.Resolve(context.Background(), b.p.TopicIDPartition, afar, offset, true)
				if errors.Is(err, locate.ErrUndecided) {
					undecided++
					continue
				}
				if err != nil || got.ID != want.ID {
					if want.LastOffset > last.EndOffset || err == nil {
						continue // another copy of it is not there
					}
					t.Fatalf("offset %d with segments up to %d: %v", offset, last.EndOffset, err)
				}
				if got.LastOffset > want.LastOffset || got.LastOffset < offset || got.StartPosition != want.StartPosition || got.EndPosition > want.EndPosition {
					t.Fatalf("offset %d with segments up to %d: %+v; with everything %+v", offset, last.EndOffset, got, want)
				}
				known := []wire.AbortedTransaction{}
				for _, a := range want.Aborted {
					if a.FirstOffset <= got.LastOffset {
						known = append(known, a)
					}
				}
				if !reflect.DeepEqual(got.Aborted, known) {
					t.Fatalf("offset %d with segments up to %d: to %d, aborted %v; with everything %v", offset, last.EndOffset, got.LastOffset, got.Aborted, want.Aborted)
				}
				if got.LastOffset == want.LastOffset {
					whole++
					continue
				}
				cut++
				var seen []committedRecord
				for _, rec := range b.visible(t, readRange(t, &want), want.Aborted, offset) {
					if rec.Offset <= got.LastOffset {
						seen = append(seen, rec)
					}
				}
				if given := b.visible(t, readRange(t, &got), got.Aborted, offset); !reflect.DeepEqual(given, seen) {
					t.Fatalf("offset %d with segments up to %d: %v to %d; with everything %v", offset, last.EndOffset, given, got.LastOffset, seen)
				}
			}
		}
	})
	t.Logf("%d whole ranges, %d cut, %d undecided", whole, cut, undecided)
	if whole < 1000 || cut < 100 || undecided < 100 {
		t.Errorf("%d whole ranges, %d cut, %d undecided: they show little", whole, cut, undecided)
	}
}

// upTo is the index without segments that end after an offset.
func upTo(t *testing.T, b *bench, end int64) *remotelog.Index {
	t.Helper()
	x := remotelog.NewIndex()
	for _, m := range b.index.Partition(b.p.TopicIDPartition).All() {
		if m.EndOffset > end || m.State != remotestorage.CopySegmentFinished {
			continue
		}
		m.State = remotestorage.CopySegmentStarted
		if err := x.Apply(&remotelog.SegmentRecord{RemoteLogSegmentMetadata: m}); err != nil {
			t.Fatal(err)
		}
		if err := x.Apply(&remotelog.UpdateRecord{RemoteLogSegmentID: m.RemoteLogSegmentID, State: remotestorage.CopySegmentFinished}); err != nil {
			t.Fatal(err)
		}
	}
	return x
}
