package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// faults are chances, in percent, that a GET goes wrong in one way.
type faults struct {
	fail, cut, stall, denied, missing, flip, long, trickle int
}

// faulty is a store that misbehaves at random.
type faulty struct {
	s *segment
	f faults

	mu      sync.Mutex
	rnd     *rand.Rand
	flips   *int // counts wrong bytes, shared by all sources of a world
	refused bool // by this source, once and for all: a signature that has ended
}

func (f *faulty) roll(percent int) bool { return f.rnd.IntN(100) < percent }

func (f *faulty) ReadRange(ctx context.Context, start, end int64) (io.ReadCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	object := f.s.object
	switch {
	case f.refused || f.roll(f.f.denied):
		f.refused = true
		return nil, remotestorage.ErrDenied
	case f.roll(f.f.missing):
		f.refused = true
		return nil, remotestorage.ErrNotFound
	case f.roll(f.f.fail):
		return nil, errors.New("500 from the store")
	case start >= int64(len(object)):
		return nil, remotestorage.ErrRange
	}
	b := object[start:min(end, int64(len(object)))]
	if f.roll(f.f.flip) {
		b = f.damage(b, start)
	}
	body := &faultyBody{ctx: ctx, rest: b, err: io.EOF}
	switch {
	case f.roll(f.f.cut):
		body.rest = b[:f.rnd.IntN(len(b))]
		if f.roll(50) {
			body.err = errors.New("connection reset")
		}
	case f.roll(f.f.stall):
		body.rest, body.stall = b[:f.rnd.IntN(len(b))], true
	case f.roll(f.f.long):
		body.rest = object[start:]
	case f.roll(f.f.trickle):
		body.step, body.pause = 1+f.rnd.IntN(4096), time.Duration(1+f.rnd.IntN(20))*time.Millisecond
	}
	return body, nil
}

// damage flips a bit of a copy, where a check can see it: base offset and leader epoch are under no checksum.
func (f *faulty) damage(b []byte, start int64) []byte {
	at := f.rnd.IntN(len(b))
	pos := start + int64(at)
	for _, m := range f.s.batches {
		if in := pos - m.pos; in >= 0 && (in < 8 || in >= 12 && in < 16) {
			return b
		}
		if pos < m.pos+int64(len(m.raw)) {
			break
		}
	}
	*f.flips++
	b = bytes.Clone(b)
	b[at] ^= 1 << f.rnd.IntN(8)
	return b
}

type faultyBody struct {
	ctx   context.Context
	rest  []byte
	err   error
	stall bool
	step  int
	pause time.Duration
}

func (b *faultyBody) Read(dst []byte) (int, error) {
	if b.pause > 0 {
		select {
		case <-time.After(b.pause):
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
		dst = dst[:min(len(dst), b.step)]
	}
	if len(b.rest) == 0 {
		if b.stall {
			<-b.ctx.Done()
			return 0, b.ctx.Err()
		}
		return 0, b.err
	}
	n := copy(dst, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *faultyBody) Close() error { return nil }
