package difftest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What both brokers have before the first case. Cases that only ask use it; those that change something mostly make what they change.
const (
	logs               = "d-logs"      // two partitions, ten batches in the first
	empty              = "d-empty"     // nothing in it
	shrinking          = "d-shrinking" // as logs has them, and DeleteRecords takes them away
	scratch            = "d-scratch"   // cases write to it
	transacts          = "d-transacts" // a committed transaction, an aborted one, and one that is open
	transactsElsewhere = "d-elsewhere" // cases begin transactions on it
	group              = "d-group"     // offsets, no members
	live               = "d-live"      // one static member
	openID             = "d-open"      // the transactional id of the open transaction
)

var shared = []string{logs, empty, scratch, shrinking, transacts, transactsElsewhere, group, live, openID}

// scene is one case on one side. Scope is the same on both: names that begin with it are nobody else's.
type scene struct {
	s     *side
	scope string
	v     int16
}

func code(c int16) string {
	if c == 0 {
		return "ok"
	}
	if err := new(kerr.Error); errors.As(kerr.ErrorForCode(c), &err) {
		return err.Message
	}
	return fmt.Sprint(c)
}

func must(c int16, what string) error {
	if c == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", what, code(c))
}

// until asks until there is no error, for what a broker does behind its answer.
func until(what string, ok func() error) error {
	for end := time.Now().Add(setupPatience); ; time.Sleep(5 * time.Millisecond) {
		err := ok()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
	}
}

// createTopic makes a topic and waits until it is served.
func (s *side) createTopic(name string, partitions int32) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(7)
	req.TimeoutMillis = 30_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	c := kmsg.NewCreateTopicsRequestTopicConfig()
	c.Name, c.Value = "retention.ms", kmsg.StringPtr("-1")
	t.Configs = append(t.Configs, c)
	req.Topics = append(req.Topics, t)
	resp, err := ask[*kmsg.CreateTopicsResponse](s, req)
	if err != nil {
		return err
	}
	if err := must(resp.Topics[0].ErrorCode, "creating "+name); err != nil {
		return err
	}
	s.topics[resp.Topics[0].TopicID] = "<" + name + ">"
	return until(name, func() error {
		for p := range partitions {
			r := kmsg.NewPtrListOffsetsRequest()
			r.SetVersion(6)
			r.ReplicaID = -1
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p, -1
			r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: name, Partitions: []kmsg.ListOffsetsRequestTopicPartition{rp}}}
			resp, err := ask[*kmsg.ListOffsetsResponse](s, r)
			if err != nil {
				return err
			}
			if err := must(resp.Topics[0].Partitions[0].ErrorCode, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// topicID of a topic that this side has made.
func (s *side) topicID(name string) (id [16]byte) {
	for id, n := range s.topics {
		if n == "<"+name+">" {
			return id
		}
	}
	panic("no id of " + name)
}

// records is a batch of n records with the given producer; -1 for none.
func records(n int, producer int64, epoch int16, sequence int32, transactional bool) []byte {
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(n - 1), FirstTimestamp: 1_700_000_000_000, MaxTimestamp: 1_700_000_000_000,
		ProducerID: producer, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: int32(n)}
	if transactional {
		b.Attributes |= 1 << 4
	}
	for i := range n {
		r := kmsg.Record{OffsetDelta: int32(i), Key: []byte("key"), Value: []byte("a value")}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		b.Records = r.AppendTo(b.Records)
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func (s *side) produce(topic string, transactionalID *string, batch []byte) error {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	req.Acks, req.TimeoutMillis, req.TransactionID = -1, 30_000, transactionalID
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: batch}}}}
	resp, err := ask[*kmsg.ProduceResponse](s, req)
	if err != nil {
		return err
	}
	return must(resp.Topics[0].Partitions[0].ErrorCode, "producing to "+topic)
}

// producer is one that InitProducerId has given.
type producer struct {
	id    int64
	epoch int16
}

func (s *side) initProducer(transactionalID string) (p producer, err error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.SetVersion(4)
	req.TransactionalID, req.TransactionTimeoutMillis = &transactionalID, 600_000
	err = until("a producer id", func() error {
		resp, err := ask[*kmsg.InitProducerIDResponse](s, req)
		if err != nil {
			return err
		}
		p = producer{resp.ProducerID, resp.ProducerEpoch}
		return must(resp.ErrorCode, "InitProducerId")
	})
	return p, err
}

func (s *side) addPartition(transactionalID string, p producer, topic string) error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.SetVersion(3)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = transactionalID, p.id, p.epoch
	req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: topic, Partitions: []int32{0}}}
	return until("AddPartitionsToTxn", func() error {
		resp, err := ask[*kmsg.AddPartitionsToTxnResponse](s, req)
		if err != nil {
			return err
		}
		return must(resp.Topics[0].Partitions[0].ErrorCode, "AddPartitionsToTxn")
	})
}

