package remote

// piece is a part of a stream: the bytes [start, end) of the object, in c or still to be asked for (c nil, a hole: they failed once).
type piece struct {
	c          *chunk
	start, end int64
	source     int   // which of the stream's sources it was asked from
	tries      int   // how often it was a hole before
	err        error // of a hole: why its fill failed, if nobody needed it then
	shared     bool  // its chunk was there before this reader asked for it
}

// visible is where the bytes of the piece end that are there.
func (p *piece) visible(whole bool) (upTo int64, done bool, err error) {
	if p.c == nil {
		return p.start, false, nil
	}
	filled, done, err := p.c.state()
	if whole && !done {
		filled = 0
	}
	return max(min(p.c.start+int64(filled), p.end), p.start), done, err
}

// bytes are those from at on that lie in one block, up to upTo at most.
func (p *piece) bytes(at, upTo int64) []byte {
	b := p.c.buf.from(int(at - p.c.start))
	return b[:min(int64(len(b)), upTo-at)]
}

// checked is a batch that passed every check and has not been delivered. They follow each other without a gap from stream.deliverPos on.
type checked struct {
	size       int
	last       int64
	base       int64
	producerID int64 // of an abort marker, else -1
	epoch      int32
}

// stream is one Range being read. The pump moves checkPos and reqPos, Read moves deliverPos; pieces are contiguous from the piece that
// holds deliverPos to reqPos. All is guarded by PartitionReader.mu, except that the pump reads what only it writes.
type stream struct {
	rng    Range
	source int // counts the answers that rng.Source came from

	pieces                       []piece
	deliverPos, checkPos, reqPos int64
	endPos                       int64

	want       int64 // batches wholly below are skipped
	checkLast  int64 // last offset of the last batch checked, want-1 at the beginning
	sentLast   int64 // last offset delivered, want-1 at the beginning
	order      int64 // last offset of the batch before checkPos, delivered or skipped; -1 if none
	short      bool  // the object ended; nothing more is asked for
	any        bool  // a batch has passed the checks since the start position
	restarted  bool  // reads from position 0 because the start position was wrong
	rereadAt   int64 // position that was fetched a second time, -1 if none
	seenEnd    int64 // where the bytes ended that the last check run found too few; -1 if there was none
	needSize   int   // size of the batch at checkPos, once its header is there
	ready      queue[checked]
	readyBytes int
	done       bool // every batch was checked
	aborted    abortedList

	refusal     error // why a new source is wanted, nil if none is
	refreshedAt int64 // checkPos at the last refusal, -1 if there was none: one refusal without progress between is allowed, two are not
}

func newStream(rng Range, want int64) *stream {
	s := &stream{rng: rng, want: max(want, rng.FirstOffset), rereadAt: -1, order: -1, refreshedAt: -1, seenEnd: -1, aborted: newAbortedList(rng.Aborted)}
	s.rng.LastOffset = min(rng.LastOffset, rng.EndOffset)
	s.endPos = rng.EndPosition
	if rng.Size > 0 {
		s.endPos = min(s.endPos, rng.Size)
	}
	s.endPos = max(s.endPos, 0)
	start := rng.StartPosition
	if start < 0 || start >= s.endPos {
		start, s.restarted = 0, true // an index entry that points nowhere (docs/cases.md, 34)
	}
	s.deliverPos, s.checkPos, s.reqPos = start, start, start
	s.checkLast, s.sentLast = s.want-1, s.want-1
	s.done = s.endPos == 0
	return s
}

// after is the offset with which the next stream begins.
func (s *stream) after() int64 { return max(s.rng.LastOffset, s.checkLast) + 1 }

// follow has s begin behind the stream before it, which is done: it may have ended with a batch that reaches past its last offset.
func (s *stream) follow(before *stream) {
	if after := before.after(); !s.any && after > s.want {
		s.want, s.checkLast, s.sentLast = after, after-1, after-1
	}
}

// held are the bytes of all pieces, asked for or there.
func (s *stream) held() int64 {
	n := int64(0)
	for i := range s.pieces {
		if s.pieces[i].c != nil {
			n += s.pieces[i].end - s.pieces[i].start
		}
	}
	return n
}

// popDelivered gives up the pieces that lie wholly before deliverPos.
func (s *stream) popDelivered(w watcher) {
	n := 0
	for n < len(s.pieces) && s.pieces[n].end <= s.deliverPos && s.pieces[n].c != nil {
		s.pieces[n].abandon(w)
		n++
	}
	s.shift(n)
}

func (s *stream) shift(n int) {
	if n > 0 {
		k := copy(s.pieces, s.pieces[n:])
		clear(s.pieces[k:])
		s.pieces = s.pieces[:k]
	}
}

// cutAt gives up everything from pos on: pieces, GETs in flight.
func (s *stream) cutAt(pos int64, w watcher) {
	keep := 0
	for i := range s.pieces {
		p := &s.pieces[i]
		if p.start < pos {
			p.end = min(p.end, pos)
			keep = i + 1
			continue
		}
		p.abandon(w)
	}
	clear(s.pieces[keep:])
	s.pieces = s.pieces[:keep]
	s.reqPos = min(s.reqPos, pos)
	s.seenEnd = -1
	s.popDelivered(w)
}

// abandon gives a piece's chunk up. A GET that belongs to the stream ends; one that belongs to the cache goes on.
func (p *piece) abandon(w watcher) {
	if p.c == nil {
		return
	}
	p.c.unwatch(w)
	if p.c.cancel != nil {
		p.c.cancel()
	}
	p.c.unref()
	p.c = nil
}

// rewind goes back to what was delivered last, holding nothing.
func (s *stream) rewind(w watcher) {
	s.cutAt(0, w)
	s.checkPos, s.reqPos, s.checkLast, s.needSize = s.deliverPos, s.deliverPos, s.sentLast, 0
	s.order = -1
	if s.sentLast >= s.want {
		s.order = s.sentLast
	}
	s.short = false
	s.ready.clear()
	s.readyBytes = 0
	s.done = s.endPos == 0
}

// restart reads the stream from the segment's beginning.
func (s *stream) restart(w watcher) {
	s.cutAt(0, w)
	s.deliverPos, s.checkPos, s.reqPos, s.needSize = 0, 0, 0, 0
	s.restarted, s.rereadAt, s.order, s.short = true, -1, -1, false
}

// queue is a first-in first-out list that reuses its memory.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int    { return len(q.items) - q.head }
func (q *queue[T]) at(i int) *T { return &q.items[q.head+i] }

func (q *queue[T]) push(v ...T) {
	if q.head > 0 && len(q.items)+len(v) > cap(q.items) {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, v...)
}

func (q *queue[T]) drop(n int) {
	q.head += n
	if q.head == len(q.items) {
		q.clear()
	}
}

// trim gives the memory back if it is for more than n.
func (q *queue[T]) trim(n int) {
	if q.len() == 0 && cap(q.items) > n {
		q.items, q.head = nil, 0
	}
}

func (q *queue[T]) clear() { q.items, q.head = q.items[:0], 0 }
