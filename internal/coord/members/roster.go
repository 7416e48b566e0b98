package members

import (
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// Of is the member of a kind: a pointer to a struct that embeds Member. nil is none.
type Of[M any, H Holding[H]] interface {
	comparable
	base() *Member[H]
	// At is the member where it stands elsewhere.
	At(Standing[H]) M
	IsClassic() bool
}

// Rules are in what the members of kinds differ.
type Rules[M any] struct {
	Type group.Type
	// New makes a member of which nothing is known but its id.
	New func(id string) M
	// Moved is called when a member has taken another's place, or its own former one; before or after is nil if one comes or goes.
	Moved func(before, after M)
	// Since is what of the member's the offset of a commit belongs to, and the epoch in which the member got it; an error that Stale makes if it has not.
	Since func(m M, o *group.OffsetOf) (what string, epoch int32, err error)
}

// Roster are the members of a group, and of which epoch what they are to have is. A kind of group embeds it, and changes it by records only, but for the
// Clocks, which are in no record.
type Roster[M Of[M, H], H Holding[H]] struct {
	Assignment Assignment
	Clocks     map[string]Clocks

	id      string
	rules   Rules[M]
	members map[string]M
	order   []string // member ids in the order of joining
	peak    int      // the most members there have been
	static  map[string]string
}

// NewRoster makes the members of a group that has none.
func NewRoster[M Of[M, H], H Holding[H]](groupID string, rules Rules[M]) Roster[M, H] {
	return Roster[M, H]{Assignment: Assignment{Epoch: FirstEpoch}, Clocks: map[string]Clocks{}, id: groupID, rules: rules, members: map[string]M{}, static: map[string]string{}}
}

// Type is the kind of the group.
func (r *Roster[M, H]) Type() group.Type { return r.rules.Type }

// ProtocolType is the same word.
func (r *Roster[M, H]) ProtocolType() string { return string(r.rules.Type) }

// Empty tells whether there are no members.
func (r *Roster[M, H]) Empty() bool { return len(r.members) == 0 }

// Awaited is never true: members have no ids before they join.
func (r *Roster[M, H]) Awaited() bool { return false }

// Len is how many members there are.
func (r *Roster[M, H]) Len() int { return len(r.members) }

// Get is the member with an id, nil if there is none.
func (r *Roster[M, H]) Get(id string) M { return r.members[id] }

// Instance is the member that has an instance id, nil if none has.
func (r *Roster[M, H]) Instance(instance string) M { return r.members[r.static[instance]] }

// IDs are the ids of the members, in the order of joining.
func (r *Roster[M, H]) IDs() []string { return slices.Clone(r.order) }

// List are the members in the order of joining.
func (r *Roster[M, H]) List() []M {
	out := make([]M, 0, len(r.order))
	for _, id := range r.order {
		out = append(out, r.members[id])
	}
	return out
}

// With are the members with one of them changed, or added, and without the one that it replaces ("": none).
func (r *Roster[M, H]) With(m M, replaced string) []M {
	id, members := m.base().ID, r.List()
	if replaced != "" && replaced != id {
		members = slices.DeleteFunc(members, func(o M) bool { return o.base().ID == replaced })
	}
	if i := slices.IndexFunc(members, func(o M) bool { return o.base().ID == id }); i >= 0 {
		members[i] = m
		return members
	}
	return append(members, m)
}

// HashOrder is the order in which Apache Kafka goes through members: those that it knew, as its hash table has them, then those that come.
func (r *Roster[M, H]) HashOrder(members []M) []string {
	present := map[string]bool{}
	for _, m := range members {
		present[m.base().ID] = true
	}
	out := make([]string, 0, len(members))
	for _, id := range assignor.MemberOrder(r.order, r.peak) {
		if present[id] {
			out = append(out, id)
			delete(present, id)
		}
	}
	for _, m := range members {
		if id := m.base().ID; present[id] {
			out = append(out, id)
		}
	}
	return out
}

// Progress is Kafka's name of where a group stands whose epoch is given.
func (r *Roster[M, H]) Progress(epoch int32) string {
	if len(r.members) == 0 {
		return "Empty"
	}
	if epoch > r.Assignment.Epoch {
		return "Assigning"
	}
	for _, m := range r.members {
		if !m.base().Reconciled(r.Assignment.Epoch) {
			return "Reconciling"
		}
	}
	return "Stable"
}

// Say lets the record of what a member says of itself take effect; nil: the member is gone.
func (r *Roster[M, H]) Say(id string, said M) (undo func()) {
	var none M
	before, clocks, at := r.members[id], r.Clocks[id], 0
	if said == none {
		at = slices.Index(r.order, id)
		r.drop(id)
	} else {
		from := before
		if from == none {
			from = r.rules.New(id)
		}
		next := said.At(from.base().Standing)
		next.base().ID = id
		r.put(next)
	}
	return func() {
		if before == none {
			r.drop(id)
			return
		}
		if r.put(before); said == none {
			r.order = slices.Insert(r.order[:len(r.order)-1], at, id)
		}
		r.Clocks[id] = clocks
	}
}

// Stand lets the record of where a member stands take effect; nil: it has nothing any more, and is about to be gone.
func (r *Roster[M, H]) Stand(id string, at *Standing[H]) (undo func()) {
	var none M
	before := r.members[id]
	from := before
	if at == nil {
		if before == none {
			return func() {}
		}
		at = &Standing[H]{Epoch: -1, Previous: -1}
	} else if before == none {
		from = r.rules.New(id)
	}
	r.put(from.At(*at))
	return func() {
		if before == none {
			r.drop(id)
			return
		}
		r.put(before)
	}
}

// put puts a member in the place of the one with its id.
func (r *Roster[M, H]) put(next M) {
	m := next.base()
	before, known := r.members[m.ID]
	if known {
		r.leaveInstance(before.base())
	} else {
		r.order = append(r.order, m.ID)
		r.peak = max(r.peak, len(r.order))
	}
	r.members[m.ID] = next
	if m.InstanceID != "" {
		r.static[m.InstanceID] = m.ID
	}
	r.rules.Moved(before, next)
}

func (r *Roster[M, H]) drop(id string) {
	before, known := r.members[id]
	if !known {
		return
	}
	r.leaveInstance(before.base())
	delete(r.members, id)
	delete(r.Clocks, id)
	r.order = slices.DeleteFunc(r.order, func(o string) bool { return o == id })
	var none M
	r.rules.Moved(before, none)
}

func (r *Roster[M, H]) leaveInstance(m *Member[H]) {
	if m.InstanceID != "" && r.static[m.InstanceID] == m.ID {
		delete(r.static, m.InstanceID)
	}
}

// Clocks are the times at which a member is given up; zero: it is not.
type Clocks struct {
	Session, Rebalance time.Time
	// RebalanceEpoch is the epoch in which the member stood when Rebalance was set.
	RebalanceEpoch int32
	// Join and Sync are until when a member of the classic protocol is to join again, and to ask what it is assigned.
	Join, Sync time.Time
}

// Alive begins a member's session anew, and if it has moved its time for giving up what it is to.
func (r *Roster[M, H]) Alive(now time.Time, of M, session time.Duration, moved bool) {
	m := of.base()
	c := r.Clocks[m.ID]
	c.Session = now.Add(session)
	if moved {
		c.Rebalance = time.Time{}
		if m.State == Unrevoked {
			c.Rebalance, c.RebalanceEpoch = now.Add(m.RebalanceTimeout()), m.Epoch
		}
	}
	r.Clocks[m.ID] = c
}

// AllAlive gives every member its whole session to show itself.
func (r *Roster[M, H]) AllAlive(now time.Time, session time.Duration) {
	for _, m := range r.members {
		r.Alive(now, m, session, true)
	}
}

// Over tells whether a member is to be given up.
func (r *Roster[M, H]) Over(now time.Time, of M) bool {
	m := of.base()
	c := r.Clocks[m.ID]
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	return due(c.Session) || due(c.Rebalance) && c.RebalanceEpoch == m.Epoch || due(c.Join) || due(c.Sync)
}

// Due is when the first clock ends, or also if that comes before.
func (r *Roster[M, H]) Due(also time.Time) (at time.Time, ok bool) {
	earliest := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	for id, c := range r.Clocks {
		earliest(c.Session)
		if m, known := r.members[id]; known && c.RebalanceEpoch == m.base().Epoch { // or nothing would come of it
			earliest(c.Rebalance)
		}
		earliest(c.Join)
		earliest(c.Sync)
	}
	earliest(also)
	return at, ok
}
