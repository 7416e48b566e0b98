package history

import (
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// servedFor is how long what direct reading did not find is left to the broker.
const servedFor = 10 * time.Second

// idleAfter is how long a partition that the client does not ask for is kept: a paused one goes on where it was, a revoked one costs nothing for long.
const idleAfter = 30 * time.Second

// partition is where one partition's records come from on this connection: from the store (direct is set), else from the broker.
type partition struct {
	c   *Conn
	key partKey

	mu     sync.Mutex
	want   session.Part // as the client asked last
	demand *demand
	seen   time.Time // when it did, or had its answer
	// dropped: it is none of the connection's any more, and nobody would close what is opened for it.
	dropped bool
	// What is true of the partition, by the broker's last word.
	hw, lso, logStart int64
	held              *held
	direct            *direct
	// served is a question that direct reading came to without finding anything there: the broker serves it for servedFor, no location is asked for. Without it a
	// location whose range has nothing left at the offset would be followed for ever. Nor is it left to the broker for ever, which may take longer for it than it has.
	served   question
	servedAt time.Time
	// passes counts answers in a row without what was asked for, since then.
	passes int
	passed time.Time
	// fed is the demand whose answer had something of the partition: the client's next question is another.
	fed *demand
	// With a Resolver: the search under way, and whether the partition has a place among those that fall back, or waits for one.
	finding      *finding
	tryAgain     time.Time // not before: the resolver did not know enough
	crowded      time.Time // until then there is no memory to read it with; or, where turn is set, its turn is not tried for
	turn         time.Time // since when it waits for other partitions of the connection; zero: it does not
	left         left
	place, waits bool

	// wakeMu is taken last, under mu or under none: readers wake from goroutines of their own. What is called with it does not block and takes no lock.
	wakeMu sync.Mutex
	wakes  map[int]func()
	nextID int
}

// direct is a partition being read from the store.
type direct struct {
	reader    *remote.PartitionReader
	cancel    func() // of the subscription
	done      func() // of Hooks.Begin
	committed bool
	epoch     int32 // current leader epoch that the broker has confirmed, -1 if the client sends none
	lastEpoch int32 // of the last batch delivered, -1 if not known
	refreshed time.Time
	tp        remotestorage.TopicIDPartition // without a Resolver the id may not be known (see endAnew)
	// With a Resolver: its leader's epoch when the reader began.
	leader int32
	began  time.Time
	had    bool // something of it was delivered
}

// held is what the broker sent and the client has not taken: its records, or an error. Or it is a location that was found for the client.
type held struct {
	question
	part    wire.FetchPartition // without records
	records []byte
	// Of a location:
	tp remotestorage.TopicIDPartition
	at time.Time
}

// lasts tells whether it is still good for the next fetch, which asks the same.
func (h *held) lasts() bool {
	return len(h.records) > 0 || h.part.Location != nil && time.Since(h.at) < locationKept
}

// question is what an answer holds for. One of an older question is dropped.
type question struct {
	asked            bool // false: none at all
	offset           int64
	epoch, lastEpoch int32
	committed        bool
}

func questionOf(p session.Part, committed bool) question {
	return question{true, p.FetchOffset, p.CurrentLeaderEpoch, p.LastFetchedEpoch, committed}
}

// anyEpoch stands for the epoch of the batch before, where an answer was cut by us: the broker has confirmed what lies behind.
const anyEpoch = -2

func (h *held) answers(q question) bool {
	if h.lastEpoch == anyEpoch {
		q.lastEpoch = anyEpoch
	}
	return h.question == q
}

func (h *held) now() bool {
	return h.part.ErrorCode != 0 || h.part.Diverging != nil || h.part.PreferredReadReplica >= 0 || h.part.Location != nil
}

type state int

const (
	stateTail state = iota
	stateDirect
	stateFallback
	stateGone
)

// look tells what the partition is at. One that was not asked for in a while is closed.
func (p *partition) look(now time.Time) state {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.absentLocked(now) > idleAfter:
		p.dropped = true
		p.closeLocked()
		return stateGone
	case p.direct != nil:
		return stateDirect
	case p.place || p.waits:
		return stateFallback
	}
	return stateTail
}

