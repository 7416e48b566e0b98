package consumer

import "github.com/rewind-kafka/rewind/internal/coord/assignor"

// Description is a group as ConsumerGroupDescribe gives it.
type Description struct {
	State                  string
	Epoch, AssignmentEpoch int32
	Assignor               string
	Members                []MemberDescription
}

// MemberDescription is a member, and what it is to have.
type MemberDescription struct {
	*Member
	Target assignor.Assignment
}

// Describe returns what is to be told of the group. What is in it must not be changed.
func (g *Group) Describe() Description {
	d := Description{State: g.State(), Epoch: g.epoch, AssignmentEpoch: g.Assignment.Epoch, Assignor: g.preferred(g.List())}
	for _, m := range g.List() {
		d.Members = append(d.Members, MemberDescription{m, g.target[m.ID]})
	}
	return d
}
