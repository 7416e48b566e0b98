package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// To record these anew, start an Apache Kafka as for transactions, with share.coordinator.state.topic.replication.factor=1,
// share.coordinator.state.topic.min.isr=1, group.share.assignment.interval.ms=0, group.share.min.record.lock.duration.ms=1000 and
// group.share.record.lock.duration.ms=15000 besides.

func compareShareSession(t *testing.T, name string, differences []difference, script func(*shareSession)) {
	compareSession(t, name, differences, func(s *peerSession) {
		x := &txnSession{peerSession: s, suffix: fmt.Sprintf("-%d", time.Now().UnixNano()), ids: map[int64]string{}}
		y := &shareSession{x}
		y.warm()
		script(y)
	}, withKeys("offsets.topic.num.partitions", "2", "share.coordinator.state.topic.num.partitions", "2", "group.share.assignment.interval.ms", "0",
		"transaction.state.log.num.partitions", "2",
		"group.share.min.record.lock.duration.ms", "1000", "group.share.record.lock.duration.ms", "15000"))
}

// shareSession is a session whose groups are new each time.
type shareSession struct{ *txnSession }

func (s *shareSession) group(name string) string { return name + s.suffix }

// warm waits until the topics of coordinators are there, which no client of a new node can tell.
func (s *shareSession) warm() {
	s.t.Helper()
	s.create("warm", 1)
	await(s.t, "the coordinators", func() bool {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.SetVersion(4)
		find.CoordinatorKeys = []string{"any"}
		s.ask(find)
		time.Sleep(20 * time.Millisecond)
		for i := range 20 { // groups of every partition
			r := s.ask(s.heartbeatRequest(fmt.Sprint("warm", i), "m", 0, "warm")).(*kmsg.ShareGroupHeartbeatResponse)
			if r.ErrorCode != 0 {
				return false
			}
		}
		return true
	})
	for i := range 20 {
		s.join(fmt.Sprint("warm", i), "m", 1, "warm")
		s.ask(s.heartbeatRequest(fmt.Sprint("warm", i), "m", -1))
	}
}

// configure sets configurations of a group.
func (s *shareSession) configure(group string, pairs ...string) {
	s.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.SetVersion(1)
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, s.group(group)
	for i := 0; i < len(pairs); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = pairs[i], &pairs[i+1]
		r.Configs = append(r.Configs, c)
	}
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{r}
	if got := s.ask(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
		s.t.Fatalf("configuring %s: %s", group, code(got.ErrorCode))
	}
}

func (s *shareSession) heartbeatRequest(group, member string, epoch int32, topics ...string) *kmsg.ShareGroupHeartbeatRequest {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.SetVersion(1)
	req.MemberID, req.MemberEpoch = member, epoch
	if req.GroupID = group; group != "" {
		req.GroupID = s.group(group)
	}
	for _, t := range topics {
		req.SubscribedTopicNames = append(req.SubscribedTopicNames, s.prefix+t)
	}
	return req
}

func (s *shareSession) heartbeat(what, group, member string, epoch int32, topics ...string) int32 {
	s.t.Helper()
	return s.step("heartbeat, "+what, 1, s.heartbeatRequest(group, member, epoch, topics...)).(*kmsg.ShareGroupHeartbeatResponse).MemberEpoch
}

// counted is heartbeat that notes how many partitions are assigned: which ones they are follows from the topic's id.
func (s *shareSession) counted(what, group, member string, epoch int32, topics ...string) int32 {
	s.t.Helper()
	resp := s.ask(s.heartbeatRequest(group, member, epoch, topics...)).(*kmsg.ShareGroupHeartbeatResponse)
	n := 0
	if resp.Assignment != nil {
		for _, t := range resp.Assignment.TopicPartitions {
			n += len(t.Partitions)
		}
	}
	s.note("heartbeat, %s v1: %s epoch %d, %d partitions", what, code(resp.ErrorCode), resp.MemberEpoch, n)
	return resp.MemberEpoch
}

// join makes a member, and waits until it and the others are assigned so many partitions together.
func (s *shareSession) join(group, member string, partitions int, topics ...string) (epoch int32) {
	s.t.Helper()
	epoch = s.ask(s.heartbeatRequest(group, member, 0, topics...)).(*kmsg.ShareGroupHeartbeatResponse).MemberEpoch
	await(s.t, "an assignment", func() bool {
		resp := s.ask(s.heartbeatRequest(group, member, epoch, topics...)).(*kmsg.ShareGroupHeartbeatResponse)
		if resp.ErrorCode != 0 {
			s.t.Fatalf("heartbeat of %s: %s", member, code(resp.ErrorCode))
		}
		epoch = resp.MemberEpoch
		n := 0
		for _, t := range resp.Assignment.TopicPartitions {
			n += len(t.Partitions)
		}
		return n == partitions
	})
	return epoch
}

