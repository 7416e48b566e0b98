package aiven

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// TestTinyChunks: what a chunk takes beside its bytes is counted. A store whose chunks are tiny does not make memory grow.
func TestTinyChunks(t *testing.T) {
	const limit = 1 << 20
	_, smallest := class(1)
	for _, c := range []struct {
		compress, encrypt bool
		each              int // memory of a chunk at least
	}{{true, false, 2 * smallest}, {false, true, smallest}, {true, true, 2 * smallest}} {
		f := newFakeStore()
		m, md, log := written(t, f.store(t), 300*kib, 100, c.compress, c.encrypt, limit, 2)
		most := 0
		f.onGet = func(_ context.Context, _ string, b []byte) (io.Reader, error) {
			m.chunks.mu.Lock()
			defer m.chunks.mu.Unlock()
			flying := 0
			for _, k := range m.chunks.chunks {
				if k.flying {
					flying++
				}
			}
			most = max(most, flying)
			return bytes.NewReader(b), nil
		}
		r, err := m.FetchLogSegment(t.Context(), md, 0, int64(len(log)))
		if got := readAll(t, r, err); !bytes.Equal(got, log) {
			t.Error("other bytes")
		}
		if most == 0 || most*c.each > limit {
			t.Errorf("%+v: %d chunks on their way at once take more than %d bytes", c, most, limit)
		}
	}
}

// TestMemoryIsBounded: whatever the number of readers, some of which stand still.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 3 << 20
	f := newFakeStore()
	m, md, log := written(t, f.store(t), 8<<20, 256*kib, true, true, limit, 2)
	var most atomic.Int64
	f.onGet = func(_ context.Context, _ string, b []byte) (io.Reader, error) {
		m.chunks.mu.Lock()
		defer m.chunks.mu.Unlock()
		if m.chunks.used > most.Load() {
			most.Store(m.chunks.used)
		}
		return bytes.NewReader(b), nil
	}
	var standing []io.ReadCloser
	for i := range 4 { // each holds what it has read ahead, the first all that it can get
		r, err := m.FetchLogSegment(t.Context(), md, int64(i)<<20, int64(i)<<20+300*kib)
		if err != nil {
			t.Fatal(err)
		}
		standing = append(standing, r)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for range 10 {
				start := rnd.IntN(len(log))
				end := min(len(log), start+rnd.IntN(1<<20))
				r, err := m.FetchLogSegment(t.Context(), md, int64(start), int64(end))
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(r)
				if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(b, log[start:end]) {
					t.Errorf("[%d, %d): other bytes, %v", start, end, err)
				}
			}
		})
	}
	all.Wait()
	for i, r := range standing {
		if got := readAll(t, r, nil); !bytes.Equal(got, log[i<<20:i<<20+300*kib]) {
			t.Errorf("reader %d: other bytes", i)
		}
	}
	if n := most.Load(); n == 0 || n > limit {
		t.Errorf("%d bytes in use, of %d", n, limit)
	}
}
