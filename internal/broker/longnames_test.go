package broker

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// TestNamesTooLongForTheLog: whatever names clients give, what is written of them into the logs of coordinators can be read again: names that do not fit are refused, and
// neither take anybody else's groups and transactions with them nor keep the next start from reading the log.
func TestNamesTooLongForTheLog(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir, withKeys("offset.metadata.max.bytes", "100000", "transaction.state.log.num.partitions", "1"), func(o *Options) { o.Config.OffsetsPartitions = 1 })
	b.createTopic(t, "t", 1)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "t", At: 7, Metadata: "kept"})
	if err := b.admin(t).CommitAllOffsets(t.Context(), "others", offsets); err != nil {
		t.Fatal(err)
	}
	c := b.raw(t)
	init := func(id string) *kmsg.InitProducerIDRequest {
		r := kmsg.NewPtrInitProducerIDRequest()
		r.SetVersion(4)
		r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = &id, 10_000, -1, -1
		return r
	}
	if code := c.ask(t, init("others")).(*kmsg.InitProducerIDResponse).ErrorCode; code != errNone {
		t.Fatalf("error %d", code)
	}
	commit := func(group, metadata string) *kmsg.OffsetCommitRequest {
		r := kmsg.NewPtrOffsetCommitRequest()
		r.SetVersion(8)
		r.Group, r.Generation = group, -1
		r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1, LeaderEpoch: -1, Metadata: &metadata}}}}
		return r
	}
	join := func(change func(*kmsg.JoinGroupRequest)) *kmsg.JoinGroupRequest {
		r := joinRequest("j", "", "")
		r.SetVersion(9)
		change(r)
		return r
	}
	for _, n := range []int{32_767, 32_768, 40_000, 65_535, 65_536, 65_537, 70_000} {
		long := strings.Repeat("x", n)
		beat := func(change func(*kmsg.ConsumerGroupHeartbeatRequest)) kmsg.Request {
			r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			r.SetVersion(1)
			r.Group, r.MemberID, r.RebalanceTimeoutMillis, r.SubscribedTopicNames, r.Topics = "k", "m", 10_000, []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			change(r)
			return r
		}
		streams := kmsg.NewPtrStreamsGroupHeartbeatRequest()
		streams.Group, streams.MemberID, streams.RebalanceTimeoutMillis, streams.ProcessID = "s", long, 10_000, kmsg.StringPtr("p")
		topology := kmsg.NewStreamsGroupHeartbeatRequestTopology()
		streams.Topology = &topology
		for _, req := range map[string]kmsg.Request{
			"heartbeat, group":    beat(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = long }),
			"heartbeat, member":   beat(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = long }),
			"heartbeat, instance": beat(func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = &long }),
			"heartbeat, regex": beat(func(r *kmsg.ConsumerGroupHeartbeatRequest) {
				r.SubscribedTopicNames, r.SubscribedTopicRegex = nil, &long
			}),
			"streams, member":       streams,
			"commit, group":         commit(long, ""),
			"commit, metadata":      commit("m", long),
			"transactional id":      init(long),
			"join, group":           join(func(r *kmsg.JoinGroupRequest) { r.Group = long }),
			"join, instance":        join(func(r *kmsg.JoinGroupRequest) { r.InstanceID = &long }),
			"join, protocol type":   join(func(r *kmsg.JoinGroupRequest) { r.Group, r.ProtocolType = "jt", long }),
			"join, protocol":        join(func(r *kmsg.JoinGroupRequest) { r.Group, r.Protocols[0].Name = "jp", long }),
			"join, instance and id": join(func(r *kmsg.JoinGroupRequest) { r.Group, r.InstanceID = "ji", kmsg.StringPtr(long[:min(n, 32_740)]) }),
		} {
			resp := c.ask(t, req)
			if j, ok := resp.(*kmsg.JoinGroupResponse); ok && (j.ErrorCode == errNone || j.ErrorCode == errMemberIDRequired) {
				jr := req.(*kmsg.JoinGroupRequest)
				if j.ErrorCode == errMemberIDRequired {
					jr.MemberID = j.MemberID
					j = c.ask(t, jr).(*kmsg.JoinGroupResponse)
				}
				sync := kmsg.NewPtrSyncGroupRequest()
				sync.SetVersion(5)
				sync.Group, sync.MemberID, sync.Generation, sync.InstanceID = jr.Group, j.MemberID, j.Generation, jr.InstanceID
				sync.ProtocolType, sync.Protocol = j.ProtocolType, j.Protocol
				sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: j.MemberID, MemberAssignment: []byte("mine")}}
				if j.ErrorCode == errNone {
					c.ask(t, sync)
				}
				leave := kmsg.NewPtrLeaveGroupRequest()
				leave.SetVersion(5)
				leave.Group = jr.Group
				leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: j.MemberID, InstanceID: jr.InstanceID}}
				c.ask(t, leave)
			}
		}
	}
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir)
	await(t, "the coordinators", func() bool {
		err := b.groups.look(t.Context(), "others", func(*group.Group) {})
		_, txnErr := b.txns.of("others")
		if fmt.Sprint(err) == errNotAvailable.Error() || fmt.Sprint(txnErr) == errNotAvailable.Error() {
			t.Fatalf("groups: %v, transactions: %v", err, txnErr)
		}
		return err == nil && txnErr == nil
	})
	got, err := b.admin(t).FetchOffsets(t.Context(), "others")
	if o, ok := got.Lookup("t", 0); err != nil || !ok || o.At != 7 || o.Metadata != "kept" {
		t.Errorf("another group's offset: %+v, %v", got, err)
	}
}
