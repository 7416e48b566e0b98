package assignor

import (
	"cmp"
	"slices"
)

// mixed is the state of a uniform assignment to members that do not all subscribe to the same topics.
type mixed struct {
	g           *Group
	members     []*Member
	subscribers map[TopicID][]int
	topics      []TopicID
	owners      map[TopicID][]int // by partition, -1: nobody
	sizes       []int
}

// maxRounds bounds the balancing: partitions may go from member to member for ever otherwise.
const maxRounds = 16

func heterogeneous(g *Group) []Assigned {
	x := mixed{g: g, members: spec(g), subscribers: map[TopicID][]int{}, owners: map[TopicID][]int{}}
	x.sizes = make([]int, len(x.members))
	for i, m := range x.members {
		for _, t := range m.Topics {
			if x.subscribers[t] == nil {
				x.topics = append(x.topics, t)
				owners := make([]int, g.Partitions(t))
				for p := range owners {
					owners[p] = -1
				}
				x.owners[t] = owners
			}
			x.subscribers[t] = append(x.subscribers[t], i)
		}
	}
	slices.SortFunc(x.topics, x.compareTopics)
	for i, m := range x.members {
		x.keep(i, m)
	}
	x.fill()
	x.balance()
	return x.result()
}

// keep lets a member keep what it has of the topics that it still subscribes to.
func (x *mixed) keep(i int, m *Member) {
	for t, parts := range m.Before {
		if !slices.Contains(m.Topics, t) {
			continue
		}
		x.sizes[i] += len(parts)
		for _, p := range parts {
			if int(p) < len(x.owners[t]) {
				x.owners[t][p] = i
			}
		}
	}
}

// compareTopics: first those with the most partitions for each subscriber, of those the ones with fewer subscribers.
func (x *mixed) compareTopics(a, b TopicID) int {
	as, bs := len(x.subscribers[a]), len(x.subscribers[b])
	return cmp.Or(
		cmp.Compare(float64(x.g.Partitions(b))/float64(bs), float64(x.g.Partitions(a))/float64(as)),
		cmp.Compare(as, bs),
		compareUUID(a, b))
}

func (x *mixed) give(t TopicID, p, member int) {
	if old := x.owners[t][p]; old >= 0 {
		x.sizes[old]--
	}
	x.owners[t][p] = member
	x.sizes[member]++
}

func (x *mixed) fill() {
	for _, t := range x.topics {
		b := newBalancer(x, t)
		for p, owner := range x.owners[t] {
			if owner < 0 {
				x.give(t, p, b.leastLoaded())
			}
		}
	}
}

func (x *mixed) balance() {
	var topics []TopicID
	for _, t := range x.topics {
		if len(x.subscribers[t]) >= 2 {
			topics = append(topics, t)
		}
	}
	last := -1
	for range maxRounds {
		for i, t := range topics {
			if i == last {
				return
			}
			if x.balanceTopic(t) > 0 || last < 0 {
				last = i
			}
		}
	}
}

// balanceTopic moves partitions of a topic from the members with the most to those with the fewest, and gives how many.
func (x *mixed) balanceTopic(t TopicID) (moved int) {
	b := newBalancer(x, t)
	if b.imbalance() <= 1 {
		return 0
	}
	owned := map[int][]int{}
	for p, owner := range x.owners[t] {
		owned[owner] = append(owned[owner], p)
	}
	for !b.balanced() {
		most := b.mostLoaded()
		if most < 0 {
			break
		}
		if len(owned[most]) == 0 {
			b.exclude()
			continue
		}
		p := owned[most][len(owned[most])-1]
		owned[most] = owned[most][:len(owned[most])-1]
		least := b.leastLoaded()
		if b.balanced() {
			break
		}
		x.give(t, p, least)
		moved++
	}
	return moved
}

func (x *mixed) result() []Assigned {
	given := map[string]Assignment{}
	for i, m := range x.members {
		kept := Assignment{}
		for t, parts := range m.Before {
			if slices.Contains(m.Topics, t) {
				kept[t] = parts
			}
		}
		given[m.ID] = x.partitionsOf(i, kept)
	}
	return inOrder(x.members, given)
}

// partitionsOf gives what a member has in the end: what it had and kept in the order in which it had it.
func (x *mixed) partitionsOf(i int, before Assignment) Assignment {
	out := Assignment{}
	for t, owners := range x.owners {
		var parts []int32
		for _, p := range before[t] {
			if int(p) < len(owners) && owners[p] == i {
				parts = append(parts, p)
			}
		}
		for p, owner := range owners {
			if owner == i && !slices.Contains(before[t], int32(p)) {
				parts = append(parts, int32(p))
			}
		}
		if len(parts) > 0 {
			out[t] = setOf(parts).keys()
		}
	}
	return out
}

// balancer walks the subscribers of a topic from both ends of their load.
type balancer struct {
	sizes  []int
	sorted []int

	leastEnd, leastCount, leastNext        int
	mostStart, mostEnd, mostCount, mostNow int
}

func newBalancer(x *mixed, t TopicID) *balancer {
	b := &balancer{sizes: x.sizes, sorted: slices.Clone(x.subscribers[t])}
	slices.SortFunc(b.sorted, func(i, j int) int { return cmp.Or(cmp.Compare(b.sizes[i], b.sizes[j]), cmp.Compare(i, j)) })
	n := len(b.sorted)
	b.leastCount = b.sizes[b.sorted[0]] - 1
	b.mostStart, b.mostEnd, b.mostNow = n, n, n-1
	b.mostCount = b.sizes[b.sorted[n-1]] + 1
	return b
}

func (b *balancer) imbalance() int { return b.sizes[b.sorted[len(b.sorted)-1]] - b.sizes[b.sorted[0]] }

func (b *balancer) leastLoaded() int {
	if b.leastNext >= b.leastEnd {
		b.leastCount++
		for b.leastEnd < len(b.sorted) && b.sizes[b.sorted[b.leastEnd]] == b.leastCount {
			b.leastEnd++
		}
		b.leastNext = 0
	}
	b.leastNext++
	return b.sorted[b.leastNext-1]
}

// mostLoaded is -1 if there is none left.
func (b *balancer) mostLoaded() int {
	if b.mostNow < b.mostStart {
		if b.mostEnd <= b.mostStart && b.mostStart > 0 {
			b.mostCount = b.sizes[b.sorted[b.mostStart-1]]
		} else {
			b.mostCount--
		}
		for b.mostStart > 0 && b.sizes[b.sorted[b.mostStart-1]] == b.mostCount {
			b.mostStart--
		}
		b.mostNow = b.mostEnd - 1
	}
	if b.mostNow < 0 {
		return -1
	}
	b.mostNow--
	return b.sorted[b.mostNow+1]
}

// exclude takes the member that mostLoaded gave last out of the walk.
func (b *balancer) exclude() {
	i := b.mostNow + 1
	b.sorted[i], b.sorted[b.mostEnd-1] = b.sorted[b.mostEnd-1], b.sorted[i]
	b.mostEnd--
}

func (b *balancer) balanced() bool { return b.mostCount-b.leastCount <= 1 }
