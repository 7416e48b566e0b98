package aiven

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/internal/aivenwrite"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// big is a segment of a few dozen chunks of real batches in a directory.
func big(tb testing.TB, size, chunk int, compress, encrypt bool, limit int64, parallelism int) (*Manager, remotestorage.RemoteLogSegmentMetadata, []byte) {
	tb.Helper()
	log, next := aivenwrite.AppendLog(nil, 0, size, rand.New(rand.NewPCG(1, 2)))
	m, md := write(tb, openDir(tb, tb.TempDir(), ""), log, chunk, compress, encrypt, limit, parallelism)
	md.EndOffset = next - 1
	return m, md, log
}

// written is a segment of a log that only looks like batches from afar: for tests of everything else.
func written(tb testing.TB, store *bucket.Store, size, chunk int, compress, encrypt bool, limit int64, parallelism int) (*Manager, remotestorage.RemoteLogSegmentMetadata, []byte) {
	tb.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	log, _ := aivenwrite.AppendLog(make([]byte, 0, size+4<<10), 0, min(size, 64<<10), rnd)
	for piece := log; len(log) < size; {
		at := len(log)
		log = append(log, piece[:min(len(piece), size-at)]...)
		for i := at; i < len(log); i += 1 + rnd.IntN(200) {
			log[i] = byte(rnd.Uint32())
		}
	}
	m, md := write(tb, store, log, chunk, compress, encrypt, limit, parallelism)
	return m, md, log
}

func write(tb testing.TB, store *bucket.Store, log []byte, chunk int, compress, encrypt bool, limit int64, parallelism int) (*Manager, remotestorage.RemoteLogSegmentMetadata) {
	tb.Helper()
	o := aivenwrite.Options{Store: store, ChunkSize: chunk, Compress: compress}
	keys := make(map[string]*rsa.PrivateKey)
	if encrypt {
		keys = keysOf(tb, golden.Load(tb, "aiven/aes"))
		o.KeyID, o.Key = "key1", &keys["key1"].PublicKey
	}
	w, err := aivenwrite.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	md := remotestorage.RemoteLogSegmentMetadata{SegmentSizeInBytes: int32(len(log))}
	md.Topic, md.TopicID, md.ID = "t", remotestorage.UUID{1}, remotestorage.RandomUUID()
	data := remotestorage.LogSegmentData{Log: aivenwrite.Bytes(log), OffsetIndex: aivenwrite.Bytes([]byte("offset")), LeaderEpochIndex: []byte("epochs")}
	if err := w.Write(context.Background(), md, data); err != nil {
		tb.Fatal(err)
	}
	return newManager(tb, Options{Store: store, Keys: keys, CacheBytes: limit, Parallelism: parallelism}), md
}

// BenchmarkRead reads a segment from a directory: whole as one range, and in ranges of 4 MiB of which eight are in flight, as internal/remote does.
func BenchmarkRead(b *testing.B) {
	const size = 64 << 20
	for _, c := range []struct {
		name              string
		compress, encrypt bool
	}{{"plain", false, false}, {"aes", false, true}, {"zstd", true, false}, {"zstd-aes", true, true}} {
		for _, chunk := range []int{1 << 20, 4 << 20} {
			for _, cores := range []int{1, 2} {
				for _, ranges := range []bool{false, true} {
					kind := "whole"
					if ranges {
						kind = "ranges"
					}
					b.Run(fmt.Sprintf("%s/chunk=%dMiB/cores=%d/%s", c.name, chunk>>20, cores, kind), func(b *testing.B) {
						m, md, log := big(b, size, chunk, c.compress, c.encrypt, 0, cores)
						defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
						b.SetBytes(int64(len(log)))
						b.ReportAllocs()
						defer cpuPerGiB(b, int64(len(log)))()
						for b.Loop() {
							m.chunks.forgetIdle()
							if ranges {
								readRanges(b, m, md, int64(len(log)))
							} else {
								discard(b, m, md, 0, int64(len(log)), nil)
							}
						}
						b.ReportMetric(float64((len(log)+chunk-1)/chunk), "chunks/op")
					})
				}
			}
		}
	}
}

