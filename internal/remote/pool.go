package remote

import (
	"container/list"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// PoolKey names what a pooled reader is kept for.
type PoolKey struct {
	TP        remotestorage.TopicIDPartition
	Committed bool
	Owner     uint64 // connection or session
}

// Pool keeps PartitionReaders between the fetches of servers' clients, so that what was read ahead, or is still on its way, serves the next fetch
// (docs/cases.md, 9). It owns one goroutine, which closes readers: those that were idle for too long, and those that had to make room.
type Pool struct {
	r    *Reader
	max  int
	idle time.Duration
	bell chan struct{}
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	readers map[PoolKey]*list.Element // of order; its value is a *pooled
	order   list.List                 // the longest unused first
	leaving []*PartitionReader
	closed  bool
}

type pooled struct {
	key  PoolKey
	p    *PartitionReader
	used time.Time
}

// NewPool keeps at most max readers, each until it was idle for so long.
func NewPool(r *Reader, max int, idle time.Duration) *Pool {
	p := &Pool{
		r: r, max: max, idle: idle, readers: map[PoolKey]*list.Element{},
		bell: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go p.sweep()
	return p
}

// Get returns the reader of key if it stands at offset and has not failed, else a new one; the old one is then closed. The pool closes readers, never the
// caller. One that had to make room while in use gives ErrClosed, which counts as no data and is mended by the next Get.
func (p *Pool) Get(key PoolKey, offset int64, resolve ResolveFunc) *PartitionReader {
	p.mu.Lock()
	defer p.mu.Unlock()
	if el := p.readers[key]; el != nil {
		e := el.Value.(*pooled)
		if e.p.Offset() == offset && !e.p.Failed() {
			e.used = time.Now()
			p.order.MoveToBack(el)
			return e.p
		}
		p.leaveLocked(key)
	}
	r := p.r.Open(key.TP, offset, resolve)
	if p.closed {
		r.cancel() // the Reader's Close waits for it
		return r
	}
	if len(p.readers) >= p.max {
		p.leaveLocked(p.order.Front().Value.(*pooled).key)
	}
	p.readers[key] = p.order.PushBack(&pooled{key: key, p: r, used: time.Now()})
	return r
}

// Drop closes the readers of one owner.
func (p *Pool) Drop(owner uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.readers {
		if k.Owner == owner {
			p.leaveLocked(k)
		}
	}
}

// Len is the number of readers kept.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.readers)
}

// leaveLocked hands a reader to the sweeper: closing waits, and nobody waits under the pool's lock.
func (p *Pool) leaveLocked(key PoolKey) {
	p.leaving = append(p.leaving, p.order.Remove(p.readers[key]).(*pooled).p)
	delete(p.readers, key)
	select {
	case p.bell <- struct{}{}:
	default:
	}
}

// sweep closes readers until the pool is closed.
func (p *Pool) sweep() {
	defer close(p.done)
	tick := time.NewTicker(max(p.idle/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			p.closeLeaving()
			return
		case <-p.bell:
		case now := <-tick.C:
			p.mu.Lock()
			for el := p.order.Front(); el != nil && now.Sub(el.Value.(*pooled).used) >= p.idle; el = p.order.Front() {
				p.leaveLocked(el.Value.(*pooled).key)
			}
			p.mu.Unlock()
		}
		p.closeLeaving()
	}
}

func (p *Pool) closeLeaving() {
	p.mu.Lock()
	leaving := p.leaving
	p.leaving = nil
	p.mu.Unlock()
	for _, r := range leaving {
		r.Close()
	}
}

// Close closes all readers and waits for them. Close the Reader after it.
func (p *Pool) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		<-p.done
		return
	}
	p.closed = true
	for k := range p.readers {
		p.leaveLocked(k)
	}
	p.mu.Unlock()
	close(p.stop)
	<-p.done
}