func (s *shareSession) describe(what string, groups ...string) {
	s.t.Helper()
	req := kmsg.NewPtrShareGroupDescribeRequest()
	for _, g := range groups {
		if g != "" {
			g = s.group(g)
		}
		req.GroupIDs = append(req.GroupIDs, g)
	}
	s.step("describe, "+what, 1, req)
}

func (s *shareSession) fetchRequest(group, member string, epoch int32, change func(*kmsg.ShareFetchRequest), parts ...int32) *kmsg.ShareFetchRequest {
	req := kmsg.NewPtrShareFetchRequest()
	req.SetVersion(2)
	g := s.group(group)
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &g, &member, epoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.MaxRecords, req.BatchSize = 500, 1, 1<<20, 500, 500
	if len(parts) > 0 {
		t := kmsg.ShareFetchRequestTopic{TopicID: s.peerSession.id(s.prefix + "t")}
		for _, n := range parts {
			t.Partitions = append(t.Partitions, kmsg.ShareFetchRequestTopicPartition{Partition: n})
		}
		req.Topics = []kmsg.ShareFetchRequestTopic{t}
	}
	if change != nil {
		change(req)
	}
	return req
}

// fetch notes what a fetch brings.
func (s *shareSession) fetch(what, group, member string, epoch int32, change func(*kmsg.ShareFetchRequest), parts ...int32) *kmsg.ShareFetchResponse {
	s.t.Helper()
	req := s.fetchRequest(group, member, epoch, change, parts...)
	resp := s.ask(req).(*kmsg.ShareFetchResponse)
	s.note("fetch, %s v%d: %s", what, req.Version, s.fetched(resp))
	return resp
}

func (s *shareSession) fetched(resp *kmsg.ShareFetchResponse) string {
	out := fmt.Sprintf("%s lock %d", code(resp.ErrorCode), resp.AcquisitionLockTimeoutMillis)
	var parts []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			text := fmt.Sprintf("%s %d: %s", s.idText(t.TopicID), p.Partition, code(p.ErrorCode))
			if p.AcknowledgeErrorCode != 0 {
				text += " acknowledged " + code(p.AcknowledgeErrorCode)
			}
			if p.Records == nil {
				text += " null"
			} else {
				text += " " + batchesText(p.Records)
			}
			for _, a := range p.AcquiredRecords {
				text += fmt.Sprintf(" %d-%d x%d", a.FirstOffset, a.LastOffset, a.DeliveryCount)
			}
			parts = append(parts, text)
		}
	}
	slices.Sort(parts)
	return strings.Join(append([]string{out}, parts...), "; ")
}

type shareBatch struct {
	first, last int64
	types       []int8
}

func ackOf(first, last int64, types ...int8) shareBatch { return shareBatch{first, last, types} }

func (s *shareSession) acknowledge(what, group, member string, epoch int32, partition int32, change func(*kmsg.ShareAcknowledgeRequest), acks ...shareBatch) {
	s.t.Helper()
	req := kmsg.NewPtrShareAcknowledgeRequest()
	g := s.group(group)
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &g, &member, epoch
	p := kmsg.ShareAcknowledgeRequestTopicPartition{Partition: partition}
	for _, a := range acks {
		p.AcknowledgementBatches = append(p.AcknowledgementBatches, kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{FirstOffset: a.first, LastOffset: a.last, AcknowledgeTypes: a.types})
	}
	req.Topics = []kmsg.ShareAcknowledgeRequestTopic{{TopicID: s.peerSession.id(s.prefix + "t"), Partitions: []kmsg.ShareAcknowledgeRequestTopicPartition{p}}}
	if change != nil {
		change(req)
	}
	s.step("acknowledge, "+what, 2, req)
}

// piggyback acknowledges in a fetch.
func piggyback(partition int32, acks ...shareBatch) func(*kmsg.ShareFetchRequest) {
	return func(r *kmsg.ShareFetchRequest) {
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if p := &r.Topics[i].Partitions[j]; p.Partition == partition {
					for _, a := range acks {
						p.AcknowledgementBatches = append(p.AcknowledgementBatches, kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{FirstOffset: a.first, LastOffset: a.last, AcknowledgeTypes: a.types})
					}
				}
			}
		}
	}
}

