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
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

const kib = 1 << 10

// TestFewGets: neighbouring chunks come in one GET.
func TestFewGets(t *testing.T) {
	f := newFakeStore()
	m, md, log := written(t, f.store(t), 20<<20, 64*kib, true, true, 0, 2)
	r, err := m.FetchLogSegment(t.Context(), md, 0, int64(len(log)))
	if got := readAll(t, r, err); !bytes.Equal(got, log) {
		t.Error("other bytes")
	}
	// Less than 40 MiB, stored and opened, by 8 MiB a run, after a smaller one; the window's end may cut some in two.
	if n := f.count(logSuffix); n < 3 || n > 12 {
		t.Errorf("%d GETs for %d chunks", n, len(log)/(64*kib))
	}
	if n := f.count(manifestSuffix); n != 1 {
		t.Errorf("%d GETs of the manifest", n)
	}
}

// TestNeighboursShareChunks: ranges that meet inside a chunk, read one after the other or at once, fetch and open it once.
func TestNeighboursShareChunks(t *testing.T) {
	for _, atOnce := range []bool{false, true} {
		f := newFakeStore()
		m, md, log := written(t, f.store(t), 4<<20, 256*kib, true, true, 0, 2)
		var bytesRead atomic.Int64
		f.onGet = func(_ context.Context, key string, b []byte) (io.Reader, error) {
			if key == keyOf(&md, logSuffix) {
				bytesRead.Add(int64(len(b)))
			}
			return bytes.NewReader(b), nil
		}
		const step = 100_000
		var all sync.WaitGroup
		for at := 0; at < len(log); at += step {
			read := func() {
				end := min(at+step, len(log))
				r, err := m.FetchLogSegment(t.Context(), md, int64(at), int64(end))
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(r)
				if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(b, log[at:end]) {
					t.Errorf("at %d: other bytes, %v", at, err)
				}
			}
			if atOnce {
				all.Go(read)
			} else {
				read()
			}
		}
		all.Wait()
		stored := int64(len(f.objects[keyOf(&md, logSuffix)]))
		if n := bytesRead.Load(); n != stored {
			t.Errorf("at once %v: %d bytes fetched of an object of %d", atOnce, n, stored)
		}
	}
}

// counts is a Metrics.
type counts struct {
	mu    sync.Mutex
	gets  map[string]int
	bytes map[string]int64
	errs  []error
}