func readRanges(tb testing.TB, m *Manager, md remotestorage.RemoteLogSegmentMetadata, size int64) {
	const step, flying = 4 << 20, 8
	var all sync.WaitGroup
	starts := make(chan int64)
	for range flying {
		all.Go(func() {
			buf := make([]byte, 256<<10)
			for at := range starts {
				discard(tb, m, md, at, min(at+step, size), buf)
			}
		})
	}
	for at := int64(0); at < size; at += step {
		starts <- at
	}
	close(starts)
	all.Wait()
}

func discard(tb testing.TB, m *Manager, md remotestorage.RemoteLogSegmentMetadata, start, end int64, buf []byte) {
	if buf == nil {
		buf = make([]byte, 256<<10)
	}
	r, err := m.FetchLogSegment(context.Background(), md, start, end)
	if err != nil {
		tb.Error(err)
		return
	}
	n := int64(0)
	for {
		k, err := r.Read(buf)
		n += int64(k)
		if err == io.EOF {
			break
		}
		if err != nil {
			tb.Error(err)
			break
		}
	}
	if err := r.Close(); err != nil || n != end-start {
		tb.Errorf("%d bytes of [%d, %d), %v", n, start, end, err)
	}
}

// BenchmarkReader reads through internal/remote, every batch checked: what a broker or a gateway has of it.
func BenchmarkReader(b *testing.B) {
	const size = 256 << 20
	for _, c := range []struct {
		name              string
		compress, encrypt bool
	}{{"plain", false, false}, {"aes", false, true}, {"zstd", true, false}, {"zstd-aes", true, true}} {
		for _, cores := range []int{1, 2} {
			for _, shared := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/cores=%d/shared=%v", c.name, cores, shared), func(b *testing.B) {
					m, md, log := big(b, size, 4<<20, c.compress, c.encrypt, 0, cores)
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
					b.SetBytes(int64(len(log)))
					b.ReportAllocs()
					n := int64(len(log))
					log = nil
					defer cpuPerGiB(b, n)()
					for b.Loop() {
						m.chunks.forgetIdle()
						readThrough(b, m, md, n, shared)
					}
				})
			}
		}
	}
}

type rangeSource struct {
	m  *Manager
	md remotestorage.RemoteLogSegmentMetadata
}

func (s rangeSource) ReadRange(ctx context.Context, start, end int64) (io.ReadCloser, error) {
	return s.m.FetchLogSegment(ctx, s.md, start, end)
}

func readThrough(tb testing.TB, m *Manager, md remotestorage.RemoteLogSegmentMetadata, size int64, shared bool) {
	o := remote.Options{ReadAhead: true, Budget: remote.NewBudget(64 << 20)}
	if shared {
		o.Cache = remote.NewCache(o.Budget, 32<<20)
		defer o.Cache.Close()
	}
	reader := remote.NewReader(o)
	defer reader.Close()
	p := reader.Open(md.TopicIDPartition, 0, func(_ context.Context, offset int64, _ error) (remote.Range, error) {
		if offset > md.EndOffset {
			return remote.Range{}, remote.ErrLocal
		}
		return remote.Range{
			Segment:     remote.Segment{ID: md.RemoteLogSegmentID, EndOffset: md.EndOffset, Size: size, Source: rangeSource{m, md}},
			EndPosition: size, LastOffset: md.EndOffset,
		}, nil
	})
	defer p.Close()
	var n int64
	for p.Offset() <= md.EndOffset {
		if err := p.Wait(context.Background(), 1<<20); err != nil && !errors.Is(err, remote.ErrLocal) {
			tb.Fatal(err)
		}
		d, err := p.Read(1<<20, true, false)
		if err != nil {
			tb.Fatal(err)
		}
		n += int64(d.Records.Len())
		if d.Records.Release != nil {
			d.Records.Release()
		}
	}
	if n != size {
		tb.Fatalf("%d bytes of %d", n, size)
	}
}

// cpuPerGiB reports the processor time that the loop took: what wall clock time says too little of on a machine with other things to do.
func cpuPerGiB(b *testing.B, size int64) (stop func()) {
	began := cpuTime(b)
	return func() {
		b.ReportMetric((cpuTime(b)-began).Seconds()/float64(b.N)/float64(size)*(1<<30), "cpu-s/GiB")
	}
}

func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
