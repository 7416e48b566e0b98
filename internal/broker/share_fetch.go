package broker

import (
	"context"
	"time"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/fetch"
	"github.com/rewind-kafka/rewind/internal/sharepart"
	"github.com/rewind-kafka/rewind/internal/sharesession"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// shareQuery is what a member wants to read.
type shareQuery struct {
	conn          *conn
	group, member string
	limits        fetch.Limits
	maxRecords    int
	batchSize     int
	limited       bool
	committed     bool
}

// shareAnswer is what a query found of one partition.
type shareAnswer struct {
	part     sharesession.Part
	code     int16
	err      error // why
	records  []byte
	acquired []sharepart.Delivery
}

func shareRefused(part sharesession.Part, code int16, err error) shareAnswer {
	if err != nil {
		code = shareCode(err)
	}
	return shareAnswer{part: part, code: code, err: err, records: []byte{}}
}

// shareSource is a partition that may be read now, from an offset.
type shareSource struct {
	*sharePartition
	offset int64
	read   fetch.Part
}

// read answers a query: as soon as there is enough, or when the time is over. Partitions that somebody else reads for are left out meanwhile.
func (s *shareService) read(ctx context.Context, q *shareQuery, parts []sharesession.Part) []shareAnswer {
	var refused []shareAnswer
	var all []*sharePartition
	for _, part := range parts {
		sp, code, err := s.find(ctx, q, part)
		if code != errNone || err != nil {
			refused = append(refused, shareRefused(part, code, err))
			continue
		}
		all = append(all, sp)
	}
	if len(all) == 0 || q.maxRecords <= 0 || q.limits.MaxBytes <= 0 {
		return refused
	}
	woken := make(chan struct{}, 1) // one slot: a wake that comes while the partitions are being looked at is kept
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	for _, sp := range all {
		defer sp.watch(wake)()
	}
	timer := time.NewTimer(q.limits.MaxWait)
	defer timer.Stop()
	for over := q.limits.MaxWait <= 0; ctx.Err() == nil; {
		sources, cancel := s.look(q, all, wake)
		if over || q.enough(sources) {
			cancel()
			if answers := s.take(ctx, q, sources); over || len(answers) > 0 {
				return append(refused, answers...)
			}
			cancel = func() {} // others were faster, and wake us when they are done
		}
		began := time.Now()
		select {
		case <-woken:
		case <-timer.C:
			over = true
		case <-ctx.Done():
		}
		q.conn.waited(time.Since(began))
		cancel()
	}
	return refused
}

// find is a partition that the member may read, taken up.
func (s *shareService) find(ctx context.Context, q *shareQuery, part sharesession.Part) (*sharePartition, int16, error) {
	p, code := s.b.resolvePartition(q.conn, acl.Read, true, "", part.TopicID, part.Partition)
	if code != errNone {
		return nil, code, nil
	}
	sp, err := s.get(ctx, shareKey{q.group, part.TopicID, part.Partition}, p)
	return sp, errNone, err
}

// look gives the partitions that can be read for the member now, each with a source that calls wake when it has more.
func (s *shareService) look(q *shareQuery, all []*sharePartition, wake func()) (sources []shareSource, cancel func()) {
	for _, sp := range all {
		if offset, ok := sp.next(); ok {
			sources = append(sources, shareSource{sharePartition: sp, offset: offset})
		}
	}
	cancels := make([]func(), len(sources))
	for i := range sources {
		sources[i].read = s.source(&sources[i], q.committed, q.share(len(sources)))
		cancels[i] = sources[i].read.Subscribe(wake)
	}
	return sources, func() {
		for _, c := range cancels {
			c()
		}
	}
}

// share is how many bytes one of n partitions may give.
func (q *shareQuery) share(n int) int { return max(q.limits.MaxBytes/max(n, 1), 1) }

// source reads as a Fetch of the offset would: from the local log, or from the store.
func (s *shareService) source(of *shareSource, committed bool, limit int) fetch.Part {
	p := of.p
	o := p.log.Offsets()
	local := &localPart{partition: p, logger: s.b.log, offset: of.offset, committed: committed}
	switch {
	case of.offset < o.LogStart || of.offset > o.LogEnd:
		return failedPart{failedPartition(p.tp.Partition, errOffsetOutOfRange)}
	case of.offset < o.LocalLogStart && s.b.remote == nil:
		return failedPart{failedPartition(p.tp.Partition, errStorage)} // see historyLost
	case of.offset >= o.LocalLogStart || !p.config().RemoteStorage && !s.b.remote.knows(p):
		return local
	}
	return &remotePart{side: s.b.remote, local: local, localLimit: limit, owner: of.owner, limit: limit}
}

// enough tells whether an answer can go out.
func (q *shareQuery) enough(sources []shareSource) bool {
	total := 0
	for _, src := range sources {
		n, now := src.read.Available()
		if now {
			return true
		}
		total += min(n, q.share(len(sources)))
	}
	return len(sources) > 0 && total >= q.limits.MinBytes
}

// take reads, and gives the member what it may have of what was read.
func (s *shareService) take(ctx context.Context, q *shareQuery, sources []shareSource) []shareAnswer {
	var mine []shareSource
	for _, src := range sources {
		if src.begin(src.offset) {
			mine = append(mine, src)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	parts, limits := make([]fetch.Part, len(mine)), make([]int, len(mine))
	for i, src := range mine {
		parts[i], limits[i] = src.read, q.share(len(mine))
	}
	results := fetch.Collect(ctx, fetch.Limits{Reserve: q.limits.Reserve, MaxBytes: q.limits.MaxBytes}, parts, limits)
	answers := make([]shareAnswer, len(mine))
	left := q.maxRecords
	for i := range mine {
		answers[i] = s.give(ctx, q, &mine[i], &results[i], left)
		for _, d := range answers[i].acquired {
			left -= int(d.Last - d.First + 1)
		}
	}
	return answers
}

// give ends the reading of one partition.
func (s *shareService) give(ctx context.Context, q *shareQuery, src *shareSource, r *wire.FetchPartition, left int) shareAnswer {
	a := shareAnswer{part: sharesession.Part{TopicID: src.key.topicID, Partition: src.key.partition}, records: []byte{}}
	if r.ErrorCode == errOffsetOutOfRange {
		a.err = src.end(ctx, func(m *sharepart.Partition) { m.MoveStart(src.p.log.Offsets().LogStart) })
	} else if r.ErrorCode != errNone {
		a.code = r.ErrorCode
		a.err = src.end(ctx, func(*sharepart.Partition) {})
	} else {
		raw := joined(r.Records)
		f := sharepart.Fetched{Member: q.member, Limited: q.limited, MaxRecords: left, BatchSize: q.batchSize, Offset: src.offset}
		f.Batches, f.Aborted = shareSpans(raw, r.Aborted)
		a.err = src.end(ctx, func(m *sharepart.Partition) { a.acquired = m.Acquire(s.b.now(), f) })
		a.records = shareSlice(raw, f.Batches, a.acquired)
	}
	if a.err != nil {
		return shareRefused(a.part, errNone, a.err)
	}
	return a
}

// joined copies records out of memory that is lent.
func joined(r wire.Records) []byte {
	if r.Release != nil {
		defer r.Release()
	}
	out := make([]byte, 0, r.Len())
	for _, b := range r.Bufs {
		out = append(out, b...)
	}
	return out
}
