package aiven

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/internal/aivenwrite"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// big is a segment of a few dozen chunks, written as the plug-in would.
func big(tb testing.TB, size, chunk int, compress, encrypt bool, limit int64, parallelism int) (*Manager, remotestorage.RemoteLogSegmentMetadata, []byte) {
	tb.Helper()
	return written(tb, openDir(tb, tb.TempDir(), ""), size, chunk, compress, encrypt, limit, parallelism)
}

func written(tb testing.TB, store *bucket.Store, size, chunk int, compress, encrypt bool, limit int64, parallelism int) (*Manager, remotestorage.RemoteLogSegmentMetadata, []byte) {
	tb.Helper()
	o := aivenwrite.Options{Store: store, ChunkSize: chunk, Compress: compress}
	keys := make(map[string]*rsa.PrivateKey)
	if encrypt {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			tb.Fatal(err)
		}
		o.KeyID, o.Key, keys["k"] = "k", &key.PublicKey, key
	}
	w, err := aivenwrite.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	log, next := aivenwrite.AppendLog(nil, 0, size, mathrand.New(mathrand.NewPCG(1, 2)))
	md := remotestorage.RemoteLogSegmentMetadata{EndOffset: next - 1, SegmentSizeInBytes: int32(len(log))}
	md.Topic, md.TopicID, md.ID = "t", remotestorage.UUID{1}, remotestorage.RandomUUID()
	data := remotestorage.LogSegmentData{Log: aivenwrite.Bytes(log), OffsetIndex: aivenwrite.Bytes([]byte("offset")), LeaderEpochIndex: []byte("epochs")}
	if err := w.Write(context.Background(), md, data); err != nil {
		tb.Fatal(err)
	}
	return newManager(tb, Options{Store: store, Keys: keys, CacheBytes: limit, Parallelism: parallelism}), md, log
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