func (s *shareSession) offsets(what, group string, topics ...string) {
	s.t.Helper()
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	g.GroupID = s.group(group)
	for _, t := range topics {
		g.Topics = append(g.Topics, kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: s.prefix + t, Partitions: []int32{0, 1}})
	}
	req.Groups = []kmsg.DescribeShareGroupOffsetsRequestGroup{g}
	s.step("offsets, "+what, 1, req)
}

func (s *shareSession) alter(what, group, topic string, partition int32, start int64) {
	s.t.Helper()
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID = s.group(group)
	req.Topics = []kmsg.AlterShareGroupOffsetsRequestTopic{{Topic: s.prefix + topic, Partitions: []kmsg.AlterShareGroupOffsetsRequestTopicPartition{{Partition: partition, StartOffset: start}}}}
	s.step("alter, "+what, 0, req)
}

func (s *shareSession) deleteOffsets(what, group string, topics ...string) {
	s.t.Helper()
	req := kmsg.NewPtrDeleteShareGroupOffsetsRequest()
	req.GroupID = s.group(group)
	for _, t := range topics {
		req.Topics = append(req.Topics, kmsg.DeleteShareGroupOffsetsRequestTopic{Topic: s.prefix + t})
	}
	s.step("delete offsets, "+what, 0, req)
}

func (s *shareSession) fill(partition int32, sizes ...int) {
	s.t.Helper()
	for _, n := range sizes {
		req := kmsg.NewPtrProduceRequest()
		req.SetVersion(9)
		req.Acks, req.TimeoutMillis = -1, 10_000
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: s.prefix + "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: several(n)}}}}
		if p := s.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 {
			s.t.Fatal(code(p.ErrorCode))
		}
	}
}

const (
	gap, accept, release, reject, renew int8 = 0, 1, 2, 3, 4
)

func TestShareMembersAsApacheKafka(t *testing.T) {
	compareShareSession(t, "sharemembers", nil, func(s *shareSession) {
		s.create("t", 2)
		s.heartbeat("no member id", "g", "", 0, "t")
		s.heartbeat("a long member id", "g", strings.Repeat("m", 37), 0, "t")
		s.heartbeat("no group", "", "m1", 0, "t")
		s.heartbeat("no topics", "g", "m1", 0)
		s.heartbeat("a strange epoch", "g", "m1", -2, "t")
		s.heartbeat("a group that is not there", "g", "m1", 3)
		s.heartbeat("who leaves a group that is not there", "g", "m1", -1)
		s.describe("nothing", "g", "")
		s.heartbeat("a topic that is not there", "g", "m0", 0, "unknown")
		s.describe("a member of nothing", "g")
		s.heartbeat("the last one leaves", "g", "m0", -1)
		s.heartbeat("who has left", "g", "m0", -1)
		s.heartbeat("who has left goes on", "g", "m0", 1)
		s.describe("empty", "g")
		epoch := s.join("g", "m1", 2, "t")
		s.heartbeat("goes on", "g", "m1", epoch)
		s.heartbeat("goes on, and says to what", "g", "m1", epoch, "t")
		s.heartbeat("too new an epoch", "g", "m1", epoch+1)
		s.heartbeat("too old an epoch", "g", "m1", epoch-2)
		s.heartbeat("somebody else", "g", "m2", epoch)
		s.counted("another joins", "g", "m2", 0, "t")
		next := s.counted("the first follows", "g", "m1", epoch)
		s.heartbeat("and repeats itself", "g", "m1", epoch)
		s.heartbeat("and goes on", "g", "m1", next)
		s.offsets("nothing was read", "g", "t", "unknown")
		s.alter("while it has members", "g", "t", 0, 0)
		s.deleteOffsets("while it has members", "g", "t")
		s.heartbeat("one leaves", "g", "m2", -1)
		s.heartbeat("the first follows again", "g", "m1", next)
		s.step("delete a group with members", 2, &kmsg.DeleteGroupsRequest{Groups: []string{s.group("g")}})
		s.heartbeat("the other leaves", "g", "m1", -1)
		s.alter("a topic that is not there", "g", "unknown", 0, 0)
		s.alter("a partition that is not there", "g", "t", 7, 0)
		s.alter("a group that is not there", "h", "t", 0, 0)
		s.alter("one", "g", "t", 0, 5)
		s.offsets("afterwards", "g", "t")
		s.offsets("of a group that is not there", "h", "t")
		s.offsets("all of it", "g")
		s.deleteOffsets("of a group that is not there", "h", "t")
		s.deleteOffsets("one of two", "g", "t", "unknown")
		s.deleteOffsets("again", "g", "t")
		s.offsets("after the deletion", "g", "t")
		s.step("delete", 2, &kmsg.DeleteGroupsRequest{Groups: []string{s.group("g")}})
		s.step("delete again", 2, &kmsg.DeleteGroupsRequest{Groups: []string{s.group("g")}})
		s.describe("deleted", "g")
	})
}

