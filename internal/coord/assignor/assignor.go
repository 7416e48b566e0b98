// Package assignor has the assignors of the broker's side of KIP-848: who of a group's members is to have which partitions. They are functions, and give
// what Apache Kafka's give for the same group, down to the order in which Java's hash tables are walked: that order decides who gives a partition up and who
// gets it. internal/coord/consumer imports it; it imports nothing of this module.
package assignor

import (
	"cmp"
	"slices"
)

// TopicID is the id of a topic.
type TopicID = [16]byte

// Assignment is what a member is to have. The partitions of a topic are in the order in which Java's HashSet holds them: as they are written into the log
// they are read back in this order.
type Assignment map[TopicID][]int32

// Member is a member with what it subscribes to, topics that are there and no other, and what it was to have before.
type Member struct {
	ID, InstanceID string
	Topics         []TopicID
	Before         Assignment
}

// Group is what is to be shared out.
type Group struct {
	Members []Member // in the order in which the coordinator keeps them
	// Homogeneous: all members subscribe to the same topics.
	Homogeneous bool
	Partitions  func(TopicID) int32
	// Assigned tells whether a partition was somebody's before.
	Assigned func(TopicID, int32) bool
}

// Func is an assignor. The result has all members, in the order in which Apache Kafka writes them down.
type Func func(*Group) []Assigned

// Assigned is a member with what it is to have.
type Assigned struct {
	ID         string
	Assignment Assignment
}

// ByName finds an assignor by Apache Kafka's name for it.
func ByName(name string) Func {
	switch name {
	case "uniform":
		return Uniform
	case "range":
		return Range
	}
	return nil
}

// spec is a group whose members are in the order of the HashMap in which Apache Kafka hands them to an assignor.
func spec(g *Group) []*Member {
	m := newTable[string, *Member](HashString, 16)
	for i := range g.Members {
		m.put(g.Members[i].ID, &g.Members[i])
	}
	var out []*Member
	for _, e := range m.entries() {
		out = append(out, e.value)
	}
	return out
}

// Range gives each member a range of the partitions of each topic, in the order of their instance ids and then of their ids.
func Range(g *Group) []Assigned {
	specs := spec(g)
	sorted := slices.Clone(specs)
	slices.SortFunc(sorted, func(a, b *Member) int {
		switch {
		case a.InstanceID != "" && b.InstanceID != "":
			return compareUTF16(a.InstanceID, b.InstanceID)
		case a.InstanceID != "":
			return -1
		case b.InstanceID != "":
			return 1
		}
		return compareUTF16(a.ID, b.ID)
	})
	subscribers := map[TopicID]int32{}
	for _, m := range sorted {
		for _, t := range m.Topics {
			subscribers[t]++
		}
	}
	type place struct{ next, extra int32 }
	places := map[TopicID]*place{}
	given := map[string]Assignment{}
	for _, m := range sorted {
		a := newTable[TopicID, []int32](HashUUID, tableSize(float32(len(m.Topics))/0.75+1))
		for _, t := range m.Topics {
			p := places[t]
			n := g.Partitions(t)
			if p == nil {
				p = &place{extra: n % subscribers[t]}
				places[t] = p
			}
			quota := n / subscribers[t]
			if p.extra > 0 {
				p.extra--
				quota++
			}
			start := p.next
			p.next = min(start+quota, n)
			if start < p.next {
				var parts []int32
				for i := start; i < p.next; i++ {
					parts = append(parts, i)
				}
				a.put(t, parts)
			}
		}
		given[m.ID] = Assignment(a.toMap())
	}
	return inOrder(specs, given)
}

func inOrder(specs []*Member, given map[string]Assignment) []Assigned {
	out := make([]Assigned, len(specs))
	for i, m := range specs {
		out[i] = Assigned{m.ID, stored(given[m.ID])}
	}
	return out
}

// stored puts partitions into the order that they have once they were read back from the log.
func stored(a Assignment) Assignment {
	out := make(Assignment, len(a))
	for t, parts := range a {
		out[t] = Stored(parts)
	}
	return out
}

// Stored is the order of a topic's partitions in a HashSet that was made of a list.
func Stored(parts []int32) []int32 {
	if increasing(parts) && len(parts) > 0 && parts[len(parts)-1] < int32(capacityFor(len(parts))) {
		return parts
	}
	return setOf(parts).keys()
}

func increasing(parts []int32) bool {
	for i := 1; i < len(parts); i++ {
		if parts[i] <= parts[i-1] {
			return false
		}
	}
	return true
}

// walk is an assignment's topics in the order of the HashMap that a record makes.
func (a Assignment) walk() []TopicID {
	t := newTable[TopicID, struct{}](HashUUID, 16)
	ids := make([]TopicID, 0, len(a))
	for id := range a {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareUUID)
	for _, id := range ids {
		t.put(id, struct{}{})
	}
	return t.keys()
}

func (a Assignment) clone() Assignment {
	out := make(Assignment, len(a))
	for t, parts := range a {
		out[t] = parts
	}
	return out
}

// compareUTF16 is Java's String.compareTo.
func compareUTF16(a, b string) int {
	return slices.Compare(utf16Of(a), utf16Of(b))
}

// compareUUID is the order of Uuid.compareTo, whose halves are signed.
func compareUUID(a, b TopicID) int {
	am, al := halves(a)
	bm, bl := halves(b)
	return cmp.Or(cmp.Compare(int64(am), int64(bm)), cmp.Compare(int64(al), int64(bl)))
}
