// Package members is what the kinds of groups have in common whose membership is a set of records and whose members stand in epochs (KIP-848, KIP-932,
// KIP-1071): how their records are written, parsed, take effect and are taken back (RecordType), what makes a member and where it stands (Member, Standing),
// and the members of a group with their order, instances and clocks, and what every heartbeat and every commit of offsets is held to (Roster). What members
// subscribe to or run, who is to have what, and how one gets there is each kind's own.
//
// Like the kinds it has no clock, goroutine, socket or file. The kinds of groups beside it import it, and the broker for Topic.
package members

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"
)

// FirstEpoch is that of a group before its first member.
const FirstEpoch = 1

// Epochs that a member gives to say that it comes or goes.
const (
	EpochJoin        = 0
	EpochLeave       = -1
	EpochLeaveStatic = -2 // for a while: what it has is kept for the instance
)

// State says what a member waits for.
type State int8

const (
	Stable     State = 0   // it has what it is to have
	Unrevoked  State = 1   // it is to give something up
	Unreleased State = 2   // others are to give up what it is to have
	Unknown    State = 127 // of a release to come
)

// Holding is what members have: partitions, or tasks.
type Holding[H any] interface{ Equal(H) bool }

// Standing is where a member stands: a record of its own.
type Standing[H Holding[H]] struct {
	Epoch, Previous int32
	State           State
	Assigned        H
	Revoking        H // to be given up
}

// Equal tells whether both are the same place.
func (s *Standing[H]) Equal(o *Standing[H]) bool {
	return s.Epoch == o.Epoch && s.Previous == o.Previous && s.State == o.State && s.Assigned.Equal(o.Assigned) && s.Revoking.Equal(o.Revoking)
}

// Reconciled tells whether the member has what it is to have in an epoch.
func (s *Standing[H]) Reconciled(epoch int32) bool { return s.State == Stable && s.Epoch == epoch }

// In is the same in another epoch.
func (s Standing[H]) In(epoch int32) Standing[H] {
	s.Epoch, s.Previous = epoch, s.Epoch
	return s
}

// Member is what is known of a member of any kind. The member of a kind embeds it, and is replaced, not changed.
type Member[H Holding[H]] struct {
	ID                   string
	InstanceID, RackID   string // "" if there is none
	ClientID, ClientHost string
	Rebalance            int32 // milliseconds, -1: unknown
	Standing[H]
}

func (m *Member[H]) base() *Member[H] { return m }

// SameClient tells whether two members say the same of where they come from.
func (m *Member[H]) SameClient(o *Member[H]) bool {
	return m.ID == o.ID && m.InstanceID == o.InstanceID && m.RackID == o.RackID && m.ClientID == o.ClientID && m.ClientHost == o.ClientHost && m.Rebalance == o.Rebalance
}

// Hear takes over what a heartbeat says of it. What is nil, or -1, has not changed since the last one.
func (m *Member[H]) Hear(instanceID, rackID *string, clientID, clientHost string, rebalance int32) {
	if instanceID != nil {
		m.InstanceID = *instanceID
	}
	if rackID != nil {
		m.RackID = *rackID
	}
	if rebalance != -1 {
		m.Rebalance = rebalance
	}
	m.ClientID, m.ClientHost = clientID, clientHost
}

// RebalanceTimeout is how long the member may take to give up what it is to.
func (m *Member[H]) RebalanceTimeout() time.Duration {
	return time.Duration(m.Rebalance) * time.Millisecond
}

// IsClassic tells whether the member speaks the classic protocol. A kind that has such members says so itself.
func (m *Member[H]) IsClassic() bool { return false }

// Topic is what a group needs to know of a topic.
type Topic struct {
	Name       string
	ID         [16]byte
	Partitions int32
}

// ByName finds topics.
type ByName interface {
	ByName(name string) (Topic, bool)
}

// HashOf tells whether topics have changed: their ids, or how many partitions they have. It is not the hash that Apache Kafka takes, which would then see a
// change where there is none, and assign once more. 0: none of them is there.
func HashOf(topics ByName, names []string) int64 {
	h, found := xxhash.New(), false
	for _, name := range names {
		t, ok := topics.ByName(name)
		if !ok {
			continue
		}
		found = true
		b := append([]byte(nil), t.ID[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(t.Partitions))
		h.Write(b) // which gives no error
	}
	if !found {
		return 0
	}
	return int64(h.Sum64())
}
