package share

import (
	"maps"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// StateOf is the state of a partition that is to be made, or deleted.
type StateOf struct {
	TopicID   [16]byte
	Partition int32
	Start     int64 // -1: whoever reads first chooses
}

// Initialize are states to be made, at the group's epoch. Initialized follows once they are.
type Initialize struct {
	Epoch  int32
	States []StateOf
}

// initialize notes which partitions of subscribed topics are to get a state.
func (g *Group) initialize(now time.Time, subscribed []string, o *group.Output) *Initialize {
	todo := map[[16]byte]Known{}
	out := &Initialize{Epoch: g.epoch}
	for _, name := range subscribed {
		t, ok := g.topics.ByName(name)
		if !ok {
			continue
		}
		started, known := g.states.initializing[t.ID]
		if known && now.Sub(started.since) >= g.config(g.id).InitRetry {
			started.Partitions = nil
		}
		done, wasKnown := g.states.initialized[t.ID]
		start := int64(-1)
		if known || wasKnown {
			start = 0 // the topic has grown: nothing of the new partition is to be missed
		}
		var missing []int32
		for n := range t.Partitions {
			if !slices.Contains(done.Partitions, n) && !slices.Contains(started.Partitions, n) {
				missing = append(missing, n)
				out.States = append(out.States, StateOf{t.ID, n, start})
			}
		}
		if len(missing) > 0 {
			todo[t.ID] = Known{Name: name, Partitions: missing, since: now}
		}
	}
	if len(todo) == 0 {
		return nil
	}
	g.begin(todo, o)
	return out
}

// begin adds to what is being made.
func (g *Group) begin(todo map[[16]byte]Known, o *group.Output) {
	s := g.states.clone()
	for _, known := range []map[[16]byte]Known{s.initializing, s.initialized} {
		for id := range known {
			if _, ok := g.topics.ByID(id); !ok {
				delete(known, id) // deleted while the node was going down
			}
		}
	}
	for id, k := range todo {
		k.Partitions = union(s.initializing[id].Partitions, k.Partitions)
		s.initializing[id] = k
		delete(s.deleting, id)
	}
	g.commit(o, statesType.Of("", &s))
}

func union(a, b []int32) []int32 {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// initialized moves what was made, or could not be, out of what is being made.
func (g *Group) initialized(now time.Time, c *Initialized, o *group.Output) {
	s := g.states.clone()
	for _, of := range c.States {
		k, ok := s.initializing[of.TopicID]
		if !ok {
			continue
		}
		k.Partitions = slices.DeleteFunc(slices.Clone(k.Partitions), func(n int32) bool { return n == of.Partition })
		if s.initializing[of.TopicID] = k; len(k.Partitions) == 0 {
			delete(s.initializing, of.TopicID)
		}
		if c.Failed {
			continue
		}
		done := s.initialized[of.TopicID]
		s.initialized[of.TopicID] = Known{Name: k.Name, Partitions: union(done.Partitions, []int32{of.Partition}), since: now}
	}
	g.commit(o, statesType.Of("", &s))
	o.Reply(c.Token, StatesResult{})
}

// alter has states made anew with other starts.
func (g *Group) alter(now time.Time, c *AlterOffsets, o *group.Output) {
	if !g.Empty() {
		o.Reply(c.Token, StatesResult{Err: group.ErrNonEmpty})
		return
	}
	todo := map[[16]byte]Known{}
	for _, s := range c.States {
		t, ok := g.topics.ByID(s.TopicID)
		if !ok {
			continue
		}
		todo[s.TopicID] = Known{Name: t.Name, Partitions: union(todo[s.TopicID].Partitions, []int32{s.Partition}), since: now}
	}
	if len(todo) > 0 {
		g.begin(todo, o)
	}
	o.Reply(c.Token, StatesResult{Initialize: &Initialize{Epoch: g.epoch, States: c.States}})
}

// deleteStates notes what is to be deleted: of the topics named, or of all.
func (g *Group) deleteStates(c *DeleteStates, o *group.Output) {
	if !g.Empty() {
		o.Reply(c.Token, StatesResult{Err: group.ErrNonEmpty})
		return
	}
	s := g.states.clone()
	topics := c.Topics
	if c.All {
		topics = slices.Concat(slices.Collect(maps.Keys(s.initialized)), slices.Collect(maps.Keys(s.initializing)), slices.Collect(maps.Keys(s.deleting)))
	}
	var r StatesResult
	for _, id := range topics {
		parts := s.initialized[id].Partitions
		name := s.initialized[id].Name
		if c.All {
			if k, ok := s.initializing[id]; ok {
				parts, name = union(parts, k.Partitions), k.Name
			}
		}
		if t, ok := g.topics.ByID(id); ok && len(parts) == 0 && s.deleting[id] != "" { // begun before, and not ended
			name = t.Name
			for n := range t.Partitions {
				parts = append(parts, n)
			}
		}
		if len(parts) == 0 {
			continue
		}
		delete(s.initialized, id)
		if c.All {
			delete(s.initializing, id)
		}
		s.deleting[id] = name
		for _, n := range parts {
			r.Delete = append(r.Delete, StateOf{TopicID: id, Partition: n})
		}
	}
	if len(r.Delete) > 0 {
		g.commit(o, statesType.Of("", &s))
	}
	o.Reply(c.Token, r)
}

func (g *Group) statesDeleted(c *StatesDeleted, o *group.Output) {
	s := g.states.clone()
	for _, of := range c.States {
		delete(s.deleting, of.TopicID)
	}
	g.commit(o, statesType.Of("", &s))
	o.Reply(c.Token, StatesResult{})
}

// forget drops a topic that is gone.
func (g *Group) forget(c *Forget, o *group.Output) {
	_, a := g.states.initializing[c.TopicID]
	_, b := g.states.initialized[c.TopicID]
	_, d := g.states.deleting[c.TopicID]
	if !a && !b && !d {
		return
	}
	s := g.states.clone()
	delete(s.initializing, c.TopicID)
	delete(s.initialized, c.TopicID)
	delete(s.deleting, c.TopicID)
	g.commit(o, statesType.Of("", &s))
}
