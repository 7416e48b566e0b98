package clustertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SegmentBytes of the topics that CreateTiered makes: small, so that few records make history of several segments.
const SegmentBytes = 20_000

// CreateTiered makes a topic whose closed segments leave the brokers' disks as soon as they are in the store. Config wins over that; a key with an empty value is left
// out. The replication factor is that of the cluster, three at most.
func (c *Cluster) CreateTiered(t testing.TB, topic string, partitions int32, config map[string]string) kadm.TopicID {
	t.Helper()
	req := createRequest(topic, nil, tieredConfig(config))
	req.Topics[0].NumPartitions, req.Topics[0].ReplicationFactor = partitions, int16(min(len(c.nodes), 3))
	return c.create(t, req)
}

// CreateOn is CreateTiered with the brokers of each partition given, the preferred leader first.
func (c *Cluster) CreateOn(t testing.TB, topic string, replicas [][]int32, config map[string]string) {
	t.Helper()
	c.create(t, createRequest(topic, replicas, tieredConfig(config)))
}

// create makes one topic, and returns once all brokers know its leaders.
func (c *Cluster) create(t testing.TB, req *kmsg.CreateTopicsRequest) kadm.TopicID {
	t.Helper()
	topic := req.Topics[0].Topic
	if _, err := c.partitions(t.Context(), topic); err == nil {
		t.Fatalf("creating %s: it is there", topic)
	}
	err := Retried(t.Context(), func(ctx context.Context) error {
		resp, err := req.RequestWith(ctx, c.admin)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		if errors.Is(err, kerr.TopicAlreadyExists) { // made by a request whose answer was lost, or came too late
			err = nil
		}
		return err
	})
	if err != nil {
		t.Fatalf("creating %s: %v", topic, err)
	}
	c.awaitLeaders(t, topic)
	var id kadm.TopicID
	err = Retried(t.Context(), func(ctx context.Context) error {
		resp, err := metadataRequest(topic).RequestWith(ctx, c.admin)
		if err != nil {
			return err
		}
		id = resp.Topics[0].TopicID
		return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	})
	if err != nil {
		t.Fatalf("the id of %s: %v", topic, err)
	}
	return id
}

func tieredConfig(more map[string]string) map[string]*string {
	all := map[string]string{
		"remote.storage.enable": "true", "internal.segment.bytes": strconv.Itoa(SegmentBytes), "local.retention.bytes": "1", "retention.ms": "-1", "file.delete.delay.ms": "0",
	}
	maps.Copy(all, more)
	out := make(map[string]*string)
	for k, v := range all {
		if v != "" {
			out[k] = &v
		}
	}
	return out
}

// Configure sets a topic's configurations.
func (c *Cluster) Configure(t testing.TB, topic string, config map[string]string) {
	t.Helper()
	var all []kadm.AlterConfig
	for k, v := range config {
		all = append(all, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: &v})
	}
	err := Retried(t.Context(), func(ctx context.Context) error {
		resp, err := c.adm.AlterTopicConfigs(ctx, all, topic)
		if err == nil {
			_, err = resp.On(topic, nil)
		}
		for _, r := range resp {
			err = errors.Join(err, r.Err)
		}
		return err
	})
	if err != nil {
		t.Fatalf("configuring %s: %v", topic, err)
	}
}

// Delete removes a topic, and returns once no broker knows it.
func (c *Cluster) Delete(t testing.TB, topic string) {
	t.Helper()
	again := false
	err := Retried(t.Context(), func(ctx context.Context) error {
		_, err := c.adm.DeleteTopic(ctx, topic)
		if again && errors.Is(err, kerr.UnknownTopicOrPartition) {
			err = nil
		}
		again = true
		return err
	})
	if err != nil {
		t.Fatalf("deleting %s: %v", topic, err)
	}
	c.await(t, topic+" to be gone", func(ctx context.Context) error {
		_, err := c.partitions(ctx, topic)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil
		}
		return errors.Join(errors.New("still there"), err)
	})
}

// DeleteRecords moves the log start offset of a partition.
func (c *Cluster) DeleteRecords(t testing.TB, topic string, partition int32, to int64) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, partition, to, -1)
	err := Retried(t.Context(), func(ctx context.Context) error {
		resp, err := c.adm.DeleteRecords(ctx, offsets)
		return cmp.Or(err, resp.Error())
	})
	if err != nil {
		t.Fatalf("deleting records of %s/%d below %d: %v", topic, partition, to, err)
	}
}

