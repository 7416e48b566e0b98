package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testTP = remotestorage.TopicIDPartition{TopicID: remotestorage.UUID{1}, Topic: "history", Partition: 3}

// spec is one batch to be made.
type spec struct {
	base, last int64
	size       int // of the records, at least 8
	producer   int64
	control    int // 0: data, 1: commit marker, 2: abort marker
	magic      int8
}

// made is a batch as it should arrive.
type made struct {
	spec
	raw []byte
	pos int64
}

func makeBatch(s spec, fill byte) []byte {
	records := bytes.Repeat([]byte{fill}, max(s.size, 8))
	if s.control > 0 {
		key := []byte{0, 0, 0, byte(2 - s.control)} // version 0, type 0 abort, 1 commit
		rec := []byte{0, 0, 0, 8}                   // attributes, two deltas, key length 4 as a zig-zag varint
		rec = append(rec, key...)
		rec = append(rec, 12, 0, 0, 0, 0, 0, 0, 0) // value of 6 bytes, no headers
		records = append(binary.AppendVarint(nil, int64(len(rec))), rec...)
	}
	b := make([]byte, batch.HeaderSize, batch.HeaderSize+len(records))
	b = append(b, records...)
	be := binary.BigEndian
	be.PutUint64(b, uint64(s.base))
	be.PutUint32(b[8:], uint32(len(b)-batch.LogOverhead))
	be.PutUint32(b[12:], 7) // leader epoch
	b[16] = byte(s.magic)
	attrs := uint16(0)
	if s.producer > 0 {
		attrs |= batch.Transactional
	}
	if s.control > 0 {
		attrs |= batch.Control
	}
	be.PutUint16(b[21:], attrs)
	be.PutUint32(b[23:], uint32(s.last-s.base))
	be.PutUint64(b[43:], uint64(s.producer))
	be.PutUint32(b[57:], uint32(s.last-s.base+1))
	batch.FixCRC(b)
	return b
}

// segment is a made segment: its object and what lies in it.
type segment struct {
	id      remotestorage.UUID
	base    int64
	end     int64
	object  []byte
	batches []made
}

func makeSegment(n int, base, end int64, specs ...spec) *segment {
	s := &segment{base: base, end: end}
	binary.BigEndian.PutUint64(s.id[8:], uint64(n)+1)
	for i, sp := range specs {
		if sp.magic == 0 {
			sp.magic = 2
		}
		raw := makeBatch(sp, byte(n*31+i))
		s.batches = append(s.batches, made{sp, raw, int64(len(s.object))})
		s.object = append(s.object, raw...)
	}
	return s
}

// plainSegments are count segments of batches with ten offsets each, without gaps.
func plainSegments(count, batchesEach, size int) []*segment {
	var out []*segment
	next := int64(0)
	for i := range count {
		var specs []spec
		base := next
		for range batchesEach {
			specs = append(specs, spec{base: next, last: next + 9, size: size})
			next += 10
		}
		out = append(out, makeSegment(i, base, next-1, specs...))
	}
	return out
}

// world is a partition's history: segments, a resolver over them, sources that misbehave on request.
type world struct {
	segments []*segment
	// wrap, if set, makes the source of a segment; n counts the resolves of that segment, from 0.
	wrap func(s *segment, n int, plain Source) Source
	// mend, if set, changes an answer of the resolver.
	change func(offset int64, refresh error, r *Range) error

	mu       sync.Mutex
	resolves []int64
	refresh  []error
	times    map[*segment]int
	gets     int
}

func (w *world) resolve(_ context.Context, offset int64, refresh error) (Range, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resolves = append(w.resolves, offset)
	w.refresh = append(w.refresh, refresh)
	for _, s := range w.segments {
		if s.end < offset {
			continue
		}
		var src Source = &memory{w: w, object: s.object}
		if w.times == nil {
			w.times = map[*segment]int{}
		}
		if w.wrap != nil {
			src = w.wrap(s, w.times[s], src)
		}
		w.times[s]++
		r := Range{
			Segment: Segment{
				ID:         remotestorage.RemoteLogSegmentID{TopicIDPartition: testTP, ID: s.id},
				BaseOffset: s.base, EndOffset: s.end, Size: int64(len(s.object)), Object: fmt.Sprintf("object-%d", s.base), Source: src,
			},
			EndPosition: int64(len(s.object)), FirstOffset: offset, LastOffset: s.end,
		}
		for _, b := range s.batches {
			if b.base <= offset {
				r.StartPosition = b.pos
			}
		}
		if w.change != nil {
			if err := w.change(offset, refresh, &r); err != nil {
				return Range{}, err
			}
		}
		return r, nil
	}
	return Range{}, ErrLocal
}

