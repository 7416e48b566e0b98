package remote

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// PartitionReader reads one partition's history forward from an offset, segment after segment. Its methods never block on a store, except Wait and
// Close, and may be called from any goroutine, though only one consumer makes sense.
type PartitionReader struct {
	r       *Reader
	tp      remotestorage.TopicIDPartition
	resolve ResolveFunc
	leave   func() bool // see TryOpen
	ctx     context.Context
	cancel  context.CancelFunc
	bell    chan struct{}  // rung when the pump has something to look at; holds one ring
	tasks   sync.WaitGroup // GETs and resolves of this reader
	ended   chan struct{}  // closed when the pump has ended
	lent    atomic.Int64   // bytes of chunks in the consumer's hands

	mu      sync.Mutex
	next    int64 // next offset to be delivered
	streams []*stream
	// err ends the reading once all that is ready was delivered.
	err      error
	reported bool // the consumer has seen err
	closed   bool
	subs     map[int]func()
	subID    int

	window    int  // pieces that may be held or in flight
	fed       bool // something was delivered since window grew last
	starved   bool // the consumer found nothing, or took the last
	wanted    bool // the consumer has come since its last Read
	parked    bool // gave up everything because the consumer did not come
	settled   bool // the pump sleeps, nothing is on its way, and the subscribers have heard of it
	limit     int  // what the consumer says it will ask for
	lastTake  time.Time
	came      time.Time // when the consumer was here last
	hungry    time.Time // since when it finds nothing; zero: it was not here, or was given something
	sheds     int       // how often what it had not come for was given to others, less how often it came since
	mostReady int       // bound of each stream's ready
	active    bool      // counts in the budget's fair share
	stalled   bool      // the pump knows that the consumer has stalled
	announce  bool      // subscribers have not heard of err
	calls     []func()  // the pump's, while it wakes

	finding     bool // a resolve is on its way
	found       *finding
	beyond      *finding // the answer that what follows the last stream is not remote
	aheadFailed bool     // the resolve of the next segment failed; again when it is needed
}

// finding is a resolve's answer.
type finding struct {
	offset int64
	rng    Range
	err    error
	ahead  bool
	// refreshed is the stream that asked for a new source; nil for the next segment.
	refreshed *stream
}

