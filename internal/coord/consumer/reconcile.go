package consumer

import (
	"slices"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// Owned are the partitions that a member says it owns.
type Owned map[TopicID][]int32

// Within tells whether all that a member owns is among what it was given. A member that does not say may own more.
func (o Owned) Within(p Partitions) bool {
	if o == nil {
		return false
	}
	for t, parts := range o {
		for _, n := range parts {
			if !p.has(t, n) {
				return false
			}
		}
	}
	return true
}

// touches tells whether a member may still own some of p.
func (o Owned) touches(p Partitions) bool {
	if o == nil {
		return true
	}
	for t, parts := range o {
		if slices.ContainsFunc(parts, func(n int32) bool { return p.has(t, n) }) {
			return true
		}
	}
	return false
}

// reconciling brings a member one step nearer to what it is to have.
type reconciling struct {
	g       *Group
	m       *Member
	epoch   int32 // of the target
	target  assignor.Assignment
	changed bool // what it subscribes to
	owns    Owned
}

// next is the member as it stands then.
func (r *reconciling) next() (*Member, error) {
	m := r.m
	switch m.State {
	case members.Stable:
		switch {
		case m.Epoch != r.epoch:
			return r.compute(m.Epoch), nil
		case r.changed:
			return r.unsubscribe(), nil
		}
	case members.Unrevoked:
		switch {
		case !r.owns.touches(m.Revoking):
			return r.compute(m.Epoch), nil
		case r.changed:
			return r.unsubscribe(), nil
		}
	case members.Unreleased:
		return r.compute(m.Epoch), nil
	default:
		if r.owns == nil || len(r.owns) > 0 {
			return nil, group.Refuse(group.ErrFencedEpoch, "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.")
		}
		return r.compute(r.epoch), nil
	}
	return m, nil
}

// unsubscribe takes from a member at once what it subscribes to no longer.
func (r *reconciling) unsubscribe() *Member {
	subscribed := r.g.subscribedIDs(r.m)
	assigned, revoking := Partitions{}, r.m.Revoking
	for t, parts := range r.m.Assigned {
		if subscribed[t] {
			assigned[t] = parts
		} else {
			revoking = revoking.with(t, parts)
		}
	}
	if len(assigned) == len(r.m.Assigned) {
		return r.m
	}
	next := r.m.At(r.m.In(r.m.Epoch))
	next.Assigned = assigned
	if r.owns.touches(revoking) {
		next.State, next.Revoking = members.Unrevoked, revoking
	}
	return next
}

// compute takes what is the member's and is to stay so. What is not is to be given up first; only then comes what is free of the rest, and the epoch.
func (r *reconciling) compute(epoch int32) *Member {
	subscribed := r.g.subscribedIDs(r.m)
	wanted := sets(r.target)
	assigned, revoking := Partitions{}, Partitions{}
	for t, parts := range r.m.Assigned {
		keep, lose := map[int32]int32{}, map[int32]int32{}
		for p, e := range parts {
			if _, ok := wanted[t][p]; ok && subscribed[t] {
				keep[p] = e
			} else {
				lose[p] = e
			}
		}
		if len(keep) > 0 {
			assigned[t] = keep
		}
		if len(lose) > 0 {
			revoking[t] = lose
		}
	}
	free, unreleased := r.free(subscribed)
	if len(revoking) > 0 && r.owns.touches(revoking) {
		next := r.m.At(r.m.In(epoch))
		next.State, next.Assigned, next.Revoking = members.Unrevoked, assigned, revoking
		return next
	}
	next := r.m.At(r.m.In(r.epoch))
	next.State, next.Revoking = members.Stable, nil
	if unreleased {
		next.State = members.Unreleased
	}
	for t, parts := range free {
		assigned = assigned.with(t, parts)
	}
	next.Assigned = assigned
	return next
}

func sets(a assignor.Assignment) map[TopicID]map[int32]struct{} {
	out := make(map[TopicID]map[int32]struct{}, len(a))
	for t, parts := range a {
		out[t] = make(map[int32]struct{}, len(parts))
		for _, p := range parts {
			out[t][p] = struct{}{}
		}
	}
	return out
}

// free are partitions that the member is to get and that nobody else has, and whether there are others.
func (r *reconciling) free(subscribed map[TopicID]bool) (free Partitions, unreleased bool) {
	free = Partitions{}
	for t, parts := range r.target {
		if !subscribed[t] {
			continue
		}
		topic := map[int32]int32{}
		for _, p := range parts {
			if r.m.Assigned.has(t, p) {
				continue
			}
			if _, taken := r.g.owned[t][p]; taken && !r.m.Revoking.has(t, p) {
				unreleased = true
				continue
			}
			topic[p] = r.epoch
		}
		if len(topic) > 0 {
			free[t] = topic
		}
	}
	return free, unreleased
}

// subscribedIDs are the topics that a member subscribes to and that are there.
func (g *Group) subscribedIDs(m *Member) map[TopicID]bool {
	out := map[TopicID]bool{}
	for _, name := range g.subscribedNames(m) {
		if t, ok := g.topics.ByName(name); ok {
			out[t.ID] = true
		}
	}
	return out
}

// subscribedNames are all topics that a member subscribes to, by name or by what its regular expression stands for.
func (g *Group) subscribedNames(m *Member) []string {
	if m.Regex == "" {
		return m.Topics
	}
	names := slices.Concat(m.Topics, g.regexes[m.Regex].topics)
	slices.Sort(names)
	return slices.Compact(names)
}
