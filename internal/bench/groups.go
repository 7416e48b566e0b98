package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	members       = 200
	sharedBetween = 1000 // partitions
	rebalanceWait = 5 * time.Minute
)

// measureGroups: members join at once, then one leaves. It is over when each partition has one owner again.
func measureGroups(ctx context.Context, l *lab) ([]Row, error) {
	return l.with(ctx, "groups", func(p *pair) ([]Row, error) {
		if err := p.each(func(c *contender) error { return c.create(ctx, "shared", sharedBetween) }); err != nil {
			return nil, err
		}
		classic, err := l.rebalances(ctx, p, "classic", kgo.Balancers(kgo.RangeBalancer()))
		if err != nil {
			return nil, err
		}
		newer, err := l.rebalances(ctx, p, "consumer", kgo.ServerSideBalancer())
		return append(classic, newer...), err
	})
}

func (l *lab) rebalances(ctx context.Context, p *pair, protocol string, balancer kgo.GroupOpt) ([]Row, error) {
	joined, left := make(map[*contender][]float64), make(map[*contender][]float64)
	for n := range l.Runs {
		if err := p.each(func(c *contender) error {
			j, w, err := rebalance(ctx, c.addr, fmt.Sprintf("%s-%d", protocol, n), balancer)
			l.say("  run %d, %s, protocol %s: joined in %.2f s, one left in %.2f s", n+1, c.name, protocol, j, w)
			joined[c], left[c] = append(joined[c], j), append(left[c], w)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return []Row{
		{"200 consumers of 1,000 partitions join, protocol " + protocol + ": ours / Apache Kafka", middle(joined[p.ours]), middle(joined[p.kafka]), -1, "s"},
		{"one of them leaves, protocol " + protocol + ": ours / Apache Kafka", middle(left[p.ours]), middle(left[p.kafka]), -1, "s"},
	}, nil
}

// owners are the members, and how much each has.
type owners struct {
	mu    sync.Mutex
	owned map[int]int // by member
	moved chan struct{}
}

func (o *owners) add(member, n int) {
	o.mu.Lock()
	if o.owned[member] += n; o.owned[member] == 0 {
		delete(o.owned, member)
	}
	o.mu.Unlock()
	select {
	case o.moved <- struct{}{}:
	default:
	}
}

// await until so many members own all partitions.
func (o *owners) await(ctx context.Context, want int) error {
	for {
		o.mu.Lock()
		total := 0
		for _, n := range o.owned {
			total += n
		}
		got := len(o.owned)
		o.mu.Unlock()
		if got == want && total == sharedBetween {
			return nil
		}
		select {
		case <-o.moved:
		case <-ctx.Done():
			return fmt.Errorf("%d members own %d partitions: %w", got, total, ctx.Err())
		}
	}
}

// rebalance gives the seconds until all members that joined had their partitions, and until the others had those of one that left.
func rebalance(ctx context.Context, addr, group string, balancer kgo.GroupOpt) (joined, left float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, rebalanceWait)
	defer cancel()
	o := &owners{owned: make(map[int]int), moved: make(chan struct{}, 1)}
	clients := make([]*kgo.Client, members)
	var polling sync.WaitGroup
	defer func() {
		cancel()
		for _, c := range clients {
			if c != nil {
				c.CloseAllowingRebalance()
			}
		}
		polling.Wait()
	}()
	count := func(m map[string][]int32) (n int) {
		for _, ps := range m {
			n += len(ps)
		}
		return n
	}
	start := time.Now()
	for i := range clients {
		gone := func(_ context.Context, _ *kgo.Client, m map[string][]int32) { o.add(i, -count(m)) }
		clients[i], err = kgo.NewClient(
			kgo.SeedBrokers(addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics("shared"), balancer, kgo.HeartbeatInterval(500*time.Millisecond),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { o.add(i, count(m)) }),
			kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone),
		)
		if err != nil {
			return 0, 0, err
		}
		polling.Go(func() {
			for ctx.Err() == nil {
				clients[i].PollFetches(ctx)
			}
		})
	}
	if err := o.await(ctx, members); err != nil {
		return 0, 0, err
	}
	joined = time.Since(start).Seconds()
	start = time.Now()
	clients[0].Close()
	if err := o.await(ctx, members-1); err != nil {
		return joined, 0, err
	}
	return joined, time.Since(start).Seconds(), nil
}
