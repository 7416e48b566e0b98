package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/sharepart"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// shareKeys make assignments and locks quick.
func shareKeys(pairs ...string) brokerOption {
	return withKeys(append([]string{"share.coordinator.state.topic.num.partitions", "3", "group.share.assignment.interval.ms", "0", "group.share.min.record.lock.duration.ms", "1000"}, pairs...)...)
}

// shareMember is a member of a share group on a connection of its own. Its methods give errors, so that many can run side by side.
type shareMember struct {
	c         *rawConn
	group, id string
	topic     string
	topicID   [16]byte
	epoch     int32
	session   int32
	assigned  []int32
}

// got are records that a member has, by partition.
type got struct {
	partition int32
	sharepart.Delivery
}

func (b *testBroker) member(t testing.TB, group, id, topic string) *shareMember {
	t.Helper()
	known, ok := b.topics.Get(topic)
	if !ok {
		t.Fatalf("there is no topic %s", topic)
	}
	return &shareMember{c: b.raw(t), group: group, id: id, topic: topic, topicID: known.ID}
}

// configureGroup sets configurations of a group.
func (b *testBroker) configureGroup(t testing.TB, group string, values map[string]string) {
	t.Helper()
	if err := b.resourceConfigs.setGroup(group, values); err != nil {
		t.Fatal(err)
	}
}

func (m *shareMember) ask(req kmsg.Request) (kmsg.Response, error) {
	m.c.id++
	m.c.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := m.c.Write(wire.AppendRequest(nil, req, m.c.id, nil)); err != nil {
		return nil, err
	}
	frame, err := wire.ReadFrame(m.c, 256<<20, nil)
	if err != nil {
		return nil, err
	}
	_, body, err := wire.ResponseBody(frame, req.Key(), req.GetVersion())
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	return resp, resp.ReadFrom(body)
}

// heartbeat joins, or goes on.
func (m *shareMember) heartbeat() error {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.SetVersion(1)
	req.GroupID, req.MemberID, req.MemberEpoch, req.SubscribedTopicNames = m.group, m.id, m.epoch, []string{m.topic}
	resp, err := m.ask(req)
	if err != nil {
		return err
	}
	r := resp.(*kmsg.ShareGroupHeartbeatResponse)
	if r.ErrorCode != 0 {
		return fmt.Errorf("heartbeat of %s: %s", m.id, code(r.ErrorCode))
	}
	m.epoch, m.assigned = r.MemberEpoch, nil
	for _, t := range r.Assignment.TopicPartitions {
		m.assigned = append(m.assigned, t.Partitions...)
	}
	return nil
}

// join becomes a member, and waits for partitions.
func (m *shareMember) join(t *testing.T) *shareMember {
	t.Helper()
	await(t, "an assignment", func() bool {
		if err := m.heartbeat(); err != nil {
			t.Fatal(err)
		}
		return len(m.assigned) > 0
	})
	return m
}

// fetch asks for records of partitions, all that it is assigned if none are named, with acknowledgements of those that it has.
func (m *shareMember) fetch(wait time.Duration, change func(*kmsg.ShareFetchRequest), parts ...int32) (out []got, err error) {
	if len(parts) == 0 {
		parts = m.assigned
	}
	req := kmsg.NewPtrShareFetchRequest()
	req.SetVersion(2)
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &m.group, &m.id, m.session
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.MaxRecords, req.BatchSize = int32(wait.Milliseconds()), 1, 1<<20, 100, 100
	t := kmsg.ShareFetchRequestTopic{TopicID: m.topicID}
	for _, n := range parts {
		t.Partitions = append(t.Partitions, kmsg.ShareFetchRequestTopicPartition{Partition: n})
	}
	req.Topics = []kmsg.ShareFetchRequestTopic{t}
	if change != nil {
		change(req)
	}
	resp, err := m.ask(req)
	if err != nil {
		return nil, err
	}
	r := resp.(*kmsg.ShareFetchResponse)
	if r.ErrorCode != 0 {
		return nil, fmt.Errorf("fetch of %s: %s", m.id, code(r.ErrorCode))
	}
	m.session++
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == errCoordinatorNotAvailable || p.ErrorCode == errCoordinatorLoading {
				continue // that of the partition's state is not up yet after a start: clients ask again
			}
			if p.ErrorCode != 0 || p.AcknowledgeErrorCode != 0 {
				return nil, fmt.Errorf("fetch of %s from %d: %s, %s", m.id, p.Partition, code(p.ErrorCode), code(p.AcknowledgeErrorCode))
			}
			for _, a := range p.AcquiredRecords {
				out = append(out, got{p.Partition, sharepart.Delivery{First: a.FirstOffset, Last: a.LastOffset, Count: a.DeliveryCount}})
			}
		}
	}
	return out, nil
}

// acknowledge answers for a range.
func (m *shareMember) acknowledge(g got, types ...int8) error {
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.SetVersion(2)
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &m.group, &m.id, m.session
	req.Topics = []kmsg.ShareAcknowledgeRequestTopic{{TopicID: m.topicID, Partitions: []kmsg.ShareAcknowledgeRequestTopicPartition{{Partition: g.partition,
		AcknowledgementBatches: []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{{FirstOffset: g.First, LastOffset: g.Last, AcknowledgeTypes: types}}}}}}
	resp, err := m.ask(req)
	if err != nil {
		return err
	}
	m.session++
	r := resp.(*kmsg.ShareAcknowledgeResponse)
	if r.ErrorCode != 0 {
		return fmt.Errorf("acknowledgement of %s: %s", m.id, code(r.ErrorCode))
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return fmt.Errorf("acknowledgement of %s in %d, %d to %d: %w", m.id, p.Partition, g.First, g.Last, codeError(p.ErrorCode))
			}
		}
	}
	return nil
}

func delivery(first, last int64) sharepart.Delivery {
	return sharepart.Delivery{First: first, Last: last}
}
