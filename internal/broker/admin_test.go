package broker

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func createRequest(change func(*kmsg.CreateTopicsRequestTopic)) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(7)
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "topic", 2, 1
	change(&rt)
	req.Topics = append(req.Topics, rt)
	return req
}

func configsOf(pairs ...string) []kmsg.CreateTopicsRequestTopicConfig {
	var out []kmsg.CreateTopicsRequestTopicConfig
	for i := 0; i < len(pairs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = pairs[i], &pairs[i+1]
		out = append(out, c)
	}
	return out
}

func assignTo(nodes ...int32) []kmsg.CreateTopicsRequestTopicReplicaAssignment {
	var out []kmsg.CreateTopicsRequestTopicReplicaAssignment
	for i, n := range nodes {
		out = append(out, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: []int32{n}})
	}
	return out
}

func TestCreateTopics(t *testing.T) {
	b := startBroker(t, t.TempDir())
	c := b.raw(t)
	b.createTopic(t, "there.is", 1)
	for _, tc := range []struct {
		name   string
		change func(*kmsg.CreateTopicsRequestTopic)
		want   int16
		parts  int32
	}{
		{"plain", func(*kmsg.CreateTopicsRequestTopic) {}, 0, 2},
		{"defaults", func(r *kmsg.CreateTopicsRequestTopic) { r.NumPartitions, r.ReplicationFactor = -1, -1 }, 0, 1},
		{"assigned", func(r *kmsg.CreateTopicsRequestTopic) {
			r.NumPartitions, r.ReplicationFactor, r.ReplicaAssignment = -1, -1, assignTo(b.nodeID, b.nodeID, b.nodeID)
		}, 0, 3},
		{"assigned to another", func(r *kmsg.CreateTopicsRequestTopic) {
			r.NumPartitions, r.ReplicationFactor, r.ReplicaAssignment = -1, -1, assignTo(b.nodeID+1)
		}, errInvalidReplicaAssignment, 0},
		{"assigned and counted", func(r *kmsg.CreateTopicsRequestTopic) { r.ReplicaAssignment = assignTo(b.nodeID) }, errInvalidRequest, 0},
		{"three replicas", func(r *kmsg.CreateTopicsRequestTopic) { r.ReplicationFactor = 3 }, errInvalidReplicationFactor, 0},
		{"no partitions", func(r *kmsg.CreateTopicsRequestTopic) { r.NumPartitions = 0 }, errInvalidPartitions, 0},
		{"too many partitions", func(r *kmsg.CreateTopicsRequestTopic) { r.NumPartitions = maxPartitionsPerTopic + 1 }, errPolicyViolation, 0},
		{"exists", func(r *kmsg.CreateTopicsRequestTopic) { r.Topic = "there.is" }, errTopicAlreadyExists, 0},
		{"collides", func(r *kmsg.CreateTopicsRequestTopic) { r.Topic = "there_is" }, errInvalidTopic, 0},
		{"bad name", func(r *kmsg.CreateTopicsRequestTopic) { r.Topic = "a b" }, errInvalidTopic, 0},
		{"internal", func(r *kmsg.CreateTopicsRequestTopic) { r.Topic = metadataTopic }, errInvalidTopic, 0},
		{"unknown config", func(r *kmsg.CreateTopicsRequestTopic) { r.Configs = configsOf("retention.sm", "1") }, errInvalidConfig, 0},
		{"bad config", func(r *kmsg.CreateTopicsRequestTopic) { r.Configs = configsOf("retention.ms", "soon") }, errInvalidConfig, 0},
		{"compacted and remote", func(r *kmsg.CreateTopicsRequestTopic) {
			r.Configs = configsOf("cleanup.policy", "compact", "remote.storage.enable", "true")
		}, errInvalidConfig, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := "t-" + strings.ReplaceAll(tc.name, " ", "-")
			for _, validate := range []bool{true, false} {
				req := createRequest(func(r *kmsg.CreateTopicsRequestTopic) { r.Topic = name; tc.change(r) })
				req.ValidateOnly = validate
				got := c.ask(t, req).(*kmsg.CreateTopicsResponse).Topics[0]
				if got.ErrorCode != tc.want || tc.want == 0 && got.NumPartitions != tc.parts {
					t.Errorf("validate %v: error %d (%v), %d partitions; want %d, %d", validate, got.ErrorCode, got.ErrorMessage, got.NumPartitions, tc.want, tc.parts)
				}
				if _, made := b.topics.Get(name); made != (!validate && tc.want == 0) {
					t.Errorf("validate %v: the topic exists: %v", validate, made)
				}
			}
		})
	}
	t.Run("twice in a request", func(t *testing.T) {
		req := createRequest(func(r *kmsg.CreateTopicsRequestTopic) { r.Topic = "twice" })
		req.Topics = append(req.Topics, req.Topics[0])
		got := c.ask(t, req).(*kmsg.CreateTopicsResponse).Topics
		if len(got) != 1 || got[0].ErrorCode != errInvalidRequest {
			t.Errorf("%+v", got)
		}
	})
}

