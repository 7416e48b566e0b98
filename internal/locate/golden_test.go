package locate_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
)

// bench is one partition of a golden set with everything that resolving needs.
type bench struct {
	set      *golden.Set
	p        golden.Partition
	view     *golden.View
	index    *remotelog.Index
	resolver *locate.Resolver
	tiered   int64 // last offset in the remote tier, on the lineage; -1: none
	batches  []golden.Batch
	records  []record // see all
}

// eachPartition runs fn for every partition of every set that has something in the remote tier.
func eachPartition(t *testing.T, fn func(t *testing.T, b *bench)) {
	for _, s := range golden.KafkaSets(t) {
		t.Run(strings.TrimPrefix(s.Name, "kafka/"), func(t *testing.T) {
			x := s.Index(t)
			if w := x.Warnings(); w != (remotelog.Warnings{}) {
				t.Errorf("warnings of a whole metadata topic: %+v", w)
			}
			all := s.Batches(t)
			for _, p := range s.Facts(t).Partitions(t) {
				b := &bench{set: s, p: p, view: s.View(t, &p), index: x, tiered: -1}
				b.resolver = locate.New(locate.Options{RSM: golden.Store{Dir: s.ObjectsDir()}, Index: x, TxnIndexEmptyKnown: true})
				if part := x.Partition(p.TopicIDPartition); part != nil {
					if off, _, ok := part.HighestOffset(b.view.Epochs); ok {
						b.tiered = off
					}
				}
				for _, g := range all {
					if g.Topic == p.Topic && g.Partition == p.TopicIDPartition.Partition {
						b.batches = append(b.batches, g)
					}
				}
				if b.tiered >= b.view.Start {
					t.Run(p.String(), func(t *testing.T) { fn(t, b) })
				}
			}
		})
	}
}

// live leaves out the batches of an abandoned lineage, which Apache Kafka served where a segment's dead part was still in the remote tier
// (docs/differences.md, remote segments of an abandoned lineage). They are told by their epoch: it is not the one that the lineage has at that offset.
func (b *bench) live() []golden.Batch {
	var out []golden.Batch
	for _, g := range b.batches {
		if e, ok := b.view.Epochs.EpochFor(max(g.BaseOffset, b.view.Start)); ok && e == g.LeaderEpoch {
			out = append(out, g)
		}
	}
	return out
}

// hidden tells whether a live batch is one that Apache Kafka did not show, because it served the dead part of a segment in its place. The sets
// d-unclean-roll* have some: a dead batch that was shown overlaps them.
func (b *bench) hidden(h *batch.Header, next *golden.Batch) bool {
	return h.LastOffset() < next.BaseOffset && b.dead(h.BaseOffset, h.LastOffset())
}

// readRange gives the bytes of a range, up to its last offset, from the first batch that ends at or after its first offset.
func readRange(t *testing.T, rng *remote.Range) [][]byte {
	t.Helper()
	body, err := rng.Source.ReadRange(context.Background(), rng.StartPosition, rng.EndPosition)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil {
		t.Fatal(err)
	}
	if int64(len(b)) != rng.EndPosition-rng.StartPosition {
		t.Fatalf("%s: %d bytes of [%d, %d)", rng.Object, len(b), rng.StartPosition, rng.EndPosition)
	}
	var out [][]byte
	if _, err := batch.Each(b, func(h batch.Header, raw []byte) error {
		if _, err := batch.Parse(raw); err != nil {
			return err
		}
		if h.LastOffset() >= rng.FirstOffset && h.BaseOffset <= rng.LastOffset {
			out = append(out, raw)
		}
		return nil
	}); err != nil {
		t.Fatalf("%s: %v", rng.Object, err)
	}
	return out
}

// TestGoldenBatches reads the remote tier from its start, and from every kind of place in it, and compares each batch byte for byte.
func TestGoldenBatches(t *testing.T) {
	eachPartition(t, func(t *testing.T, b *bench) {
		want := b.live()
		rnd := rand.New(rand.NewPCG(1, 2))
		starts := []int64{b.view.Start, b.tiered}
		for range 40 {
			starts = append(starts, b.view.Start+rnd.Int64N(b.tiered-b.view.Start+1))
		}
		for _, start := range starts {
			i := 0
			for i < len(want) && want[i].LastOffset < start {
				i++
			}
			for offset := start; offset <= b.tiered; {
				rng, err := b.resolver.Resolve(context.Background(), b.p.TopicIDPartition, b.view, offset, false)
				if err != nil {
					t.Fatalf("offset %d: %v", offset, err)
				}
				for _, raw := range readRange(t, &rng) {
					h, _ := batch.ParseHeader(raw)
					if i == len(want) {
						t.Fatalf("from %d: batch at %d that the broker does not have", start, h.BaseOffset)
					}
					if b.hidden(&h, &want[i]) {
						continue
					}
					if sum := digest(raw); h.BaseOffset != want[i].BaseOffset || sum != want[i].SHA256 {
						t.Fatalf("from %d: batch at %d of epoch %d, %d bytes, %s; want the one at %d of epoch %d, %d bytes, %s",
							start, h.BaseOffset, h.LeaderEpoch, len(raw), sum, want[i].BaseOffset, want[i].LeaderEpoch, want[i].Size, want[i].SHA256)
					}
					i++
				}
				offset = rng.LastOffset + 1
			}
			if i < len(want) && want[i].BaseOffset <= b.tiered {
				t.Fatalf("from %d: the batch at %d is missing", start, want[i].BaseOffset)
			}
		}
		if _, err := b.resolver.Resolve(context.Background(), b.p.TopicIDPartition, b.view, b.tiered+1, false); !errors.Is(err, remote.ErrLocal) {
			t.Errorf("past the remote tier: %v, want %v", err, remote.ErrLocal)
		}
		if _, err := b.resolver.Resolve(context.Background(), b.p.TopicIDPartition, b.view, b.view.Start-1, false); !errors.Is(err, locate.ErrBelowLogStart) {
			t.Errorf("below the log start: %v, want %v", err, locate.ErrBelowLogStart)
		}
	})
}

