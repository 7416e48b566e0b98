package aiven

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// stallTimeout: a GET that brings no byte for so long is given up. It belongs to all readers that wait for it, so that none of them can end it alone.
const stallTimeout = 10 * time.Second

var errStalled = errors.New("no byte came within 10 seconds")

// run is one GET for chunks that lie side by side. Each chunk is opened as soon as it is there, while the next one arrives.
type run struct {
	m      *Manager
	s      *segment
	chunks []*chunk
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{} // closed when nothing of it runs any more

	// Guarded by chunkCache.mu.
	left   int // chunks that are not done
	wanted int // references on those; once there are none, nobody joins
}

// start begins the run; its chunks are listed.
func (r *run) start() {
	go func() {
		defer close(r.ended)
		defer r.cancel()
		var opening sync.WaitGroup
		defer opening.Wait()
		n, err := r.fetch(&opening)
		for _, k := range r.chunks[n:] {
			r.m.chunks.finish(k, nil, nil, err)
		}
	}()
}

// fetch makes the GET and has each chunk opened. It gives how many chunks came, and why the others did not.
func (r *run) fetch(opening *sync.WaitGroup) (n int, err error) {
	body, err := r.open(0, len(r.chunks))
	if err != nil {
		return 0, err
	}
	for i, k := range r.chunks {
		sealed := r.m.lent.get(r.storedSize(i))
		if err := body.full(sealed); err != nil {
			r.m.lent.put(sealed)
			body.Close()
			return i, err
		}
		if i < len(r.chunks)-1 {
			opening.Go(func() { r.openChunk(k, sealed) })
			continue
		}
		body.Close() // only read from: its error says nothing that the bytes do not
		r.openChunk(k, sealed)
	}
	return len(r.chunks), nil
}

func (r *run) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

func (r *run) storedSize(i int) int {
	start, end := r.s.chunks.stored(r.chunks[i].key.index)
	return int(end - start)
}

// open makes a GET for the chunks [from, to) of the run.
func (r *run) open(from, to int) (*timedBody, error) {
	start, _ := r.s.chunks.stored(r.chunks[from].key.index)
	_, end := r.s.chunks.stored(r.chunks[to-1].key.index)
	key := r.s.key + logSuffix
	ctx, cancel := context.WithCancelCause(r.ctx)
	b := &timedBody{ctx: ctx, cancel: cancel, timer: time.AfterFunc(stallTimeout, func() { cancel(errStalled) })}
	body, size, err := r.m.openRange(ctx, r.s.key, logSuffix, start, end)
	b.ReadCloser = body
	switch {
	case errors.Is(err, remotestorage.ErrRange):
		err = fmt.Errorf("%w: by its manifest it has %d bytes: %w", remotestorage.ErrDamaged, r.s.chunks.total(), err)
	case err != nil:
		err = b.cause(err)
	case size < r.s.chunks.total():
		err = fmt.Errorf("%s: %w: it has %d bytes, and %d by its manifest", r.m.s.Place(key), remotestorage.ErrDamaged, size, r.s.chunks.total())
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// timedBody is a GET's body that is given up when it stalls.
type timedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (b *timedBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	if b.ReadCloser != nil {
		return b.ReadCloser.Close()
	}
	return nil
}

// cause says why a GET was given up by this side, if it was.
func (b *timedBody) cause(err error) error {
	if context.Cause(b.ctx) == errStalled {
		return fmt.Errorf("%w: %w", errStalled, err)
	}
	return err
}

// full fills p.
func (b *timedBody) full(p []byte) error {
	for len(p) > 0 {
		n, err := b.Read(p)
		p = p[n:]
		if n > 0 {
			b.timer.Reset(stallTimeout)
		}
		if err != nil && len(p) > 0 {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return b.cause(err)
		}
	}
	return nil
}

// openChunk opens a chunk on one of the openers. One that cannot be opened is fetched a second time: it may have been damaged on its way.
func (r *run) openChunk(k *chunk, sealed []byte) {
	buf, data, err := r.unseal(k, sealed)
	if err != nil && r.ctx.Err() == nil {
		place := r.place(k)
		r.m.o.Logger.Warn("chunk cannot be opened, reading it once more", "chunk", place, "err", err)
		if buf, data, err = r.again(k); errors.Is(err, errOpen) {
			err = fmt.Errorf("%s: %w: %w", place, remotestorage.ErrDamaged, err)
		}
	}
	r.m.chunks.finish(k, buf, data, err)
}

func (r *run) place(k *chunk) string {
	start, end := r.s.chunks.stored(k.key.index)
	return fmt.Sprintf("chunk %d, bytes %d to %d of %s", k.key.index, start, end, r.m.s.Place(r.s.key+logSuffix))
}

func (r *run) again(k *chunk) (buf, data []byte, err error) {
	i := k.key.index - r.chunks[0].key.index
	body, err := r.open(i, i+1)
	if err != nil {
		return nil, nil, err
	}
	defer body.Close() // only read from: its error says nothing that the bytes do not
	sealed := r.m.lent.get(r.storedSize(i))
	if err := body.full(sealed); err != nil {
		r.m.lent.put(sealed)
		return nil, nil, err
	}
	return r.unseal(k, sealed)
}

// errOpen: the bytes of a chunk are not what encryption or compression made.
var errOpen = errors.New("it cannot be opened")

// unseal decrypts and decompresses sealed, which it takes over, and gives the memory that data lies in.
func (r *run) unseal(k *chunk, sealed []byte) (buf, data []byte, err error) {
	var z *zstd.Decoder
	select {
	case z = <-r.m.openers:
		defer func() { r.m.openers <- z }()
	case <-r.ctx.Done():
		r.m.lent.put(sealed)
		return nil, nil, r.ctx.Err()
	}
	want := int(r.s.chunks.original(k.key.index))
	data, err = r.s.open(sealed)
	if err == nil && r.s.compressed {
		buf = r.m.lent.get(want + zstdSlack)
		data, err = z.DecodeAll(data, buf[:0])
		r.m.lent.put(sealed)
		sealed = buf
	}
	if err == nil && len(data) != want {
		err = fmt.Errorf("it has %d bytes, want %d", len(data), want)
	}
	if err != nil {
		r.m.lent.put(sealed)
		return nil, nil, fmt.Errorf("%w: %w", errOpen, err)
	}
	return sealed, data, nil
}

// zstdSlack is room behind the data, without which the decoder takes a slower way at the end.
const zstdSlack = 64

// newOpeners makes n decoders. Who takes one out may open a chunk.
func newOpeners(n int) (chan *zstd.Decoder, error) {
	openers := make(chan *zstd.Decoder, n)
	for range n {
		// The capacity of the buffer bounds what a chunk can grow to.
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(2*maxChunk))
		if err != nil {
			return nil, err
		}
		openers <- z
	}
	return openers, nil
}
