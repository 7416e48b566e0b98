package clustertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// MoveLeader makes a broker, which must be a replica, the leader of a partition, and returns when it is.
func (c *Cluster) MoveLeader(t testing.TB, topic string, partition, to int32) {
	t.Helper()
	err := Retried(t.Context(), func(ctx context.Context) error { return c.moveLeader(ctx, topic, partition, to) })
	if err != nil {
		t.Fatalf("moving the leader of %s/%d to %d: %v", topic, partition, to, err)
	}
	c.await(t, fmt.Sprintf("broker %d to lead %s/%d", to, topic, partition), func(ctx context.Context) error {
		err := c.everywhere(ctx, topic, func(p kmsg.MetadataResponseTopicPartition) error {
			if p.Partition == partition && p.Leader != to {
				return fmt.Errorf("it is %d", p.Leader)
			}
			return nil
		})
		if err != nil { // the election is refused while the broker is not in sync
			err = errors.Join(err, c.elect(ctx, topic, partition))
		}
		return err
	})
}

// AskLeader is MoveLeader without the wait, for goroutines beside a test's own.
func (c *Cluster) AskLeader(ctx context.Context, topic string, partition, to int32) error {
	return c.moveLeader(ctx, topic, partition, to)
}

// moveLeader puts the broker first among the replicas and asks for the preferred leader.
func (c *Cluster) moveLeader(ctx context.Context, topic string, partition, to int32) error {
	ps, err := c.partitions(ctx, topic)
	if err != nil {
		return err
	}
	replicas := ps[partition].Replicas
	if !slices.Contains(replicas, to) {
		return fmt.Errorf("it is none of %v", replicas)
	}
	order := append([]int32{to}, slices.DeleteFunc(slices.Clone(replicas), func(id int32) bool { return id == to })...)
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, partition, order)
	resp, err := c.adm.AlterPartitionAssignments(ctx, req)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return err
	}
	return c.elect(ctx, topic, partition)
}

func (c *Cluster) elect(ctx context.Context, topic string, partition int32) error {
	var set kadm.TopicsSet
	set.Add(topic, partition)
	_, err := c.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
	return err
}

// NextLeader moves the leader of a partition to the replica that comes after it, and tells which that is.
func (c *Cluster) NextLeader(t testing.TB, topic string, partition int32) int32 {
	t.Helper()
	p := c.known(t, topic)[partition]
	slices.Sort(p.Replicas)
	to := p.Replicas[(slices.Index(p.Replicas, p.Leader)+1)%len(p.Replicas)]
	c.MoveLeader(t, topic, partition, to)
	return to
}

// AwaitISR waits until the in-sync replicas of all partitions of a topic are those, in any order.
func (c *Cluster) AwaitISR(t testing.TB, topic string, want ...int32) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	c.await(t, fmt.Sprintf("in-sync replicas %v of %s", want, topic), func(ctx context.Context) error {
		return c.everywhere(ctx, topic, func(p kmsg.MetadataResponseTopicPartition) error {
			if isr := slices.Sorted(slices.Values(p.ISR)); !slices.Equal(isr, want) {
				return fmt.Errorf("they are %v of partition %d", isr, p.Partition)
			}
			return nil
		})
	})
}

// AwaitLeader waits until all partitions of a topic are led by a broker.
func (c *Cluster) AwaitLeader(t testing.TB, topic string, id int32) {
	t.Helper()
	c.await(t, fmt.Sprintf("broker %d to lead %s", id, topic), func(ctx context.Context) error {
		return c.everywhere(ctx, topic, func(p kmsg.MetadataResponseTopicPartition) error {
			if p.Leader != id {
				return fmt.Errorf("%d leads partition %d", p.Leader, p.Partition)
			}
			return nil
		})
	})
}

// Forked is what an unclean election has left behind.
type Forked struct {
	Old, New int32   // the leader before, and the one that had missed records
	At       []int64 // per partition: the first offset at which the two histories differ
	// Truth is what the new leader had on its own disk before it tiered that. Where its segments do not begin where those of the abandoned history do, Apache Kafka 4.4
	// serves batches of the latter out of remote segments past their epoch's end, so its answers then are no measure.
	Truth [][]*kgo.Record
	// Lost are the records of the abandoned history from At on, which nobody may be given any more. Some of them are in finished remote segments.
	Lost [][]Record
}

// Record is a place and what was written there.
type Record struct {
	Offset int64
	Value  string
}

// Fork has an unclean election on a topic that it makes: two brokers, neither of which is the controller, hold it; one misses what the other goes on to write and to tier, and then becomes the leader,
// and writes and tiers something else at the same offsets. Afterwards both run, and the store has finished segments of both histories that overlap. The cluster needs three brokers.
func (c *Cluster) Fork(t testing.TB, topic string, partitions int32) Forked {
	t.Helper()
	if len(c.nodes) < 3 {
		t.Fatal("an unclean election needs three brokers")
	}
	c.BeginFork(t, topic, partitions)
	return c.FinishFork(t, topic)
}

// BeginFork makes the topic of Fork with a history that all agree on, and sinks it.
func (c *Cluster) BeginFork(t testing.TB, topic string, partitions int32) {
	t.Helper()
	replicas := slices.Repeat([][]int32{{c.nodes[1].id, c.nodes[2].id}}, int(partitions))
	c.CreateOn(t, topic, replicas, map[string]string{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
	c.Produce(t, topic, "none", 150)
	c.Sink(t, topic)
}

// FinishFork is the rest of Fork.
func (c *Cluster) FinishFork(t testing.TB, topic string) Forked {
	t.Helper()
	return c.fork(t, topic, nil)
}

// FinishForkMisaligned is FinishFork, but the new leader's segments are smaller than those of the abandoned history, so that they do not begin where those do.
func (c *Cluster) FinishForkMisaligned(t testing.TB, topic string) Forked {
	t.Helper()
	return c.fork(t, topic, map[string]string{"internal.segment.bytes": "7000"})
}

// fork configures the new leader, if config is not nil, before it writes.
func (c *Cluster) fork(t testing.TB, topic string, config map[string]string) Forked {
	t.Helper()
	f := Forked{Old: c.nodes[1].id, New: c.nodes[2].id}
	c.AwaitLeader(t, topic, f.Old)
	c.AwaitISR(t, topic, f.Old, f.New)
	f.At = c.Offsets(t, topic, Latest)
	c.Kill(t, f.New)
	c.AwaitISR(t, topic, f.Old)
	c.Restart(t, f.Old) // an epoch of its own for what the other misses
	c.AwaitLeader(t, topic, f.Old)
	c.Produce(t, topic, "none", 130)
	c.Sink(t, topic)
	for p, records := range c.Records(t, topic, false) {
		f.Lost = append(f.Lost, nil)
		for _, r := range records {
			if r.Offset >= f.At[p] {
				f.Lost[p] = append(f.Lost[p], Record{r.Offset, string(r.Value)})
			}
		}
	}
	c.Kill(t, f.Old)
	c.AwaitISR(t, topic)
	c.Restart(t, f.New)
	c.AwaitLeader(t, topic, f.New)
	if config != nil {
		c.Configure(t, topic, config)
	}
	c.Produce(t, topic, "lz4", 200)
	f.Truth = c.Records(t, topic, false)
	c.Restart(t, f.Old) // it throws away what it has and the other has not
	c.AwaitISR(t, topic, f.Old, f.New)
	c.Sink(t, topic)
	return f
}