func (s *side) endTxn(transactionalID string, p producer, commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.SetVersion(3)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = transactionalID, p.id, p.epoch, commit
	return until("EndTxn", func() error {
		resp, err := ask[*kmsg.EndTxnResponse](s, req)
		if err != nil {
			return err
		}
		return must(resp.ErrorCode, "EndTxn")
	})
}

// join makes a member of a group, and has it hand out the assignment.
func (s *side) join(group string, instance *string) (member string, generation int32, err error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.SetVersion(5)
	req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType, req.InstanceID = group, 1_800_000, 60_000, "consumer", instance
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
	err = until("joining "+group, func() error {
		resp, err := ask[*kmsg.JoinGroupResponse](s, req)
		if err != nil {
			return err
		}
		req.MemberID = resp.MemberID
		member, generation = resp.MemberID, resp.Generation
		return must(resp.ErrorCode, "JoinGroup")
	})
	if err != nil {
		return "", 0, err
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.SetVersion(3)
	sync.Group, sync.Generation, sync.MemberID, sync.InstanceID = group, generation, member, instance
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: member, MemberAssignment: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
	resp, err := ask[*kmsg.SyncGroupResponse](s, sync)
	if err != nil {
		return "", 0, err
	}
	return member, generation, must(resp.ErrorCode, "SyncGroup")
}

func (s *side) commit(group, topic string, offset int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.SetVersion(8)
	req.Group, req.Generation = group, -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.Metadata = offset, kmsg.StringPtr("why")
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	return until("committing an offset", func() error {
		resp, err := ask[*kmsg.OffsetCommitResponse](s, req)
		if err != nil {
			return err
		}
		return must(resp.Topics[0].Partitions[0].ErrorCode, "OffsetCommit")
	})
}

// coordinator has a broker make the topic that its coordinators keep their state in.
func (s *side) coordinator(kind int8, key string) error {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.SetVersion(3)
	req.CoordinatorType, req.CoordinatorKey = kind, key
	return until("the coordinator", func() error {
		resp, err := ask[*kmsg.FindCoordinatorResponse](s, req)
		if err != nil {
			return err
		}
		return must(resp.ErrorCode, "FindCoordinator")
	})
}

// prepare makes what the cases share.
func (s *side) prepare() error {
	for _, t := range []struct {
		name       string
		partitions int32
	}{{logs, 2}, {empty, 1}, {scratch, 2}, {shrinking, 2}, {transacts, 1}, {transactsElsewhere, 2}} {
		if err := s.createTopic(t.name, t.partitions); err != nil {
			return err
		}
	}
	for kind, key := range []string{group, openID} {
		if err := s.coordinator(int8(kind), key); err != nil {
			return err
		}
	}
	for range 10 {
		for _, topic := range []string{logs, shrinking} {
			if err := s.produce(topic, nil, records(2, -1, -1, -1, false)); err != nil {
				return err
			}
		}
	}
	for _, id := range []string{"d-committed", "d-aborted", openID} {
		p, err := s.initProducer(id)
		if err == nil {
			err = s.addPartition(id, p, transacts)
		}
		if err == nil {
			err = s.produce(transacts, &id, records(3, p.id, p.epoch, 0, true))
		}
		if err == nil && id != openID {
			if err = s.endTxn(id, p, id == "d-committed"); err == nil {
				_, err = s.initProducer(id) // which waits until the markers are written
			}
		}
		if err != nil {
			return err
		}
	}
	if err := s.commit(group, logs, 5); err != nil {
		return err
	}
	_, _, err := s.join(live, kmsg.StringPtr("d-instance"))
	return err
}

// served tells whether our broker serves a key; the others are left out of what ApiVersions is compared by.
func (s *side) served(key int16) bool { return slices.Contains(s.keys, key) }

// createACL allows a user to read a topic.
func (s *side) createACL(topic, user string) error {
	req := kmsg.NewPtrCreateACLsRequest()
	req.SetVersion(3)
	c := kmsg.NewCreateACLsRequestCreation()
	c.ResourceType, c.ResourceName, c.ResourcePatternType, c.Principal, c.Host = kmsg.ACLResourceTypeTopic, topic, kmsg.ACLResourcePatternTypeLiteral, user, "*"
	c.Operation, c.PermissionType = kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
	req.Creations = append(req.Creations, c)
	resp, err := ask[*kmsg.CreateACLsResponse](s, req)
	if err != nil {
		return err
	}
	return must(resp.Results[0].ErrorCode, "CreateAcls")
}

// addOffsets has a group's offsets take part in a transaction.
func (s *side) addOffsets(transactionalID string, p producer, group string) error {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.SetVersion(3)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = transactionalID, p.id, p.epoch, group
	return until("AddOffsetsToTxn", func() error {
		resp, err := ask[*kmsg.AddOffsetsToTxnResponse](s, req)
		if err != nil {
			return err
		}
		return must(resp.ErrorCode, "AddOffsetsToTxn")
	})
}