func TestShareFetchAsApacheKafka(t *testing.T) {
	compareShareSession(t, "sharefetch", nil, func(s *shareSession) {
		s.create("t", 2)
		s.fill(0, 3, 3, 4, 10)
		s.configure("g", "share.auto.offset.reset", "earliest")
		s.join("g", "m1", 2, "t")
		s.fetch("no session", "g", "m1", 3, nil, 0)
		s.fetch("no session to end", "g", "m1", -1, nil)
		s.fetch("acknowledgements at first", "g", "m1", 0, piggyback(0, ackOf(0, 1, accept)), 0)
		s.fetch("all", "g", "m1", 0, nil, 0)
		s.fetch("an old epoch", "g", "m1", 0x7fff, nil)
		s.fetch("nothing more", "g", "m1", 1, nil)
		s.offsets("acquired", "g", "t")
		s.acknowledge("no session", "g", "m2", 2, 0, nil, ackOf(0, 2, accept))
		s.acknowledge("the first epoch", "g", "m1", 0, 0, nil, ackOf(0, 2, accept))
		s.acknowledge("an old epoch", "g", "m1", 1, 0, nil, ackOf(0, 2, accept))
		s.acknowledge("some", "g", "m1", 2, 0, nil, ackOf(0, 2, accept))
		s.acknowledge("the same again", "g", "m1", 3, 0, nil, ackOf(0, 2, accept))
		s.acknowledge("backwards", "g", "m1", 4, 0, nil, ackOf(5, 4, accept))
		s.acknowledge("overlapping", "g", "m1", 5, 0, nil, ackOf(3, 5, accept), ackOf(4, 6, accept))
		s.acknowledge("without a type", "g", "m1", 6, 0, nil, ackOf(3, 5))
		s.acknowledge("too few types", "g", "m1", 7, 0, nil, ackOf(3, 5, accept, accept))
		s.acknowledge("an unknown type", "g", "m1", 8, 0, nil, ackOf(3, 5, 5))
		s.acknowledge("renewing by the way", "g", "m1", 9, 0, nil, ackOf(3, 5, renew))
		s.acknowledge("what there is not", "g", "m1", 10, 0, nil, ackOf(18, 22, accept))
		s.acknowledge("a partition that is not there", "g", "m1", 11, 7, nil, ackOf(3, 5, accept))
		s.acknowledge("nothing", "g", "m1", 12, 0, nil)
		s.acknowledge("one by one", "g", "m1", 13, 0, nil, ackOf(3, 6, accept, release, reject, gap))
		s.acknowledge("a renewal", "g", "m1", 14, 0, func(r *kmsg.ShareAcknowledgeRequest) { r.IsRenewAck = true }, ackOf(7, 8, renew))
		s.offsets("some are done", "g", "t")
		s.fetch("the released one", "g", "m1", 15, nil)
		s.fetch("released in a fetch, and again", "g", "m1", 16, piggyback(0, ackOf(4, 4, release)), 0)
		s.fetch("an acknowledgement that is refused", "g", "m1", 17, piggyback(0, ackOf(0x7fff, 0x7fff, accept)), 0)
		s.fetch("a renewal that asks for records", "g", "m1", 18, func(r *kmsg.ShareFetchRequest) { r.IsRenewAck = true })
		s.fetch("a renewal", "g", "m1", 18, func(r *kmsg.ShareFetchRequest) {
			r.IsRenewAck, r.MaxBytes, r.MinBytes, r.MaxRecords, r.MaxWaitMillis = true, 0, 0, 0, 0
			piggyback(0, ackOf(9, 9, renew))(r)
		}, 0)
		s.fetch("the end", "g", "m1", -1, nil)
		s.offsets("after the end", "g", "t")
		s.fetch("what was released, from a new session", "g", "m1", 0, nil, 0)
		s.fetch("the end again", "g", "m1", -1, piggyback(0, ackOf(4, 19, accept)), 0)
		s.offsets("all done", "g", "t")
		unknown := func(r *kmsg.ShareFetchRequest) { r.Topics[0].TopicID = [16]byte{1, 2, 3} }
		s.fetch("a topic that is not there", "g", "m1", 0, unknown, 0)
		s.fetch("a partition that is not there", "g", "m1", 0, nil, 7)
	})
}

