package locate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// cuttingStore gives up bodies of logs.
type cuttingStore struct {
	*fakeStore
	cuts   int   // so many of them
	at     int64 // after so many bytes
	quiet  bool  // as if the object ended there
	asked  int
	broken error
}

func (s *cuttingStore) FetchLogSegment(ctx context.Context, m remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	body, err := s.fakeStore.FetchLogSegment(ctx, m, start, end)
	if s.asked++; err != nil || s.asked > s.cuts {
		return body, err
	}
	b, err := io.ReadAll(io.LimitReader(body, s.at))
	if err != nil || s.quiet {
		return io.NopCloser(bytes.NewReader(b)), err
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(b), iotest.ErrReader(s.broken))), nil
}

// TestLookupOfACutBody: a connection that breaks in a search by timestamp is not the segment's end: an answer from behind it would have a consumer that seeks by time begin
// too late.
func TestLookupOfACutBody(t *testing.T) {
	batches := []fakeBatch{{base: 0, last: 9, timestamp: 100, size: 3000}, {base: 10, last: 19, timestamp: 200, size: 3000}, {base: 20, last: 29, timestamp: 300, size: 3000}}
	view := &golden.View{Epochs: history(0, 0)}
	begin := func(cuts int, at int64, broken error) *locate.Resolver {
		l := newFakeLog(t, fakeSegment{start: 0, end: 29, batches: batches}, fakeSegment{start: 30, end: 39, batches: []fakeBatch{{base: 30, last: 39, timestamp: 400}}})
		s := &cuttingStore{fakeStore: l.store, cuts: cuts, at: at, broken: broken, quiet: broken == nil}
		return locate.New(locate.Options{RSM: s, Index: l.index, TxnIndexEmptyKnown: true})
	}
	for _, broken := range []error{fmt.Errorf("reset: %w", io.ErrUnexpectedEOF), errors.New("reset")} {
		for _, at := range []int64{0, 30, 61, 2000, 3100, 5000} {
			for _, cuts := range []int{1, 2, 1 << 30} {
				o, _, _, ok, err := begin(cuts, at, broken).OffsetForTimestamp(t.Context(), fakeTP, view, 200)
				switch {
				case cuts < 3 && (err != nil || !ok || o != 10):
					t.Errorf("%d cuts after %d bytes by %v: offset %d, %v, %v", cuts, at, broken, o, ok, err)
				case cuts >= 3 && !errors.Is(err, remote.ErrUnavailable):
					t.Errorf("cut each time after %d bytes by %v: offset %d, %v, %v", at, broken, o, ok, err)
				}
			}
		}
	}
	for _, at := range []int64{30, 61, 2000, 3100, 5000} {
		if o, _, _, ok, err := begin(1<<30, at, nil).OffsetForTimestamp(t.Context(), fakeTP, view, 200); !errors.Is(err, remote.ErrDamaged) {
			t.Errorf("an object of %d bytes: offset %d, %v, %v", at, o, ok, err)
		}
	}
}
