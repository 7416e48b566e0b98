package group

// Description is a group as DescribeGroups and ListGroups give it.
type Description struct {
	State        State
	ProtocolType string
	Protocol     string // "" unless the group is stable
	Members      []MemberDescription
}

// MemberDescription is a member as DescribeGroups gives it. Metadata is empty unless the group is stable; Assignment is the last one that it was given.
type MemberDescription struct {
	ID, InstanceID, ClientID, ClientHost string
	Metadata, Assignment                 []byte
}

// Describe returns what is to be told of the group. The bytes in it must not be changed.
func (g *Classic) Describe() Description {
	d := Description{State: g.state, ProtocolType: g.protocolType}
	if g.state == Stable {
		d.Protocol = g.protocol
	}
	g.each(func(m *member) {
		md := MemberDescription{ID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost, Assignment: m.assignment}
		if g.state == Stable {
			md.Metadata = m.metadata(g.protocol)
		}
		d.Members = append(d.Members, md)
	})
	return d
}

// ProtocolType is what the members are: "consumer", "connect"; "" if there never was any.
func (g *Classic) ProtocolType() string { return g.protocolType }

// Waiting is how many requests are parked.
func (g *Classic) Waiting() int {
	n := 0
	for _, m := range g.members {
		if m.joining != nil || m.syncing != nil {
			n++
		}
	}
	return n
}
