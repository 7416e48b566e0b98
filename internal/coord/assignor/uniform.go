package assignor

// Uniform spreads all partitions evenly and lets members keep what they have as far as that goes.
func Uniform(g *Group) []Assigned {
	if len(g.Members) == 0 {
		return nil
	}
	if g.Homogeneous {
		return homogeneous(g)
	}
	return heterogeneous(g)
}

type topicPartition struct {
	topic     TopicID
	partition int32
}

// sharing is the state of a uniform assignment to members with the same topics.
type sharing struct {
	subscribed map[TopicID]bool
	quota      int // of each member
	extra      int // so many members may have one more
	unassigned []topicPartition
	given      map[string]Assignment
	unfilled   []unfilled
}

type unfilled struct {
	member string
	quota  int
}

func homogeneous(g *Group) []Assigned {
	specs := spec(g)
	s := sharing{subscribed: map[TopicID]bool{}, given: map[string]Assignment{}}
	total := 0
	for _, t := range asSet(specs[0].Topics) {
		s.subscribed[t] = true
		n := g.Partitions(t)
		for i := range n {
			if !g.Assigned(t, i) {
				s.unassigned = append(s.unassigned, topicPartition{t, i})
			}
		}
		total += int(n)
	}
	if len(s.subscribed) == 0 {
		return inOrder(specs, s.given)
	}
	s.quota, s.extra = total/len(specs), total%len(specs)
	for i, m := range specs {
		s.revoke(m, len(specs)-i)
	}
	s.fill()
	return inOrder(specs, s.given)
}

// revoke takes from a member what is above its quota. left are the members that come, with this one.
func (s *sharing) revoke(m *Member, left int) {
	quota, hasExtra := s.quota, s.extra > 0
	if hasExtra {
		quota++
	}
	var next Assignment
	change := func() {
		if next == nil {
			next = m.Before.clone()
		}
	}
	for _, t := range m.Before.walk() {
		parts := m.Before[t]
		switch {
		case !s.subscribed[t]:
			change()
			delete(next, t)
		case len(parts) <= quota:
			quota -= len(parts)
		default:
			change()
			kept := newTable[int32, struct{}](hashInt, capacityFor(len(parts)))
			for _, p := range parts {
				kept.put(p, struct{}{})
			}
			for _, p := range parts {
				if quota > 0 {
					quota--
					continue
				}
				kept.remove(p)
				s.unassigned = append(s.unassigned, topicPartition{t, p})
			}
			if next[t] = kept.keys(); kept.n == 0 {
				delete(next, t)
			}
		}
	}
	if quota > 0 && hasExtra && left > s.extra {
		quota--
		hasExtra = false
	}
	if quota > 0 {
		s.unfilled = append(s.unfilled, unfilled{m.ID, quota})
	}
	if hasExtra {
		s.extra--
	}
	if next == nil {
		next = m.Before
	}
	s.given[m.ID] = next
}

// fill gives what is nobody's to those with room.
func (s *sharing) fill() {
	for _, u := range s.unfilled {
		n := min(u.quota, len(s.unassigned))
		sets := map[TopicID]*table[int32, struct{}]{}
		for _, tp := range s.unassigned[:n] {
			addTo(sets, s.given[u.member], tp)
		}
		s.unassigned = s.unassigned[n:]
		next := s.given[u.member].clone()
		for t, set := range sets {
			next[t] = set.keys()
		}
		s.given[u.member] = next
	}
}

// addTo adds a partition to the set of its topic, which begins with what a has of it.
func addTo(sets map[TopicID]*table[int32, struct{}], a Assignment, tp topicPartition) {
	set := sets[tp.topic]
	if set == nil {
		if before, ok := a[tp.topic]; ok {
			set = setOf(before)
		} else {
			set = newTable[int32, struct{}](hashInt, 16)
		}
		sets[tp.topic] = set
	}
	set.put(tp.partition, struct{}{})
}
