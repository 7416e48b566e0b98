package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/resolve"
)

// Timestamps that ListOffsets understands as questions.
const (
	latest        = -1
	earliest      = -2
	earliestLocal = -4
	latestTiered  = -5
)

// listOffsets asks for one offset of each partition; partitions without an answer are left out.
func (d *doctor) listOffsets(ctx context.Context, t *topic, timestamp int64) (map[int32]int64, error) {
	limited, cancel := d.limited(ctx)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = t.name
	for _, p := range slices.Sorted(maps.Keys(t.leaders)) {
		if t.leaders[p] < 0 {
			continue // nobody can tell, and kgo would give an error in place of the others' answers
		}
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p, timestamp
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(limited, d.ask)
	if err != nil {
		return nil, err
	}
	offsets := make(map[int32]int64)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if perr := kerr.ErrorForCode(p.ErrorCode); perr != nil {
				err = perr
				continue
			}
			offsets[p.Partition] = p.Offset
		}
	}
	return offsets, err
}

// partitions finds, for each partition that is looked at, which offsets would be read from where, and opens one segment of it. Where the metadata topic cannot be
// read, h is nil, and everything is left to the brokers.
func (d *doctor) partitions(ctx context.Context, h history) {
	for _, t := range d.topics {
		offsets, err := d.offsets(ctx, t)
		if err != nil {
			d.rep.add(Problem, "topic "+t.name, "look at the brokers that lead its partitions", "its offsets cannot be asked for: %v", err)
		}
		sum := d.visit(ctx, h, t, offsets)
		if t.tiered {
			d.rep.Findings = append(d.rep.Findings, d.judgeSurvey(t.name, sum)...)
		}
	}
}

// offsets asks for all that is to be known, by timestamp. With an error it gives what came all the same.
func (d *doctor) offsets(ctx context.Context, t *topic) (map[int64]map[int32]int64, error) {
	offsets := make(map[int64]map[int32]int64)
	var failed error
	for _, timestamp := range []int64{earliest, earliestLocal, latestTiered, latest} {
		of, err := d.listOffsets(ctx, t, timestamp)
		if timestamp == latestTiered && errors.Is(err, kerr.UnsupportedVersion) {
			continue
		}
		if failed == nil {
			failed = err
		}
		if of == nil { // nobody answers: do not wait for each question
			break
		}
		offsets[timestamp] = of
	}
	return offsets, failed
}

const (
	visitors = 8 // partitions looked at side by side
	// maxOpened bounds of how many partitions of a topic a segment is opened: the others are written by the same plug-in.
	maxOpened = 64
)

// visit looks at all partitions of a topic.
func (d *doctor) visit(ctx context.Context, h history, t *topic, offsets map[int64]map[int32]int64) *survey {
	partitions := slices.Sorted(maps.Keys(t.leaders))
	places, sums := make([]Place, len(partitions)), make([]survey, len(partitions))
	var g errgroup.Group
	g.SetLimit(visitors)
	opening := 0
	for i, p := range partitions {
		place := &places[i]
		*place = Place{Topic: t.name, Partition: p, Committed: known64(t.committed, p), LogStart: known64(offsets[earliest], p),
			LocalStart: known64(offsets[earliestLocal], p), LastTiered: known64(offsets[latestTiered], p), HighWatermark: known64(offsets[latest], p)}
		from := settle(place, t.tiered)
		open := place.From == "store" && opening < maxOpened
		if open {
			opening++
		}
		g.Go(func() error {
			d.partition(ctx, h, t, place, from, open, &sums[i])
			return nil
		})
	}
	_ = g.Wait() // nobody gives an error
	d.rep.Partitions = append(d.rep.Partitions, places...)
	var sum survey
	for i := range sums {
		sum.add(&sums[i])
	}
	return &sum
}

func known64(m map[int32]int64, p int32) int64 {
	if v, ok := m[p]; ok {
		return v
	}
	return -1
}

// survey is what opening segments of a topic came to.
type survey struct {
	partitions, history int // all, and those with offsets that are in the store only
	opened, signed      int
	slowest             time.Duration
	undecided           []string // partitions where committed readers are left to the brokers
	left                []string // why partitions are the brokers' after all
	failed              []failure
}

type failure struct {
	place string
	err   error
}

func (s *survey) add(o *survey) {
	s.partitions, s.history, s.opened, s.signed, s.slowest = s.partitions+o.partitions, s.history+o.history, s.opened+o.opened, s.signed+o.signed, max(s.slowest, o.slowest)
	s.undecided, s.left, s.failed = append(s.undecided, o.undecided...), append(s.left, o.left...), append(s.failed, o.failed...)
}

