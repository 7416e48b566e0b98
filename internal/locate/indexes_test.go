package locate_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestIndexesAreShared: many resolves at once fetch an index once, and one that gives up does not take the others with it.
func TestIndexesAreShared(t *testing.T) {
	l := newFakeLog(t, fakeSegment{start: 0, end: 99})
	v := &golden.View{Epochs: history(0, 0)}
	r := l.resolver(locate.Options{})
	entered, release := make(chan struct{}), make(chan struct{})
	var fetches atomic.Int32
	l.store.onFetch = func(object string, b []byte) ([]byte, error) {
		if fetches.Add(1) == 1 {
			close(entered)
			<-release
			return nil, errors.New("the first one fails")
		}
		return b, nil
	}
	var wg sync.WaitGroup
	var failed atomic.Int32
	resolve := func(ctx context.Context) {
		defer wg.Done()
		if _, err := r.Resolve(ctx, fakeTP, v, 55, false); err != nil {
			failed.Add(1)
		}
	}
	wg.Add(1)
	go resolve(ctx)
	<-entered
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	wg.Add(1)
	resolve(canceled) // waits for the first one's fetch, and gives up
	if failed.Load() != 1 {
		t.Error("a cancelled resolve did not end")
	}
	for range 8 {
		wg.Add(1)
		go resolve(ctx)
	}
	close(release)
	wg.Wait()
	if f, n := failed.Load(), fetches.Load(); f != 2 || n != 2 {
		t.Errorf("%d resolves failed with %d fetches; want 2 and 2", f, n)
	}
}

// TestIndexCacheIsBounded: a cache too small for all indexes fetches them again, and one that holds them does not.
func TestIndexCacheIsBounded(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		want  int
	}{{1 << 20, 3}, {700, 6}, {1, 6}} {
		l := newFakeLog(t, fakeSegment{start: 0, end: 99}, fakeSegment{start: 100, end: 199}, fakeSegment{start: 200, end: 299})
		r := l.resolver(locate.Options{IndexCacheBytes: c.bytes})
		v := &golden.View{Epochs: history(0, 0)}
		for range 2 {
			for _, offset := range []int64{55, 155, 255} {
				if _, err := r.Resolve(ctx, fakeTP, v, offset, false); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := l.store.count(segment.IndexSuffix); n != c.want {
			t.Errorf("cache of %d bytes: %d fetches, want %d", c.bytes, n, c.want)
		}
	}
}

// TestIndexesOnTheirWayAreBounded: however many offsets are looked for at once, as when all clients come back, a few indexes are in memory before the cache takes them. Who waits
// for a turn may give up.
func TestIndexesOnTheirWayAreBounded(t *testing.T) {
	const segments, most = 100, 16
	var all []fakeSegment
	for i := range int64(segments) {
		all = append(all, fakeSegment{start: 100 * i, end: 100*i + 99})
	}
	l := newFakeLog(t, all...)
	r := l.resolver(locate.Options{})
	v := &golden.View{Epochs: history(0, 0)}
	var now, top atomic.Int32
	release := make(chan struct{})
	l.store.onFetch = func(_ string, b []byte) ([]byte, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := top.Load(); n > old && !top.CompareAndSwap(old, n); old = top.Load() {
		}
		<-release
		return b, nil
	}
	var wg sync.WaitGroup
	for i := range int64(segments) {
		wg.Go(func() {
			if _, err := r.Resolve(ctx, fakeTP, v, 100*i+55, false); err != nil {
				t.Error(err)
			}
		})
	}
	for deadline := time.Now().Add(time.Minute); now.Load() < most; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d at once", now.Load())
		}
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.Resolve(canceled, fakeTP, v, 100*segments-5, false); !errors.Is(err, context.Canceled) {
		t.Errorf("a resolve that gave up: %v", err)
	}
	close(release)
	wg.Wait()
	if n := top.Load(); n != most {
		t.Errorf("%d indexes on their way at once, want %d", n, most)
	}
}

// TestSequentialReadNeedsNoIndex: a backfill that goes on at segment starts asks for no offset index.
func TestSequentialReadNeedsNoIndex(t *testing.T) {
	l := newFakeLog(t, fakeSegment{start: 0, end: 99}, fakeSegment{start: 100, end: 199})
	r := l.resolver(locate.Options{})
	for _, offset := range []int64{0, 100} {
		if _, err := r.Resolve(ctx, fakeTP, &golden.View{Epochs: history(0, 0)}, offset, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.store.count(segment.IndexSuffix); n != 0 {
		t.Errorf("%d offset indexes were fetched", n)
	}
}

// FuzzIndexes gives the resolver whatever a store may hold in the place of a segment's files.
func FuzzIndexes(f *testing.F) {
	l := newFakeLog(f, fakeSegment{start: 0, end: 99, aborted: []segment.AbortedTxn{{ProducerID: 5, FirstOffset: 10, LastOffset: 60, LastStableOffset: 61}}})
	id := (&fakeSegment{}).id().String()
	object := func(suffix string) []byte { return l.store.objects[id+suffix] }
	f.Add(object(segment.LogSuffix), object(segment.IndexSuffix), object(segment.TimeIndexSuffix), object(segment.TxnIndexSuffix), object(segment.SnapshotSuffix), int64(55))
	f.Add([]byte{}, []byte{}, []byte{}, []byte{}, []byte{}, int64(1))
	f.Add(object(segment.LogSuffix)[:200], []byte{0, 0, 0, 9, 0x7f, 0xff, 0xff, 0xff}, make([]byte, 12), make([]byte, 34), []byte{0, 1}, int64(99))
	v := &golden.View{Epochs: history(0, 0)}
	f.Fuzz(func(t *testing.T, log, index, timeIndex, txn, snapshot []byte, offset int64) {
		if offset < 0 || offset > 99 {
			return
		}
		s := newFakeStore()
		s.objects[id+segment.LogSuffix] = log
		s.objects[id+segment.IndexSuffix] = index
		s.objects[id+segment.TimeIndexSuffix] = timeIndex
		s.objects[id+segment.TxnIndexSuffix] = txn
		s.objects[id+segment.SnapshotSuffix] = snapshot
		r := locate.New(locate.Options{RSM: s, Index: l.index})
		rng, err := r.Resolve(ctx, fakeTP, v, offset, true)
		if err == nil {
			if rng.StartPosition < 0 || rng.StartPosition > rng.EndPosition || rng.EndPosition > rng.Size || rng.Aborted == nil {
				t.Fatalf("positions %d to %d of %d, aborted %v", rng.StartPosition, rng.EndPosition, rng.Size, rng.Aborted)
			}
			if err := r.Shorten(ctx, rng.ID, &rng, offset); err != nil || rng.EndPosition < rng.StartPosition {
				t.Fatalf("shortened: positions %d to %d, %v", rng.StartPosition, rng.EndPosition, err)
			}
		}
		if _, ts, _, ok, err := r.OffsetForTimestamp(ctx, fakeTP, v, 1000+offset); err == nil && ok && ts < 1000+offset {
			t.Fatalf("timestamp %d found for %d", ts, 1000+offset)
		}
		_, _, _, _, _ = r.MaxTimestamp(ctx, fakeTP, v)
	})
}

var _ remotestorage.RemoteStorageManager = (*fakeStore)(nil)
