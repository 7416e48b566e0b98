package streams

import (
	"maps"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// copies are the processes that have a copy of a task.
type copies map[Task]map[string]struct{}

func (c copies) has(t Task, process string) bool {
	_, ok := c[t][process]
	return ok
}

func (c copies) add(t Task, process string) {
	if c[t] == nil {
		c[t] = map[string]struct{}{}
	}
	c[t][process] = struct{}{}
}

func (c copies) drop(t Task, process string) {
	if delete(c[t], process); len(c[t]) == 0 {
		delete(c, t)
	}
}

func (g *Group) commit(o *group.Output, records []record) {
	members.Commit(g, g.id, records, o, func() { g.seen, g.configured = -1, nil })
}

func (g *Group) setMetadata(_ string, v *metadata) (undo func()) {
	m := newMetadata()
	if v != nil {
		m = *v
	}
	return members.Set(&g.metadata, m)
}

func (g *Group) setTopology(_ string, v *Topology) (undo func()) { return members.Set(&g.topology, v) }

func (g *Group) setTarget(id string, v *Tasks) (undo func()) { return members.Put(g.target, id, v) }

// say lets go of what is not in the log with the member that it is of, and of the wish to end the application with the last one.
func (g *Group) say(id string, m *Member) (undo func()) {
	told, had := g.offsets[id]
	shutdown := g.shutdown
	unsay := g.Say(id, m)
	if m == nil {
		delete(g.offsets, id)
	}
	if g.Empty() {
		g.shutdown = ""
	}
	return func() {
		unsay()
		if delete(g.offsets, id); had {
			g.offsets[id] = told
		}
		g.shutdown = shutdown
	}
}

// moved keeps what processes have. While an instance is replaced by another member, both have its tasks for a moment.
func (g *Group) moved(before, after *Member) {
	if before != nil {
		g.disown(before)
	}
	if after != nil {
		g.own(after)
	}
}

func (g *Group) own(m *Member) {
	for _, h := range []Held{m.Assigned, m.Revoking} {
		for t := range h.Active {
			g.active[t] = m.ProcessID
		}
		for t := range h.Standby {
			g.standby.add(t, m.ProcessID)
		}
		for t := range h.Warmup {
			g.warmup.add(t, m.ProcessID)
		}
	}
}

func (g *Group) disown(m *Member) {
	for _, h := range []Held{m.Assigned, m.Revoking} {
		for t := range h.Active {
			if g.active[t] == m.ProcessID {
				delete(g.active, t)
			}
		}
		for t := range h.Standby {
			g.standby.drop(t, m.ProcessID)
		}
		for t := range h.Warmup {
			g.warmup.drop(t, m.ProcessID)
		}
	}
}

// metadata is what the first of a group's records says.
type metadata struct {
	epoch     int32
	hash      int64             // of the topics, when epoch was reached
	validated int32             // epoch of the topology whose topics are as they must be, -1: none
	configs   map[string]string // with which tasks were assigned
	stored    int32             // epoch of the topology whose description a plug-in of Apache Kafka's keeps; carried along
	failed    int32             // epoch of the topology whose description it refused; carried along
}

func newMetadata() metadata {
	return metadata{epoch: members.FirstEpoch, validated: -1, stored: -1, failed: -1}
}

// next is the metadata in the next epoch.
func (m metadata) next() metadata {
	m.epoch++
	m.configs = maps.Clone(m.configs)
	return m
}