// brokerServesLocked leaves a question to the broker.
func (p *partition) brokerServesLocked(q question) { p.served, p.servedAt = q, time.Now() }

// servedLocked tells whether the broker is to serve the question.
func (p *partition) servedLocked(q question) bool {
	return p.served == q && time.Since(p.servedAt) < servedFor
}

// absentLocked is how long the client has not been here for the partition. It is here as long as its fetch is held, however long it asked to wait: what is done for a fetch
// must not be done for a partition that was dropped meanwhile, since nobody would close what it opens.
func (p *partition) absentLocked(now time.Time) time.Duration {
	if p.demand != nil && !p.demand.read.Load() {
		return 0
	}
	return now.Sub(p.seen)
}

// ask takes note of what the client wants now, and drops what does not answer that any more.
func (p *partition) ask(want session.Part, d *demand, directLimit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want, p.demand = want, d
	if h := p.held; h != nil && (!h.answers(questionOf(want, d.committed())) || !h.lasts()) {
		p.held = nil
	}
	switch {
	case p.direct == nil:
	case p.fitsLocked(want, d.committed()):
		p.direct.reader.SetLimit(directLimit)
	default:
		p.endLocked() // a seek, or a question that only the broker can answer
	}
}

// fitsLocked tells whether direct reading answers the client's question. A leader epoch other than the confirmed one, and a last fetched epoch other than
// that of the batch before, are for the broker to judge (KIP-320); so is an offset that is not in the log: what lies below its start was deleted, and where it ends before
// the offset it is not the log any more that the reader began with, but one that was made anew under the topic's name.
func (p *partition) fitsLocked(want session.Part, committed bool) bool {
	d := p.direct
	return want.FetchOffset == d.reader.Offset() && want.FetchOffset >= p.logStart && want.FetchOffset <= p.hw && committed == d.committed && want.CurrentLeaderEpoch == d.epoch &&
		(want.LastFetchedEpoch < 0 || d.lastEpoch < 0 || want.LastFetchedEpoch == d.lastEpoch)
}

// endLocked ends direct reading. Closing waits for requests under way to end, so it is not done here.
func (p *partition) endLocked() {
	d := p.direct
	if d == nil {
		return
	}
	p.direct = nil
	p.c.reading.Add(-1)
	p.c.running.Go(func() {
		d.cancel()
		d.reader.Close()
		d.done()
	})
}

func (p *partition) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLocked()
}

func (p *partition) closeLocked() {
	p.held = nil
	p.toBrokerLocked()
	p.endLocked()
}

// available tells what read would give.
func (p *partition) available() (int, bool) {
	p.mu.Lock()
	if p.direct == nil {
		defer p.mu.Unlock()
		return p.heldLocked()
	}
	n, err := p.direct.reader.Available()
	if n > 0 || err == nil {
		p.mu.Unlock()
		return n, n > 0
	}
	p.brokersLocked(questionOf(p.want, p.direct.committed), err) // it asks for what the reader would give next (see fitsLocked)
	if errors.Is(err, remote.ErrLocal) && p.c.h.opts.Resolver != nil {
		p.left.again(p.served)
	}
	p.endLocked()
	then := p.endedLocked(err)
	p.mu.Unlock()
	then()
	return 0, false
}

// brought is what the broker has sent for a demand and the client has not taken.
func (p *partition) brought(d *demand) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.demand != d {
		return 0, false
	}
	return p.heldLocked()
}

// heldLocked tells how much is held, and whether the client is to have it now. What falls back comes in pieces (see fallbackBytes), of which one is an answer, however much the
// client would have waited for.
func (p *partition) heldLocked() (n int, now bool) {
	h := p.held
	if h == nil {
		return 0, false
	}
	return len(h.records), h.now() || p.place && len(h.records) > 0
}

// ended counts the end of direct reading, and sends the question on to the broker.
func (p *partition) ended(err error) {
	p.mu.Lock()
	then := p.endedLocked(err)
	p.mu.Unlock()
	then()
}