func TestShareDeliveriesAsApacheKafka(t *testing.T) {
	compareShareSession(t, "sharedeliveries", nil, func(s *shareSession) {
		s.create("t", 2)
		s.fill(0, 3, 3, 4, 10)
		s.fill(1, 8)
		limit := func(n int32) func(*kmsg.ShareFetchRequest) {
			return func(r *kmsg.ShareFetchRequest) { r.MaxRecords, r.ShareAcquireMode = n, 1 }
		}
		optimized := func(n, size int32) func(*kmsg.ShareFetchRequest) {
			return func(r *kmsg.ShareFetchRequest) { r.MaxRecords, r.BatchSize = n, size }
		}
		for _, g := range []string{"g", "h", "i"} {
			s.configure(g, "share.auto.offset.reset", "earliest")
			s.join(g, "m", 2, "t")
		}
		s.fetch("batches of five", "g", "m", 0, optimized(500, 5), 0)
		s.fetch("released", "g", "m", -1, nil)
		s.fetch("two, by the log's batches", "g", "m", 0, optimized(2, 500), 0)
		s.fetch("four more", "g", "m", 1, optimized(4, 500))
		s.fetch("another member", "g", "n", 0, optimized(500, 500), 0)
		s.fetch("the first one's are released", "g", "m", -1, nil)
		s.fetch("and come to the other", "g", "n", 1, nil)
		s.fetch("two of them", "h", "m", 0, limit(2), 0)
		s.fetch("two more", "h", "m", 1, limit(2))
		s.fetch("seven", "h", "m", 2, limit(7))
		s.fetch("the rest", "h", "n", 0, limit(500), 0)
		s.fetch("the first half is done", "h", "m", 3, piggyback(0, ackOf(0, 3, accept)), 0)
		s.offsets("half", "h", "t")
		resp := s.fetch("delivered once", "i", "m", 0, nil, 1)
		for n, epoch := 2, int32(1); n <= 14; n, epoch = n+1, epoch+2 {
			var acks []shareBatch
			for _, t := range resp.Topics {
				for _, a := range t.Partitions[0].AcquiredRecords {
					acks = append(acks, ackOf(a.FirstOffset, a.LastOffset, release))
				}
			}
			s.acknowledge(fmt.Sprintf("release %d", n), "i", "m", epoch, 1, nil, acks...)
			resp = s.fetch(fmt.Sprintf("fetch %d", n), "i", "m", epoch+1, nil)
		}
		s.offsets("as often as they may be", "i", "t")
	})
}

func TestShareEdgesAsApacheKafka(t *testing.T) {
	compareShareSession(t, "shareedges", nil, func(s *shareSession) {
		s.create("t", 2)
		s.fill(0, 5, 5, 5)
		s.join("late", "m", 2, "t")
		s.fetch("who begins at the end", "late", "m", 0, nil, 0)
		s.offsets("at the end", "late", "t")
		s.fill(0, 5)
		s.fetch("what came then", "late", "m", 1, nil)
		s.configure("g", "share.auto.offset.reset", "earliest")
		s.join("g", "m", 2, "t")
		s.fetch("all", "g", "m", 0, nil, 0)
		del := kmsg.NewPtrDeleteRecordsRequest()
		del.SetVersion(2)
		del.TimeoutMillis = 10_000
		del.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: s.prefix + "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: 7}}}}
		s.step("delete records", 2, del)
		s.acknowledge("some of which are deleted", "g", "m", 1, 0, nil, ackOf(0, 9, accept))
		s.fetch("released", "g", "m", -1, nil)
		s.fetch("those that are left", "g", "m", 0, nil, 0)
		s.configure("f", "share.auto.offset.reset", "earliest")
		s.join("f", "m", 2, "t")
		s.fetch("from the new start", "f", "m", 0, nil, 0)
		s.offsets("with a moved start", "g", "t")
	})
}