func (w *world) resolved() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.resolves)
}

// resolvedAt counts the resolves of one offset.
func (w *world) resolvedAt(offset int64) (n int) {
	for _, o := range w.resolved() {
		if o == offset {
			n++
		}
	}
	return n
}

func (w *world) getCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gets
}

// want are the batches from offset on.
func (w *world) want(offset int64) []made {
	var out []made
	for _, s := range w.segments {
		for _, b := range s.batches {
			if b.last >= offset {
				out = append(out, b)
			}
		}
	}
	return out
}

// memory is a Source over bytes.
type memory struct {
	w      *world
	object []byte
}

func (m *memory) ReadRange(ctx context.Context, start, end int64) (io.ReadCloser, error) {
	if m.w != nil {
		m.w.mu.Lock()
		m.w.gets++
		m.w.mu.Unlock()
	}
	if start >= int64(len(m.object)) {
		return nil, fmt.Errorf("%w: %d", remotestorage.ErrRange, start)
	}
	return io.NopCloser(bytes.NewReader(m.object[start:min(end, int64(len(m.object)))])), nil
}

// sourceFunc is a Source as a function.
type sourceFunc func(ctx context.Context, start, end int64) (io.ReadCloser, error)

func (f sourceFunc) ReadRange(ctx context.Context, start, end int64) (io.ReadCloser, error) {
	return f(ctx, start, end)
}

func newTestReader(t testing.TB, o Options) *Reader {
	t.Helper()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	r := NewReader(o)
	t.Cleanup(r.Close)
	return r
}

// got is what a consumer saw.
type got struct {
	batches []made
	data    []Data // Records already released
	err     error
}

// drain reads to the end, in bites of limit bytes, and copies what comes.
func drain(t testing.TB, p *PartitionReader, limit int) got {
	t.Helper()
	var g got
	for {
		if err := p.Wait(t.Context(), 1); err != nil {
			g.err = err
			return g
		}
		d, err := p.Read(limit, true, false)
		if err != nil {
			t.Fatalf("Read after Wait: %v", err)
		}
		raw := bytes.Join(d.Records.Bufs, nil)
		if d.Records.Release != nil {
			d.Records.Release()
		}
		d.Records = wire.Records{}
		g.data = append(g.data, d)
		if len(raw) == 0 {
			t.Fatal("nothing to read after Wait")
		}
		first := d.FirstOffset
		n, err := batch.Each(raw, func(h batch.Header, raw []byte) error {
			if first >= 0 && h.BaseOffset != first {
				t.Errorf("FirstOffset %d, first batch has %d", first, h.BaseOffset)
			}
			first = -1
			g.batches = append(g.batches, made{spec: spec{base: h.BaseOffset, last: h.LastOffset()}, raw: bytes.Clone(raw)})
			return nil
		})
		if err != nil || n != len(raw) {
			t.Fatalf("answer is not whole batches: %d of %d bytes, %v", n, len(raw), err)
		}
		if next := g.batches[len(g.batches)-1].last + 1; d.NextOffset != next || p.Offset() != next {
			t.Fatalf("NextOffset %d, Offset %d, want %d", d.NextOffset, p.Offset(), next)
		}
	}
}

// same compares what came with what should have come.
func same(t testing.TB, got, want []made) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if !bytes.Equal(got[i].raw, want[i].raw) {
			t.Fatalf("batch %d: got [%d, %d], want [%d, %d], or its bytes differ", i, got[i].base, got[i].last, want[i].base, want[i].last)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("got %d batches, want %d", len(got), len(want))
	}
}

func wantErr(t testing.TB, err error, is error) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Fatalf("error %v, want %v", err, is)
	}
}

// checkReturned fails if memory is missing after everything was closed.
func checkReturned(t testing.TB, b *Budget) {
	t.Helper()
	if n := b.InUse(); n != 0 {
		t.Errorf("%d bytes of the budget were not given back", n)
	}
}

func randomSource(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }
