package remote

import (
	"sync"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Reader opens PartitionReaders that share one set of options.
type Reader struct {
	opts      Options
	fetch     *fetcher
	chunkSize int
	checkers  sync.Pool // of *checker: thousands of readers, few of which check at a time

	mu     sync.Mutex
	open   map[*PartitionReader]struct{}
	closed bool
}

// NewReader returns a reader with these options; see Options.Validate.
func NewReader(o Options) *Reader {
	o = o.withDefaults()
	r := &Reader{opts: o, open: map[*PartitionReader]struct{}{}}
	r.fetch = &fetcher{requestTimeout: o.RequestTimeout, deadline: o.Deadline, metrics: o.Metrics}
	if o.Hedge {
		r.fetch.hedger = &hedger{budget: o.Budget, metrics: o.Metrics}
	}
	r.checkers.New = func() any { return &checker{} }
	r.chunkSize = max(o.ChunkSize, minChunk)
	if o.Cache != nil {
		r.chunkSize = max(min(r.chunkSize, wholeBlocks(o.Budget.Limit()/4)), minChunk)
	}
	return r
}

// MemoryLimit is that of the budget.
func (r *Reader) MemoryLimit() int64 { return r.opts.Budget.Limit() }

// Open starts reading at offset. With ReadAhead the first resolve and the first GET begin at once, else when the consumer first comes.
func (r *Reader) Open(tp remotestorage.TopicIDPartition, offset int64, resolve ResolveFunc) *PartitionReader {
	p := newPartitionReader(r, tp, offset, resolve)
	r.start(p, func(m member) bool { r.opts.Budget.join(m); return true })
	return p
}

// TryOpen is Open, unless there are as many readers already as the budget bears: what a reader takes beside its chunks comes out of the budget, too. When Options.Patience is over,
// leave is asked whether there is somewhere else to read from; if not the reader keeps its place in the queue for memory, and asks again. Nil: there always is. It is called
// without a lock.
func (r *Reader) TryOpen(tp remotestorage.TopicIDPartition, offset int64, resolve ResolveFunc, leave func() bool) (*PartitionReader, bool) {
	p := newPartitionReader(r, tp, offset, resolve)
	if leave != nil {
		p.leave = leave
	}
	if !r.start(p, r.opts.Budget.tryJoin) {
		return nil, false
	}
	return p, true
}

// Readers tells how many readers are open with this one's budget, and how many TryOpen allows.
func (r *Reader) Readers() (now, most int) { return r.opts.Budget.readers() }

func (r *Reader) start(p *PartitionReader, join func(member) bool) bool {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		p.endNow(ErrClosed)
		return true
	}
	if !join(p) {
		r.mu.Unlock()
		p.endNow(ErrCrowded)
		return false
	}
	r.open[p] = struct{}{}
	r.mu.Unlock()
	r.opts.Budget.setActive(p, true)
	go p.pump()
	return true
}

// giveChecker takes k back, without what it has looked at: its blocks are others' by the time that it is used again.
func (r *Reader) giveChecker(k *checker) {
	clear(k.view)
	clear(k.parts[:cap(k.parts)])
	k.fault = nil
	r.checkers.Put(k)
}

// Close closes every open PartitionReader and waits for them.
func (r *Reader) Close() {
	r.mu.Lock()
	r.closed = true
	open := make([]*PartitionReader, 0, len(r.open))
	for p := range r.open {
		open = append(open, p)
	}
	r.mu.Unlock()
	for _, p := range open {
		p.Close()
	}
}

func (r *Reader) forget(p *PartitionReader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, p)
}
