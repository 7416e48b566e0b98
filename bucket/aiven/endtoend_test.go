package aiven

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// consumed is a record as the Java consumer printed it.
type consumed struct {
	Isolation   string       `json:"isolation"`
	Partition   int32        `json:"partition"`
	Offset      int64        `json:"offset"`
	Timestamp   int64        `json:"timestamp"`
	LeaderEpoch int32        `json:"leader_epoch"`
	Key         *string      `json:"key_sha256"`
	KeyLen      int          `json:"key_len"`
	Value       *string      `json:"value_sha256"`
	ValueLen    int          `json:"value_len"`
	Headers     [][2]*string `json:"headers"`
}

func (c *consumed) String() string {
	b, _ := json.Marshal(c)
	return string(b)
}

// offsets is what the broker said at the end.
type offsets struct {
	Partitions []struct {
		Partition int32         `json:"partition"`
		Start     offsetAtEpoch `json:"log_start_offset"`
		Tiered    offsetAtEpoch `json:"latest_tiered_offset"`
	} `json:"partitions"`
}

type offsetAtEpoch struct {
	Offset int64 `json:"offset"`
}

// history is one golden partition as a server sees it.
type history struct {
	set           *golden.Set
	tp            remotestorage.TopicIDPartition
	view          *golden.View
	start, tiered int64
	resolver      *locate.Resolver
}

func eachHistory(t *testing.T, txnKnown bool, fn func(t *testing.T, h *history)) {
	eachSet(t, func(t *testing.T, s *golden.Set) {
		m := goldenManager(t, s)
		x := s.Index(t)
		r := locate.New(locate.Options{RSM: m, Index: x, TxnIndexEmptyKnown: txnKnown})
		var at offsets
		if err := json.NewDecoder(s.Open(t, "offsets.json")).Decode(&at); err != nil {
			t.Fatal(err)
		}
		for _, tp := range x.Partitions() {
			for _, p := range at.Partitions {
				if p.Partition != tp.Partition {
					continue
				}
				b, err := io.ReadAll(s.Open(t, fmt.Sprintf("checkpoints/leader-epoch-checkpoint.%d", p.Partition)))
				if err != nil {
					t.Fatal(err)
				}
				entries, err := epoch.ParseCheckpoint(b)
				if err != nil {
					t.Fatal(err)
				}
				h := &history{set: s, tp: tp, start: p.Start.Offset, tiered: p.Tiered.Offset, resolver: r}
				h.view = &golden.View{Epochs: epoch.New(entries), Start: h.start}
				t.Run(tp.String(), func(t *testing.T) { fn(t, h) })
			}
		}
	})
}

func (h *history) resolve(committed bool) remote.ResolveFunc {
	return func(ctx context.Context, offset int64, _ error) (remote.Range, error) {
		return h.resolver.Resolve(ctx, h.tp, h.view, offset, committed)
	}
}

// TestGoldenConsumer reads every set through internal/locate and internal/remote, and gets what the Java consumer got through the broker, at both isolation
// levels: every record, in order, no other.
func TestGoldenConsumer(t *testing.T) {
	for _, c := range []struct {
		name     string
		chunk    int
		shared   bool
		txnKnown bool
	}{{"own-chunks", 64 << 10, false, false}, {"shared-chunks", 1 << 20, true, true}} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.shared {
				t.Skip("the other one does for a short run")
			}
			eachHistory(t, c.txnKnown, func(t *testing.T, h *history) {
				o := remote.Options{ChunkSize: c.chunk, ReadAhead: true, Budget: remote.NewBudget(16 << 20)}
				if c.shared {
					o.Cache = remote.NewCache(o.Budget, 8<<20)
					defer o.Cache.Close()
				}
				reader := remote.NewReader(o)
				defer reader.Close()
				for _, isolation := range []string{"read_uncommitted", "read_committed"} {
					want := h.want(t, isolation)
					for _, from := range []int64{h.start, (h.start + h.tiered) / 2, h.tiered} {
						h.compare(t, reader, isolation, from, want)
					}
				}
			})
		})
	}
}

// want is what the consumer got out of the remote tier.
func (h *history) want(t *testing.T, isolation string) []consumed {
	t.Helper()
	var out []consumed
	for _, c := range golden.Lines[consumed](t, h.set, "records.jsonl") {
		if c.Isolation == isolation && c.Partition == h.tp.Partition && c.Offset <= h.tiered {
			out = append(out, c)
		}
	}
	if len(out) < 100 {
		t.Fatalf("only %d records", len(out))
	}
	return out
}

func (h *history) compare(t *testing.T, reader *remote.Reader, isolation string, from int64, want []consumed) {
	t.Helper()
	for len(want) > 0 && want[0].Offset < from {
		want = want[1:]
	}
	committed := isolation == "read_committed"
	var d codec.Decoder
	defer d.Close()
	p := reader.Open(h.tp, from, h.resolve(committed))
	defer p.Close()
	for p.Offset() <= h.tiered {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := p.Wait(ctx, 1)
		cancel()
		if errors.Is(err, remote.ErrLocal) {
			break
		}
		if err != nil {
			t.Fatalf("%s from %d: at %d: %v", isolation, from, p.Offset(), err)
		}
		data, err := p.Read(50_000, true, false)
		if errors.Is(err, remote.ErrLocal) {
			break
		}
		if err != nil {
			t.Fatalf("%s from %d: at %d: %v", isolation, from, p.Offset(), err)
		}
		var raw []byte
		for _, b := range data.Records.Bufs {
			raw = append(raw, b...)
		}
		if data.Records.Release != nil {
			data.Records.Release()
		}
		for _, got := range consume(t, &d, raw, data.Aborted, committed, from) {
			got.Isolation, got.Partition = isolation, h.tp.Partition
			if len(want) == 0 {
				t.Fatalf("%s from %d: one too many: %s", isolation, from, &got)
			}
			if got.String() != want[0].String() {
				t.Fatalf("%s from %d:\n got %s\nwant %s", isolation, from, &got, &want[0])
			}
			want = want[1:]
		}
	}
	if len(want) != 0 {
		t.Errorf("%s from %d: %d records are missing, the first: %s", isolation, from, len(want), &want[0])
	}
}

