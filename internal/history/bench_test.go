package history

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/distance"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// The distance of an object store, as for the demonstration.
var far = distance.Distance{Latency: 30 * time.Millisecond, BytesPerSecond: 100 << 20}

const (
	benchSegment  = 64 << 20
	benchSegments = 4
)

// benchHistory is 256 MiB of 1 KiB records in batches of 16 KiB, behind a distance.
func benchHistory(b *testing.B, dist distance.Distance) (*fakeBroker, *fakePart) {
	b.Helper()
	fb := newFakeBroker(b)
	p := fb.topic("history", 1).parts[0]
	at := int64(0)
	for range benchSegments {
		var raws [][]byte
		for size := 0; size < benchSegment; size += len(raws[len(raws)-1]) {
			raws = append(raws, batchOf(0, at, 16, 1000))
			at += 16
		}
		fb.addSegment(p, raws...)
	}
	if !dist.IsZero() {
		fb.store.Config.Handler = dist.Handler(fb.store.Config.Handler)
	}
	return fb, p
}

func benchDistances(b *testing.B, run func(b *testing.B, d distance.Distance)) {
	for _, d := range []distance.Distance{{}, far} {
		b.Run(d.String(), func(b *testing.B) { run(b, d) })
	}
}

// BenchmarkDialer reads the history through the dialer with a client that drops records undecoded.
func BenchmarkDialer(b *testing.B) {
	benchDistances(b, func(b *testing.B, dist distance.Distance) {
		fb, p := benchHistory(b, dist)
		d, err := makeDialer(dialOptions{})
		if err != nil {
			b.Fatal(err)
		}
		defer d.Close()
		b.SetBytes(benchSegment * benchSegments)
		b.ReportAllocs()
		for b.Loop() {
			c := dialRaw(b, d, fb)
			b.ReportMetric(float64(drain(b, c, p)), "fetches")
			c.conn.Close()
		}
	})
}

// BenchmarkKgo reads it with franz-go.
func BenchmarkKgo(b *testing.B) {
	benchDistances(b, func(b *testing.B, dist distance.Distance) {
		fb, p := benchHistory(b, dist)
		d, err := makeDialer(dialOptions{})
		if err != nil {
			b.Fatal(err)
		}
		defer d.Close()
		b.SetBytes(benchSegment * benchSegments)
		for b.Loop() {
			c, err := kgo.NewClient(kgo.SeedBrokers(fb.addr()), kgo.Dialer(d.DialContext), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"history": {0: kgo.NewOffset().At(0)}}))
			if err != nil {
				b.Fatal(err)
			}
			for got := int64(0); got < p.hw; {
				f := c.PollFetches(b.Context())
				if f.Err() != nil {
					b.Fatal(f.Err())
				}
				got += int64(f.NumRecords())
			}
			c.Close()
		}
	})
}

// BenchmarkRangedGETs is what the store gives at all: the same ranges, the same number in flight, the same memory, nothing looked at.
func BenchmarkRangedGETs(b *testing.B) {
	benchDistances(b, func(b *testing.B, dist distance.Distance) {
		fb, p := benchHistory(b, dist)
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: remote.DefaultParallelism, DisableCompression: true, ReadBufferSize: 64 << 10}}
		defer client.CloseIdleConnections()
		b.SetBytes(benchSegment * benchSegments)
		for b.Loop() {
			turns := make(chan []byte, remote.DefaultParallelism)
			for range remote.DefaultParallelism {
				turns <- make([]byte, remote.DefaultChunkSize)
			}
			var wg sync.WaitGroup
			for _, s := range p.segs {
				for at := 0; at < len(s.data); at += remote.DefaultChunkSize {
					buf := <-turns
					wg.Go(func() {
						defer func() { turns <- buf }()
						end := min(at+remote.DefaultChunkSize, len(s.data))
						req, err := http.NewRequest(http.MethodGet, fb.store.URL+p.object(s), nil)
						if err != nil {
							b.Error(err)
							return
						}
						req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", at, end-1))
						resp, err := client.Do(req)
						if err != nil {
							b.Error(err)
							return
						}
						defer resp.Body.Close()
						if _, err := io.ReadFull(resp.Body, buf[:end-at]); err != nil {
							b.Error(err)
						}
					})
				}
			}
			wg.Wait()
		}
	})
}

// drain fetches from the beginning to the end, each answer into the same memory, and looks at the batches' headers only.
func drain(b *testing.B, c *rawClient, p *fakePart) (fetches int) {
	b.Helper()
	var frame []byte
	for next := int64(0); next < p.hw; fetches++ {
		c.send(fetchOf(11, time.Second, at(p, next)))
		var err error
		if frame, err = wire.ReadFrame(c.conn, 100<<20, frame); err != nil {
			b.Fatal(err)
		}
		next = max(next, lastOf(b, frame))
	}
	return fetches
}

// lastOf finds the offset behind the last batch of a version 11 answer about one partition without aborted transactions.
func lastOf(b *testing.B, frame []byte) (next int64) {
	const fixed = 4 + 4 + 2 + 4 + 4 + 2 + len("history") + 4 + 4 + 2 + 8 + 8 + 8 + 4 + 4 + 4
	if _, err := batch.Each(frame[fixed:], func(h batch.Header, _ []byte) error {
		next = h.LastOffset() + 1
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	return next
}
