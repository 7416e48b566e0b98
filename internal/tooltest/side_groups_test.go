package tooltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// next is a group of the consumer protocol (KIP-848) with a member that has an instance's id, and offsets.
func (s *side) next(t *testing.T) {
	t.Helper()
	c := s.client(t, kgo.ClientID("next-client"), kgo.ConsumerGroup("next"), kgo.InstanceID("next-1"), kgo.ConsumeTopics("history"), kgo.DisableAutoCommit(), kgo.Balancers(kgo.RangeBalancer()),
		kgo.ServerSideBalancer(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.poll(ctx, t, c, 20)
	if err := c.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
}

func (s *side) poll(ctx context.Context, t *testing.T, c *kgo.Client, n int) {
	t.Helper()
	for got := 0; got < n; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%s: %d of %d records: %v", s.name, got, n, err)
		}
		got += f.NumRecords()
	}
}

// shares are share groups that have read a topic of one batch a partition, so that each is acknowledged at once.
func (s *side) shares(t *testing.T, adm *kadm.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	forever := "-1"
	if _, err := adm.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &forever}, "crewed"); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	c := s.client(t, kgo.ProducerLinger(time.Second))
	var rs []*kgo.Record
	for i := range 20 {
		rs = append(rs, &kgo.Record{Topic: "crewed", Partition: int32(i % 2), Key: fmt.Appendf(nil, "key-%d", i), Value: fmt.Appendf(nil, "value-%d", i), Timestamp: time.UnixMilli(firstTime + 1000*int64(i))})
	}
	if err := c.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	for _, g := range []string{"crew", "idle-crew", "console-crew", "reject-crew", "release-crew", "perf-crew"} {
		s.fromTheStart(ctx, t, c, g)
	}
	for _, g := range []string{"idle-crew", "crew"} {
		member := s.client(t, kgo.ClientID(g+"-client"), kgo.ShareGroup(g), kgo.ConsumeTopics("crewed"))
		s.poll(ctx, t, member, 20)
		member.MarkAcks(kgo.AckAccept)
		if err := member.FlushAcks(ctx); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if g == "idle-crew" {
			if err := member.LeaveGroupContext(ctx); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
	}
}

// fromTheStart lets a share group begin at the start.
func (s *side) fromTheStart(ctx context.Context, t *testing.T, c *kgo.Client, group string) {
	t.Helper()
	earliest := "earliest"
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	one := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	one.Name, one.Value = "share.auto.offset.reset", &earliest
	r.Configs = append(r.Configs, one)
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, c)
	if err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("%s: %v, %+v", s.name, err, resp)
	}
}
