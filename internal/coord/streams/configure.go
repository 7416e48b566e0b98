package streams

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// configured is a topology with the topics that there are.
type configured struct {
	status *Status // why no task can be assigned; nil: all is there
	// tasks are how many each subtopology has, nil if that cannot be said.
	tasks    map[string]int32
	stateful map[string]bool
	internal map[string]TopicInfo // the application's own topics, with as many partitions as they must have
	order    []string             // their names
	missing  []TopicInfo          // those that are not there, in the order in which Apache Kafka names them
}

func failed(code int8, format string, args ...any) *configured {
	return &configured{status: &Status{code, fmt.Sprintf(format, args...)}}
}

// configuring decides how many partitions the application's topics must have.
type configuring struct {
	t       *Topology
	topics  Topics
	decided map[string]int32
}

// configure finds out what is there of what a topology needs. An error is of a topology that can never be.
func configure(t *Topology, topics Topics) (*configured, error) {
	c := &configuring{t, topics, map[string]int32{}}
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		for j := range s.Copartitions {
			if _, err := s.copartitioned(&s.Copartitions[j]); err != nil {
				return nil, err
			}
		}
	}
	if missing := c.missingSources(); len(missing) > 0 {
		return failed(MissingSourceTopics, "Source topics %s are missing.", summarize(missing)), nil
	}
	if err := c.repartitions(); err != nil {
		return nil, err
	}
	if wrong, err := c.copartition(); wrong != nil || err != nil {
		return wrong, err
	}
	out := &configured{tasks: map[string]int32{}, stateful: map[string]bool{}, internal: map[string]TopicInfo{}}
	for i := range t.Subtopologies {
		if err := c.subtopology(&t.Subtopologies[i], out); err != nil {
			return nil, err
		}
	}
	for _, name := range assignor.HashOrder(out.order) {
		info := out.internal[name]
		switch there, ok := topics.ByName(name); {
		case !ok:
			out.missing = append(out.missing, info)
		case there.Partitions != info.Partitions:
			return failed(IncorrectlyPartitioned, "Existing topic %s has different number of partitions: expected %d, found %d", name, info.Partitions, there.Partitions), nil
		}
	}
	if len(out.missing) > 0 {
		var names []string
		for _, info := range out.missing {
			names = append(names, info.Name)
		}
		out.status = &Status{MissingInternalTopics, "Internal topics are missing: " + summarize(names)}
	}
	return out, nil
}

// summarize names the first of many.
func summarize(names []string) string {
	const most = 3
	out := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		out += fmt.Sprintf(" and %d additional topics", more)
	}
	return out
}