func TestTopicLife(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	adm := b.admin(t)
	b.createTopic(t, "life", 1)
	cl := b.client(t)
	produceSome(t, cl, "life", 0, 10)
	if _, err := adm.UpdatePartitions(t.Context(), 3, "life"); err != nil {
		t.Fatal(err)
	}
	details, err := adm.ListTopics(t.Context(), "life")
	if err != nil || len(details["life"].Partitions) != 3 {
		t.Fatalf("after growing: %v, %v", details, err)
	}
	if r, _ := adm.UpdatePartitions(t.Context(), 2, "life"); !errors.Is(r["life"].Err, kerr.InvalidPartitions) {
		t.Errorf("shrinking: %v", r["life"].Err)
	}
	first := details["life"].ID
	if r, err := adm.DeleteTopics(t.Context(), "life"); err != nil || r["life"].Err != nil {
		t.Fatal(err, r["life"].Err)
	}
	if r, _ := adm.DeleteTopics(t.Context(), "life"); !errors.Is(r["life"].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("deleting again: %v", r["life"].Err)
	}
	b.createTopic(t, "life", 1)
	details, _ = adm.ListTopics(t.Context(), "life")
	if details["life"].ID == first {
		t.Error("the new topic has the old one's id")
	}
	ends, err := adm.ListEndOffsets(t.Context(), "life")
	if o, _ := ends.Lookup("life", 0); err != nil || o.Offset != 0 {
		t.Errorf("the new topic ends at %d, %v", o.Offset, err)
	}
	b.Close(context.Background())
	if again, ok := startBroker(t, dir).topics.Get("life"); !ok || again.ID == [16]byte(first) {
		t.Errorf("after a restart: %+v", again)
	}
}

func TestInternalTopics(t *testing.T) {
	rsm, _ := directoryStore(t)
	b := startBroker(t, t.TempDir(), withRSM(rsm))
	cl := b.client(t, kgo.RetryTimeout(0))
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: metadataTopic, Value: []byte("x")}).FirstErr(); !errors.Is(err, kerr.InvalidTopicException) {
		t.Errorf("producing: %v", err)
	}
	adm := b.admin(t)
	if r, _ := adm.DeleteTopics(t.Context(), metadataTopic); !errors.Is(r[metadataTopic].Err, kerr.InvalidTopicException) {
		t.Errorf("deleting: %v", r[metadataTopic].Err)
	}
	if r, _ := adm.UpdatePartitions(t.Context(), 99, metadataTopic); !errors.Is(r[metadataTopic].Err, kerr.InvalidTopicException) {
		t.Errorf("growing: %v", r[metadataTopic].Err)
	}
	listed, _ := adm.ListTopicsWithInternal(t.Context())
	if d, ok := listed[metadataTopic]; !ok || !d.IsInternal {
		t.Errorf("listed as %+v", d)
	}
}

