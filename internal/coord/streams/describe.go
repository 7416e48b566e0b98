package streams

// Description is a group as StreamsGroupDescribe gives it.
type Description struct {
	State                  string
	Epoch, AssignmentEpoch int32
	Assignor               string
	Topology               *Topology // with as many partitions as were decided on, once all is there
	Members                []MemberDescription
}

// MemberDescription is a member, what it is to have, and how far it is.
type MemberDescription struct {
	*Member
	Target        Tasks
	Reached, Ends []TaskOffset
}

// Describe returns what is to be told of the group. What is in it must not be changed.
func (g *Group) Describe() Description {
	d := Description{State: g.State(), Epoch: g.metadata.epoch, AssignmentEpoch: g.Assignment.Epoch, Assignor: g.config().Assignor, Topology: g.topology}
	if g.configured != nil && g.configured.status == nil {
		d.Topology = g.configured.decided(g.topology)
	}
	for _, m := range g.List() {
		told := g.offsets[m.ID]
		d.Members = append(d.Members, MemberDescription{m, g.target[m.ID], sortedOffsets(told.reached), sortedOffsets(told.ends)})
	}
	return d
}
