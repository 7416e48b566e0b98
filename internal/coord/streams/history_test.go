package streams

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/grouptest"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// world is a group whose members play by the rules: each runs what it was told last, and says so.
type world struct {
	*rig
	rt       *rapid.T
	topology *Topology
	players  map[string]*player
	epoch    int32
	next     int
}

// player is a member as it sees itself.
type player struct {
	id, process, instance string
	epoch                 int32
	runs                  Tasks
	endpoints             int32
	away                  bool
}

func newWorld(rt *rapid.T) *world {
	w := &world{rig: newRig(), rt: rt, players: map[string]*player{}}
	w.cfg.Standbys = rapid.IntRange(0, 2).Draw(rt, "standbys")
	w.cfg.InitialDelay = time.Duration(rapid.SampledFrom([]int{0, 0, 3}).Draw(rt, "delay")) * time.Second
	w.cfg.AssignmentInterval = time.Duration(rapid.SampledFrom([]int{0, 0, 1}).Draw(rt, "interval")) * time.Second
	w.Topics.Set("a", 5)
	w.Topics.Set("b", 2)
	w.topology = &Topology{Epoch: 1, Subtopologies: []Subtopology{
		{ID: "0", Sources: []string{"a"}, Sinks: []string{"r"}},
		{ID: "1", Repartitions: []TopicInfo{{Name: "r"}}, Changelogs: []TopicInfo{{Name: "c"}}},
		{ID: "2", Sources: []string{"b"}, Changelogs: []TopicInfo{{Name: "d"}}},
	}}
	return w
}

// step takes a command; now and then the log takes nothing.
func (w *world) step(c group.Command) group.Output {
	w.Now = w.Now.Add(time.Duration(rapid.IntRange(0, 2).Draw(w.rt, "seconds")) * time.Second)
	return w.Try(c, func() bool { return rapid.IntRange(0, 9).Draw(w.rt, "fails") == 0 })
}

func (w *world) beat(p *player, full bool) {
	c := w.heartbeat(p.id, p.epoch, func(c *Heartbeat) {
		c.Token, c.Endpoints = p, p.endpoints
		if p.instance != "" {
			c.InstanceID = &p.instance
		}
		switch {
		case p.epoch == members.EpochJoin:
			c.Topology, c.ProcessID, c.Endpoint = w.topology, &p.process, &Endpoint{p.process, 1}
		case full || rapid.Bool().Draw(w.rt, "says what it runs"):
			c.Owned = &Owned{p.runs.Active.List(), p.runs.Standby.List(), p.runs.Warmup.List()}
		}
		if full && p.epoch > 0 {
			c.Reached = []TaskOffset{}
			for t := range p.runs.Standby {
				c.Reached = append(c.Reached, TaskOffset{t, int64(t.Partition)})
			}
		}
	})
	for _, reply := range w.step(c).Replies {
		if reply.Token == any(p) {
			w.answered(p, reply.Result.(HeartbeatResult))
		}
	}
}

func (w *world) answered(p *player, r HeartbeatResult) {
	switch {
	case r.Err == group.ErrNotAvailable:
		return
	case r.Err != nil: // it drops all that it has
		delete(w.players, p.id)
		return
	case r.Epoch < p.epoch:
		w.rt.Fatalf("%s went from epoch %d to %d", p.id, p.epoch, r.Epoch)
	}
	for _, t := range r.Create {
		if rapid.IntRange(0, 2).Draw(w.rt, "made") > 0 {
			w.Topics.Set(t.Name, t.Partitions)
		}
	}
	if p.epoch, p.endpoints = r.Epoch, r.Endpoints; r.Assigned != nil {
		p.runs = r.Assigned.tasks()
	}
}

func (w *world) pick() *player {
	if len(w.players) == 0 {
		return nil
	}
	return w.players[rapid.SampledFrom(slices.Sorted(maps.Keys(w.players))).Draw(w.rt, "who")]
}

func (w *world) join() {
	w.next++
	p := &player{id: fmt.Sprintf("m%02d", w.next), process: fmt.Sprintf("p%d", rapid.IntRange(0, 2).Draw(w.rt, "process"))}
	if rapid.IntRange(0, 4).Draw(w.rt, "static") == 0 {
		p.instance = "i" + p.id
	}
	w.players[p.id] = p
	w.beat(p, true)
}

func (w *world) act() {
	p := w.pick()
	n := rapid.IntRange(0, 15).Draw(w.rt, "what")
	switch {
	case p == nil || n == 0 && len(w.players) < 7:
		w.join()
	case n == 1: // leaves
		w.leave(p, members.EpochLeave)
	case n == 2: // its process dies; its session ends later
		p.runs = Tasks{}
		delete(w.players, p.id)
	case n == 3 && p.instance != "": // away for a while, and back under another id
		w.leave(p, members.EpochLeaveStatic)
		if w.players[p.id] == nil {
			w.next++
			again := &player{id: fmt.Sprintf("m%02d", w.next), process: p.process, instance: p.instance}
			w.players[again.id] = again
			w.beat(again, true)
		}
	case n == 4:
		w.Now = w.Now.Add(time.Duration(rapid.IntRange(1, 40).Draw(w.rt, "pass")) * time.Second)
	case n == 5:
		w.Topics.Drop(rapid.SampledFrom([]string{"r", "c", "d"}).Draw(w.rt, "drop"))
	case n == 6:
		w.cfg.Standbys = rapid.IntRange(0, 2).Draw(w.rt, "standbys")
	case n == 7:
		p.epoch = members.EpochJoin // lost its memory
		p.runs = Tasks{}
		w.beat(p, true)
	default:
		w.beat(p, n < 12)
	}
	w.tick()
}

