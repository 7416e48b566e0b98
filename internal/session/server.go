// Package session keeps the state of KIP-227's incremental fetch sessions, in both roles: Cache for whoever answers fetches, Client for whoever
// sends them. Used by the broker and by the library's dialer. It has no goroutines and no clock.
package session

import (
	"container/list"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Kafka's error codes of sessions.
const (
	ErrSessionIDNotFound   int16 = 70
	ErrInvalidSessionEpoch int16 = 71
	// ErrTopicIDs: the session was made by names and is used by ids, or the other way round.
	ErrTopicIDs int16 = 106
)

// Session epochs with a meaning of their own.
const (
	epochInitial = 0
	epochFinal   = -1
)

// maxPartitionsPerSlot bounds what all sessions of a cache may remember together, for each slot.
const maxPartitionsPerSlot = 2000

// Part is one partition of a fetch: its topic, and the request's partition with our tags still in it.
type Part struct {
	Topic   string             // empty where the request names topics by id (v13+)
	TopicID remotestorage.UUID // zero where it names them by name
	kmsg.FetchRequestTopicPartition
}

type key struct {
	topic     string
	id        remotestorage.UUID
	partition int32
}

func (p *Part) key() key { return key{p.Topic, p.TopicID, p.Partition} }

// weight is how many partitions this one counts for: no topic has a name so long that it is more than one, but whoever asks may make one up.
func (k *key) weight() int { return 1 + len(k.topic)/256 }

// Cache holds the sessions of a server. It is safe for concurrent use.
type Cache struct {
	slots int

	mu         sync.Mutex
	sessions   map[int32]*state
	used       *list.List // of *state, least recently used first
	tick       int64      // counts Apply calls: the cache's only notion of time
	partitions int        // remembered by all sessions, by their weight
}

// NewCache makes a cache that holds at most so many sessions; 0 makes every fetch a full one.
func NewCache(slots int) *Cache {
	return &Cache{slots: slots, sessions: make(map[int32]*state), used: list.New()}
}

// state is one session. Its own lock is taken inside the cache's, never the other way round.
type state struct {
	id     int32
	byID   bool
	place  *list.Element
	tick   int64
	parts  map[key]*list.Element
	order  *list.List // of *cached, in the order that partitions are read
	weight int
	epoch  int32 // expected with the next request
	closed bool
}

type cached struct {
	part     Part
	answered bool // what follows was sent once
	hw       int64
	lso      int64
	logStart int64
}

// Fetch is what a request asks for once its session is counted in.
type Fetch struct {
	SessionID   int32
	Incremental bool
	// Parts are all partitions to be read, in the order that they share the response's bytes.
	Parts []Part

	cache *Cache
	state *state
}

// Apply folds a request into its session and returns all that it asks for, or Kafka's error code (70, 71, 106), with which the whole request is
// answered. A request that wants a session where none is to be had gets SessionID 0 and is answered in full.
func (c *Cache) Apply(req *kmsg.FetchRequest) (*Fetch, int16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tick++
	if req.SessionEpoch == epochFinal || req.SessionEpoch == epochInitial {
		if s := c.sessions[req.SessionID]; s != nil && req.SessionID != 0 {
			c.removeLocked(s)
		}
		f := &Fetch{Parts: requestParts(req)}
		if req.SessionEpoch == epochInitial && req.Version >= 7 {
			c.openLocked(f, req.Version >= 13)
		}
		return f, 0
	}
	s := c.sessions[req.SessionID]
	switch {
	case s == nil:
		return nil, ErrSessionIDNotFound
	case s.byID != (req.Version >= 13):
		return nil, ErrTopicIDs
	case s.epoch != req.SessionEpoch:
		return nil, ErrInvalidSessionEpoch
	}
	s.epoch = nextEpoch(s.epoch)
	s.tick = c.tick
	c.used.MoveToBack(s.place)
	c.partitions -= s.weight
	s.update(req)
	c.partitions += s.weight
	f := &Fetch{SessionID: s.id, Incremental: true, Parts: s.list(), cache: c, state: s}
	if c.partitions > c.slots*maxPartitionsPerSlot {
		c.removeLocked(s) // answered still; the client's next request finds no session and starts anew
	}
	return f, 0
}

// Drop takes back the session that a full request has opened, for an answer that holds nothing of it: the client begins anew, as KIP-219 has it.
func (f *Fetch) Drop() {
	if f.Incremental || f.state == nil {
		return
	}
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	if f.cache.sessions[f.state.id] == f.state {
		f.cache.removeLocked(f.state)
	}
	f.SessionID, f.cache, f.state = 0, nil, nil
}

// Len is the number of sessions held.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)
}

