package locate_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"context"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open reads the partition as a server does: index, resolver, reader.
func (b *bench) open(r *remote.Reader, offset int64, committed bool) *remote.PartitionReader {
	return r.Open(b.p.TopicIDPartition, offset, func(ctx context.Context, offset int64, _ error) (remote.Range, error) {
		return b.resolver.Resolve(ctx, b.p.TopicIDPartition, b.view, offset, committed)
	})
}

func newReader(t *testing.T, chunk int) *remote.Reader {
	t.Helper()
	r := remote.NewReader(remote.Options{ChunkSize: chunk, ReadAhead: true, Budget: remote.NewBudget(32 << 20)})
	t.Cleanup(r.Close)
	return r
}

// TestGoldenRead reads every golden partition through Index, Resolver and PartitionReader: each batch byte for byte, in order.
func TestGoldenRead(t *testing.T) {
	reader := newReader(t, 64<<10) // so that the large batches lie across several chunks
	eachPartition(t, func(t *testing.T, b *bench) {
		want := b.live()
		rnd := rand.New(rand.NewPCG(3, 4))
		starts := []int64{b.view.Start, b.tiered}
		for range 15 {
			starts = append(starts, b.view.Start+rnd.Int64N(b.tiered-b.view.Start+1))
		}
		for _, start := range starts {
			i := 0
			for i < len(want) && want[i].LastOffset < start {
				i++
			}
			p := b.open(reader, start, rnd.IntN(2) == 0)
			for {
				if err := wait(t, p, 1<<20); errors.Is(err, remote.ErrLocal) {
					break
				} else if err != nil {
					t.Fatalf("from %d: at %d: %v", start, p.Offset(), err)
				}
				d, err := p.Read(1+rnd.IntN(60_000), true, false)
				if errors.Is(err, remote.ErrLocal) {
					break
				}
				if err != nil {
					t.Fatalf("from %d: at %d: %v", start, p.Offset(), err)
				}
				raw := join(d.Records.Bufs)
				if _, err := batch.Each(raw, func(h batch.Header, raw []byte) error {
					switch {
					case i == len(want):
						t.Fatalf("from %d: batch at %d that the broker does not have", start, h.BaseOffset)
					case b.hidden(&h, &want[i]):
						return nil
					case h.BaseOffset != want[i].BaseOffset || digest(raw) != want[i].SHA256:
						t.Fatalf("from %d: batch at %d, want the one at %d", start, h.BaseOffset, want[i].BaseOffset)
					}
					i++
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if d.Records.Release != nil {
					d.Records.Release()
				}
			}
			p.Close()
			if i < len(want) && want[i].BaseOffset <= b.tiered {
				t.Fatalf("from %d: the batch at %d is missing", start, want[i].BaseOffset)
			}
		}
	})
}

// wait gives up, and says where, instead of hanging.
func wait(t *testing.T, p *remote.PartitionReader, n int) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := p.Wait(ctx, n)
	if errors.Is(err, context.DeadlineExceeded) {
		got, err := p.Available()
		t.Fatalf("at %d: nothing moves, with %d bytes available, settled %v, %v", p.Offset(), got, p.Settled(), err)
	}
	return err
}

func join(bufs [][]byte) []byte {
	var out []byte
	for _, b := range bufs {
		out = append(out, b...)
	}
	return out
}

// TestGoldenProbes repeats the broker's fetches at edges: whole first batch, cut at the limit to the byte, never across a segment's end.
func TestGoldenProbes(t *testing.T) {
	reader := newReader(t, 4<<20)
	eachPartition(t, func(t *testing.T, b *bench) {
		markers := b.markers(t)
		compared := 0
		for _, f := range append(b.set.Probes(t), b.set.AbortedFetches(t)...) {
			if f.Topic != b.p.Topic || f.Partition != b.p.TopicIDPartition.Partition || f.PartitionError != 0 || f.RecordsBytes == 0 {
				continue
			}
			// Only what the broker itself read remotely: the same offset of the local log lies in other segments, or is cut otherwise.
			if f.FetchOffset < b.view.Start || f.FetchOffset >= b.p.LocalLogStartOffset || f.FetchOffset > b.tiered {
				continue
			}
			// A batch of a dead lineage, whole or as what the limit left of it: listed in docs/differences.md.
			if f.LastOffset != nil && b.dead(f.FetchOffset, *f.LastOffset+min(1, int64(f.TrailingBytes))) {
				continue
			}
			compared++
			b.probe(t, reader, &f, markers)
		}
		if compared == 0 {
			t.Skip("the broker read nothing of it remotely")
		}
		t.Logf("%d fetches compared", compared)
	})
}

func (b *bench) probe(t *testing.T, reader *remote.Reader, f *golden.Fetch, markers map[golden.Aborted]int64) {
	t.Helper()
	p := b.open(reader, f.FetchOffset, f.Isolation == 1)
	defer p.Close()
	limit := int(min(f.PartitionMaxBytes, f.FetchMaxBytes))
	if err := wait(t, p, limit); err != nil {
		t.Fatalf("offset %d, %d bytes: %v", f.FetchOffset, limit, err)
	}
	d, err := p.Read(limit, true, true)
	if err != nil {
		t.Fatalf("offset %d, %d bytes: %v", f.FetchOffset, limit, err)
	}
	if d.Records.Release != nil {
		defer d.Records.Release()
	}
	if n, sum := d.Records.Len(), digest(d.Records.Bufs...); n != f.RecordsBytes || sum != f.RecordsSHA256 {
		t.Errorf("offset %d, %d bytes: %d bytes %s, want %d bytes %s", f.FetchOffset, limit, n, sum, f.RecordsBytes, f.RecordsSHA256)
	}
	if (d.Aborted == nil) != (f.Aborted == nil) {
		t.Errorf("offset %d, isolation %d: aborted list %v, want %v", f.FetchOffset, f.Isolation, d.Aborted, f.Aborted)
	}
	theirs := make(map[golden.Aborted]bool)
	for _, a := range f.Aborted {
		theirs[a] = true
	}
	for _, a := range d.Aborted {
		g := golden.Aborted{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}
		if !theirs[g] {
			t.Errorf("offset %d, %d bytes: %+v, which the broker did not send, or twice", f.FetchOffset, limit, g)
		}
		delete(theirs, g)
	}
	for a := range theirs {
		if a.FirstOffset < d.NextOffset && markers[a] >= f.FetchOffset {
			t.Errorf("offset %d, %d bytes: %+v is missing; its marker is at %d", f.FetchOffset, limit, a, markers[a])
		}
	}
}
