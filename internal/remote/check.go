package remote

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rewind-kafka/rewind/internal/batch"
)

const (
	// maxReady bounds what is remembered of checked batches, which matters when they are tiny; leastReady does where many read (see PartitionReader.readyBound).
	maxReady, leastReady = 4096, 128
	// A check run ends after so much, so that batches leave while the next ones are checked.
	runBatches = 512
	runBytes   = 1 << 20
	// maxBatch is the largest batch that is read, which has to be in memory whole before its CRC tells whether its length is true. Larger ones are the broker's.
	maxBatch = 128 << 20
	// magicAt is where every format of batch has its magic.
	magicAt = 16
)

// span is a run of bytes that are there, at a position of the object.
type span struct {
	pos int64
	b   []byte
}

// checker looks at a stream's bytes, batch by batch, without a lock and without a copy. Its slices are reused from run to run, by whichever pump has a run to do.
type checker struct {
	view    []span
	viewEnd int64
	short   bool // no bytes will ever follow the view
	room    int  // batches that may become ready
	parts   [][]byte
	scratch [markerBytes]byte

	run
}

// run is what one check run found; the pump writes it into the stream.
type run struct {
	found     []checked
	bytes     int
	pos       int64 // where it ended
	skipTo    int64 // batches below the offset wanted end here; -1 if there were none
	order     int64
	checkLast int64
	any, done bool
	needSize  int
	// restart: the first batch begins after the offset wanted, so the start position was wrong.
	restart bool
	// fault: the bytes at pos are not what they should be.
	fault error
}

// errLayout are faults of order and bounds.
var errLayout = errors.New("batches do not follow the segment's metadata")

// look takes a view of what is there from s.checkPos on. PartitionReader.mu is held.
func (k *checker) look(s *stream, whole bool, most int) {
	k.view, k.viewEnd, k.short, k.room = k.view[:0], s.checkPos, false, most-s.ready.len()
	for i := range s.pieces {
		p := &s.pieces[i]
		if p.end <= s.checkPos {
			continue
		}
		upTo, done, err := p.visible(whole)
		for at := max(p.start, s.checkPos); at < upTo; at = k.viewEnd {
			b := p.bytes(at, upTo)
			k.view = append(k.view, span{at, b})
			k.viewEnd = at + int64(len(b))
		}
		if k.viewEnd < p.end {
			k.short = done && errors.Is(err, errShort)
			return
		}
	}
	k.short = s.short
}

// bytesAt returns the n bytes at pos, which are in the view: a slice of it, or a copy in scratch if they straddle.
func (k *checker) bytesAt(pos int64, n int) []byte {
	sp := &k.view[0]
	off := int(pos - sp.pos)
	if off+n <= len(sp.b) {
		return sp.b[off : off+n]
	}
	out := k.scratch[:0]
	for i := range k.view {
		sp := &k.view[i]
		if off := pos - sp.pos; off >= 0 && off < int64(len(sp.b)) {
			take := sp.b[off:]
			take = take[:min(len(take), n-len(out))]
			out = append(out, take...)
			pos += int64(len(take))
		}
		if len(out) == n {
			break
		}
	}
	return out
}

// collect makes parts the bytes [pos, pos+n).
func (k *checker) collect(pos int64, n int) {
	k.parts = k.parts[:0]
	end := pos + int64(n)
	for i := range k.view {
		sp := &k.view[i]
		if sp.pos >= end {
			break
		}
		from, to := pos-sp.pos, min(end-sp.pos, int64(len(sp.b)))
		if from < to {
			k.parts = append(k.parts, sp.b[from:to])
			pos = sp.pos + to
		}
	}
}

// forward lets go of spans that lie before pos.
func (k *checker) forward(pos int64) {
	n := 0
	for n < len(k.view) && k.view[n].pos+int64(len(k.view[n].b)) <= pos {
		n++
	}
	k.view = k.view[n:]
}

