package history

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// refreshEvery keeps high watermark and last stable offset in answers under a second old, with time to ask in.
	refreshEvery = 600 * time.Millisecond
	// startEvery: of these, each so many-th asks for the log start too, which may be five seconds old.
	startEvery = 5
	// staleAfter ends direct reading: a partition of which nothing is known for so long is the broker's.
	staleAfter = 15 * time.Second

	latest, earliest = -1, -2
	// listOffsetsVersion has leader epochs in request and response, and topics by name.
	listOffsetsVersion = 5

	codeNotLeader          = 6
	codeFencedLeaderEpoch  = 74
	codeUnknownLeaderEpoch = 75
	codeUnknownTopic       = 3

	codeUnknownTopicID      = 100
	codeInconsistentTopicID = 103
)

// refresh keeps true what answers about partitions that are read directly say beside records, for all of them at once, and closes what the client has not
// asked for in a while. It ends when there is nothing left to look after.
func (c *Conn) refresh() {
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return
		}
		parts := c.sweep()
		if len(parts) == 0 {
			if c.unwatched() {
				return
			}
			n = -1 // the next that starts is told its log start by its location
			continue
		}
		ctx, cancel := context.WithTimeout(c.ctx, staleAfter)
		if c.h.opts.Resolver != nil {
			c.refreshResolved(ctx, parts)
		} else {
			c.refreshOnce(ctx, parts, n%startEvery == startEvery-1)
		}
		cancel()
		c.endStale(parts)
	}
}

// unwatched says that refresh is about to end. What began since it looked is looked after.
func (c *Conn) unwatched() bool {
	c.watchMu.Lock()
	c.watchingLocked(false)
	c.watchMu.Unlock()
	if len(c.sweep()) == 0 {
		return true
	}
	c.watchMu.Lock()
	defer c.watchMu.Unlock()
	was := c.watching
	c.watchingLocked(true)
	return was // another one began meanwhile
}

// refreshResolved keeps the resolver interested, and asks the cluster again whether the client may read what it reads, or waits to.
func (c *Conn) refreshResolved(ctx context.Context, parts []*partition) {
	topics := make(map[string]struct{})
	for _, p := range parts {
		if tp, ok := p.interest(); ok {
			topics[tp.Topic] = struct{}{}
		}
	}
	_ = c.access.ask(ctx, c.access.due(topics)...) // without an answer reading ends, when the last one is too old
	for _, p := range parts {
		p.routeAgain()
	}
}

// interest is the partition by its full name, if what the resolver knows of it goes into answers, or if it falls back, which is for those who may read it.
func (p *partition) interest() (tp remotestorage.TopicIDPartition, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.direct != nil {
		p.freshenLocked(p.direct.tp)
		return p.direct.tp, true
	}
	if p.waits || p.place {
		return p.c.h.topics.known(p.key)
	}
	return tp, false
}

func (c *Conn) refreshOnce(ctx context.Context, parts []*partition, start bool) {
	asks := []func(p *partition, at int64){(*partition).setHighWatermark, (*partition).setLastStable}
	for isolation, set := range asks {
		if err := c.listOffsets(ctx, parts, int8(isolation), latest, set); err != nil {
			return // endStale draws the consequences, if it goes on
		}
	}
	if start {
		_ = c.listOffsets(ctx, parts, 0, earliest, (*partition).setLogStart) // as above
	}
	_ = c.endAnew(ctx, parts, start) // as above
}

// listOffsets asks for one offset of each partition, and tells each.
func (c *Conn) listOffsets(ctx context.Context, parts []*partition, isolation int8, timestamp int64, set func(*partition, int64)) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.IsolationLevel = listOffsetsVersion, -1, isolation
	type named struct {
		topic     string
		partition int32
	}
	byName := make(map[named]*partition, len(parts))
	topics := make(map[string]int)
	for _, p := range parts {
		epoch, ok := p.confirmedEpoch()
		name, err := c.topicName(ctx, p.key)
		if err != nil || !ok {
			continue
		}
		i, ok := topics[name]
		if !ok {
			i = len(req.Topics)
			topics[name] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = name
			req.Topics = append(req.Topics, t)
		}
		q := kmsg.NewListOffsetsRequestTopicPartition()
		q.Partition, q.CurrentLeaderEpoch, q.Timestamp = p.key.partition, epoch, timestamp
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, q)
		byName[named{name, p.key.partition}] = p
	}
	if len(byName) == 0 {
		return nil
	}
	resp, err := c.carrier.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("asking for offsets: %w", err)
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, r := range t.Partitions {
			p := byName[named{t.Topic, r.Partition}]
			switch {
			case p == nil:
			case r.ErrorCode == 0 && r.Offset >= 0:
				set(p, r.Offset)
			case r.ErrorCode == codeNotLeader || r.ErrorCode == codeFencedLeaderEpoch || r.ErrorCode == codeUnknownLeaderEpoch || r.ErrorCode == codeUnknownTopic:
				p.end(brokerError{r.ErrorCode})
			}
		}
	}
	return nil
}

func (c *Conn) endStale(parts []*partition) {
	for _, p := range parts {
		p.mu.Lock()
		stale := p.direct != nil && time.Since(p.direct.refreshed) > staleAfter
		p.mu.Unlock()
		if stale {
			p.end(errRefresh)
		}
	}
}

// end ends direct reading from outside of a fetch; the client's next question goes to the broker, and so does the one that waits now.
func (p *partition) end(err error) {
	p.mu.Lock()
	then := func() {}
	if p.direct != nil {
		p.endLocked()
		reported := p.endedLocked(err)
		then = func() { reported(); p.wake() }
	}
	p.mu.Unlock()
	then()
}

func (p *partition) confirmedEpoch() (int32, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.direct == nil {
		return 0, false
	}
	return p.direct.epoch, true
}

func (p *partition) setHighWatermark(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hw = at
	if p.direct != nil {
		p.direct.refreshed = time.Now()
	}
}

func (p *partition) setLastStable(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lso = min(at, p.hw)
}

func (p *partition) setLogStart(at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logStart = max(p.logStart, at)
}

// refreshed takes what a location's answer says.
func (p *partition) refreshed(hw, lso, logStart int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.direct == nil || hw < 0 {
		return
	}
	p.hw, p.lso, p.logStart = hw, lso, max(p.logStart, logStart)
	p.direct.refreshed = time.Now()
}