func TestAutoCreate(t *testing.T) {
	for _, enabled := range []string{"true", "false"} {
		b := startBroker(t, t.TempDir(), withKeys("auto.create.topics.enable", enabled, "num.partitions", "4"))
		req := kmsg.NewPtrMetadataRequest()
		req.AllowAutoTopicCreation = true
		for _, name := range []string{"made", "bad name", offsetsTopic} {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, rt)
		}
		req.SetVersion(12)
		got := b.raw(t).ask(t, req).(*kmsg.MetadataResponse).Topics
		want := []int16{0, errInvalidTopic, errUnknownTopicOrPartition}
		parts := 4
		if enabled == "false" {
			want[0], parts = errUnknownTopicOrPartition, 0
		}
		for i := range got {
			if got[i].ErrorCode != want[i] {
				t.Errorf("enabled %s: %s: error %d, want %d", enabled, *got[i].Topic, got[i].ErrorCode, want[i])
			}
		}
		if len(got[0].Partitions) != parts {
			t.Errorf("enabled %s: %d partitions", enabled, len(got[0].Partitions))
		}
	}
}

func TestDeleteRecords(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	b.createTopic(t, "t", 1)
	produceSome(t, b.client(t), "t", 0, 100)
	c := b.raw(t)
	ask := func(offset int64) kmsg.DeleteRecordsResponseTopicPartition {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.SetVersion(2)
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = "t"
		rt.Partitions = append(rt.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Offset: offset})
		req.Topics = append(req.Topics, rt)
		return c.ask(t, req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
	}
	for _, tc := range []struct {
		offset, low int64
		code        int16
	}{{40, 40, 0}, {10, 40, 0}, {101, -1, errOffsetOutOfRange}, {-2, -1, errOffsetOutOfRange}} {
		if got := ask(tc.offset); got.ErrorCode != tc.code || got.LowWatermark != tc.low {
			t.Errorf("to %d: error %d, low watermark %d; want %d, %d", tc.offset, got.ErrorCode, got.LowWatermark, tc.code, tc.low)
		}
	}
	starts, err := b.dir.LogStartOffsets()
	if err != nil {
		t.Fatal(err)
	}
	if got := starts[checkpointKey(b.partition("t", 0))]; got != 40 {
		t.Errorf("written down when answered: %d, want 40", got)
	}
	if got := ask(-1); got.ErrorCode != 0 || got.LowWatermark != 100 {
		t.Errorf("to the end: error %d, low watermark %d", got.ErrorCode, got.LowWatermark)
	}
}

func TestDescribe(t *testing.T) {
	b := startBroker(t, t.TempDir())
	adm := b.admin(t)
	b.createTopic(t, "t", 3)
	produceSome(t, b.client(t), "t", 0, 100)
	meta, err := adm.BrokerMetadata(t.Context())
	if err != nil || meta.Cluster != b.clusterID || len(meta.Brokers) != 1 || meta.Controller != b.nodeID {
		t.Errorf("metadata %+v, %v", meta, err)
	}
	dirs, err := adm.DescribeAllLogDirs(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	sizes := int64(0)
	dirs.Each(func(d kadm.DescribedLogDir) { sizes += d.Size() })
	if sizes == 0 {
		t.Error("the logs have no size")
	}

	c := b.raw(t)
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 2
	first := c.ask(t, req).(*kmsg.DescribeTopicPartitionsResponse)
	if len(first.Topics) != 1 || len(first.Topics[0].Partitions) != 2 || first.NextCursor == nil {
		t.Fatalf("first page: %+v", first)
	}
	req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: first.NextCursor.Topic, Partition: first.NextCursor.Partition}
	second := c.ask(t, req).(*kmsg.DescribeTopicPartitionsResponse)
	if len(second.Topics) != 1 || len(second.Topics[0].Partitions) != 1 || second.Topics[0].Partitions[0].Partition != 2 || second.NextCursor != nil {
		t.Errorf("second page: %+v", second)
	}
	cluster := kmsg.NewPtrDescribeClusterRequest()
	cluster.SetVersion(1)
	cluster.EndpointType = 2
	if got := c.ask(t, cluster).(*kmsg.DescribeClusterResponse); got.ErrorCode != errMismatchedEndpoint {
		t.Errorf("asked for controllers: error %d", got.ErrorCode)
	}
}