func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestGoldenAborted compares the aborted transactions with those that the broker sent. It may send more than is needed; what it sends beyond
// ours must be of no use to the reader, and ours must all be among its own.
func TestGoldenAborted(t *testing.T) {
	eachPartition(t, func(t *testing.T, b *bench) {
		markers := b.markers(t)
		lines := 0
		for _, f := range b.set.AbortedFetches(t) {
			if f.Topic != b.p.Topic || f.Partition != b.p.TopicIDPartition.Partition || f.LastOffset == nil || f.FetchOffset < b.view.Start || *f.LastOffset > b.tiered {
				continue
			}
			if b.dead(*f.FirstBaseOffset, *f.LastOffset) {
				continue
			}
			lines++
			rng, err := b.resolver.Resolve(context.Background(), b.p.TopicIDPartition, b.view, f.FetchOffset, true)
			if err != nil {
				t.Fatalf("offset %d: %v", f.FetchOffset, err)
			}
			if rng.Aborted == nil {
				t.Fatalf("offset %d: a committed reader got no list", f.FetchOffset)
			}
			theirs := make(map[golden.Aborted]bool)
			for _, a := range f.Aborted {
				theirs[a] = true
			}
			ours := make(map[golden.Aborted]bool)
			for _, a := range rng.Aborted {
				g := golden.Aborted{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}
				if ours[g] {
					t.Errorf("offset %d: %+v twice", f.FetchOffset, g)
				}
				ours[g] = true
				if a.FirstOffset <= *f.LastOffset && !theirs[g] {
					t.Errorf("offset %d to %d: %+v, which the broker did not send", f.FetchOffset, *f.LastOffset, g)
				}
			}
			for a := range theirs {
				if !ours[a] && a.FirstOffset <= *f.LastOffset && markers[a] >= f.FetchOffset {
					t.Errorf("offset %d to %d: %+v is missing; its marker is at %d", f.FetchOffset, *f.LastOffset, a, markers[a])
				}
			}
		}
		t.Logf("%d fetches compared", lines)
	})
}

// dead tells whether the broker's answer for these offsets had batches of an abandoned lineage in it.
func (b *bench) dead(first, last int64) bool {
	for _, g := range b.batches {
		if g.LastOffset < first || g.BaseOffset > last {
			continue
		}
		if e, ok := b.view.Epochs.EpochFor(max(g.BaseOffset, b.view.Start)); !ok || e != g.LeaderEpoch {
			return true
		}
	}
	return false
}

// markers gives where each aborted transaction ends, read from the control batches themselves and not from any index.
func (b *bench) markers(t *testing.T) map[golden.Aborted]int64 {
	t.Helper()
	out := make(map[golden.Aborted]int64)
	open := make(map[int64]int64)
	for _, g := range b.batches {
		switch {
		case g.Attributes&batch.Transactional == 0:
		case g.Attributes&batch.Control == 0:
			if _, ok := open[g.ProducerID]; !ok {
				open[g.ProducerID] = g.BaseOffset
			}
		default: // commits are kept as well: no list names them
			if first, ok := open[g.ProducerID]; ok {
				out[golden.Aborted{ProducerID: g.ProducerID, FirstOffset: first}] = g.BaseOffset
				delete(open, g.ProducerID)
			}
		}
	}
	return out
}

// committedRecord is what tells a record from others in records-committed.jsonl.
type committedRecord struct {
	Topic       string  `json:"topic"`
	Partition   int32   `json:"partition"`
	Offset      int64   `json:"offset"`
	LeaderEpoch int32   `json:"leaderEpoch"`
	Timestamp   int64   `json:"timestamp"`
	KeySHA256   *string `json:"keySha256"`
	ValueSHA256 *string `json:"valueSha256"`
}

func (r committedRecord) String() string {
	text := func(s *string) string {
		if s == nil {
			return "null"
		}
		return *s
	}
	return fmt.Sprintf("%d epoch %d ts %d key %s value %s", r.Offset, r.LeaderEpoch, r.Timestamp, text(r.KeySHA256), text(r.ValueSHA256))
}
