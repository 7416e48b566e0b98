package metadatatopic

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// How old facts may be when they are used. What is asked for is asked again well before (refresh.go).
const (
	maxAgeHigh  = time.Second     // high watermark, last stable offset
	maxAgeStart = 5 * time.Second // log start, local log start, who leads, that the topic exists
	// maxAgeLocal: how long the local log start serves to keep readers of new records away. It only ever moves up, so that an old one is just less sharp.
	maxAgeLocal = 30 * time.Second
	// minDoubt is the least time between two doubts of clients.
	minDoubt = time.Second
)

// kind is one of the questions about a partition.
type kind int

const (
	kindLeader kind = iota
	kindLineage
	kindHigh
	kindStable
	kindStart
	kindLocal
	kinds
)

// stamped is an offset and when it was asked for. The zero time: not known.
type stamped struct {
	offset int64
	at     time.Time
}

func (s stamped) within(now time.Time, age time.Duration) bool {
	return !s.at.IsZero() && now.Sub(s.at) <= age
}

// raise takes a newer answer in. Within one leader epoch none of these offsets goes down, so that of two answers that overtook each other the larger is the newer.
func (s *stamped) raise(offset int64, at time.Time) {
	s.offset = max(s.offset, offset)
	if at.After(s.at) {
		s.at = at
	}
}

// partition is what is known of one partition of one incarnation of a topic.
type partition struct {
	tp    remotestorage.TopicIDPartition
	asked atomic.Int64 // when somebody last wanted facts, in nanoseconds since facts.epoch

	mu      sync.Mutex
	leader  int32 // -1: not known
	epoch   int32
	led     time.Time // as of when
	moved   bool      // what is known of leader and lineage is in doubt
	doubted time.Time // when a client was last told so by a broker
	lineage *epoch.Cache
	first   int64 // where lineage begins
	learnt  int32 // the leader epoch that lineage is of; -1: none
	offsets [kinds]stamped
	gone    error // the topic is not there, or must not be described; nil once it is again
	goneAt  time.Time

	busy     [kinds]bool   // a question is on its way
	failure  error         // the last one
	failures int           // in all
	row      int           // failures since something was answered
	retryAt  time.Time     // when to ask again
	change   chan struct{} // closed with every change
	view     *view         // the last one given out, for as long as it is true
}

func newPartition(tp remotestorage.TopicIDPartition) *partition {
	return &partition{tp: tp, leader: -1, epoch: -1, learnt: -1, change: make(chan struct{})}
}

func (p *partition) changedLocked() {
	close(p.change)
	p.change = make(chan struct{})
}

// forgetLocked drops what was known under another leader epoch.
func (p *partition) forgetLocked() {
	p.offsets = [kinds]stamped{}
	p.lineage, p.learnt = nil, -1
}

// ledBy takes in what the cluster says of the leader. Brokers hear of changes at different times: an older epoch is old news.
func (p *partition) ledBy(leader, leaderEpoch int32, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[kindLeader] = false
	if leaderEpoch < p.epoch {
		return
	}
	if leaderEpoch > p.epoch {
		p.forgetLocked()
	}
	p.leader, p.epoch, p.gone = leader, leaderEpoch, nil
	if leader >= 0 {
		p.led, p.moved = at, false
	} else {
		p.failLocked(errNoLeader)
	}
	p.changedLocked()
}

// lost notes that the topic is not there, or not to be seen.
func (p *partition) lost(why error, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[kindLeader] = false
	p.gone, p.goneAt = why, at
	p.changedLocked()
}

// failLocked counts a failure. After the first in a row questions are asked again at once, since it may just tell of a new leader; then with more and more time
// between.
func (p *partition) failLocked(err error) {
	p.failure = err
	p.failures++
	p.retryAt = time.Now().Add(min(time.Duration(p.row)*retryAfter, maxRetryAfter))
	p.row++
}