// endedLocked does it under the hold in which the end was decided: nobody sees the partition read by none and waiting for nothing. then is to be called after the unlock.
func (p *partition) endedLocked(err error) (then func()) {
	if p.c.ctx.Err() != nil || errors.Is(err, clientconn.ErrClosed) {
		return func() {} // no news of the store, and what waits has been closed, or will be
	}
	reason, fellBack := reasonOf(err)
	tell := func() {}
	if !errors.Is(err, errTurn) && !errors.Is(err, errFallsBack) { // else nothing had begun
		tell = p.c.ended(p.key, reason, fellBack, err)
	}
	switch {
	case errors.Is(err, errTurn):
		p.waitTurnLocked(crowdedOut)
	case errors.Is(err, errFallsBack):
		p.queueLocked()
	case errors.Is(err, resolve.ErrNotReady), errors.Is(err, errEnough):
		p.tryAgain = time.Now().Add(notReadyFor)
	case errors.Is(err, remote.ErrCrowded):
		p.crowdedLocked()
	case fellBack && p.c.h.opts.Resolver != nil:
		p.queueLocked()
	}
	d := p.demand
	return func() {
		tell()
		if d != nil {
			p.c.tail.kick(d)
		}
	}
}

// read gives the partition's part of an answer.
func (p *partition) read(limit, directLimit int, whole bool) wire.FetchPartition {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = time.Now()
	if p.waits || p.finding != nil {
		if tp, ok := p.c.h.topics.known(p.key); ok && p.mayReadLocked(tp) { // who may not read it is told nothing of it
			p.freshenLocked(tp) // an answer without records is true all the same
		}
	}
	out := wire.FetchPartition{
		Partition: p.key.partition, HighWatermark: p.hw, LastStableOffset: p.lso, LogStartOffset: p.logStart, PreferredReadReplica: -1,
	}
	if p.demand != nil && p.demand.committed() {
		out.Aborted = []wire.AbortedTransaction{}
	}
	if p.direct != nil {
		p.readDirectLocked(&out, min(limit, directLimit), whole)
		return out
	}
	if p.held != nil {
		p.readHeldLocked(&out, limit, whole)
	}
	return out
}

func (p *partition) readDirectLocked(out *wire.FetchPartition, limit int, whole bool) {
	data, err := p.direct.reader.Read(limit, whole, false)
	if err != nil {
		return // available says it again at the next fetch, and acts on it
	}
	if p.c.h.opts.Resolver != nil {
		p.freshenLocked(p.direct.tp)
		out.HighWatermark, out.LastStableOffset, out.LogStartOffset = p.hw, p.lso, p.logStart
	}
	out.Records = data.Records
	if data.Aborted != nil {
		out.Aborted = data.Aborted
	}
	if data.Records.Len() == 0 {
		return
	}
	p.fed, p.left = p.demand, left{}
	p.demand.shared += data.Shared
	p.direct.lastEpoch, p.direct.had = data.Epoch, true
	p.c.h.episodes.end(p.key)
}

// readHeldLocked gives what the broker sent, as far as the limit goes: of an answer shared with direct partitions there may be less room than the broker was
// told. The rest is kept.
func (p *partition) readHeldLocked(out *wire.FetchPartition, limit int, whole bool) {
	h := p.held
	n, next := cut(h.records, limit, whole)
	*out = h.part
	if out.Location != nil {
		p.freshenLocked(h.tp)
		out.HighWatermark, out.LastStableOffset, out.LogStartOffset = p.hw, p.lso, p.logStart
	}
	if n > 0 {
		out.Records = wire.Records{Bufs: [][]byte{h.records[:n]}}
	}
	if n == 0 && len(h.records) > 0 { // no room at all: it stays as it is
		out.Aborted = emptied(out.Aborted)
		return
	}
	p.fed = p.demand
	if rest := h.records[n:]; next > 0 && len(h.part.Aborted) == 0 && beginsWhole(rest) {
		h.offset, h.lastEpoch, h.records = next, anyEpoch, rest
		return
	}
	// Of a rest with aborted transactions it is not known which of them have gone by, and nobody gets on with a piece of a batch: it is asked for anew.
	p.held = nil
}

