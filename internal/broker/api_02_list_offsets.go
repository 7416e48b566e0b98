package broker

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/tier"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// ListOffsets, versions 1 to 11. Max timestamp (-3) looks at both tiers; Apache Kafka looks at the local log only. The timeout of version 10 is not looked
// at: remote lookups end with remote.fetch.max.wait.ms.

// Special timestamps.
const (
	offsetLatest          = -1
	offsetEarliest        = -2
	offsetMaxTimestamp    = -3
	offsetEarliestLocal   = -4
	offsetLatestTiered    = -5
	offsetEarliestPending = -6
)

// specialSince is the first version that knows a special timestamp.
var specialSince = map[int64]int16{
	offsetLatest: 0, offsetEarliest: 0, offsetMaxTimestamp: 7, offsetEarliestLocal: 8, offsetLatestTiered: 9, offsetEarliestPending: 11,
}

// onceEach leaves out what is asked for again, and tells which partitions that were.
func onceEach(list []kmsg.ListOffsetsRequestTopicPartition) (once []kmsg.ListOffsetsRequestTopicPartition, twice map[int32]bool) {
	if len(list) < 2 {
		return list, nil
	}
	seen := make(map[int32]bool, len(list))
	twice = make(map[int32]bool)
	for i := range list {
		n := list[i].Partition
		if seen[n] {
			twice[n] = true
			continue
		}
		seen[n] = true
		once = append(once, list[i])
	}
	return once, twice
}

// merged gives the partitions of the topics that a request names more than once, all of them together.
func merged(list []kmsg.ListOffsetsRequestTopic, times map[string]int) map[string][]kmsg.ListOffsetsRequestTopicPartition {
	var all map[string][]kmsg.ListOffsetsRequestTopicPartition
	for i := range list {
		if t := &list[i]; times[t.Topic] > 1 {
			if all == nil {
				all = make(map[string][]kmsg.ListOffsetsRequestTopicPartition)
			}
			all[t.Topic] = append(all[t.Topic], t.Partitions...)
		}
	}
	return all
}

// served tells whether a version of the request knows a timestamp.
func served(ts int64, version int16) bool {
	since, known := specialSince[ts]
	return ts >= 0 || known && version >= since
}

// maxLookups bounds the partitions of one request that are looked up at the same time.
const maxLookups = 8

func (b *Broker) handleListOffsets(ctx context.Context, c *conn, req *kmsg.ListOffsetsRequest) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, b.config().RemoteFetchMaxWait)
	defer cancel()
	resp := kmsg.NewPtrListOffsetsResponse()
	times := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	if !knownIsolation(req.IsolationLevel) {
		return refusedOffsets(req, errUnknown), nil
	}
	several := merged(req.Topics, times)
	var g errgroup.Group
	g.SetLimit(maxLookups)
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = t.Topic
		allowed := b.allowedTopic(c, acl.Describe, t.Topic)
		parts := t.Partitions
		if times[t.Topic] > 1 { // they are answered where the topic comes first
			parts = several[t.Topic]
			delete(several, t.Topic)
		}
		asked, twice := onceEach(parts)
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(asked))
		for j := range asked {
			in, out := &asked[j], &out.Partitions[j]
			out.Default()
			out.Partition, out.Timestamp, out.Offset, out.LeaderEpoch = in.Partition, -1, -1, -1
			if !allowed {
				out.ErrorCode = errTopicAuthorization
				continue
			}
			if twice[in.Partition] {
				out.ErrorCode = errInvalidRequest
				continue
			}
			if !served(in.Timestamp, req.Version) {
				out.ErrorCode = errUnsupportedVersion
				continue
			}
			p := b.partition(t.Topic, in.Partition)
			if p == nil {
				out.ErrorCode = errUnknownTopicOrPartition
				continue
			}
			if in.Timestamp == offsetLatest || in.Timestamp == offsetEarliest {
				b.listOffset(ctx, req, p, in, out)
				continue
			}
			g.Go(func() error {
				if ctx.Err() != nil { // local lookups are not cut off, but no more are begun
					out.ErrorCode = errStorage
					return nil
				}
				b.listOffset(ctx, req, p, in, out)
				return nil
			})
		}
	}
	err := g.Wait()
	resp.Topics = slices.DeleteFunc(resp.Topics, func(t kmsg.ListOffsetsResponseTopic) bool { return len(t.Partitions) == 0 })
	return resp, err
}

