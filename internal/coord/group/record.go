package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions of the records of __consumer_offsets, as Apache Kafka 4.4 writes them. The key's version says what kind of record it is.
const (
	keyOffsetOld = 0
	keyOffset    = 1
	keyGroup     = 2

	valueOffsetExpires = 1 // the only version with an expiry of its own
	valueOffset        = 3
	valueOffsetTopicID = 4 // with the topic's id
	valueGroup         = 3
	newestValue        = 4
)

// ErrUnknownRecord: a record of a kind or version that is not known here (Kafka keeps other coordinators' state in the same topic). It is to be skipped.
var ErrUnknownRecord = errors.New("unknown record in __consumer_offsets")

// Record is one record of __consumer_offsets. A nil value is a tombstone.
type Record struct{ Key, Value []byte }

func groupKey(id string) []byte {
	k := kmsg.NewGroupMetadataKey()
	k.Version, k.Group = keyGroup, id
	return k.AppendTo(nil)
}

// offsetRecord is the commit of an offset; p nil is its tombstone.
func offsetRecord(group string, tp TopicPartition, p *Offset) Record {
	k := kmsg.NewOffsetCommitKey()
	k.Version, k.Group, k.Topic, k.Partition = keyOffset, group, tp.Topic, tp.Partition
	r := Record{Key: k.AppendTo(nil)}
	if p == nil {
		return r
	}
	v := kmsg.NewOffsetCommitValue()
	v.Offset, v.LeaderEpoch, v.Metadata, v.CommitTimestamp = p.Offset, p.LeaderEpoch, p.Metadata, p.Committed.UnixMilli()
	switch {
	case !p.Expires.IsZero():
		v.Version, v.ExpireTimestamp = valueOffsetExpires, p.Expires.UnixMilli()
	case p.TopicID != [16]byte{}:
		v.Version, v.TopicID = valueOffsetTopicID, p.TopicID
	default:
		v.Version = valueOffset
	}
	r.Value = v.AppendTo(nil)
	return r
}

// record is the group as it stands.
func (g *Classic) record() Record {
	v := kmsg.NewGroupMetadataValue()
	v.Version, v.ProtocolType, v.Generation, v.CurrentStateTimestamp = valueGroup, g.protocolType, g.generation, g.since.UnixMilli()
	v.Protocol, v.Leader = optional(g.protocol), optional(g.leader)
	g.each(func(m *member) {
		r := kmsg.NewGroupMetadataValueMember()
		r.MemberID, r.InstanceID, r.ClientID, r.ClientHost = m.id, optional(m.instance), m.clientID, m.clientHost
		r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = int32(m.session.Milliseconds()), int32(m.rebalance.Milliseconds())
		r.Subscription, r.Assignment = notNil(m.metadata(g.protocol)), notNil(m.assignment)
		v.Members = append(v.Members, r)
	})
	return Record{Key: groupKey(g.id), Value: v.AppendTo(nil)}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Entry is a record taken apart: of an offset if Partition is set, else of the group as a whole. Offset and State are nil for a tombstone.
type Entry struct {
	Group     string
	Partition *TopicPartition
	Offset    *Offset
	State     *kmsg.GroupMetadataValue
}

// ParseRecord takes a record apart. It does not alias key and value.
func ParseRecord(key, value []byte) (Entry, error) {
	if len(key) < 2 {
		return Entry{}, fmt.Errorf("key of %d bytes: %w", len(key), ErrUnknownRecord)
	}
	switch version := binary.BigEndian.Uint16(key); version {
	case keyOffsetOld, keyOffset:
		return parseOffset(key, value)
	case keyGroup:
		return parseGroup(key, value)
	default:
		return Entry{}, fmt.Errorf("key version %d: %w", version, ErrUnknownRecord)
	}
}

func parseOffset(key, value []byte) (Entry, error) {
	var k kmsg.OffsetCommitKey
	if err := k.ReadFrom(key); err != nil {
		return Entry{}, fmt.Errorf("parsing the key of an offset: %w", err)
	}
	e := Entry{Group: k.Group, Partition: &TopicPartition{k.Topic, k.Partition}}
	if value == nil {
		return e, nil
	}
	if err := checkVersion(value); err != nil {
		return Entry{}, err
	}
	v := kmsg.NewOffsetCommitValue()
	v.LeaderEpoch, v.ExpireTimestamp = -1, -1
	if err := v.ReadFrom(value); err != nil {
		return Entry{}, fmt.Errorf("parsing the offset of group %s for %s-%d: %w", k.Group, k.Topic, k.Partition, err)
	}
	e.Offset = &Offset{Offset: v.Offset, LeaderEpoch: -1, Metadata: v.Metadata, Committed: time.UnixMilli(v.CommitTimestamp), TopicID: v.TopicID}
	if v.Version >= valueOffset {
		e.Offset.LeaderEpoch = v.LeaderEpoch
	}
	if v.Version == valueOffsetExpires && v.ExpireTimestamp >= 0 {
		e.Offset.Expires = time.UnixMilli(v.ExpireTimestamp)
	}
	return e, nil
}

func parseGroup(key, value []byte) (Entry, error) {
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return Entry{}, fmt.Errorf("parsing the key of a group: %w", err)
	}
	e := Entry{Group: k.Group}
	if value == nil {
		return e, nil
	}
	if err := checkVersion(value); err != nil {
		return Entry{}, err
	}
	v := kmsg.NewGroupMetadataValue()
	if err := v.ReadFrom(append([]byte(nil), value...)); err != nil {
		return Entry{}, fmt.Errorf("parsing group %s: %w", k.Group, err)
	}
	e.State = &v
	return e, nil
}