// check looks at the batches in the view, until it has done a run's worth or cannot go on.
func (k *checker) check(s *stream) {
	full := k.view // forward eats it from the front; the memory is for the next run
	k.run = run{found: k.found[:0], pos: s.checkPos, skipTo: -1, order: s.order, checkLast: s.checkLast, any: s.any}
	for len(k.found) < min(runBatches, k.room) && k.bytes < runBytes {
		if !k.one(s) {
			break
		}
		k.forward(k.pos)
	}
	k.view = full
}

// one checks the batch at k.pos, and returns whether to go on.
func (k *checker) one(s *stream) bool {
	if k.pos == s.endPos {
		k.done = true
		return false
	}
	avail, left := k.viewEnd-k.pos, s.endPos-k.pos
	if left < batch.LogOverhead {
		return k.wrong("%d bytes after the last batch", left)
	}
	if avail < batch.LogOverhead {
		return k.more(s, batch.LogOverhead)
	}
	head := k.bytesAt(k.pos, int(min(avail, batch.HeaderSize)))
	size, err := batch.PeekSize(head)
	if err != nil {
		return k.failed(err)
	}
	base := int64(binary.BigEndian.Uint64(head))
	switch {
	case base < s.rng.BaseOffset || base > s.rng.EndOffset:
		return k.wrong("base offset %d is outside [%d, %d]", base, s.rng.BaseOffset, s.rng.EndOffset)
	case base <= k.order:
		return k.wrong("base offset %d does not come after %d", base, k.order)
	case base > s.rng.LastOffset:
		k.done = true
		return false
	case int64(size) > left:
		return k.wrong("a batch of %d bytes where %d are left", size, left)
	case size > maxBatch:
		return k.wrong("a batch of %d bytes, and %d is the most that is read", size, maxBatch)
	case avail <= magicAt:
		return k.more(s, size)
	case head[magicAt] < 2:
		return k.failed(ErrOldFormat)
	case avail < batch.HeaderSize && int64(size) > avail:
		return k.more(s, size)
	}
	h, err := batch.ParseHeader(head)
	if err != nil {
		return k.failed(err)
	}
	if last := h.LastOffset(); last > s.rng.EndOffset || last < base { // less than its base: it is beyond the largest number
		return k.wrong("last offset %d is after %d", last, s.rng.EndOffset)
	}
	if !k.any && base > s.want && s.rng.StartPosition > 0 && !s.restarted {
		k.restart = true
		return false
	}
	if avail < int64(size) {
		return k.more(s, size)
	}
	return k.whole(s, &h, size)
}

// whole checks the CRC of a batch that is there, and notes it.
func (k *checker) whole(s *stream, h *batch.Header, size int) bool {
	k.collect(k.pos, size)
	if err := batch.CheckCRC(h, k.parts...); err != nil {
		return k.failed(err)
	}
	at := k.pos
	k.pos += int64(size)
	k.bytes += size
	k.order, k.any = h.LastOffset(), true
	if k.order < s.want {
		k.skipTo = k.pos
		return true
	}
	c := checked{size: size, base: h.BaseOffset, last: k.order, producerID: -1, epoch: h.LeaderEpoch}
	if h.IsControl() {
		n := min(size-batch.HeaderSize, markerBytes)
		if isAbortMarker(h, k.bytesAt(at+batch.HeaderSize, n)) {
			c.producerID = h.ProducerID
		}
	}
	k.found = append(k.found, c)
	k.checkLast = k.order
	k.done = k.order >= s.rng.LastOffset
	return !k.done
}

// more ends the run for lack of bytes.
func (k *checker) more(s *stream, size int) bool {
	k.needSize = size
	if k.short {
		return k.wrong("%w: it ends at %d of %d bytes", errShort, k.viewEnd, s.endPos)
	}
	return false
}

func (k *checker) wrong(format string, args ...any) bool {
	return k.failed(fmt.Errorf("%w: position %d: "+format, append([]any{errLayout, k.pos}, args...)...))
}

func (k *checker) failed(err error) bool {
	k.fault = err
	return false
}