func (w *world) leave(p *player, epoch int32) {
	c := w.heartbeat(p.id, epoch, nil)
	c.Token = p
	if p.instance != "" {
		c.InstanceID = &p.instance
	} else {
		c.Epoch = members.EpochLeave
	}
	for _, r := range w.step(c).Replies {
		if r.Result.(HeartbeatResult).Err == nil {
			delete(w.players, p.id)
		}
	}
	p.runs = Tasks{}
}

func (w *world) tick() {
	if w.Due() {
		w.step(group.Tick{})
	}
}

// hold are the rules that are never broken.
func (w *world) hold() {
	g := w.streams()
	if g == nil {
		return
	}
	runs := map[Task]string{}
	for id, p := range w.players {
		if g.Get(id) == nil {
			continue // it was given up, and will hear of it; a client stops by itself when its session is over
		}
		for t := range p.runs.Active {
			if other, taken := runs[t]; taken {
				w.rt.Fatalf("%v is run by %s and %s", t, other, id)
			}
			runs[t] = id
		}
	}
	if g.metadata.epoch < w.epoch {
		w.rt.Fatalf("the group went from epoch %d to %d", w.epoch, g.metadata.epoch)
	}
	w.epoch = g.metadata.epoch
	held := map[Task]string{}
	for _, m := range g.List() {
		if m.Epoch > g.metadata.epoch {
			w.rt.Fatalf("%s is in epoch %d of a group in %d", m.ID, m.Epoch, g.metadata.epoch)
		}
		for _, h := range []Held{m.Assigned, m.Revoking} {
			for t := range h.Active {
				if other, taken := held[t]; taken {
					w.rt.Fatalf("%v is held by %s and %s", t, other, m.ID)
				}
				held[t] = m.ID
			}
		}
	}
}

// same holds what a log tells of the group against what it is.
func (w *world) same(log []group.Record) {
	g := w.streams()
	if g == nil {
		return
	}
	h, ok := w.Replayed(w.rt, Format(func(string) *Group { return w.make() }), log).Kind().(*Group)
	if !ok {
		if g.Disposable() {
			return
		}
		w.rt.Fatal("replayed as something else")
	}
	if h.metadata.epoch != g.metadata.epoch || h.metadata.hash != g.metadata.hash || h.metadata.validated != g.metadata.validated || !maps.Equal(h.metadata.configs, g.metadata.configs) ||
		h.Assignment != g.Assignment || (h.topology == nil) != (g.topology == nil) || h.topology != nil && !h.topology.equal(g.topology) {
		w.rt.Fatalf("replayed %+v, is %+v", h.metadata, g.metadata)
	}
	if h.Len() != g.Len() || len(h.target) != len(g.target) || !maps.Equal(h.active, g.active) {
		w.rt.Fatalf("replayed %v, is %v", h.active, g.active)
	}
	for _, m := range g.List() {
		if n := h.Get(m.ID); n == nil || !n.sameMetadata(m) || !n.Standing.Equal(&m.Standing) || m.InstanceID != "" && h.Instance(m.InstanceID) != n || !h.target[m.ID].equal(g.target[m.ID]) {
			w.rt.Fatalf("replayed %+v, is %+v", n, m)
		}
	}
}

// converge: with heartbeats alone all tasks are run, each once, and copies are where the task is not.
func (w *world) converge() {
	for i := 0; i < 14; i++ {
		w.Now = w.Now.Add(11 * time.Second)
		w.tick()
		for _, id := range slices.Sorted(maps.Keys(w.players)) {
			if p := w.players[id]; p != nil {
				w.beat(p, true)
				w.tick()
				w.hold()
			}
		}
		if g := w.streams(); g != nil && g.configured != nil {
			for _, t := range g.configured.missing {
				w.Topics.Set(t.Name, t.Partitions)
			}
		}
	}
	g := w.streams()
	if g == nil || len(w.players) == 0 {
		return
	}
	if g.State() != "Stable" {
		w.rt.Fatalf("%s: %+v, %+v", g.State(), g.metadata, g.configured)
	}
	total := 0
	copies := map[Task]map[string]bool{}
	running := map[Task]string{}
	processes := map[string]bool{}
	for _, p := range w.players {
		total += len(p.runs.Active)
		processes[p.process] = true
		for t := range p.runs.Active {
			running[t] = p.process
		}
		for t := range p.runs.Standby {
			if copies[t] == nil {
				copies[t] = map[string]bool{}
			}
			if copies[t][p.process] {
				w.rt.Fatalf("%v has two copies in %s", t, p.process)
			}
			copies[t][p.process] = true
		}
	}
	if total != 12 {
		w.rt.Fatalf("%d of 12 tasks are run", total)
	}
	want := min(w.cfg.Standbys, len(processes)-1)
	for t, process := range running {
		n := len(copies[t])
		if stateless := t.Subtopology == "0"; stateless && n > 0 || !stateless && n != want || copies[t][process] {
			w.rt.Fatalf("%v is run in %s and has copies in %v, want %d", t, process, copies[t], want)
		}
	}
}

func TestHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			w.act()
			w.hold()
		}
		w.same(w.Log)
		w.Now = w.Now.Add(time.Minute) // whoever has died is given up, and who is still there comes again
		for id := range w.players {
			delete(w.players, id)
		}
		w.tick()
		for range rapid.IntRange(1, 5).Draw(rt, "comers") {
			w.join()
			w.hold()
		}
		w.converge()
		w.same(w.Log)
		w.same(grouptest.Compacted(w.Log))
	})
}