func checkVersion(value []byte) error {
	if len(value) < 2 {
		return fmt.Errorf("value of %d bytes: %w", len(value), ErrUnknownRecord)
	}
	if v := binary.BigEndian.Uint16(value); v > newestValue {
		return fmt.Errorf("value version %d: %w", v, ErrUnknownRecord)
	}
	return nil
}

// Replay lets a record of the log take effect. After the last one, Loaded makes the group ready for commands.
func (g *Group) Replay(e Entry, now time.Time) {
	switch {
	case e.Partition != nil && e.Offset != nil:
		g.offsets[*e.Partition] = *e.Offset
		g.supersede(*e.Partition, &Output{})
		g.revive(now)
	case e.Partition != nil:
		delete(g.offsets, *e.Partition)
		g.supersede(*e.Partition, &Output{})
	case e.State != nil:
		c := g.NewClassic(now)
		c.replay(e.State)
		g.kind = c
	case g.kind.Type() == TypeClassic:
		g.unmade(now)
	}
}

// revive: a group that was deleted is there again, with offsets.
func (g *Group) revive(now time.Time) {
	if g.Dead() {
		g.kind = g.NewClassic(now)
	}
}

func (g *Classic) replay(v *kmsg.GroupMetadataValue) {
	g.protocolType, g.generation, g.protocol, g.leader = v.ProtocolType, v.Generation, "", ""
	if v.Protocol != nil {
		g.protocol = *v.Protocol
	}
	// Kafka writes -1 where it does not know since when.
	g.since = time.UnixMilli(max(v.CurrentStateTimestamp, 0))
	g.state = Empty
	for i := range v.Members {
		m := replayMember(&v.Members[i], g.protocol)
		if _, twice := g.members[m.id]; twice {
			continue
		}
		g.add(m)
		g.state = Stable
	}
	g.leader = ""
	if v.Leader != nil && g.members[*v.Leader] != nil {
		g.leader = *v.Leader
	} else if len(g.order) > 0 {
		g.leader = g.order[0]
	}
}

func replayMember(r *kmsg.GroupMetadataValueMember, protocol string) *member {
	m := &member{id: r.MemberID, clientID: r.ClientID, clientHost: r.ClientHost, assignment: r.Assignment,
		session: time.Duration(r.SessionTimeoutMillis) * time.Millisecond, rebalance: time.Duration(r.RebalanceTimeoutMillis) * time.Millisecond,
		protocols: []Protocol{{protocol, r.Subscription}}}
	if m.rebalance < 0 {
		m.rebalance = m.session // a record from before there was a rebalance timeout
	}
	if r.InstanceID != nil {
		m.instance = *r.InstanceID
	}
	return m
}

// Loaded makes a replayed group ready for commands.
func (g *Group) Loaded(now time.Time) { g.kind.Loaded(now) }

// Loaded gives every member its whole session to show itself.
func (g *Classic) Loaded(now time.Time) {
	for _, m := range g.members {
		m.alive(now)
	}
	g.subscribed = g.subscriptions()
}

// Tombstones are the tombstone of the group's one record.
func (g *Classic) Tombstones() []Record { return []Record{{Key: groupKey(g.id)}} }