// openLocked makes a session for f if there is room. A full cache gives up the session that was used longest ago, but only if all others were used
// several times since: else many clients would throw each other out in turn.
func (c *Cache) openLocked(f *Fetch, byID bool) {
	weight := 0
	for i := range f.Parts {
		k := f.Parts[i].key()
		weight += k.weight()
	}
	if weight > c.slots*maxPartitionsPerSlot-c.partitions {
		return
	}
	if len(c.sessions) >= c.slots {
		if c.slots == 0 {
			return
		}
		oldest := c.used.Front().Value.(*state)
		if c.tick-oldest.tick < int64(4*c.slots) {
			return
		}
		c.removeLocked(oldest)
	}
	s := &state{id: c.freeIDLocked(), byID: byID, epoch: 1, tick: c.tick, parts: make(map[key]*list.Element, len(f.Parts)), order: list.New()}
	for _, p := range f.Parts {
		s.put(p)
	}
	s.place = c.used.PushBack(s)
	c.sessions[s.id] = s
	c.partitions += s.weight
	f.SessionID, f.cache, f.state = s.id, c, s
}

func (c *Cache) freeIDLocked() int32 {
	for {
		id := rand.Int32()
		if _, taken := c.sessions[id]; id != 0 && !taken && c.Valid(id) {
			return id
		}
	}
}

func (c *Cache) removeLocked(s *state) {
	if s.closed {
		return
	}
	s.closed = true
	c.used.Remove(s.place)
	delete(c.sessions, s.id)
	c.partitions -= s.weight
}

func nextEpoch(e int32) int32 {
	if e == 1<<31-1 {
		return 1
	}
	return e + 1
}

// Valid tells whether a session may have a number. Apache Kafka's cache is in eight pieces, and it has no piece for the others.
func (c *Cache) Valid(id int32) bool {
	piece := id / (math.MaxInt32 / 8)
	return piece >= 0 && piece < 8
}

// requestParts lists what a request asks for, each partition once: what it says last counts, where it was said first.
func requestParts(req *kmsg.FetchRequest) []Part {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	parts := make([]Part, 0, n)
	var seen map[key]int
	if !ascending(req) {
		seen = make(map[key]int, n)
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := Part{Topic: t.Topic, TopicID: t.TopicID, FetchRequestTopicPartition: t.Partitions[j]}
			if at, twice := seen[p.key()]; twice {
				parts[at] = p
				continue
			}
			if seen != nil {
				seen[p.key()] = len(parts)
			}
			parts = append(parts, p)
		}
	}
	return parts
}

// ascending: one topic, whose partitions are in order, can name none twice.
func ascending(req *kmsg.FetchRequest) bool {
	if len(req.Topics) > 1 {
		return false
	}
	for i := range req.Topics {
		ps := req.Topics[i].Partitions
		for j := 1; j < len(ps); j++ {
			if ps[j].Partition <= ps[j-1].Partition {
				return false
			}
		}
	}
	return true
}

// put adds a partition or replaces what was asked of it; what was last answered stays known.
func (s *state) put(p Part) {
	if e := s.parts[p.key()]; e != nil {
		e.Value.(*cached).part = p
		return
	}
	k := p.key()
	s.parts[k] = s.order.PushBack(&cached{part: p})
	s.weight += k.weight()
}

