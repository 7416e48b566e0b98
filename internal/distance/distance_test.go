package distance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store of one object.
type memory struct {
	remotestorage.RemoteStorageManager
	b []byte
}

func (m memory) FetchLogSegment(_ context.Context, _ remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(m.b[start:end])), nil
}

func (m memory) FetchIndex(context.Context, remotestorage.RemoteLogSegmentMetadata, remotestorage.IndexType) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(m.b)), nil
}

func (m memory) DeleteLogSegmentData(context.Context, remotestorage.RemoteLogSegmentMetadata) error {
	return nil
}

var far = Distance{Latency: 30 * time.Millisecond, BytesPerSecond: 100e6}

// TestRangeTakesItsTime: a range of 4 MB takes the latency and 40 ms, however it is read. The time is virtual.
func TestRangeTakesItsTime(t *testing.T) {
	const n = 4_000_000
	for _, size := range []int{1000, 4096, 32 << 10, 1 << 20, n} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			r, err := far.Manager(memory{b: make([]byte, 2*n)}).FetchLogSegment(t.Context(), remotestorage.RemoteLogSegmentMetadata{}, 0, n)
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Since(begin); got != far.Latency {
				t.Errorf("first byte after %v", got)
			}
			// Read to the last byte and not beyond, as one fills a chunk.
			for left := n; left > 0; {
				k, err := io.ReadFull(r, make([]byte, min(size, left)))
				if err != nil {
					t.Fatal(err)
				}
				left -= k
				// Never more than a quantum ahead of its rate.
				if at, due := time.Since(begin)-far.Latency, time.Duration(float64(n-left)/100e6*1e9); at < due-2*quantum {
					t.Fatalf("%d bytes after %v, due after %v", n-left, at, due)
				}
			}
			if got := time.Since(begin); got < 70*time.Millisecond || got > 71*time.Millisecond {
				t.Errorf("reads of %d bytes: %v, want 70ms", size, got)
			}
		})
	}
}

func TestIndexTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r, err := far.Manager(memory{b: make([]byte, 500_000)}).FetchIndex(t.Context(), remotestorage.RemoteLogSegmentMetadata{}, remotestorage.IndexOffset)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || len(b) != 500_000 {
			t.Fatal(len(b), err)
		}
		if got := time.Since(begin); got != 35*time.Millisecond {
			t.Errorf("%v, want 35ms", got)
		}
	})
}

func TestStreamsHavePacesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		m := far.Manager(memory{b: make([]byte, 1_000_000)})
		done := make(chan error)
		for range 8 {
			go func() {
				r, err := m.FetchLogSegment(t.Context(), remotestorage.RemoteLogSegmentMetadata{}, 0, 1_000_000)
				if err == nil {
					_, err = io.Copy(io.Discard, r)
				}
				done <- err
			}()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if got := time.Since(begin); got != 40*time.Millisecond {
			t.Errorf("%v, want 40ms", got)
		}
	})
}

func TestContextEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := Distance{Latency: time.Hour, BytesPerSecond: 1}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := slow.Manager(memory{}).FetchLogSegment(ctx, remotestorage.RemoteLogSegmentMetadata{}, 0, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("first byte: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := slow.Reader(ctx, io.NopCloser(bytes.NewReader(make([]byte, 1000))), 1000)
		if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("pace: %v", err)
		}
	})
}

func TestNoDistance(t *testing.T) {
	m := memory{}
	if _, ok := (Distance{}).Manager(m).(memory); !ok {
		t.Error("something was put before the store for nothing")
	}
	if err := far.Manager(m).DeleteLogSegmentData(t.Context(), remotestorage.RemoteLogSegmentMetadata{}); err != nil {
		t.Error(err)
	}
}

type responder struct {
	n      int
	copied bool
}

func (h responder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.copied {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(make([]byte, h.n)))
		return
	}
	_, _ = w.Write(make([]byte, h.n))
}

func TestHandlerTakesItsTime(t *testing.T) {
	for name, h := range map[string]http.Handler{"written": responder{n: 2_000_000}, "copied": responder{n: 2_000_000, copied: true}} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			w := httptest.NewRecorder()
			far.Handler(h).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if w.Body.Len() != 2_000_000 {
				t.Errorf("%s: %d bytes", name, w.Body.Len())
			}
			if got := time.Since(begin); got != 50*time.Millisecond {
				t.Errorf("%s: %v, want 50ms", name, got)
			}
		})
	}
}

type answer struct{ b []byte }

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Body: io.NopCloser(bytes.NewReader(a.b)), ContentLength: int64(len(a.b))}, nil
}

func TestRoundTripperTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		req := httptest.NewRequest("GET", "/", nil)
		resp, err := far.RoundTripper(answer{make([]byte, 3_000_000)}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 3_000_000)); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(begin); got != 60*time.Millisecond {
			t.Errorf("%v, want 60ms", got)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	d := Distance{BytesPerSecond: 1 << 50} // no waiting: what counting costs
	buf := make([]byte, 32<<10)
	src := make([]byte, 4<<20)
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		r := d.Reader(b.Context(), io.NopCloser(bytes.NewReader(src)), int64(len(src)))
		for {
			if _, err := r.Read(buf); err != nil {
				break
			}
		}
	}
}