func (c *configuring) missingSources() []string {
	missing := map[string]struct{}{}
	for i := range c.t.Subtopologies {
		for _, name := range c.t.Subtopologies[i].Sources {
			if _, ok := c.topics.ByName(name); !ok {
				missing[name] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// count is how many partitions a topic has, or is to have.
func (c *configuring) count(name string) (int32, bool) {
	if t, ok := c.topics.ByName(name); ok {
		return t.Partitions, true
	}
	n, ok := c.decided[name]
	return n, ok
}

// repartitions decides on the repartition topics: as many partitions as the topology says, or as those who write them read.
func (c *configuring) repartitions() error {
	counts := map[string]int32{}
	for i := range c.t.Subtopologies {
		for _, info := range c.t.Subtopologies[i].Repartitions {
			if info.Partitions != 0 {
				counts[info.Name] = info.Partitions
			}
		}
	}
	for needed := true; needed; {
		needed = false
		progress := false
		for i := range c.t.Subtopologies {
			s := &c.t.Subtopologies[i]
			for _, sink := range s.Sinks {
				if _, known := counts[sink]; known {
					continue
				}
				n, ok := c.widest(s, counts)
				if !ok {
					needed = true
					continue
				}
				counts[sink], progress = n, true
			}
		}
		if needed && !progress {
			return refuseTopology("Failed to compute number of partitions for all repartition topics. There may be loops in the topology that cannot be resolved.")
		}
	}
	for i := range c.t.Subtopologies {
		for _, info := range c.t.Subtopologies[i].Repartitions {
			if _, known := counts[info.Name]; !known {
				return refuseTopology("Failed to compute number of partitions for all repartition topics, because a repartition source topic is never used as a sink topic.")
			}
		}
	}
	maps.Copy(c.decided, counts)
	return nil
}

// widest is the most partitions of what a subtopology reads, as far as that is known.
func (c *configuring) widest(s *Subtopology, counts map[string]int32) (most int32, ok bool) {
	take := func(n int32) {
		if !ok || n > most {
			most, ok = n, true
		}
	}
	for _, info := range s.Repartitions {
		if n, known := counts[info.Name]; known {
			take(n)
		}
	}
	for _, name := range s.Sources {
		if n, known := c.count(name); known {
			take(n)
		}
	}
	return most, ok
}

// copartition holds topics to having as many partitions as each other. The result is nil if they have, or can.
func (c *configuring) copartition() (*configured, error) {
	fixed, all := map[string]bool{}, map[string]bool{}
	for i := range c.t.Subtopologies {
		for _, info := range c.t.Subtopologies[i].Repartitions {
			all[info.Name] = true
			if info.Partitions != 0 {
				fixed[info.Name] = true
			}
		}
	}
	for i := range c.t.Subtopologies {
		s := &c.t.Subtopologies[i]
		for j := range s.Copartitions {
			names, err := s.copartitioned(&s.Copartitions[j])
			if err != nil {
				return nil, err
			}
			if wrong, err := c.enforce(names, fixed, all); wrong != nil || err != nil {
				return wrong, err
			}
		}
	}
	return nil, nil
}

// copartitioned are the topics of a group, sorted.
func (s *Subtopology) copartitioned(g *Copartition) ([]string, error) {
	var out []string
	for _, i := range g.Sources {
		if i < 0 || int(i) >= len(s.Sources) {
			return nil, refuseBroken("subtopology %s has no source topic %d", s.ID, i)
		}
		out = append(out, s.Sources[i])
	}
	for _, i := range g.Repartitions {
		if i < 0 || int(i) >= len(s.Repartitions) {
			return nil, refuseBroken("subtopology %s has no repartition topic %d", s.ID, i)
		}
		out = append(out, s.Repartitions[i].Name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// enforce decides on the repartition topics among topics that must have as many partitions each.
func (c *configuring) enforce(names []string, fixed, repartition map[string]bool) (*configured, error) {
	own, others := map[string]int32{}, map[string]int32{}
	for _, name := range names {
		n, ok := c.count(name)
		if !ok {
			return nil, refuseBroken("the number of partitions of %s is not known", name)
		}
		if repartition[name] {
			own[name] = n
		} else {
			others[name] = n
		}
	}
	var want int32
	switch {
	case len(names) == 0:
		return nil, nil
	case len(others) > 0:
		var ok bool
		if want, ok = same(slices.Collect(maps.Values(others))); !ok {
			return failed(IncorrectlyPartitioned, "Following topics do not have the same number of partitions: [%s]", countsOf(others)), nil
		}
	case len(fixed) > 0:
		var counts []int32
		for name := range fixed {
			n, _ := c.count(name)
			counts = append(counts, n)
		}
		var ok bool
		if want, ok = same(counts); !ok {
			return failed(IncorrectlyPartitioned, "Following topics do not have the same number of partitions: [%s]", countsOf(own)), nil
		}
	default:
		want = slices.Max(slices.Collect(maps.Values(own)))
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if fixed[name] && own[name] != want {
			return failed(IncorrectlyPartitioned, "Number of partitions [%d] of repartition topic [%s] doesn't match number of partitions [%d] of the source topic.", own[name], name, want), nil
		}
		c.decided[name] = want
	}
	return nil, nil
}

func same(counts []int32) (int32, bool) {
	for _, n := range counts {
		if n != counts[0] {
			return 0, false
		}
	}
	return counts[0], true
}

// countsOf writes them as Java does a map.
func countsOf(counts map[string]int32) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, counts[name]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// subtopology counts the tasks of one, and decides on its topics.
func (c *configuring) subtopology(s *Subtopology, out *configured) error {
	var tasks int32
	inputs := s.inputs()
	for _, name := range inputs {
		n, ok := c.count(name)
		if !ok {
			return refuseBroken("the number of partitions of %s is not known", name)
		}
		tasks = max(tasks, n)
	}
	if len(inputs) == 0 {
		return refuseTopology("No source topics found for subtopology %s", s.ID)
	}
	out.tasks[s.ID], out.stateful[s.ID] = tasks, len(s.Changelogs) > 0
	add := func(info TopicInfo, n int32) error {
		if n < 1 {
			return refuseBroken("topic %s is to have %d partitions", info.Name, n)
		}
		if _, there := out.internal[info.Name]; !there {
			out.order = append(out.order, info.Name)
		}
		info.Partitions = n
		out.internal[info.Name] = info
		return nil
	}
	for _, list := range [][]TopicInfo{s.Repartitions, s.Changelogs} {
		if err := checkInfos(list); err != nil {
			return err
		}
	}
	for _, info := range s.Repartitions {
		n := info.Partitions
		if n == 0 {
			n = c.decided[info.Name]
		}
		if err := add(info, n); err != nil {
			return err
		}
	}
	for _, info := range s.Changelogs {
		if err := add(info, tasks); err != nil {
			return err
		}
	}
	return nil
}

// checkInfos refuses a topic, or a configuration, that is there twice.
func checkInfos(list []TopicInfo) error {
	topics := map[string]bool{}
	for _, info := range list {
		if topics[info.Name] {
			return refuseBroken("topic %s is there twice", info.Name)
		}
		topics[info.Name] = true
		keys := map[string]bool{}
		for _, p := range info.Configs {
			if keys[p.Key] {
				return refuseBroken("configuration %s of topic %s is there twice", p.Key, info.Name)
			}
			keys[p.Key] = true
		}
	}
	return nil
}

// decided is the topology with as many partitions as were decided on.
func (c *configured) decided(t *Topology) *Topology {
	out := &Topology{Epoch: t.Epoch, Subtopologies: slices.Clone(t.Subtopologies)}
	for i := range out.Subtopologies {
		s := &out.Subtopologies[i]
		for _, list := range []*[]TopicInfo{&s.Changelogs, &s.Repartitions} {
			*list = slices.Clone(*list)
			for j := range *list {
				(*list)[j].Partitions = c.internal[(*list)[j].Name].Partitions
			}
		}
	}
	return out
}

// checkTasks refuses tasks that there are not.
func (c *configured) checkTasks(list []TaskIDs) error {
	for _, ids := range list {
		n, ok := c.tasks[ids.Subtopology]
		if !ok {
			return group.Refuse(group.ErrInvalidRequest, "Subtopology %s does not exist in the topology.", ids.Subtopology)
		}
		for _, p := range ids.Partitions {
			if p < 0 || p >= n {
				return group.Refuse(group.ErrInvalidRequest, "Task %d for subtopology %s is invalid. Number of tasks for this subtopology: %d", p, ids.Subtopology, n)
			}
		}
	}
	return nil
}

// place is where the partitions of a member's tasks are.
func (g *Group) place(m *Member, t *Topology) Place {
	p := Place{Endpoint: *m.Endpoint}
	copies := maps.Clone(m.Assigned.Standby)
	if copies == nil {
		copies = Set{}
	}
	maps.Copy(copies, m.Assigned.Warmup)
	p.Active, p.Standby = g.partitionsOf(m.Assigned.Active.List(), t), g.partitionsOf(copies.List(), t)
	return p
}

func (g *Group) partitionsOf(list []TaskIDs, t *Topology) []TopicPartitions {
	out := []TopicPartitions{}
	for _, ids := range list {
		i := slices.IndexFunc(t.Subtopologies, func(s Subtopology) bool { return s.ID == ids.Subtopology })
		if i < 0 {
			continue
		}
		inputs := t.Subtopologies[i].inputs()
		slices.Sort(inputs)
		for _, name := range slices.Compact(inputs) {
			topic, ok := g.topics.ByName(name)
			parts := slices.DeleteFunc(slices.Clone(ids.Partitions), func(n int32) bool { return n >= topic.Partitions })
			if ok && len(parts) > 0 {
				out = append(out, TopicPartitions{name, parts})
			}
		}
	}
	return out
}
