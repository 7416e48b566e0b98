package consumer

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/grouptest"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// world is a group with members that play by the rules: each owns what it was told last, gives up what it is told to give up, and nothing else.
type world struct {
	*replayer
	rt     *rapid.T
	actors map[string]*player
	epoch  int32
	next   int
}

// player is a member as it sees itself. used are the partitions that it works on.
type player struct {
	id, instance string
	epoch        int32
	topics       []string
	regex        string
	used         map[string]map[int32]bool
	classic      bool
	generation   int32
	gone         bool // it is away, and works on nothing
}

func newWorld(rt *rapid.T) *world {
	w := &world{replayer: newReplayer("g"), rt: rt, actors: map[string]*player{}}
	for i, n := range []int32{7, 3, 12} {
		w.Topics.Set(fmt.Sprintf("t%d", i), n)
	}
	return w
}

func (w *world) consumer() *Group {
	g, _ := w.Of.Kind().(*Group)
	return g
}

// step takes a command; now and then the log takes nothing.
func (w *world) step(c group.Command) group.Output {
	w.Now = w.Now.Add(time.Duration(rapid.IntRange(0, 3).Draw(w.rt, "seconds")) * time.Second)
	return w.Try(c, func() bool { return rapid.IntRange(0, 9).Draw(w.rt, "fails") == 0 })
}

func (w *world) subscription() []string {
	var out []string
	for _, t := range w.Topics.Names() {
		if rapid.IntRange(0, 3).Draw(w.rt, "subscribe") > 0 {
			out = append(out, t)
		}
	}
	return out
}

func (w *world) beat(p *player, full bool) {
	c := &Heartbeat{Token: p, MemberID: p.id, Epoch: p.epoch, ClientID: "c", ClientHost: "/h", Rebalance: -1, New: w.make}
	if p.instance != "" {
		c.InstanceID = &p.instance
	}
	if full || p.epoch == 0 {
		c.Rebalance, c.Topics, c.Owned, c.Regex = 30_000, append([]string{}, p.topics...), Owned{}, &p.regex
	}
	if full || rapid.Bool().Draw(w.rt, "says what it owns") {
		c.Owned = Owned{}
		for name, parts := range p.used {
			t, ok := w.Topics.ByName(name)
			if ok && len(parts) > 0 {
				c.Owned[t.ID] = slices.Sorted(maps.Keys(parts))
			}
		}
	}
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
	case r.Err != nil: // it gives up all that it has and comes anew
		p.used, p.epoch = nil, 0
		delete(w.actors, p.id)
		return
	}
	if r.Epoch >= 0 && r.Epoch < p.epoch {
		w.rt.Fatalf("%s went from epoch %d to %d", p.id, p.epoch, r.Epoch)
	}
	if p.epoch = r.Epoch; r.Assignment != nil {
		p.used = map[string]map[int32]bool{}
		for name, parts := range w.named(r.Assignment) {
			p.used[name] = map[int32]bool{}
			for _, n := range parts {
				p.used[name][n] = true
			}
		}
	}
}

func (w *world) pick() *player {
	ids := slices.Sorted(maps.Keys(w.actors))
	if len(ids) == 0 {
		return nil
	}
	return w.actors[rapid.SampledFrom(ids).Draw(w.rt, "who")]
}

func (w *world) join() {
	w.next++
	p := &player{id: fmt.Sprintf("m%02d", w.next), topics: w.subscription()}
	switch rapid.IntRange(0, 4).Draw(w.rt, "kind") {
	case 0:
		p.instance = "i" + p.id
	case 1:
		p.topics, p.regex = nil, rapid.SampledFrom([]string{"t.*", "t[01]", "n.*"}).Draw(w.rt, "regex")
	}
	w.actors[p.id] = p
	w.beat(p, true)
}

