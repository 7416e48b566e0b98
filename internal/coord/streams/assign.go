package streams

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// shareOut makes the target of an epoch. The records say what changes of it.
func (g *Group) shareOut(now time.Time, epoch int32, c *configured, all []*Member, configs map[string]string, replaced string) ([]record, map[string]Tasks) {
	target := map[string]Tasks{}
	order := assignor.HashOrder(g.HashOrder(all))
	if c.status == nil {
		standbys, _ := strconv.Atoi(configs["num.standby.replicas"]) // what the log says, or none
		target = assign(&assignment{members: all, order: order, offsets: g.offsets, tasks: c.tasks, stateful: c.stateful, standbys: standbys})
	}
	var records []record
	for _, id := range order {
		next := target[id]
		target[id] = next
		old, had := g.target[id]
		if replaced != "" && g.Get(id) == nil {
			old, had = g.target[replaced]
		}
		if !had || !next.equal(old) {
			records = append(records, targetType.Of(id, &next))
		}
	}
	return append(records, assignmentType.Of("", &members.Assignment{Epoch: epoch, Made: now.UnixMilli()})), target
}

// assignment is what the assignor works on. It is Apache Kafka's sticky task assignor: tasks stay where they are, then go to where a copy of their state is,
// then to the process with the least to do for the number of its members; copies likewise, none where the task is already.
type assignment struct {
	members  []*Member
	order    []string
	offsets  map[string]offsets
	tasks    map[string]int32 // number by subtopology
	stateful map[string]bool
	standbys int

	processes []*process
	of        map[string]*process // by member
	ran       map[Task]string     // the member that had a task
	copied    map[Task][]string   // the members that have some of its state, the best first
	// How many members may get more, how many tasks are left for them, and how many are one's fair share: of active ones, and of all.
	active, all quota
}

type quota struct{ members, tasks, each int }

func (q *quota) fair() {
	if q.each = 0; q.members > 0 {
		q.each = (q.tasks + q.members - 1) / q.members
	}
}

// took notes that a member has so many tasks now.
func (q *quota) took(n int) {
	if n == q.each {
		q.members--
		q.tasks -= n
		q.fair()
	}
}

// process is a process of the application, with the members that are threads of it.
type process struct {
	id             string
	members        []string
	tasks          int
	count          map[string]int // by member
	held           Set
	active, backup map[string]Set // by member
	byLoad         *loads         // its members
}

func (p *process) load() float64 { return float64(p.tasks) / float64(len(p.members)) }

func (p *process) give(member string, t Task, active bool) int {
	p.tasks++
	p.held[t] = struct{}{}
	to := p.backup
	if active {
		to = p.active
	}
	if to[member] == nil {
		to[member] = Set{}
	}
	to[member][t] = struct{}{}
	p.count[member]++
	return p.count[member]
}

// assigned is give to a member that is named, after which the members' order is made anew.
func (p *process) assigned(member string, t Task, active bool) int {
	p.byLoad = nil
	return p.give(member, t, active)
}

// giveLeast gives to the member with the least to do.
func (p *process) giveLeast(t Task, active bool) int {
	if len(p.members) == 1 {
		return p.give(p.members[0], t, active)
	}
	if p.byLoad == nil {
		p.byLoad = &loads{}
		for _, m := range assignor.HashOrder(p.members) {
			heap.Push(p.byLoad, loaded{m, p.count[m]})
		}
	}
	least := heap.Pop(p.byLoad).(loaded)
	least.count = p.give(least.member, t, active)
	heap.Push(p.byLoad, least)
	return least.count
}

type loaded struct {
	member string
	count  int
}

type loads []loaded

func (l loads) Len() int           { return len(l) }
func (l loads) Less(i, j int) bool { return l[i].count < l[j].count }
func (l loads) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *loads) Push(x any)        { *l = append(*l, x.(loaded)) }
func (l *loads) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

type processes []*process

func (l processes) Len() int           { return len(l) }
func (l processes) Less(i, j int) bool { return l[i].load() < l[j].load() }
func (l processes) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *processes) Push(x any)        { *l = append(*l, x.(*process)) }
func (l *processes) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

func assign(a *assignment) map[string]Tasks {
	a.begin()
	a.assignActive()
	if a.standbys > 0 {
		a.assignStandby()
	}
	out := make(map[string]Tasks, len(a.members))
	for _, m := range a.members {
		p := a.of[m.ID]
		out[m.ID] = Tasks{Active: p.active[m.ID], Standby: p.backup[m.ID]}
	}
	return out
}

