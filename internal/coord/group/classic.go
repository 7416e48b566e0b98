package group

import (
	"maps"
	"slices"
	"time"
)

// State of a classic group, by Kafka's names.
type State int8

const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
	Dead
)

func (s State) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}[s]
}

// newMemberTimeout: a member that has just been added is kept this long without a sign of life while its JoinGroup is parked.
const newMemberTimeout = 5 * time.Minute

// maxPending bounds the ids that a group has given out and that were not used yet: group.max.size does not count them.
const maxPending = 10_000

// Classic is the membership of the classic protocol, in which a member, the leader, assigns.
type Classic struct {
	id     string
	config func() Config

	state State
	since time.Time

	protocolType string // "" for a group that never had a member
	generation   int32
	protocol     string // chosen by the members, "" before that
	leader       string

	members map[string]*member
	order   []string             // member ids in the order of joining; makes every choice repeatable
	static  map[string]string    // instance id to member id
	pending map[string]time.Time // ids that were given out (KIP-394) and must be used by then

	// While preparing: join is when the phase ends. initial is the phase of a group that was empty: it ends at join, or is prolonged while
	// members keep arriving, at most by budget in all.
	join    time.Time
	initial bool
	arrived bool
	budget  time.Duration

	// Since the last join phase: the members that have not asked for their assignment yet, and when they are given up.
	syncing map[string]struct{}
	sync    time.Time

	// subscribed are the topics that the members of a "consumer" group subscribe to; nil if that is not known.
	subscribed map[string]struct{}
}

// member is one member of a group. join and sync are its parked requests.
type member struct {
	id, clientID, clientHost string
	instance                 string // "" for a dynamic member
	session, rebalance       time.Duration
	protocols                []Protocol
	assignment               []byte

	joining *Join
	syncing any // token of a parked Sync, nil if there is none
	isNew   bool
	expires time.Time
}

func newClassic(id string, config func() Config, now time.Time) *Classic {
	return &Classic{id: id, config: config, since: now, members: map[string]*member{}, static: map[string]string{}, pending: map[string]time.Time{},
		syncing: map[string]struct{}{}}
}

// Type is TypeClassic.
func (g *Classic) Type() Type { return TypeClassic }

// State is where the group stands.
func (g *Classic) State() string { return g.state.String() }

// Empty tells whether there are no members.
func (g *Classic) Empty() bool { return g.state == Empty }

// Disposable tells whether nothing would be lost with the membership: there is no member, no pending one, and no record.
func (g *Classic) Disposable() bool {
	return g.state == Dead || g.state == Empty && len(g.members) == 0 && len(g.pending) == 0 && g.generation == 0
}

// Deadline is when Tick is due. ok is false while nothing can happen by itself.
func (g *Classic) Deadline() (at time.Time, ok bool) {
	earliest := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	for _, m := range g.members {
		if !m.satisfied() {
			earliest(m.expires)
		}
	}
	for _, t := range g.pending {
		earliest(t)
	}
	switch g.state {
	case PreparingRebalance:
		earliest(g.join)
	case CompletingRebalance, Stable:
		if len(g.syncing) > 0 {
			earliest(g.sync)
		}
	}
	return at, ok
}

// satisfied: a member that waits for an answer of ours need not show signs of life, except a new one, which nobody may be left behind.
func (m *member) satisfied() bool {
	return !m.isNew && (m.joining != nil || m.syncing != nil)
}

func (g *Classic) transition(to State, now time.Time) {
	g.state, g.since = to, now
}

func (g *Classic) add(m *member) {
	g.members[m.id] = m
	g.order = append(g.order, m.id)
	if m.instance != "" {
		g.static[m.instance] = m.id
	}
	delete(g.pending, m.id)
	if g.leader == "" {
		g.leader = m.id
	}
}

// drop takes a member out without deciding what follows. A parked request of its own must have been answered.
func (g *Classic) drop(id string) {
	m := g.members[id]
	if m == nil {
		return
	}
	delete(g.members, id)
	delete(g.syncing, id)
	g.order = slices.DeleteFunc(g.order, func(o string) bool { return o == id })
	if m.instance != "" && g.static[m.instance] == id {
		delete(g.static, m.instance)
	}
	if g.leader == id {
		g.leader = ""
		if len(g.order) > 0 {
			g.leader = g.order[0]
		}
	}
}

// each calls fn for the members in the order of joining. fn may drop the member.
func (g *Classic) each(fn func(*member)) {
	for _, id := range slices.Clone(g.order) {
		if m := g.members[id]; m != nil {
			fn(m)
		}
	}
}

// Protocol is one way of assigning that a member offers, with what it tells the leader for it.
type Protocol struct {
	Name     string
	Metadata []byte
}

// votes are the protocols that all members offer, with the number of members that would choose each one first among them.
func (g *Classic) votes() map[string]int {
	offers := map[string]int{}
	for _, m := range g.members {
		for _, p := range m.protocols {
			offers[p.Name]++
		}
	}
	votes := map[string]int{}
	for name, n := range offers {
		if n == len(g.members) {
			votes[name] = 0
		}
	}
	for _, m := range g.members {
		for _, p := range m.protocols {
			if _, ok := votes[p.Name]; ok {
				votes[p.Name]++
				break
			}
		}
	}
	return votes
}

// choose is the protocol with the most votes; among equals the first by name.
func (g *Classic) choose() string {
	votes := g.votes()
	best := ""
	for _, name := range slices.Sorted(maps.Keys(votes)) {
		if best == "" || votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// supports tells whether someone offering these could join: a protocol of the same type that everybody else has as well.
func (g *Classic) supports(protocolType string, protocols []Protocol) bool {
	if len(g.members) == 0 {
		return protocolType != "" && len(protocols) > 0
	}
	if protocolType != g.protocolType {
		return false
	}
	votes := g.votes()
	return slices.ContainsFunc(protocols, func(p Protocol) bool { _, ok := votes[p.Name]; return ok })
}

func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func sameProtocols(a, b []Protocol) bool {
	return slices.EqualFunc(a, b, func(x, y Protocol) bool { return x.Name == y.Name && slices.Equal(x.Metadata, y.Metadata) })
}