// partition completes a place that settle has begun, and opens the segment that a reader there would open.
func (d *doctor) partition(ctx context.Context, h history, t *topic, p *Place, from int64, open bool, sum *survey) {
	limited, cancel := context.WithTimeout(ctx, 3*d.o.Patience)
	defer cancel()
	sum.partitions++
	if p.LogStart >= 0 && p.LocalStart > p.LogStart {
		sum.history++
	}
	tp := t.partition(p.Partition)
	if h == nil {
		if p.From == "store" {
			p.leave("the metadata topic cannot be read")
		}
		return
	}
	var segments []remotelog.Found
	if t.tiered {
		var err error
		if segments, err = h.History(limited, tp); err != nil {
			sum.failed = append(sum.failed, failure{tp.String(), err})
		}
	}
	if p.From != "store" {
		return
	}
	if d.o.StorageErr != nil {
		p.leave("the store cannot be opened")
		return
	}
	measure(p, from, segments)
	if !open || d.o.Storage == nil {
		return
	}
	q := resolve.Question{TP: tp, Offset: from, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1}
	o, err := openSegment(limited, h, q)
	switch {
	case errors.Is(err, remote.ErrLocal):
		p.leave(err.Error())
		sum.left = append(sum.left, err.Error())
		return
	case err != nil:
		p.leave(err.Error())
		sum.failed = append(sum.failed, failure{tp.String(), err})
		return
	}
	sum.opened++
	sum.slowest = max(sum.slowest, o.took)
	if o.signed {
		sum.signed++
	}
	q.Committed = true
	switch _, err := h.Resolve(limited, q); {
	case errors.Is(err, remote.ErrLocal):
		sum.undecided = append(sum.undecided, fmt.Sprintf("%s at %d", tp, from))
	case err != nil:
		sum.failed = append(sum.failed, failure{tp.String(), fmt.Errorf("for read_committed consumers: %w", err)})
	}
}

// leave says that the place is the brokers' after all.
func (p *Place) leave(why string) {
	p.From, p.Why, p.StoreOffsets, p.StoreBytes, p.StoreSegments = "broker", why, 0, 0, 0
}

// settle says by the offsets alone where a reader at the committed offset, or at the log start without one, reads.
func settle(p *Place, tiered bool) (from int64) {
	from = p.LogStart
	if p.Committed >= 0 {
		from = p.Committed
	}
	switch {
	case p.LogStart < 0 || p.HighWatermark < 0:
		p.From, p.Why = "none", "its offsets are not known"
	case from < p.LogStart:
		p.From, p.Why = "none", "the committed offset is below the log start offset: auto.offset.reset decides"
	case from > p.HighWatermark:
		p.From, p.Why = "none", "the committed offset is above the high watermark"
	case from == p.HighWatermark:
		p.From, p.Why = "broker", "there is nothing left to read"
	case !tiered:
		p.From, p.Why = "broker", "the topic is not tiered"
	case p.LocalStart < 0 || from >= p.LocalStart:
		p.From, p.Why = "broker", "the offset is on the brokers' own disks"
	default:
		p.From = "store"
	}
	return from
}

// measure tells how much is read from the store from an offset on, until the brokers' own logs begin.
func measure(p *Place, from int64, segments []remotelog.Found) {
	for _, s := range segments {
		first, last := max(s.First, from), min(s.Last, p.LocalStart-1)
		if first > last {
			continue
		}
		offsets := last - first + 1
		p.StoreSegments++
		p.StoreOffsets += offsets
		p.StoreBytes += int64(float64(s.SegmentSizeInBytes) * float64(offsets) / float64(s.EndOffset-s.StartOffset+1))
	}
}

// maxShown bounds how many of the same kind a finding names.
const maxShown = 3

func (d *doctor) judgeSurvey(name string, s *survey) []Finding {
	var r Report
	check := "topic " + name
	if s.history == 0 {
		r.add(Warning, check, "wait for local retention (log.retention.check.interval.ms), lower local.retention.ms, or let segments close sooner: segment.bytes, segment.ms",
			"all that it holds is still on the brokers' own disks: nothing is read from the store yet")
	} else {
		r.add(OK, check, "", "%d of %d partitions have offsets that are only in the store", s.history, s.partitions)
	}
	if s.opened > 0 {
		d.read = true
		r.add(OK, "segments", "", "%s: one segment opened in each of %d partitions: index, first batch and its CRC are right (the slowest took %v)", name, s.opened, s.slowest.Round(time.Millisecond))
		d.signs = append(d.signs, signing{name, s.signed > 0})
	}
	if len(s.left) > 0 {
		r.add(Warning, "segments", "nothing: the brokers serve them", "%s: %d partitions are left to the brokers: %s", name, len(s.left), shown(s.left))
	}
	if len(s.undecided) > 0 {
		r.add(Warning, "transactions", "nothing: the brokers serve them, read_uncommitted is not affected",
			"%s: read_committed consumers begin at the brokers, since it cannot be told from outside which transactions were aborted: %s", name, shown(s.undecided))
	}
	for i, f := range s.failed {
		if i == maxShown {
			r.add(Problem, "segments", "as for those above", "%s: %d more partitions fail", name, len(s.failed)-maxShown)
			break
		}
		what, do := d.storeError(f.err)
		r.add(Problem, "segments", do, "%s: %s", f.place, what)
	}
	return r.Findings
}

func shown(list []string) string {
	s := strings.Join(list[:min(len(list), maxShown)], ", ")
	if n := len(list) - maxShown; n > 0 {
		s += fmt.Sprintf(" and %d more", n)
	}
	return s
}