// consume does what a consumer does with a response: it passes control records over, and what was aborted.
func consume(t *testing.T, d *codec.Decoder, raw []byte, aborted []wire.AbortedTransaction, committed bool, from int64) (out []consumed) {
	t.Helper()
	open := make(map[int64]bool)
	if _, err := batch.Each(raw, func(h batch.Header, raw []byte) error {
		if _, err := batch.Parse(raw); err != nil {
			return err
		}
		for _, a := range aborted {
			if a.ProducerID == h.ProducerID && a.FirstOffset <= h.LastOffset() {
				open[a.ProducerID] = true
			}
		}
		payload, err := d.Decode(nil, h.Codec(), batch.Payload(raw), 16<<20)
		if err != nil {
			return err
		}
		if h.IsControl() {
			return batch.EachRecord(payload, h.NumRecords, func(r *batch.Record) error {
				kind, _, err := batch.ParseControl(r)
				if kind == 0 { // abort
					delete(open, h.ProducerID)
					aborted = forget(aborted, h.ProducerID, h.BaseOffset)
				}
				return err
			})
		}
		if committed && h.IsTransactional() && open[h.ProducerID] {
			return nil
		}
		return batch.EachRecord(payload, h.NumRecords, func(r *batch.Record) error {
			c := consumed{Offset: h.BaseOffset + int64(r.OffsetDelta), LeaderEpoch: h.LeaderEpoch, Timestamp: h.Timestamp(r)}
			c.Key, c.KeyLen = digest(r.Key)
			c.Value, c.ValueLen = digest(r.Value)
			c.Headers = headers(r)
			if c.Offset >= from {
				out = append(out, c)
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// forget takes the transaction out that ended with the marker at offset.
func forget(aborted []wire.AbortedTransaction, producer, offset int64) []wire.AbortedTransaction {
	for i, a := range aborted {
		if a.ProducerID == producer && a.FirstOffset < offset {
			return append(append([]wire.AbortedTransaction{}, aborted[:i]...), aborted[i+1:]...)
		}
	}
	return aborted
}

func digest(b []byte) (*string, int) {
	if b == nil {
		return nil, -1
	}
	sum := sha256.Sum256(b)
	text := hex.EncodeToString(sum[:])
	return &text, len(b)
}

func headers(r *batch.Record) [][2]*string {
	out := [][2]*string{}
	b := r.Headers
	field := func() *string {
		n, used := binary.Varint(b)
		b = b[used:]
		if n < 0 {
			return nil
		}
		s := string(b[:n])
		b = b[n:]
		return &s
	}
	for range r.HeaderCount {
		name, value := field(), field()
		if value != nil {
			text := hex.EncodeToString([]byte(*value))
			value = &text
		}
		out = append(out, [2]*string{name, value})
	}
	return out
}

// TestNullTransactionIndex: the manifest says that there is none, so that a committed reader is answered even where the metadata record does not say so.
func TestNullTransactionIndex(t *testing.T) {
	s := golden.Load(t, "aiven/zstd-aes")
	m := goldenManager(t, s)
	asked := 0
	for _, g := range segments(t, s) {
		if g.source.Txn != nil {
			continue
		}
		asked++
		r, err := m.FetchIndex(t.Context(), g.md, remotestorage.IndexTransaction)
		if b := readAll(t, r, err); len(b) != 0 {
			t.Errorf("%d bytes", len(b))
		}
	}
	if asked == 0 {
		t.Fatal("every segment has one")
	}
}

// TestOffered: only a log that is as it was on the broker's disk is offered to clients.
func TestOffered(t *testing.T) {
	offered := make(map[string]int)
	eachHistory(t, true, func(t *testing.T, h *history) {
		for offset := h.start; offset <= h.tiered; {
			rng, err := h.resolver.Resolve(t.Context(), h.tp, h.view, offset, true)
			if err != nil {
				t.Fatal(err)
			}
			offset = rng.LastOffset + 1
			l, err := h.resolver.Location(t.Context(), h.view, &rng)
			switch {
			case err == nil:
				offered[h.set.Name]++
				if l.RemoteLogSegmentLocation == "" || l.SegmentSizeInBytes != rng.Size {
					t.Errorf("%+v", l)
				}
			case !errors.Is(err, locate.ErrNotOffered):
				t.Error(err)
			}
		}
	})
	if offered["aiven/plain"] == 0 || offered["aiven/mixed"] == 0 || offered["aiven/zstd"]+offered["aiven/aes"]+offered["aiven/zstd-aes"] != 0 {
		t.Errorf("offered: %v", offered)
	}
}