func refusedOffsets(req *kmsg.ListOffsetsRequest, code int16) kmsg.Response {
	resp := kmsg.NewPtrListOffsetsResponse()
	for i := range req.Topics {
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = req.Topics[i].Topic
		for j := range req.Topics[i].Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition, p.ErrorCode, p.Timestamp, p.Offset, p.LeaderEpoch = req.Topics[i].Partitions[j].Partition, code, -1, -1, -1
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (b *Broker) listOffset(ctx context.Context, req *kmsg.ListOffsetsRequest, p *partition, in *kmsg.ListOffsetsRequestTopicPartition, out *kmsg.ListOffsetsResponseTopicPartition) {
	if out.ErrorCode = fenceNamedEpoch(p, in.CurrentLeaderEpoch); out.ErrorCode != errNone {
		return
	}
	found, err := b.offsetFor(ctx, p, in.Timestamp, req.IsolationLevel == isolationCommitted)
	switch {
	case err == nil:
		out.Offset, out.Timestamp, out.LeaderEpoch = found.Offset, found.Timestamp, found.Epoch
	case errors.Is(err, remote.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, remotestorage.ErrNoBucket), errors.Is(err, remotestorage.ErrDenied),
		errors.Is(err, errNoStore):
		out.ErrorCode = errStorage
	default:
		b.log.Warn("looking up an offset", "partition", p.tp.String(), "timestamp", in.Timestamp, "err", err)
		out.ErrorCode = readError(err)
	}
}

// timed is what a lookup found.
type timed struct {
	Offset, Timestamp int64
	Epoch             int32
}

var nothingFound = timed{Offset: -1, Timestamp: -1, Epoch: -1}

// offsetFor answers one question. Special timestamps have no timestamp in the answer.
func (b *Broker) offsetFor(ctx context.Context, p *partition, ts int64, committed bool) (timed, error) {
	o := p.log.Offsets()
	switch ts {
	case offsetLatest:
		return timed{Offset: readBound(&o, committed), Timestamp: -1, Epoch: p.log.LeaderEpoch()}, nil
	case offsetEarliest:
		return at(p, o.LogStart), nil
	case offsetEarliestLocal:
		return at(p, max(o.LocalLogStart, o.LogStart)), nil
	case offsetLatestTiered:
		return b.highestTiered(p), nil
	case offsetEarliestPending:
		return b.earliestPending(p, &o), nil
	}
	// What is above the bound is not told, the largest timestamp neither: nothing is found then, and no smaller one is looked for, as in Apache Kafka.
	var found timed
	var err error
	ok := true
	if ts == offsetMaxTimestamp {
		found, err = b.maxTimestamp(ctx, p)
	} else {
		found, ok, err = b.searchTimestamp(ctx, p, ts)
	}
	o = p.log.Offsets() // as of now: what was found may have come after the first look
	if err != nil || !ok || found.Offset >= readBound(&o, committed) {
		return nothingFound, err
	}
	return found, nil
}

// readBound is the first offset that a reader may not see.
func readBound(o *logOffsets, committed bool) int64 {
	if committed {
		return o.LastStable
	}
	return o.HighWatermark
}

// at is an offset with the epoch that it has.
func at(p *partition, offset int64) timed {
	epoch, ok := p.log.Epochs().EpochFor(offset)
	if !ok {
		epoch = -1
		// Before the first batch the lineage may begin above the offset: then it is the earliest epoch that a reader meets.
		if entries := p.log.Epochs().Entries(); len(entries) > 0 {
			epoch = entries[0].LeaderEpoch
		}
	}
	return timed{Offset: offset, Timestamp: -1, Epoch: epoch}
}

func (b *Broker) highestTiered(p *partition) timed {
	if b.remote == nil {
		return nothingFound
	}
	offset, _, ok := b.remote.tier.HighestTiered(tier.Partition{TP: p.tp, Log: p.log})
	if !ok {
		return nothingFound
	}
	// The epoch is the one that the lineage has there now: none, once the offset is below the log start.
	epoch, ok := p.log.Epochs().EpochFor(offset)
	if !ok {
		epoch = -1
	}
	return timed{Offset: offset, Timestamp: -1, Epoch: epoch}
}

func (b *Broker) earliestPending(p *partition, o *logOffsets) timed {
	if o.LogEnd == 0 || b.remote == nil || !p.config().RemoteStorage {
		return nothingFound
	}
	next := int64(0)
	if t := b.highestTiered(p); t.Offset >= 0 {
		next = t.Offset + 1
	}
	return at(p, max(next, o.LogStart))
}

func (b *Broker) searchTimestamp(ctx context.Context, p *partition, ts int64) (timed, bool, error) {
	v := view{p.log}
	if b.historyLost(p) {
		return nothingFound, false, errNoStore
	}
	if b.remote == nil || !b.remote.knows(p) {
		offset, timestamp, epoch, ok, err := v.OffsetForTimestamp(ts)
		return timed{offset, timestamp, epoch}, ok, err
	}
	var found timed
	var ok bool
	err := whileStartMoves(p, func() (err error) {
		found.Offset, found.Timestamp, found.Epoch, ok, err = b.remote.resolver.Search(ctx, p.tp, v, v, ts)
		return err
	})
	return found, ok, err
}

// maxTimestamp looks at the local log first: a segment that leaves it after that has been in the remote tier since before that is looked at. The other way round
// neither look would see it.
func (b *Broker) maxTimestamp(ctx context.Context, p *partition) (timed, error) {
	if b.historyLost(p) {
		return nothingFound, errNoStore
	}
	best := nothingFound
	offset, ts, epoch, ok, err := p.log.MaxTimestamp()
	if err != nil {
		return nothingFound, err
	}
	if ok {
		best = timed{Offset: offset, Timestamp: ts, Epoch: epoch}
	}
	if b.remote == nil || !b.remote.knows(p) {
		return best, nil
	}
	var found timed
	err = whileStartMoves(p, func() (err error) {
		found.Offset, found.Timestamp, found.Epoch, ok, err = b.remote.resolver.MaxTimestamp(ctx, p.tp, view{p.log})
		return err
	})
	if err != nil {
		return nothingFound, err
	}
	if ok && found.Timestamp >= best.Timestamp { // of several the first counts
		best = found
	}
	return best, nil
}

// whileStartMoves looks again after a failure that may come from what was deleted meanwhile: a lookup begins at a log start that is history when the
// segments are looked at (docs/cases.md, 20).
func whileStartMoves(p *partition, look func() error) error {
	const tries = 10
	for try := 0; ; try++ {
		start := p.log.Offsets().LogStart
		err := look()
		if err == nil || try == tries || p.log.Offsets().LogStart == start {
			return err
		}
	}
}
