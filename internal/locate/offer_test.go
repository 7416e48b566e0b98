package locate_test

import (
	"errors"
	"testing"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestLocation(t *testing.T) {
	l := newFakeLog(t, fakeSegment{start: 0, end: 99}, fakeSegment{start: 100, end: 199})
	l.store.signed = true
	v := &golden.View{Epochs: history(0, 0)}
	r := l.resolver(locate.Options{})
	rng, err := r.Resolve(ctx, fakeTP, v, 150, true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Location(ctx, v, &rng)
	if err != nil {
		t.Fatal(err)
	}
	want := remotestorage.Location{
		RemoteLogSegmentID: (&fakeSegment{n: 1}).id(), StorageFormatVersion: "ApacheKafkaV1", BaseOffset: 100, EndOffset: 199, LastOffset: 199,
		SegmentSizeInBytes: rng.Size, StartPosition: rng.StartPosition, EndPosition: rng.Size,
		SignedRemoteLogSegmentLocation: got.SignedRemoteLogSegmentLocation, SignedLocationExpiryMs: 99,
		RemoteLogSegmentLocation: "golden://" + rng.ID.String(),
	}
	if got.SignedRemoteLogSegmentLocation == "" || got.CustomMetadata != nil {
		t.Errorf("%+v", got)
	}
	if got.CustomMetadata = nil; !equalLocation(got, &want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	if rng.StartPosition == 0 || rng.StartPosition >= rng.EndPosition {
		t.Errorf("positions %d to %d", rng.StartPosition, rng.EndPosition)
	}
}

func equalLocation(a, b *remotestorage.Location) bool {
	x, y := *a, *b
	x.CustomMetadata, y.CustomMetadata = nil, nil
	return x.RemoteLogSegmentID == y.RemoteLogSegmentID && x.StorageFormatVersion == y.StorageFormatVersion && x.BaseOffset == y.BaseOffset &&
		x.EndOffset == y.EndOffset && x.LastOffset == y.LastOffset && x.SegmentSizeInBytes == y.SegmentSizeInBytes &&
		x.StartPosition == y.StartPosition && x.EndPosition == y.EndPosition && x.RemoteLogSegmentLocation == y.RemoteLogSegmentLocation &&
		x.SignedRemoteLogSegmentLocation == y.SignedRemoteLogSegmentLocation && x.SignedLocationExpiryMs == y.SignedLocationExpiryMs
}

// TestNotOffered: a signature opens the whole object, so that a segment which holds anything a reader may not see is never signed.
func TestNotOffered(t *testing.T) {
	two := []remotestorage.EpochStart{{LeaderEpoch: 0, StartOffset: 0}, {LeaderEpoch: 1, StartOffset: 40}}
	for _, c := range []struct {
		name   string
		view   *golden.View
		epochs []remotestorage.EpochStart
		signed bool
		offset int64
		ok     bool
	}{
		{"whole", &golden.View{Epochs: history(0, 0, 1, 40)}, two, true, 50, true},
		{"log start at its beginning", &golden.View{Epochs: history(0, 0, 1, 40), Start: 0}, two, true, 0, true},
		{"log start inside", &golden.View{Epochs: history(0, 0, 1, 40), Start: 30}, two, true, 50, false},
		{"epochs forgotten", &golden.View{Epochs: history(1, 40), Start: 40}, two, true, 50, false},
		{"dead at its end", &golden.View{Epochs: history(0, 0, 2, 40)}, two, true, 20, false},
		{"cut in its last epoch", &golden.View{Epochs: history(0, 0, 1, 40, 5, 70)}, two, true, 50, false},
		{"not signed, but named", &golden.View{Epochs: history(0, 0, 1, 40)}, two, false, 50, true},
	} {
		l := newFakeLog(t, fakeSegment{start: 0, end: 99, epochs: c.epochs})
		l.store.signed = c.signed
		r := l.resolver(locate.Options{})
		rng, err := r.Resolve(ctx, fakeTP, c.view, c.offset, true)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		loc, err := r.Location(ctx, c.view, &rng)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, locate.ErrNotOffered) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil && (loc.SignedRemoteLogSegmentLocation != "") != c.signed {
			t.Errorf("%s: signed %q", c.name, loc.SignedRemoteLogSegmentLocation)
		}
	}
}

// TestOfferDeleted: the segment was marked for deletion between Resolve and Location.
func TestOfferDeleted(t *testing.T) {
	l := newFakeLog(t, fakeSegment{start: 0, end: 99})
	l.store.signed = true
	v := &golden.View{Epochs: history(0, 0)}
	r := l.resolver(locate.Options{})
	rng, err := r.Resolve(ctx, fakeTP, v, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	l.mark(t, 0, remotestorage.DeleteSegmentStarted)
	if _, err := r.Location(ctx, v, &rng); !errors.Is(err, locate.ErrNotOffered) {
		t.Errorf("%v, want %v", err, locate.ErrNotOffered)
	}
}

// TestAbortedListIsCapped: a location carries fewer than 10,000 aborted transactions, by ending earlier.
func TestAbortedListIsCapped(t *testing.T) {
	const n = 25_000
	f := fakeSegment{start: 0, end: 3*n - 1}
	for i := int64(0); i < n; i++ { // each transaction takes two offsets and its marker the third
		f.aborted = append(f.aborted, segment.AbortedTxn{ProducerID: 1 + i%7, FirstOffset: 3 * i, LastOffset: 3*i + 2, LastStableOffset: 3*i + 3})
	}
	for o := f.start; o <= f.end; o += 300 {
		f.batches = append(f.batches, fakeBatch{base: o, last: o + 299, timestamp: 1})
	}
	l := newFakeLog(t, f)
	v := &golden.View{Epochs: history(0, 0)}
	r := l.resolver(locate.Options{})
	steps, seen := 0, make(map[int64]bool)
	for offset := int64(0); offset <= f.end; steps++ {
		rng, err := r.Resolve(ctx, fakeTP, v, offset, true)
		if err != nil {
			t.Fatal(err)
		}
		before := rng.EndPosition
		loc, err := r.Location(ctx, v, &rng)
		if err != nil {
			t.Fatal(err)
		}
		if len(rng.Aborted) >= 10_000 || loc.LastOffset != rng.LastOffset || loc.EndPosition != rng.EndPosition {
			t.Fatalf("%d aborted transactions up to %d; location to %d, position %d of %d", len(rng.Aborted), rng.LastOffset, loc.LastOffset, loc.EndPosition, before)
		}
		if loc.LastOffset < f.end && loc.EndPosition >= before {
			t.Errorf("offset %d: the end position stayed at %d", offset, loc.EndPosition)
		}
		for _, a := range rng.Aborted {
			if a.FirstOffset > rng.LastOffset {
				t.Fatalf("%+v does not overlap a range that ends at %d", a, rng.LastOffset)
			}
			seen[a.FirstOffset] = true
		}
		// What the range holds is all there: its batches end at or behind its last offset.
		if got := readRange(t, &rng); len(got) == 0 {
			t.Fatalf("offset %d: an empty range", offset)
		}
		offset = rng.LastOffset + 1
	}
	if steps != 3 || len(seen) != n {
		t.Errorf("%d steps with %d of %d transactions, want 3 and all", steps, len(seen), n)
	}
}

func TestShortenedRangeStaysWithinPositions(t *testing.T) {
	l := newFakeLog(t, fakeSegment{start: 0, end: 99})
	v := &golden.View{Epochs: history(0, 0)}
	r := l.resolver(locate.Options{})
	for last := int64(0); last < 99; last++ {
		rng, err := r.Resolve(ctx, fakeTP, v, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Shorten(ctx, rng.ID, &rng, last); err != nil {
			t.Fatal(err)
		}
		want := int(last/10) + 1
		if got := readRange(t, &rng); len(got) != want || rng.LastOffset != last {
			t.Errorf("to %d: %d batches up to %d, want %d", last, len(got), rng.LastOffset, want)
		}
	}
	var zero remote.Range
	if err := r.Shorten(ctx, remotestorage.RemoteLogSegmentID{}, &zero, -1); !errors.Is(err, locate.ErrNotOffered) {
		t.Errorf("an unknown segment: %v", err)
	}
}

// A range is cut by bytes where the index has an entry, and what is left of it is all that lies below its last offset.
func TestShortenedToBytes(t *testing.T) {
	l := newFakeLog(t, fakeSegment{start: 0, end: 99}, fakeSegment{start: 100, end: 199})
	v := &golden.View{Epochs: history(0, 0)}
	r := l.resolver(locate.Options{})
	for first := int64(100); first < 200; first++ {
		whole, err := r.Resolve(ctx, fakeTP, v, first, true)
		if err != nil {
			t.Fatal(err)
		}
		all := readRange(t, &whole)
		size, before := whole.EndPosition-whole.StartPosition, int64(0)
		for bytes := int64(0); bytes <= size+size/13+1; bytes += size/13 + 1 {
			rng := whole
			if err := r.ShortenTo(ctx, &rng, bytes); err != nil {
				t.Fatal(err)
			}
			n := rng.EndPosition - rng.StartPosition
			got := readRange(t, &rng)
			want := 0
			for _, raw := range all {
				h, err := batch.ParseHeader(raw)
				if err != nil {
					t.Fatal(err)
				}
				if h.BaseOffset <= rng.LastOffset {
					want++
				}
			}
			if len(got) != want || want == 0 || rng.LastOffset < first || n < before || n > size {
				t.Fatalf("from %d, %d bytes: %d batches up to %d in %d bytes, want %d", first, bytes, len(got), rng.LastOffset, n, want)
			}
			// One batch and what lies on the way to it is the least.
			if n > bytes && rng.LastOffset >= first+30 {
				t.Errorf("from %d, %d bytes: %d bytes up to %d", first, bytes, n, rng.LastOffset)
			}
			before = n
		}
		if before != size {
			t.Errorf("from %d: %d of %d bytes where all are granted", first, before, size)
		}
	}
	var none remote.Range
	none.EndPosition = 10
	if err := r.ShortenTo(ctx, &none, 1); !errors.Is(err, locate.ErrNotOffered) {
		t.Errorf("an unknown segment: %v", err)
	}
}