func (s *state) update(req *kmsg.FetchRequest) {
	for _, p := range requestParts(req) {
		s.put(p)
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, n := range t.Partitions {
			k := key{t.Topic, t.TopicID, n}
			if e := s.parts[k]; e != nil {
				s.order.Remove(e)
				delete(s.parts, k)
				s.weight -= k.weight()
			}
		}
	}
}

func (s *state) list() []Part {
	parts := make([]Part, 0, len(s.parts))
	for e := s.order.Front(); e != nil; e = e.Next() {
		parts = append(parts, e.Value.(*cached).part)
	}
	return parts
}

// Filter turns results, one for each of Parts, into the topics of the response. In an incremental answer a partition that has no news is left out;
// records, a location, an error, a changed high watermark, last stable offset or log start always stay. Partitions that gave records move to the
// end of the session's order, so that the next response's bytes start with others.
func (f *Fetch) Filter(results []wire.FetchPartition) []wire.FetchTopic {
	keep := make([]bool, len(results))
	if f.state == nil {
		for i := range keep {
			keep[i] = true
		}
		return f.topics(results, keep)
	}
	f.cache.mu.Lock()
	for i := range results {
		keep[i] = f.state.answer(&f.Parts[i], &results[i]) || !f.Incremental
	}
	f.cache.mu.Unlock()
	return f.topics(results, keep)
}

// Told is what an answer that did not come through Filter told of a partition.
type Told struct {
	Topic                                           string
	TopicID                                         remotestorage.UUID
	Partition                                       int32
	HighWatermark, LastStableOffset, LogStartOffset int64
	Failed, Records                                 bool
}

// Note takes note of a partition of an answer that somebody else put together for this fetch.
func (f *Fetch) Note(t Told) {
	if f.state == nil {
		return
	}
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	e := f.state.parts[key{t.Topic, t.TopicID, t.Partition}]
	if e == nil {
		return
	}
	c := e.Value.(*cached)
	c.answered, c.hw, c.lso, c.logStart = !t.Failed, t.HighWatermark, t.LastStableOffset, t.LogStartOffset
	if t.Records {
		f.state.order.MoveToBack(e)
	}
}

// answer notes what is about to be sent and tells whether it is news.
func (s *state) answer(p *Part, r *wire.FetchPartition) bool {
	e := s.parts[p.key()]
	if e == nil {
		return true // forgotten by a later request; this one still asked
	}
	c := e.Value.(*cached)
	full := r.Records.Len() > 0 || r.Location != nil
	if c.answered && r.HighWatermark < 0 && r.ErrorCode == 0 && !full && r.Diverging == nil && r.PreferredReadReplica < 0 {
		return false // nothing is known of it at the moment: that takes nothing back of what was told
	}
	news := full || !c.answered || c.hw != r.HighWatermark || c.lso != r.LastStableOffset || c.logStart != r.LogStartOffset ||
		r.Diverging != nil || r.PreferredReadReplica >= 0
	c.answered, c.hw, c.lso, c.logStart = true, r.HighWatermark, r.LastStableOffset, r.LogStartOffset
	if r.ErrorCode != 0 {
		c.answered, news = false, true // repeated until it is gone, and its end is news too
	}
	if full {
		s.order.MoveToBack(e)
	}
	return news
}

// topics groups partitions of one topic that stand side by side.
func (f *Fetch) topics(results []wire.FetchPartition, keep []bool) []wire.FetchTopic {
	var out []wire.FetchTopic
	for i := range results {
		if !keep[i] {
			if results[i].Records.Release != nil {
				results[i].Records.Release()
			}
			continue
		}
		p := &f.Parts[i]
		if n := len(out); n == 0 || out[n-1].Topic != p.Topic || out[n-1].TopicID != p.TopicID {
			out = append(out, wire.FetchTopic{Topic: p.Topic, TopicID: p.TopicID})
		}
		t := &out[len(out)-1]
		t.Partitions = append(t.Partitions, results[i])
	}
	return out
}
