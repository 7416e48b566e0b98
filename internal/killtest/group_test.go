package killtest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const groupName = "readers-of-history"

// group is a consumer group of one member that commits what it has read.
type group struct {
	l     *load
	topic string

	mu        sync.Mutex
	committed map[place]int64 // what was acknowledged, the highest
	polled    map[place]int64 // the next offset that it has not read yet
	commits   int
}

func (l *load) group(topic string) *group {
	g := &group{l: l, topic: topic, committed: map[place]int64{}, polled: map[place]int64{}}
	l.wg.Go(func() {
		c, err := l.client(kgo.ConsumerGroup(groupName), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
			kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.HeartbeatInterval(200*time.Millisecond))
		if err != nil {
			l.ledger.fault("making the group's member: %v", err)
			return
		}
		defer c.Close()
		for l.ctx.Err() == nil {
			g.poll(c)
			c.AllowRebalance()
		}
	})
	return g
}

func (g *group) poll(c *kgo.Client) {
	ctx, cancel := context.WithTimeout(g.l.ctx, time.Second)
	fetches := c.PollRecords(ctx, 500)
	cancel()
	if err := fault(fetches); err != nil {
		g.l.ledger.fault("the group's member: %v", err)
	}
	heads := map[place]kgo.EpochOffset{}
	fetches.EachRecord(func(r *kgo.Record) {
		p := place{r.Topic, r.Partition}
		g.l.ledger.read("the group's member", r)
		g.mu.Lock()
		if next := g.polled[p]; r.Offset > next {
			g.l.ledger.fault("the group's member, %s: came to offset %d, having read up to %d", p, r.Offset, next)
		}
		g.polled[p] = max(g.polled[p], r.Offset+1)
		g.mu.Unlock()
		heads[p] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	})
	if len(heads) > 0 {
		g.commit(c, heads)
	}
}

func (g *group) commit(c *kgo.Client, heads map[place]kgo.EpochOffset) {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for p, o := range heads {
		if offsets[p.topic] == nil {
			offsets[p.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[p.topic][p.partition] = o
	}
	ctx, cancel := context.WithTimeout(g.l.ctx, 5*time.Second)
	defer cancel()
	c.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			return // the broker went away; whether it counts is open
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 {
					at := place{t.Topic, p.Partition}
					g.committed[at] = max(g.committed[at], heads[at].Offset)
					g.commits++
				}
			}
		}
	})
}

// check asks for the committed offsets: none may lie below one that was acknowledged before.
func (g *group) check() error {
	g.mu.Lock()
	want := maps.Clone(g.committed)
	g.mu.Unlock()
	c, err := g.l.client()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(g.l.ctx, time.Minute)
	defer cancel()
	var got kadm.OffsetResponses
	err = whenUp(ctx, func() (err error) {
		got, err = kadm.NewClient(c).FetchOffsets(ctx, groupName)
		return err
	})
	if err != nil {
		return fmt.Errorf("asking for committed offsets: %w", err)
	}
	for p, offset := range want {
		o, ok := got.Lookup(p.topic, p.partition)
		if !ok || o.Err != nil || o.At < offset {
			g.l.ledger.fault("group %s, %s: %d was committed and acknowledged, the broker has %d (%v)", groupName, p, offset, o.At, o.Err)
		}
	}
	return nil
}
