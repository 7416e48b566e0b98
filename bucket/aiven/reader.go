package aiven

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// runBytes is about what one GET brings, as stored and opened together.
	runBytes = 8 << 20
	// windowBytes is what one reader has on its way at most, likewise, unless a single chunk is larger.
	windowBytes = 32 << 20
	// A range of which more than wholeRange bytes are asked for may be one whose reader looks for something and leaves soon: its window opens with what is read,
	// from firstWindow on.
	wholeRange  = 8 << 20
	firstWindow = 1 << 20
)

// FetchLogSegment opens the bytes [start, end) of the log as it was on the broker's disk.
func (m *Manager) FetchLogSegment(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	s, err := m.segment(ctx, md.RemoteLogSegmentID, md.StartOffset, md.CustomMetadata)
	if err != nil {
		return nil, err
	}
	size := s.chunks.fileSize
	if start < 0 || end < start || start >= size && end > start {
		return nil, fmt.Errorf("reading %s: bytes %d to %d of a log of %d: %w", m.s.Place(s.key+logSuffix), start, end, size, remotestorage.ErrRange)
	}
	end = min(end, size)
	if start >= end {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	if !s.transformed() {
		body, _, err := m.openRange(ctx, s.key, logSuffix, start, end)
		return body, err
	}
	r := &reader{m: m, s: s, ctx: ctx, began: start, pos: start, end: end, next: int(start / s.chunks.chunkSize), last: int((end - 1) / s.chunks.chunkSize)}
	r.window = windowBytes
	if end-start > wholeRange {
		r.window = firstWindow
	}
	r.ahead()
	return r, nil
}

// reader delivers a range of a log, chunk by chunk.
type reader struct {
	m          *Manager
	s          *segment
	ctx        context.Context
	began      int64    // where the range begins
	pos, end   int64    // what is still to be delivered
	next, last int      // chunks that are not asked for yet
	pending    []*chunk // asked for, in order
	held       int64    // memory counted for those
	window     int64    // as long as held is below it, more is asked for
	runs       []*run   // that chunks came from, and that had not ended when the last of them was added
	err        error    // ends reading
}

// Read gives bytes of one chunk.
func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.pos == r.end {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	data, err := r.head()
	if err != nil {
		r.err = err
		r.abandon()
		return 0, err
	}
	k := r.pending[0]
	first := int64(k.key.index) * r.s.chunks.chunkSize
	n := copy(p, data[r.pos-first:min(int64(len(data)), r.end-first)])
	r.pos += int64(n)
	if r.pos == first+int64(len(data)) || r.pos == r.end {
		r.drop()
		r.window = min(max(2*r.window, runBytes), windowBytes)
		r.ahead()
	}
	return n, nil
}

// head waits for the chunk that pos lies in.
func (r *reader) head() ([]byte, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	if len(r.pending) == 0 {
		if err := r.need(); err != nil {
			return nil, err
		}
	}
	k := r.pending[0]
	select {
	case <-k.done:
		return k.data, k.err
	case <-r.ctx.Done():
		return nil, r.ctx.Err()
	}
}

// drop gives the first pending chunk up.
func (r *reader) drop() {
	k := r.pending[0]
	r.pending[0] = nil
	r.pending = r.pending[1:]
	r.held -= k.opened + k.sealed
	first := int64(k.key.index) * r.s.chunks.chunkSize
	whole := r.began <= first && r.pos-first == int64(len(k.data))
	r.m.chunks.release(k, !whole)
}

// ahead asks for more chunks as long as the window and the memory allow.
func (r *reader) ahead() {
	for r.next <= r.last && r.held < r.window {
		if r.join() {
			continue
		}
		chunks, want := r.plan(min(runBytes, r.window-r.held))
		if !r.m.chunks.try(want) {
			return
		}
		r.begin(chunks)
	}
}

// need asks for the next chunk, waiting for memory: nothing is pending.
func (r *reader) need() error {
	for len(r.pending) == 0 {
		if r.join() {
			return nil
		}
		chunks, want := r.plan(0)
		if err := r.m.chunks.wait(r.ctx, want); err != nil {
			return err
		}
		r.begin(chunks)
	}
	return nil
}

// join takes the next chunk if it is there or on its way.
func (r *reader) join() bool {
	k := r.m.chunks.join(chunkKey{segment: r.s.id, index: r.next})
	if k == nil {
		return false
	}
	r.push(k)
	return true
}

func (r *reader) push(k *chunk) {
	r.pending = append(r.pending, k)
	r.held += k.opened + k.sealed
	r.next++
	if n := len(r.runs); n == 0 || r.runs[n-1] != k.of {
		r.runs = append(slices.DeleteFunc(r.runs, (*run).hasEnded), k.of)
	}
}

// plan makes the chunks of the next run: one at least, then as many as fit into limit and are not there.
func (r *reader) plan(limit int64) (chunks []*chunk, want int64) {
	for i := r.next; i <= r.last; i++ {
		start, end := r.s.chunks.stored(i)
		k := &chunk{key: chunkKey{segment: r.s.id, index: i}, opened: lentFor(end-start) + entryBytes, sealed: openingBytes, done: make(chan struct{})}
		if r.s.compressed {
			k.opened, k.sealed = lentFor(r.s.chunks.original(i)+zstdSlack)+entryBytes, lentFor(end-start)+openingBytes
		}
		if len(chunks) > 0 && (want+k.opened+k.sealed > limit || r.m.chunks.has(k.key)) {
			break
		}
		chunks = append(chunks, k)
		want += k.opened + k.sealed
	}
	return chunks, want
}

// begin starts a run, for which memory was counted.
func (r *reader) begin(chunks []*chunk) {
	// It is not this reader's alone: others may join, and stay when this one leaves.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.ctx))
	run := &run{m: r.m, s: r.s, chunks: chunks, ctx: ctx, cancel: cancel, ended: make(chan struct{})}
	for _, k := range chunks {
		k.of = run
	}
	if n := r.m.chunks.begin(run); n == 0 {
		cancel()
		return
	}
	for _, k := range run.chunks {
		r.push(k)
	}
	run.start()
}

// abandon gives everything up, and waits for all that ends with it.
func (r *reader) abandon() {
	for _, k := range r.pending {
		r.m.chunks.release(k, true)
	}
	r.pending, r.held = nil, 0
	for _, run := range r.runs {
		if r.m.chunks.over(run) {
			<-run.ended
		}
	}
	r.runs = nil
}

// Close ends the reading. GETs that nobody else waits for end with it.
func (r *reader) Close() error {
	if r.err == nil {
		r.err = errClosed
	}
	r.abandon()
	return nil
}

var errClosed = errors.New("reader is closed")