func (c *counts) StoreRead(suffix string, n int64, _ time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gets[suffix]++
	c.bytes[suffix] += n
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

// TestMetrics: every GET is counted once, with its bytes; a failing one with its error, one that was given up without.
func TestMetrics(t *testing.T) {
	f := newFakeStore()
	w, md, log := written(t, f.store(t), 3<<20, 256*kib, true, true, 0, 2)
	c := &counts{gets: make(map[string]int), bytes: make(map[string]int64)}
	o := w.o
	o.Metrics = c
	m := newManager(t, o)
	r, err := m.FetchLogSegment(t.Context(), md, 0, int64(len(log)))
	if !bytes.Equal(readAll(t, r, err), log) {
		t.Error("other bytes")
	}
	ri, err := m.FetchIndex(t.Context(), md, remotestorage.IndexOffset)
	readAll(t, ri, err)
	for _, suffix := range []string{logSuffix, manifestSuffix} {
		if c.gets[suffix] != f.count(suffix) || c.bytes[suffix] != int64(len(f.objects[keyOf(&md, suffix)])) {
			t.Errorf("%s: %d GETs of %d bytes, want %d of %d", suffix, c.gets[suffix], c.bytes[suffix], f.count(suffix), len(f.objects[keyOf(&md, suffix)]))
		}
	}
	if c.gets[indexesSuffix] != 1 || c.bytes[indexesSuffix] != 6+sealSize || len(c.errs) != 0 {
		t.Errorf("%+v", c)
	}
	m.chunks.forgetIdle()
	f.onGet = func(context.Context, string, []byte) (io.Reader, error) { return nil, errBroken }
	if r, err = m.FetchLogSegment(t.Context(), md, 0, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, errBroken) || len(c.errs) != 1 {
		t.Errorf("%v, errors counted: %v", err, c.errs)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	g := newGate()
	f.onGet = g.onGet
	if r, err = m.FetchLogSegment(t.Context(), md, 0, 10); err != nil {
		t.Fatal(err)
	}
	<-g.entered
	if err := r.Close(); err != nil || len(c.errs) != 1 || c.gets[logSuffix] != f.count(logSuffix) {
		t.Errorf("%v, errors counted: %v", err, c.errs)
	}
}

// gate makes GETs of the log wait until it is opened or their context ends.
type gate struct {
	entered chan struct{}
	open    chan struct{}
	ended   atomic.Int32 // GETs whose context ended
}

func newGate() *gate { return &gate{entered: make(chan struct{}, 100), open: make(chan struct{})} }

func (g *gate) onGet(ctx context.Context, key string, b []byte) (io.Reader, error) {
	if key[len(key)-len(logSuffix):] != logSuffix {
		return bytes.NewReader(b), nil
	}
	g.entered <- struct{}{}
	select {
	case <-g.open:
		return bytes.NewReader(b), nil
	case <-ctx.Done():
		g.ended.Add(1)
		return nil, ctx.Err()
	}
}

// TestCloseEndsGets: nothing is left running.
func TestCloseEndsGets(t *testing.T) {
	f := newFakeStore()
	m, md, log := written(t, f.store(t), 40<<20, 1<<20, false, true, 0, 2)
	g := newGate()
	f.onGet = g.onGet
	if int64(len(log)) < wholeRange {
		t.Fatal("the log is too small")
	}
	r, err := m.FetchLogSegment(t.Context(), md, 0, wholeRange)
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	<-g.entered // it reads ahead
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, errClosed) {
		t.Errorf("reading on: %v", err)
	}
	if started := f.count(logSuffix); int(g.ended.Load()) != started || started > 6 {
		t.Errorf("%d GETs were ended, of %d", g.ended.Load(), started)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestLookingCostsLittle: who opens the rest of a segment to look at its first batches, as lookups by timestamp do, does not fetch much of it; who reads on gets
// the whole window.
func TestLookingCostsLittle(t *testing.T) {
	f := newFakeStore()
	m, md, log := written(t, f.store(t), 40<<20, 256*kib, false, true, 0, 2)
	var fetched atomic.Int64
	f.onGet = func(_ context.Context, key string, b []byte) (io.Reader, error) {
		fetched.Add(int64(len(b)))
		return bytes.NewReader(b), nil
	}
	r, err := m.FetchLogSegment(t.Context(), md, 100, int64(len(log)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 100*kib)); err != nil {
		t.Error(err)
	}
	if n := fetched.Load(); n > firstWindow+300*kib {
		t.Errorf("%d bytes were fetched for the first batches", n)
	}
	if _, err := io.ReadFull(r, make([]byte, 2<<20)); err != nil {
		t.Error(err)
	}
	if held := r.(*reader).held; held < windowBytes/2 || held > windowBytes+300*kib {
		t.Errorf("%d bytes on their way for one who reads on", held)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestContextEndsReading: Read returns, and so do the GETs.
func TestContextEndsReading(t *testing.T) {
	f := newFakeStore()
	m, md, log := written(t, f.store(t), 4<<20, 1<<20, true, true, 0, 2)
	g := newGate()
	f.onGet = g.onGet
	ctx, cancel := context.WithCancel(t.Context())
	r, err := m.FetchLogSegment(ctx, md, 0, int64(len(log)))
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	cancel()
	if _, err := r.Read(make([]byte, 100)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if int(g.ended.Load()) != f.count(logSuffix) {
		t.Errorf("%d GETs were ended, of %d", g.ended.Load(), f.count(logSuffix))
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestOthersStay: a reader that goes away does not take a chunk with it that another one waits for.
func TestOthersStay(t *testing.T) {
	f := newFakeStore()
	m, md, log := written(t, f.store(t), 4<<20, 1<<20, true, true, 0, 2)
	g := newGate()
	f.onGet = g.onGet
	first, err := m.FetchLogSegment(t.Context(), md, 0, int64(len(log)))
	if err != nil {
		t.Fatal(err)
	}
	<-g.entered
	second, err := m.FetchLogSegment(t.Context(), md, 1000, 2000) // of the first one's first chunk
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if g.ended.Load() == int32(f.count(logSuffix)) {
		t.Error("no GET is left for the second reader")
	}
	close(g.open)
	if got := readAll(t, second, nil); !bytes.Equal(got, log[1000:2000]) {
		t.Error("other bytes")
	}
	if n := f.count(logSuffix); n != 1 {
		t.Errorf("%d GETs", n)
	}
}

// TestStalledGet: a GET that brings nothing is given up, and whoever waits for it hears of it and may try again.
func TestStalledGet(t *testing.T) {
	f := newFakeStore()
	m, md, log := written(t, f.store(t), 1<<20, 128*kib, false, true, 0, 2)
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		f.onGet = g.onGet
		began := time.Now()
		r, err := m.FetchLogSegment(t.Context(), md, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, errStalled) || time.Since(began) != stallTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		// One that is only slow is not: a byte every nine seconds.
		f.onGet = func(_ context.Context, _ string, b []byte) (io.Reader, error) {
			return iotest.OneByteReader(&slowReader{r: bytes.NewReader(b)}), nil
		}
		r, err = m.FetchLogSegment(t.Context(), md, 0, 1)
		if got := readAll(t, r, err); !bytes.Equal(got, log[:1]) {
			t.Error("other bytes")
		}
		f.onGet = nil
	})
}

// slowReader waits before each of the first bytes.
type slowReader struct {
	r    io.Reader
	read int
}

func (s *slowReader) Read(p []byte) (int, error) {
	if s.read++; s.read < 20 {
		time.Sleep(9 * time.Second)
	}
	return s.r.Read(p)
}

// TestWaitForMemory: who waits in vain leaves no trace, and does not keep others from their turn.
func TestWaitForMemory(t *testing.T) {
	f := newFakeStore()
	m, md, log := written(t, f.store(t), 4<<20, 1<<20, false, true, 1<<20+100, 2) // one chunk
	holder, err := m.FetchLogSegment(t.Context(), md, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	if _, err := io.ReadFull(holder, one); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() {
		r, err := m.FetchLogSegment(ctx, md, 1<<20, 1<<20+10)
		if err == nil {
			_, err = r.Read(make([]byte, 1))
			err = errors.Join(err, r.Close())
		}
		waits <- err
	}()
	for waiting := false; !waiting; {
		m.chunks.mu.Lock()
		waiting = m.chunks.waiters.Len() == 1
		m.chunks.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := holder.Close(); err != nil {
		t.Error(err)
	}
	r, err := m.FetchLogSegment(t.Context(), md, 2<<20, 3<<20)
	if got := readAll(t, r, err); !bytes.Equal(got, log[2<<20:3<<20]) {
		t.Error("other bytes")
	}
}

// TestBrokenStore: with a store that fails, stops in the middle or damages bytes once in a while, readers that go on where they were get every byte, and no other.
func TestBrokenStore(t *testing.T) {
	for _, c := range []struct{ compress, encrypt bool }{{true, false}, {false, true}, {true, true}} {
		f := newFakeStore()
		m, md, log := written(t, f.store(t), 6<<20, 100_000, c.compress, c.encrypt, 4<<20, 3)
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(1, 5))
		f.onGet = func(_ context.Context, _ string, b []byte) (io.Reader, error) {
			mu.Lock()
			defer mu.Unlock()
			switch rnd.IntN(8) {
			case 0:
				return nil, errBroken
			case 1:
				return bytes.NewReader(b[:rnd.IntN(len(b))]), nil
			case 2:
				return io.MultiReader(bytes.NewReader(b[:rnd.IntN(len(b))]), iotest.ErrReader(errBroken)), nil
			case 3:
				b = bytes.Clone(b)
				b[0] ^= 1 << rnd.IntN(8) // of the frame's magic, or of the IV
			}
			return bytes.NewReader(b), nil
		}
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() { insist(t, m, &md, log, int64(i)*777_777) })
		}
		all.Wait()
	}
}

// insist reads from a position to the end as internal/remote does: after an error it goes on behind the last byte.
func insist(t *testing.T, m *Manager, md *remotestorage.RemoteLogSegmentMetadata, log []byte, at int64) {
	for tries := 0; at < int64(len(log)); tries++ {
		if tries > 1000 {
			t.Errorf("no progress at %d", at)
			return
		}
		r, err := m.FetchLogSegment(t.Context(), *md, at, int64(len(log)))
		if err != nil {
			continue
		}
		buf := make([]byte, 70_000)
		for {
			n, err := r.Read(buf)
			if !bytes.Equal(buf[:n], log[at:at+int64(n)]) {
				t.Errorf("other bytes at %d", at)
				_ = r.Close()
				return
			}
			at += int64(n)
			if err != nil {
				break
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
