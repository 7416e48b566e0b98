package streams

import (
	"cmp"
	"maps"
	"slices"
)

// Task is what is assigned: a partition of the topics that a subtopology reads.
type Task struct {
	Subtopology string
	Partition   int32
}

func compareTasks(a, b Task) int {
	return cmp.Or(cmp.Compare(a.Subtopology, b.Subtopology), cmp.Compare(a.Partition, b.Partition))
}

// Set are tasks. It is replaced, not changed, once it belongs to a group.
type Set map[Task]struct{}

func (s Set) has(t Task) bool {
	_, ok := s[t]
	return ok
}

func (s Set) touches(o Set) bool {
	for t := range s {
		if o.has(t) {
			return true
		}
	}
	return false
}

// Epochs are active tasks with the epoch in which the member got each.
type Epochs map[Task]int32

func (e Epochs) has(t Task) bool {
	_, ok := e[t]
	return ok
}

func (e Epochs) set() Set {
	out := make(Set, len(e))
	for t := range e {
		out[t] = struct{}{}
	}
	return out
}

// Tasks is what a member is to have, or says that it has.
type Tasks struct{ Active, Standby, Warmup Set }

func (t Tasks) equal(o Tasks) bool {
	return maps.Equal(t.Active, o.Active) && maps.Equal(t.Standby, o.Standby) && maps.Equal(t.Warmup, o.Warmup)
}

func (t Tasks) empty() bool { return len(t.Active)+len(t.Standby)+len(t.Warmup) == 0 }

func (t Tasks) touches(h Held) bool {
	return t.Active.touches(h.Active.set()) || t.Standby.touches(h.Standby) || t.Warmup.touches(h.Warmup)
}

// Held is what a member has, or is to give up.
type Held struct {
	Active          Epochs
	Standby, Warmup Set
}

// Equal tells whether both are the same, with the same epochs.
func (h Held) Equal(o Held) bool {
	return maps.Equal(h.Active, o.Active) && maps.Equal(h.Standby, o.Standby) && maps.Equal(h.Warmup, o.Warmup)
}

func (h Held) empty() bool { return len(h.Active)+len(h.Standby)+len(h.Warmup) == 0 }

func (h Held) tasks() Tasks { return Tasks{h.Active.set(), h.Standby, h.Warmup} }

// TaskIDs are the tasks of one subtopology.
type TaskIDs struct {
	Subtopology string
	Partitions  []int32
}

// List gives the tasks by subtopology, sorted.
func (s Set) List() []TaskIDs {
	var out []TaskIDs
	for _, t := range slices.SortedFunc(maps.Keys(s), compareTasks) {
		if n := len(out); n == 0 || out[n-1].Subtopology != t.Subtopology {
			out = append(out, TaskIDs{Subtopology: t.Subtopology})
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, t.Partition)
	}
	return out
}

// List gives the tasks by subtopology, sorted.
func (e Epochs) List() []TaskIDs { return e.set().List() }

// SetOf are the tasks of a list.
func SetOf(list []TaskIDs) Set {
	out := Set{}
	for _, ids := range list {
		for _, p := range ids.Partitions {
			out[Task{ids.Subtopology, p}] = struct{}{}
		}
	}
	return out
}

// Owned is what a member says that it has. It says all or nothing.
type Owned struct{ Active, Standby, Warmup []TaskIDs }

func (o *Owned) tasks() Tasks { return Tasks{SetOf(o.Active), SetOf(o.Standby), SetOf(o.Warmup)} }

// Within tells whether all that a member says it owns is among what it was given. A member that does not say may own more.
func (o *Owned) Within(h Held) bool {
	return o != nil && within(o.Active, h.Active.set()) && within(o.Standby, h.Standby) && within(o.Warmup, h.Warmup)
}

func within(list []TaskIDs, s Set) bool {
	subtopologies := map[string]bool{}
	for t := range s {
		subtopologies[t.Subtopology] = true
	}
	for _, ids := range list {
		if !subtopologies[ids.Subtopology] {
			return false
		}
		for _, p := range ids.Partitions {
			if !s.has(Task{ids.Subtopology, p}) {
				return false
			}
		}
	}
	return true
}