// beginsWhole tells whether the first batch is all there: brokers cut their answers anywhere.
func beginsWhole(records []byte) bool {
	size, err := batch.PeekSize(records)
	return err == nil && size <= len(records)
}

// emptied keeps the difference between null and no entries.
func emptied(a []wire.AbortedTransaction) []wire.AbortedTransaction {
	if a == nil {
		return nil
	}
	return []wire.AbortedTransaction{}
}

// cut finds how many bytes of whole batches fit, and the offset behind them. All of the records fit most of the time. Where batches cannot be told
// apart (an old format), the bytes are cut anywhere, which every client bears; next is then 0 and the rest worthless.
func cut(records []byte, limit int, whole bool) (n int, next int64) {
	if len(records) <= limit {
		return len(records), 0
	}
	if size, err := batch.PeekSize(records); err == nil && size > limit {
		if !whole {
			return 0, 0
		}
		limit = min(size, len(records))
	}
	_, err := batch.Each(records[:limit], func(h batch.Header, raw []byte) error {
		n, next = n+len(raw), h.LastOffset()+1
		return nil
	})
	if n == 0 && (err != nil || whole) {
		return limit, 0
	}
	return n, next
}

// hold takes the broker's answer for this partition.
func (p *partition) hold(asked session.Part, committed bool, r *kmsg.FetchResponseTopicPartition) {
	h := &held{question: questionOf(asked, committed), records: r.RecordBatches, part: fromKmsg(r)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(h.records) > 0 || h.now() {
		p.passes = 0
	}
	if r.ErrorCode == 0 {
		p.hw, p.lso, p.logStart = r.HighWatermark, r.LastStableOffset, r.LogStartOffset
	}
	if p.direct != nil || p.demand == nil || h.question != questionOf(p.want, p.demand.committed()) {
		return // the client has moved on
	}
	if len(h.records) > 0 || h.now() {
		p.held = h
	}
}

func fromKmsg(r *kmsg.FetchResponseTopicPartition) wire.FetchPartition {
	out := wire.FetchPartition{
		Partition: r.Partition, ErrorCode: r.ErrorCode, HighWatermark: r.HighWatermark, LastStableOffset: r.LastStableOffset, LogStartOffset: r.LogStartOffset,
		PreferredReadReplica: r.PreferredReadReplica, Aborted: abortedOf(r),
	}
	if l := r.CurrentLeader; l.LeaderID != -1 || l.LeaderEpoch != -1 {
		out.CurrentLeader = &wire.LeaderAndEpoch{LeaderID: l.LeaderID, LeaderEpoch: l.LeaderEpoch}
	}
	if e := r.DivergingEpoch; e.Epoch != -1 || e.EndOffset != -1 {
		out.Diverging = &wire.EpochEnd{Epoch: e.Epoch, EndOffset: e.EndOffset}
	}
	return out
}

func abortedOf(r *kmsg.FetchResponseTopicPartition) []wire.AbortedTransaction {
	if r.AbortedTransactions == nil {
		return nil
	}
	out := make([]wire.AbortedTransaction, len(r.AbortedTransactions))
	for i, a := range r.AbortedTransactions {
		out[i] = wire.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}
	}
	return out
}

func (p *partition) subscribe(wake func()) (cancel func()) {
	p.wakeMu.Lock()
	defer p.wakeMu.Unlock()
	if p.wakes == nil {
		p.wakes = make(map[int]func())
	}
	p.nextID++
	id := p.nextID
	p.wakes[id] = wake
	return func() {
		p.wakeMu.Lock()
		defer p.wakeMu.Unlock()
		delete(p.wakes, id)
	}
}

func (p *partition) wake() {
	p.wakeMu.Lock()
	defer p.wakeMu.Unlock()
	for _, w := range p.wakes {
		w() // does not block, by its contract
	}
}
