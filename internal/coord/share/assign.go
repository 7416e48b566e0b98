package share

import (
	"cmp"
	"maps"
	"slices"
)

// place is one partition to be assigned.
type place struct {
	id [16]byte
	n  int32
}

// assign is the simple assignor: each partition goes to as many members as it takes for every member to have one, members keep what they have as far as that
// is fair, and nobody has more than its share. Where all members subscribe to the same topics all partitions are shared out together, else topic by topic.
func assign(subscriptions map[string][][16]byte, assignable Partitions, before map[string]Partitions) map[string]Partitions {
	members := slices.Sorted(maps.Keys(subscriptions))
	out := make(map[string]Partitions, len(members))
	for _, m := range members {
		out[m] = Partitions{}
	}
	if same(subscriptions) {
		if len(members) > 0 {
			shareOut(members, places(subscriptions[members[0]], assignable), before, out)
		}
		return out
	}
	for _, id := range slices.SortedFunc(maps.Keys(assignable), compareIDs) {
		var subscribed []string
		for _, m := range members {
			if slices.Contains(subscriptions[m], id) {
				subscribed = append(subscribed, m)
			}
		}
		shareOut(subscribed, places([][16]byte{id}, assignable), before, out)
	}
	return out
}

func compareIDs(a, b [16]byte) int { return cmp.Compare(string(a[:]), string(b[:])) }

func same(subscriptions map[string][][16]byte) bool {
	var first [][16]byte
	begun := false
	for _, s := range subscriptions {
		s = slices.SortedFunc(slices.Values(s), compareIDs)
		if begun && !slices.Equal(first, s) {
			return false
		}
		first, begun = s, true
	}
	return true
}

func places(topics [][16]byte, assignable Partitions) (out []place) {
	for _, id := range slices.SortedFunc(slices.Values(topics), compareIDs) {
		for _, n := range assignable[id] {
			out = append(out, place{id, n})
		}
	}
	return out
}

// shareOut adds an assignment of the places to out.
func shareOut(members []string, all []place, before map[string]Partitions, out map[string]Partitions) {
	if len(members) == 0 || len(all) == 0 {
		return
	}
	sharing := (len(members) + len(all) - 1) / len(all)
	total := sharing * len(all)
	has := map[place]int{}
	left := make([]int, len(members)) // how many more each may get
	for i, m := range members {
		left[i] = total*(i+1)/len(members) - total*i/len(members)
		for _, p := range all {
			if left[i] > 0 && has[p] < sharing && before[m].has(p.id, p.n) {
				out[m].add(p.id, p.n)
				has[p]++
				left[i]--
			}
		}
	}
	// Those that nobody has come first: whoever has none of a place can be given it, so that none is left over.
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(has[a], has[b]) })
	next := 0
	for _, p := range all {
		for range members {
			if has[p] == sharing {
				break
			}
			i := next % len(members)
			if next++; left[i] > 0 && !out[members[i]].has(p.id, p.n) {
				out[members[i]].add(p.id, p.n)
				has[p]++
				left[i]--
			}
		}
	}
}
