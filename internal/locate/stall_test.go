package locate_test

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// stallingStore gives its indexes as a test says.
type stallingStore struct {
	*fakeStore
	index func(ctx context.Context, b []byte) (io.ReadCloser, error)
}

func (s stallingStore) FetchIndex(ctx context.Context, m remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) (io.ReadCloser, error) {
	b, err := s.get(m.ID, golden.IndexSuffix(t))
	if err != nil {
		return nil, err
	}
	return s.index(ctx, b)
}

// steady gives its bytes one by one, each after some time; it ends with ctx.
type steady struct {
	io.Reader
	ctx   context.Context
	pause time.Duration
}

func (s steady) Read(p []byte) (int, error) {
	select {
	case <-time.After(s.pause):
		return s.Reader.Read(p)
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

// TestIndexThatDoesNotCome: a store that stops in the middle of an index, or before it, is given up while there is time to ask again. One that is only slow is not.
func TestIndexThatDoesNotCome(t *testing.T) {
	for name, tt := range map[string]struct {
		index func(ctx context.Context, b []byte) (io.ReadCloser, error)
		fails bool
		took  time.Duration
	}{
		"no answer": {func(ctx context.Context, _ []byte) (io.ReadCloser, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, true, 10 * time.Second},
		"no byte": {func(ctx context.Context, b []byte) (io.ReadCloser, error) {
			return io.NopCloser(steady{bytes.NewReader(b), ctx, time.Hour}), nil
		}, true, 10 * time.Second},
		"some bytes": {func(ctx context.Context, b []byte) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(steady{bytes.NewReader(b[:8]), ctx, 5 * time.Second}, steady{bytes.NewReader(b[8:]), ctx, time.Hour})), nil
		}, true, 15 * time.Second},
		"slow": {func(ctx context.Context, b []byte) (io.ReadCloser, error) {
			return io.NopCloser(steady{iotest.OneByteReader(bytes.NewReader(b)), ctx, time.Second}), nil
		}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newFakeLog(t, fakeSegment{start: 0, end: 99})
				r := locate.New(locate.Options{RSM: stallingStore{l.store, tt.index}, Index: l.index})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				began := time.Now()
				_, err := r.Resolve(ctx, fakeTP, &golden.View{Epochs: history(0, 0)}, 55, false)
				if (err != nil) != tt.fails || ctx.Err() != nil || tt.fails && time.Since(began) != tt.took {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}

// TestScanThatDoesNotCome: the same holds where a position is looked for in the log itself.
func TestScanThatDoesNotCome(t *testing.T) {
	f := fakeSegment{start: 0, end: 99}
	for o := int64(0); o < 100; o += 10 {
		f.batches = append(f.batches, fakeBatch{base: o, last: o + 9, timestamp: 1000 + o, size: 1 << 20})
	}
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t, f)
		l.store.objects[(&fakeSegment{}).id().String()+segment.IndexSuffix] = nil
		r := locate.New(locate.Options{RSM: stallingLog{l.store}, Index: l.index})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		began := time.Now()
		if _, err := r.Resolve(ctx, fakeTP, &golden.View{Epochs: history(0, 0)}, 75, false); err == nil || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// stallingLog gives the first bytes of a log.
type stallingLog struct{ *fakeStore }

func (s stallingLog) FetchLogSegment(ctx context.Context, m remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	b, err := s.get(m.ID, segment.LogSuffix)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(b[start:100]), steady{bytes.NewReader(b[100:end]), ctx, time.Hour})), nil
}