func newPartitionReader(r *Reader, tp remotestorage.TopicIDPartition, offset int64, resolve ResolveFunc) *PartitionReader {
	p := &PartitionReader{
		r: r, tp: tp, resolve: resolve, leave: anyway, next: offset, subs: map[int]func(){},
		bell: make(chan struct{}, 1), ended: make(chan struct{}),
		window: 1, wanted: r.opts.ReadAhead, active: true, lastTake: time.Now(), came: time.Now(), mostReady: maxReady,
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// anyway: there always is somewhere else to read from.
func anyway() bool { return true }

// endNow ends a reader whose pump was never started.
func (p *PartitionReader) endNow(err error) {
	p.cancel()
	p.err, p.closed = err, true
	close(p.ended)
}

// kick makes the pump look again. It never blocks.
func (p *PartitionReader) kick() {
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

// pressed is the budget's: somebody is short of memory.
func (p *PartitionReader) pressed() { p.kick() }

// Offset is the next offset to be delivered.
func (p *PartitionReader) Offset() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// Available is how many bytes Read would give now, without a limit. err ends the reader (ErrLocal, a *PlaceError, ErrClosed); it
// shows once all good bytes before it were delivered.
func (p *PartitionReader) Available() (bytes int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.availableLocked()
}

func (p *PartitionReader) availableLocked() (int, error) {
	ready := p.readyLocked()
	if ready == 0 && p.err != nil {
		p.reported = true
		return 0, p.err
	}
	p.cameLocked(ready)
	return ready, nil
}

// readyLocked is what Read would give now.
func (p *PartitionReader) readyLocked() int {
	if s := p.frontLocked(); s != nil {
		return s.readyBytes
	}
	return 0
}

// stashLocked is how many bytes were asked for and not delivered: what the next Read has to choose from, the beginning of a batch at the end included.
func (p *PartitionReader) stashLocked() int64 {
	if s := p.frontLocked(); s != nil {
		return s.reqPos - s.deliverPos
	}
	return 0
}

// cameLocked notes that the consumer is here and finds so many bytes: none, or without read-ahead fewer than it will ask for, means work.
func (p *PartitionReader) cameLocked(ready int) {
	p.came = time.Now()
	if ready == 0 && p.hungry.IsZero() {
		p.hungry = p.came
	}
	if ready > 0 && (p.r.opts.ReadAhead || p.stashLocked() >= int64(p.limit)) {
		return
	}
	if p.wanted && !p.parked && (p.starved || ready > 0) {
		return
	}
	p.wanted, p.parked, p.settled = true, false, false
	p.starved = p.starved || ready == 0
	p.kick()
}

// frontLocked is the stream that is delivered from, after leaving those that have nothing more to give.
func (p *PartitionReader) frontLocked() *stream {
	for len(p.streams) > 1 && p.streams[0].done && p.streams[0].ready.len() == 0 {
		p.streams[1].follow(p.streams[0])
		p.streams[0].cutAt(0, p)
		p.streams = p.streams[:copy(p.streams, p.streams[1:])]
	}
	if len(p.streams) == 0 {
		return nil
	}
	return p.streams[0]
}

// Settled tells whether nothing more can become available before a Read: a segment's end, a full window, an error.
func (p *PartitionReader) Settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settledLocked()
}

func (p *PartitionReader) settledLocked() bool {
	s := p.frontLocked()
	if s == nil || s.ready.len() == 0 {
		return p.err != nil
	}
	return s.done || p.err != nil || p.settled || s.ready.len() >= p.mostReady
}

// Wait returns when n bytes are available, or nothing more can come without a Read, with the reader's final error, or with ctx's.
func (p *PartitionReader) Wait(ctx context.Context, n int) error {
	woken := make(chan struct{}, 1)
	defer p.Subscribe(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})()
	for {
		p.mu.Lock()
		got, err := p.availableLocked()
		settled := p.settledLocked()
		p.mu.Unlock()
		if err != nil || got >= n || got > 0 && settled {
			return err
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// SetLimit says how much the consumer's next Read will ask for. Without ReadAhead that is how much the next GET fetches (ChunkSize at most).
func (p *PartitionReader) SetLimit(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = n
}

// Subscribe: wake is called, from any goroutine, when Available may have changed. It must not block, nor call Close.
func (p *PartitionReader) Subscribe(wake func()) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subID++
	id := p.subID
	p.subs[id] = wake
	p.cameLocked(p.readyLocked())
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.subs, id)
	}
}

// Read gives whole checked batches of at most limit bytes, never past a segment's end; if whole, the first one even when it is larger. exact appends the
// beginning of the next batch, if that is there already, up to limit, as a Kafka broker cuts its answers. Nothing there is no error.
func (p *PartitionReader) Read(limit int, whole, exact bool) (Data, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.frontLocked()
	if s == nil || s.ready.len() == 0 {
		_, err := p.availableLocked()
		return Data{FirstOffset: p.next, NextOffset: p.next, Epoch: -1}, err
	}
	n, size := 0, 0
	for n < s.ready.len() {
		b := s.ready.at(n)
		if size+b.size > limit && !(n == 0 && whole) {
			break
		}
		size += b.size
		n++
	}
	if n == 0 {
		return Data{FirstOffset: p.next, NextOffset: p.next, Epoch: -1}, nil
	}
	tail := 0
	if exact && n < s.ready.len() && limit > size {
		tail = limit - size // less than the next batch, or it would have been taken whole
	}
	d := Data{FirstOffset: s.ready.at(0).base, Epoch: s.ready.at(n - 1).epoch}
	last := s.ready.at(n - 1).last
	d.NextOffset = last + 1
	d.Aborted = s.aborted.overlapping(last)
	for i := range n {
		if b := s.ready.at(i); b.producerID >= 0 {
			s.aborted.passed(b.producerID, b.base)
		}
	}
	d.Records, d.Shared = p.lendLocked(s, size, tail)
	s.ready.drop(n)
	s.readyBytes -= size
	s.sentLast = last
	p.next = last + 1
	p.lastTake = time.Now()
	p.came, p.hungry, p.sheds = p.lastTake, time.Time{}, max(p.sheds-1, 0)
	p.fed, p.wanted, p.settled = true, false, false
	if s.ready.len() == 0 {
		p.starved = true
		s.ready.trim(2 * p.mostReady)
	}
	p.kick()
	return d, nil
}

// lendLocked makes slices of the next size+tail bytes and steps size bytes forward. It tells how many of them are of shared chunks.
func (p *PartitionReader) lendLocked(s *stream, size, tail int) (r wire.Records, shared int) {
	s.popDelivered(p)
	l := &lease{p: p}
	bufs := l.someBufs[:0]
	if n := blocksOf(size+tail) + 2; n > len(l.someBufs) {
		bufs = make([][]byte, 0, n)
	}
	l.chunks = l.someChunks[:0]
	pos := s.deliverPos
	s.deliverPos += int64(size)
	end := s.deliverPos + int64(tail)
	gone := 0
	for i := range s.pieces {
		pc := &s.pieces[i]
		if pc.start >= end {
			break
		}
		upTo := min(pc.end, end)
		bufs = pc.c.buf.appendTo(bufs, int(pos-pc.c.start), int(upTo-pc.c.start))
		l.chunks = append(l.chunks, pc.c)
		if pc.end <= s.deliverPos {
			pc.c.unwatch(p)
			gone = i + 1 // the piece's reference becomes the lease's
		} else {
			pc.c.ref()
		}
		l.size += upTo - pos
		if pc.shared {
			shared += int(upTo - pos)
		}
		pos = upTo
	}
	s.shift(gone)
	p.lent.Add(l.size)
	return wire.Records{Bufs: bufs, Release: l.release}, shared
}

// lease is memory in the consumer's hands.
type lease struct {
	p          *PartitionReader
	size       int64
	given      atomic.Bool
	chunks     []*chunk
	someChunks [3]*chunk
	someBufs   [3][]byte
}

// release gives the memory back; calling it twice does no harm.
func (l *lease) release() {
	if l.given.Swap(true) {
		return
	}
	for i, c := range l.chunks {
		c.unref()
		l.chunks[i] = nil
	}
	l.p.lent.Add(-l.size)
	l.p.kick()
}

// Close ends the reader's GETs and resolves and waits for them. What it has lent stays good until released.
func (p *PartitionReader) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	<-p.ended
}

// Failed tells whether the reader has ended and its consumer has seen why: then it gives nothing any more.
func (p *PartitionReader) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reported || p.closed
}