func (c *Cluster) awaitLeaders(t testing.TB, topic string) {
	t.Helper()
	c.await(t, "leaders of "+topic, func(ctx context.Context) error {
		return c.everywhere(ctx, topic, func(p kmsg.MetadataResponseTopicPartition) error {
			if p.Leader < 0 {
				return fmt.Errorf("partition %d has none", p.Partition)
			}
			return nil
		})
	})
}

// partitions of a topic, in order, as any of the brokers knows them. kadm would answer from a cache.
func (c *Cluster) partitions(ctx context.Context, topic string) ([]kmsg.MetadataResponseTopicPartition, error) {
	return partitionsAt(ctx, c.admin, topic)
}

// everywhere asks every broker that runs, for each learns on its own of what the controller has done.
func (c *Cluster) everywhere(ctx context.Context, topic string, ok func(kmsg.MetadataResponseTopicPartition) error) error {
	for _, n := range c.nodes {
		if !n.running() {
			continue
		}
		ps, err := partitionsAt(ctx, c.admin.Broker(int(n.id)), topic)
		for _, p := range ps {
			err = errors.Join(err, ok(p))
		}
		if err != nil {
			return fmt.Errorf("by broker %d: %w", n.id, err)
		}
	}
	return nil
}

func partitionsAt(ctx context.Context, at kmsg.Requestor, topic string) ([]kmsg.MetadataResponseTopicPartition, error) {
	resp, err := metadataRequest(topic).RequestWith(ctx, at)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return nil, err
	}
	all := resp.Topics[0].Partitions
	slices.SortFunc(all, func(a, b kmsg.MetadataResponseTopicPartition) int { return int(a.Partition - b.Partition) })
	return all, nil
}

// Partitions tells how many a topic has.
func (c *Cluster) Partitions(t testing.TB, topic string) int32 {
	t.Helper()
	return int32(len(c.known(t, topic)))
}

// known is partitions, asked again while they are not known yet.
func (c *Cluster) known(t testing.TB, topic string) (ps []kmsg.MetadataResponseTopicPartition) {
	t.Helper()
	err := Retried(t.Context(), func(ctx context.Context) (err error) {
		ps, err = c.partitions(ctx, topic)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", topic, err)
	}
	return ps
}

// Leader of a partition, -1 if it has none.
func (c *Cluster) Leader(t testing.TB, topic string, partition int32) int32 {
	t.Helper()
	return c.known(t, topic)[partition].Leader
}

// Special timestamps of ListOffsets.
const (
	Latest       = -1
	Earliest     = -2
	LocalStart   = -4
	LatestTiered = -5
)

// Offsets are ListOffsets' answers of all partitions for a timestamp or one of the special ones.
func (c *Cluster) Offsets(t testing.TB, topic string, timestamp int64) []int64 {
	t.Helper()
	var o []int64
	err := Retried(t.Context(), func(ctx context.Context) (err error) {
		o, err = c.offsets(ctx, topic, timestamp)
		return err
	})
	if err != nil {
		t.Fatalf("offsets of %s for %d: %v", topic, timestamp, err)
	}
	return o
}

func (c *Cluster) offsets(ctx context.Context, topic string, timestamp int64) ([]int64, error) {
	ps, err := c.partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	resp, err := listRequest(topic, len(ps), timestamp).RequestWith(ctx, c.admin)
	if err != nil {
		return nil, err
	}
	all := make([]int64, len(ps))
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				return nil, fmt.Errorf("partition %d: %w", rp.Partition, err)
			}
			all[rp.Partition] = rp.Offset
		}
	}
	return all, nil
}

// Committed is the offset that a group has committed, -1 if none.
func (c *Cluster) Committed(t testing.TB, group, topic string, partition int32) int64 {
	t.Helper()
	var resp kadm.OffsetResponses
	err := Retried(t.Context(), func(ctx context.Context) (err error) {
		resp, err = c.adm.FetchOffsets(ctx, group)
		return cmp.Or(err, resp.Error())
	})
	if err != nil {
		t.Fatalf("offsets of group %s: %v", group, err)
	}
	if o, ok := resp.Lookup(topic, partition); ok {
		return o.At
	}
	return -1
}

// ConfigureGroup sets configurations of a group, which need not be there yet.
func (c *Cluster) ConfigureGroup(t testing.TB, group string, config map[string]string) {
	t.Helper()
	const groups = 32 // the type of these resources
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = groups, group
	for k, v := range config {
		one := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		one.Name, one.Value = k, &v
		r.Configs = append(r.Configs, one)
	}
	req.Resources = append(req.Resources, r)
	err := Retried(t.Context(), func(ctx context.Context) error {
		resp, err := req.RequestWith(ctx, c.admin)
		if err == nil {
			err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
		}
		return err
	})
	if err != nil {
		t.Fatalf("configuring group %s: %v", group, err)
	}
}