// failed ends a question without an answer. With doubt, who leads is asked again first.
func (p *partition) failed(k kind, err error, doubt bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[k] = false
	if !doubt || !p.moved { // of a leader that is not there any more each question that is on its way fails
		p.failLocked(err)
	}
	p.moved = p.moved || doubt
	p.changedLocked()
}

// answered takes an offset in that was asked for under leaderEpoch.
func (p *partition) answered(k kind, leaderEpoch int32, offset int64, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[k] = false
	if leaderEpoch != p.epoch {
		return
	}
	p.row = 0
	p.offsets[k].raise(offset, at)
	p.changedLocked()
}

// learnLocked takes in what somebody else was told. It does not make the fact younger, since it need not come from the leader.
func (p *partition) learnLocked(k kind, offset int64) {
	if s := &p.offsets[k]; !s.at.IsZero() {
		s.offset = max(s.offset, offset)
	}
}

func (p *partition) learn(leaderEpoch int32, lineage *epoch.Cache, first int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[kindLineage] = false
	if leaderEpoch != p.epoch {
		return
	}
	p.lineage, p.first, p.learnt = lineage, first, leaderEpoch
	p.changedLocked()
}

// doubt: what is known of leader and lineage may be wrong, and is asked for anew. A client that sticks to an old epoch, and is refused each time, must not keep all others
// from reading: soon after one doubt another is not heard. If it is true, the questions of the next tick tell.
func (p *partition) doubt(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.doubted) < minDoubt {
		return false
	}
	p.moved, p.doubted = true, now
	p.lineage, p.learnt = nil, -1
	return true
}

// view is what resolving needs to know: internal/locate's View, as of one moment.
type view struct {
	of                   *partition
	lineage              *epoch.Cache
	first                int64 // where lineage begins
	leaderEpoch          int32
	logStart, localStart int64
}

func (v *view) Lineage() *epoch.Cache { return v.lineage }
func (v *view) LogStart() int64       { return v.logStart }

// LocalAborted: the brokers' local logs cannot be seen from here. Reads that need them are the brokers'.
func (v *view) LocalAborted(int64, int64) ([]segment.AbortedTxn, bool) { return nil, false }

// changed tells whether what was known when the view was taken does not hold any more.
func (v *view) changed() bool {
	p := v.of
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moved || p.lineage != v.lineage || p.offsets[kindStart].offset > v.logStart || p.gone != nil
}

func (p *partition) viewLocked(now time.Time) (*view, bool) {
	start, local := p.offsets[kindStart], p.offsets[kindLocal]
	if p.moved || p.gone != nil || p.learnt < 0 || p.learnt != p.epoch || now.Sub(p.led) > maxAgeStart || !start.within(now, maxAgeStart) || !local.within(now, maxAgeStart) {
		return nil, false
	}
	v := view{of: p, lineage: p.lineage, first: p.first, leaderEpoch: p.epoch, logStart: start.offset, localStart: max(local.offset, start.offset)}
	if p.view == nil || *p.view != v {
		kept := v // only this one is moved to the heap
		p.view = &kept
	}
	return p.view, true
}

func (p *partition) factsLocked(now time.Time) (resolve.Facts, bool) {
	v, ok := p.viewLocked(now)
	high, stable := p.offsets[kindHigh], p.offsets[kindStable]
	if !ok || !high.within(now, maxAgeHigh) || !stable.within(now, maxAgeHigh) {
		return resolve.Facts{}, false
	}
	return resolve.Facts{
		LeaderEpoch: v.leaderEpoch, LogStart: v.logStart, LocalStart: v.localStart, HighWatermark: high.offset,
		LastStable: min(stable.offset, high.offset), // asked at different times
	}, true
}

// localLocked tells whether the leader surely has the offset on its own disk, or had a moment ago.
func (p *partition) localLocked(now time.Time, offset int64) bool {
	local := p.offsets[kindLocal]
	return local.within(now, maxAgeLocal) && offset >= local.offset
}