func (w *world) act() {
	p := w.pick()
	n := rapid.IntRange(0, 15).Draw(w.rt, "what")
	switch {
	case p == nil || n == 0 && len(w.actors) < 7:
		w.join()
	case n == 1:
		p.topics = w.subscription()
		w.beat(p, true)
	case n == 2:
		c := &Heartbeat{Token: p, MemberID: p.id, Epoch: members.EpochLeave}
		if p.instance != "" {
			c.InstanceID = &p.instance
		}
		w.step(c)
		p.used = nil
		if g := w.consumer(); g == nil || g.Get(p.id) == nil {
			delete(w.actors, p.id)
		}
	case n == 3: // its process dies; its session ends later
		p.used = nil
		delete(w.actors, p.id)
	case n == 4:
		w.Now = w.Now.Add(time.Duration(rapid.IntRange(1, 40).Draw(w.rt, "pass")) * time.Second)
		w.tick()
	case n == 5:
		name := rapid.SampledFrom(w.Topics.Names()).Draw(w.rt, "grow")
		t, _ := w.Topics.ByName(name)
		w.Topics.Set(name, t.Partitions+1)
	case n == 6 && len(w.Topics.Names()) < 6:
		w.next++
		w.Topics.Set(fmt.Sprintf("n%d", w.next), 2)
	default:
		w.beat(p, n < 9)
	}
	w.tick()
}

func (w *world) tick() {
	if w.Due() {
		w.step(group.Tick{})
	}
}

// hold are the rules that are never broken.
func (w *world) hold() {
	owner := map[string]string{}
	for id, p := range w.actors {
		g := w.consumer()
		if g == nil || g.Get(id) == nil {
			continue // it was given up, and will hear of it; a client stops by itself when its session is over
		}
		for name, parts := range p.used {
			for n := range parts {
				key := fmt.Sprint(name, "-", n)
				if other, taken := owner[key]; taken {
					w.rt.Fatalf("%s is worked on by %s and %s", key, other, id)
				}
				owner[key] = id
			}
		}
	}
	g := w.consumer()
	if g == nil {
		return
	}
	if g.epoch < w.epoch {
		w.rt.Fatalf("the group went from epoch %d to %d", w.epoch, g.epoch)
	}
	w.epoch = g.epoch
	held := map[string]string{}
	for _, m := range g.List() {
		if m.Epoch > g.epoch {
			w.rt.Fatalf("%s is in epoch %d of a group in %d", m.ID, m.Epoch, g.epoch)
		}
		for _, p := range []Partitions{m.Assigned, m.Revoking} {
			for t, parts := range p {
				for n := range parts {
					key := fmt.Sprintf("%x-%d", t, n)
					if other, taken := held[key]; taken {
						w.rt.Fatalf("%s is held by %s and %s", key, other, m.ID)
					}
					held[key] = m.ID
				}
			}
		}
	}
}

// holdReplay: what the log tells of the group is what it is.
func (w *world) holdReplay() {
	g := w.consumer()
	if g == nil {
		return
	}
	again := w.Replayed(w.rt, Format(func(string) *Group { return w.make() }), w.Log)
	h, ok := again.Kind().(*Group)
	if !ok {
		if g.Disposable() {
			return
		}
		w.rt.Fatalf("replayed as %T", again.Kind())
	}
	if h.reached != g.reached || h.Assignment != g.Assignment || !slices.Equal(h.IDs(), g.IDs()) {
		w.rt.Fatalf("replayed: epoch %d of %d, assignment %d of %d, members %v of %v", h.epoch, g.epoch, h.Assignment.Epoch, g.Assignment.Epoch, h.IDs(), g.IDs())
	}
	for _, m := range g.List() {
		if n := h.Get(m.ID); !n.sameMetadata(m) || !n.Standing.Equal(&m.Standing) || !sameTarget(h.target[m.ID], g.target[m.ID]) {
			w.rt.Fatalf("replayed %+v, is %+v", n, m)
		}
	}
	if !maps.EqualFunc(h.owned, g.owned, func(a, b map[int32]int32) bool { return maps.Equal(a, b) }) {
		w.rt.Fatalf("replayed owners %v, are %v", h.owned, g.owned)
	}
}

// converge: with heartbeats alone all get what they are to have, and nothing is left over.
func (w *world) converge() {
	for range 12 {
		w.Now = w.Now.Add(11 * time.Second)
		w.tick()
		for _, id := range slices.Sorted(maps.Keys(w.actors)) {
			if p := w.actors[id]; p != nil {
				w.beat(p, true)
				w.tick()
				w.hold()
			}
		}
	}
	g := w.consumer()
	if g == nil || len(w.actors) == 0 {
		return
	}
	subscribed := map[string]bool{}
	count := 0
	for _, m := range g.List() {
		for _, name := range g.subscribedNames(m) {
			if t, ok := w.Topics.ByName(name); ok && !subscribed[name] {
				subscribed[name] = true
				count += int(t.Partitions)
			}
		}
	}
	worked := 0
	for _, p := range w.actors {
		for _, parts := range p.used {
			worked += len(parts)
		}
	}
	if g.State() != "Stable" || worked != count {
		w.rt.Fatalf("%s, %d of %d partitions are worked on by %d members", g.State(), worked, count, len(w.actors))
	}
}

func TestHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			w.act()
			w.hold()
		}
		w.holdReplay()
		w.Now = w.Now.Add(time.Minute) // whoever has died is given up
		for _, p := range w.actors {
			p.used, p.epoch = nil, 0 // and so is who is still there: it comes again
		}
		w.tick()
		w.converge()
		w.holdReplay()
	})
}

func samples() []group.Record {
	m := newMember("m")
	m.InstanceID, m.RackID, m.ClientID, m.ClientHost, m.Topics, m.Regex, m.Rebalance, m.Assignor = "i", "r", "c", "/h", []string{"a", "b"}, "x.*", 5, "range"
	m.Classic = &Classic{Session: time.Second, Protocols: []group.Protocol{{Name: "range", Metadata: []byte{1}}}}
	m.Standing = standing{Epoch: 4, Previous: 3, State: members.Unrevoked, Assigned: Partitions{{1}: {0: 2, 5: 4}}, Revoking: Partitions{{2}: {1: 1}}}
	return members.Encode("g", []record{epochType.Of("", &reached{3, 99}), epochType.Of("", nil), metadataType.Of("", nil), memberType.Of("m", m), memberType.Of("m", nil),
		assignmentType.Of("", &members.Assignment{Epoch: 3, Made: 5}), targetType.Of("m", &assignor.Assignment{{1}: {0, 1}}), currentType.Of("m", &m.Standing), regexType.Of("x.*", &resolved{[]string{"a"}, 3, 4})})
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) { grouptest.Records(t, Parse, samples()) }

// FuzzParse: no record makes Parse fall over.
func FuzzParse(f *testing.F) {
	for _, r := range samples() {
		f.Add(r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, k, v []byte) {
		if r := grouptest.WrittenAgain(t, Parse, k, v); r != nil {
			r.Replay(newReplayer("g").make())
		}
	})
}

// BenchmarkRebalance: a member comes into a group of 200 with 1,000 partitions, and all get what they are to have.
func BenchmarkRebalance(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		r := newReplayer("g")
		r.Topics.Set("t", 1000)
		actors := map[string]*HeartbeatResult{}
		order := []string{}
		for i := range 200 {
			id := fmt.Sprintf("member-%03d", i)
			order = append(order, id)
			actors[id] = joinBench(r, id)
		}
		for range 3 {
			for _, id := range order {
				beatBench(r, id, actors[id])
			}
		}
		if s := r.Of.Kind().State(); s != "Stable" {
			b.Fatal(s)
		}
	}
}

func joinBench(r *replayer, id string) *HeartbeatResult {
	c := &Heartbeat{MemberID: id, ClientID: "c", ClientHost: "/h", Rebalance: 60_000, Topics: []string{"t"}, Owned: Owned{}, New: r.make}
	out := r.Of.Step(r.Now, c).Replies[0].Result.(HeartbeatResult)
	return &out
}

func beatBench(r *replayer, id string, at *HeartbeatResult) {
	c := &Heartbeat{MemberID: id, ClientID: "c", ClientHost: "/h", Epoch: at.Epoch, Rebalance: -1, Owned: Owned{}}
	for t, parts := range at.Assignment {
		c.Owned[t] = slices.Sorted(maps.Keys(parts))
	}
	out := r.Of.Step(r.Now, c).Replies[0].Result.(HeartbeatResult)
	at.Epoch = out.Epoch
	if out.Assignment != nil {
		at.Assignment = out.Assignment
	}
}

// BenchmarkHeartbeat is a heartbeat that changes nothing, in a group of 200 members.
func BenchmarkHeartbeat(b *testing.B) {
	r := newReplayer("g")
	r.Topics.Set("t", 1000)
	actors := map[string]*HeartbeatResult{}
	for i := range 200 {
		id := fmt.Sprintf("member-%03d", i)
		actors[id] = joinBench(r, id)
	}
	for range 3 {
		for id, a := range actors {
			beatBench(r, id, a)
		}
	}
	c := &Heartbeat{MemberID: "member-007", ClientID: "c", ClientHost: "/h", Epoch: actors["member-007"].Epoch, Rebalance: -1}
	b.ReportAllocs()
	for b.Loop() {
		r.Of.Step(r.Now, c)
		r.Of.Deadline()
	}
}