func (a *assignment) begin() {
	for id, n := range a.tasks {
		a.active.tasks += int(n)
		a.all.tasks += int(n)
		if a.stateful[id] {
			a.all.tasks += int(n) * a.standbys
		}
	}
	a.active.members, a.all.members = len(a.members), len(a.members)
	a.active.fair()
	a.all.fair()
	byID := map[string]*Member{}
	for _, m := range a.members {
		byID[m.ID] = m
	}
	a.of, a.ran = map[string]*process{}, map[Task]string{}
	known := map[string]*process{}
	var ids []string
	candidates := map[Task][]candidate{}
	for _, id := range a.order {
		m := byID[id]
		p := known[m.ProcessID]
		if p == nil {
			p = &process{id: m.ProcessID, count: map[string]int{}, held: Set{}, active: map[string]Set{}, backup: map[string]Set{}}
			known[m.ProcessID] = p
			ids = append(ids, m.ProcessID)
		}
		p.members = append(p.members, id)
		a.of[id] = p
		for t := range m.Assigned.Active {
			a.ran[t] = id
		}
		a.candidates(candidates, m)
	}
	for _, id := range assignor.ComputedOrder(ids, len(a.members)) {
		a.processes = append(a.processes, known[id])
	}
	a.copied = make(map[Task][]string, len(candidates))
	for t, list := range candidates {
		slices.SortStableFunc(list, func(x, y candidate) int {
			if x.standby != y.standby {
				if x.standby {
					return -1
				}
				return 1
			}
			return cmp.Compare(y.offset, x.offset)
		})
		for _, c := range list {
			a.copied[t] = append(a.copied[t], c.member)
		}
	}
}

// candidate is a member that has some of a task's state.
type candidate struct {
	member  string
	standby bool // it is to keep a copy
	offset  int64
}

func (a *assignment) candidates(to map[Task][]candidate, m *Member) {
	reached := a.offsets[m.ID].reached
	for t := range m.Assigned.Standby {
		to[t] = append(to[t], candidate{m.ID, true, reached[t]})
	}
	for t, offset := range reached {
		if !m.Assigned.Standby.has(t) {
			to[t] = append(to[t], candidate{m.ID, false, offset})
		}
	}
}

func (a *assignment) list(stateful bool) []Task {
	var out []Task
	for id, n := range a.tasks {
		if stateful && !a.stateful[id] {
			continue
		}
		for p := range n {
			out = append(out, Task{id, p})
		}
	}
	return out
}

func (a *assignment) assignActive() {
	tasks := a.list(false)
	slices.SortFunc(tasks, byPartition)
	// stay gives a task to a member that has something of it, if that one has not got its fair share.
	stay := func(member func(Task) (string, bool)) {
		tasks = slices.DeleteFunc(tasks, func(t Task) bool {
			m, ok := member(t)
			if !ok || a.of[m].count[m] >= a.active.each {
				return false
			}
			n := a.of[m].assigned(m, t, true)
			a.active.took(n)
			a.all.took(n)
			return true
		})
	}
	stay(func(t Task) (string, bool) { m, ok := a.ran[t]; return m, ok })
	stay(func(t Task) (string, bool) { return a.leastLoaded(a.copied[t], nil) })
	slices.SortFunc(tasks, compareTasks)
	queue := a.queue()
	for _, t := range tasks {
		p := heap.Pop(queue).(*process)
		n := p.giveLeast(t, true)
		a.active.took(n)
		a.all.took(n)
		heap.Push(queue, p)
	}
}

func byPartition(a, b Task) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Subtopology, b.Subtopology))
}

func (a *assignment) queue() *processes {
	q := &processes{}
	for _, p := range a.processes {
		heap.Push(q, p)
	}
	return q
}

// leastLoaded is the member with the least to do, none whose process has the task already if one is given.
func (a *assignment) leastLoaded(members []string, t *Task) (best string, found bool) {
	process, member := math.MaxFloat64, math.MaxInt
	for _, m := range members {
		p := a.of[m]
		if t != nil && p.held.has(*t) {
			continue
		}
		if !found || p.load() < process && p.count[m] < member {
			best, found, process, member = m, true, p.load(), p.count[m]
		}
	}
	return best, found
}

func (a *assignment) assignStandby() {
	type rest struct {
		Task
		copies int
	}
	var left []rest
	tasks := a.list(true)
	slices.SortFunc(tasks, func(x, y Task) int { return byPartition(y, x) })
	for _, t := range tasks {
		n := 0
		for n < a.standbys && a.stayStandby(t) {
			n++
		}
		if n < a.standbys {
			left = append(left, rest{t, a.standbys - n})
		}
	}
	slices.SortStableFunc(left, func(x, y rest) int { return compareTasks(y.Task, x.Task) })
	queue := a.queue()
	for _, r := range left {
		for range r.copies {
			if !a.leastStandby(queue, r.Task) {
				break // there are not enough processes
			}
		}
	}
}

// stayStandby gives a copy to who ran the task, or has a copy, if that one has not got its fair share.
func (a *assignment) stayStandby(t Task) bool {
	m, ok := a.ran[t]
	if !ok || a.of[m].held.has(t) || a.of[m].count[m] >= a.all.each {
		if m, ok = a.leastLoaded(a.copied[t], &t); !ok || a.of[m].count[m] >= a.all.each {
			return false
		}
	}
	a.all.took(a.of[m].assigned(m, t, false))
	return true
}

func (a *assignment) leastStandby(queue *processes, t Task) bool {
	if queue.Len() == 0 {
		return false
	}
	p := heap.Pop(queue).(*process)
	defer func() { heap.Push(queue, p) }()
	if p.held.has(t) {
		return a.leastStandby(queue, t)
	}
	a.all.took(p.giveLeast(t, false))
	return true
}
