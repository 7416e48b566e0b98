package share

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/grouptest"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// world is a group with its log, topics that come, grow and go, members, and the states that are made for it.
type world struct {
	*grouptest.Rig
	rt      *rapid.T
	members map[string]*client
	todo    []*Initialize
	made    map[StateOf]bool
}

type client struct {
	epoch  int32
	topics []string
	has    Partitions
}

func config(string) Config {
	return Config{MaxSize: 4, Session: 45 * time.Second, Heartbeat: 5 * time.Second, AssignmentInterval: time.Second, InitRetry: 30 * time.Second}
}

func makeGroup(topics Topics) func(string) *Group {
	return func(id string) *Group { return New(id, config, topics) }
}

// TestHistories lets members come, go and fall silent, topics change, writes fail and the node crash, and looks at what everybody is assigned in the end.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{Rig: grouptest.New("g", group.Config{}), rt: rt, members: map[string]*client{}, made: map[StateOf]bool{}}
		w.create("a")
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			w.any()
			w.compare()
		}
		w.settle()
	})
}

func (w *world) create(name string) {
	w.Topics.Set(name, int32(rapid.IntRange(1, 4).Draw(w.rt, "partitions")))
}

func (w *world) any() {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.rt, "topic")
	member := rapid.SampledFrom([]string{"m1", "m2", "m3", "m4", "m5"}).Draw(w.rt, "member")
	switch rapid.IntRange(0, 12).Draw(w.rt, "what") {
	case 0:
		if t, ok := w.Topics.ByName(name); !ok {
			w.create(name)
		} else if t.Partitions < 8 {
			w.Topics.Set(name, t.Partitions+1)
		}
	case 1:
		if t, ok := w.Topics.ByName(name); ok {
			w.Topics.Drop(name)
			if rapid.Bool().Draw(w.rt, "told") {
				w.step(&Forget{TopicID: t.ID})
			}
		}
	case 2:
		w.Now = w.Now.Add(time.Duration(rapid.IntRange(1, 30).Draw(w.rt, "seconds")) * time.Second)
		if w.Due() {
			w.step(group.Tick{})
		}
	case 3:
		w.crash()
	case 4:
		if c := w.members[member]; c != nil {
			w.heartbeat(member, -1, nil)
			delete(w.members, member)
		}
	case 5, 6:
		w.initialize(rapid.IntRange(0, 4).Draw(w.rt, "fails") == 0)
	default:
		c := w.members[member]
		if c == nil {
			topics := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, func(s string) string { return s }).Draw(w.rt, "subscription")
			w.heartbeat(member, 0, topics)
			return
		}
		w.heartbeat(member, c.epoch, nil)
	}
}

// step takes a command as the broker does. nil: there was no reply.
func (w *world) step(c group.Command) group.Result {
	o := w.Try(c, func() bool { return rapid.IntRange(0, 14).Draw(w.rt, "append fails") == 0 })
	if len(o.Replies) == 0 {
		return nil
	}
	return o.Replies[0].Result
}

func (w *world) heartbeat(member string, epoch int32, topics []string) {
	h := &Heartbeat{Member: member, Epoch: epoch, Topics: topics, ClientID: "c", Host: "/127.0.0.1", New: func() *Group { return New("g", config, w.Topics) }}
	h.Token = 1
	r := w.step(h).(HeartbeatResult)
	switch {
	case r.Err == nil && epoch == -1:
	case r.Err == nil:
		c := w.members[member]
		if c == nil {
			c = &client{topics: topics}
			w.members[member] = c
		}
		if c.epoch = r.Epoch; r.Assignment != nil {
			c.has = r.Assignment
		}
		if r.Initialize != nil {
			w.todo = append(w.todo, r.Initialize)
		}
	case errors.Is(r.Err, group.ErrNotAvailable):
	case errors.Is(r.Err, group.ErrMaxSize), // the group may have put the member out and taken another one since, which is what it looks for first
		errors.Is(r.Err, group.ErrUnknownMember), errors.Is(r.Err, ErrFencedEpoch), errors.Is(r.Err, group.ErrNotFound):
		delete(w.members, member)
	default:
		w.rt.Fatal(r.Err)
	}
}

func (w *world) initialize(fails bool) {
	if len(w.todo) == 0 {
		return
	}
	i := w.todo[0]
	w.todo = w.todo[1:]
	c := &Initialized{States: i.States, Failed: fails}
	c.Token = 1
	if r := w.step(c).(StatesResult); r.Err == nil && !fails {
		for _, s := range i.States {
			s.Start = 0
			w.made[s] = true
		}
	}
}

// crash loses all but the log.
func (w *world) crash() {
	w.Of, w.todo = w.replayed(), nil
	w.Of.Loaded(w.Now)
}

func (w *world) replayed() *group.Group { return w.Replayed(w.rt, Format(makeGroup(w.Topics)), w.Log) }

// compare holds the group against what its log makes.
func (w *world) compare() {
	got, _ := w.Of.Kind().(*Group)
	want, _ := w.replayed().Kind().(*Group)
	if (got == nil) != (want == nil) {
		w.rt.Fatalf("%v, from the log %v", got, want)
	}
	if got == nil {
		return
	}
	if a, b := plain(got), plain(want); a != b {
		w.rt.Fatalf("\n%s, from the log\n%s", a, b)
	}
}

func plain(g *Group) string {
	s := fmt.Sprint(g.reached, g.assignment, g.states.deleting)
	for _, m := range g.Members() {
		s += fmt.Sprintf("\n%s %v %d %d %v, target %v", m.ID, m.Topics, m.Epoch, m.Previous, sorted(m.Assigned), sorted(g.target[m.ID]))
	}
	for _, known := range []map[[16]byte]Known{g.states.initializing, g.states.initialized} {
		for _, id := range slices.SortedFunc(maps.Keys(known), compareIDs) {
			s += fmt.Sprint("\n", id[0], known[id].Name, known[id].Partitions)
		}
	}
	return s
}

func sorted(p Partitions) (s string) {
	for _, id := range slices.SortedFunc(maps.Keys(p), compareIDs) {
		s += fmt.Sprint(id[0], p[id], " ")
	}
	return s
}

// settle lets the group come to rest: each subscribed partition is read, by as many as it takes, and by nobody who does not subscribe.
func (w *world) settle() {
	if len(w.members) == 0 {
		return
	}
	for range 20 {
		w.Now = w.Now.Add(31 * time.Second)
		if w.Due() {
			w.step(group.Tick{})
		}
		for _, m := range slices.Sorted(maps.Keys(w.members)) {
			if c := w.members[m]; c != nil {
				w.heartbeat(m, c.epoch, nil)
			}
		}
		for len(w.todo) > 0 {
			w.initialize(false)
		}
	}
	readers := map[StateOf]int{}
	for m, c := range w.members {
		for id, parts := range c.has {
			t, ok := w.Topics.ByID(id)
			if !ok || !slices.Contains(c.topics, t.Name) {
				w.rt.Fatalf("%s reads %v without a subscription", m, id)
			}
			for _, n := range parts {
				readers[StateOf{TopicID: id, Partition: n}]++
			}
		}
	}
	for m, c := range w.members {
		for _, name := range c.topics {
			t, _ := w.Topics.ByName(name)
			for n := range t.Partitions {
				if s := (StateOf{TopicID: t.ID, Partition: n}); readers[s] == 0 {
					w.rt.Fatalf("nobody reads %s %d, to which %s subscribes: %v; %+v", name, n, m, readers, w.Of.Kind().(*Group).states)
				}
			}
		}
	}
}

func TestAssign(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		subscriptions, assignable, before := map[string][][16]byte{}, Partitions{}, map[string]Partitions{}
		topics := rapid.IntRange(1, 3).Draw(rt, "topics")
		for i := range topics {
			for n := range rapid.IntRange(0, 6).Draw(rt, "partitions") {
				assignable.add([16]byte{byte(i)}, int32(n))
			}
		}
		alike := rapid.Bool().Draw(rt, "alike")
		for i := range rapid.IntRange(1, 7).Draw(rt, "members") {
			m := fmt.Sprint("m", i)
			for j := range topics {
				if alike || rapid.Bool().Draw(rt, "subscribes") {
					subscriptions[m] = append(subscriptions[m], [16]byte{byte(j)})
				}
			}
			if subscriptions[m] == nil {
				subscriptions[m] = [][16]byte{{0}}
			}
			before[m] = Partitions{}
			for range rapid.IntRange(0, 5).Draw(rt, "had") {
				before[m].add([16]byte{byte(rapid.IntRange(0, 3).Draw(rt, "topic"))}, int32(rapid.IntRange(0, 7).Draw(rt, "partition")))
			}
		}
		got := assign(subscriptions, assignable, before)
		readers := map[place]int{}
		counts := map[int]int{}
		for m := range subscriptions {
			n := 0
			for id, parts := range got[m] {
				if !slices.Contains(subscriptions[m], id) {
					rt.Fatalf("%s is assigned %v without a subscription", m, id)
				}
				for _, p := range parts {
					if !assignable.has(id, p) {
						rt.Fatalf("%s is assigned %v %d, which there is not", m, id, p)
					}
					readers[place{id, p}]++
					n++
				}
			}
			counts[n]++
		}
		for id, parts := range assignable {
			wanted := slices.ContainsFunc(slices.Collect(maps.Values(subscriptions)), func(s [][16]byte) bool { return slices.Contains(s, id) })
			for _, p := range parts {
				if wanted && readers[place{id, p}] == 0 {
					rt.Fatalf("nobody is assigned %v %d: %v", id, p, got)
				}
			}
		}
		if same(subscriptions) && len(assignable) > 0 && len(counts) > 2 {
			rt.Fatalf("unfair: %v", got)
		}
		if again := assign(subscriptions, assignable, got); !reflect.DeepEqual(again, got) {
			rt.Fatalf("%v, and again without a reason to change %v", got, again)
		}
	})
}

func samples() []group.Record {
	m := &Member{ID: "m", Topics: []string{"t"}, standing: standing{3, 2, Partitions{{1}: {0, 1}}}}
	known := &states{map[[16]byte]Known{{3}: {Name: "v", Partitions: []int32{1}}}, map[[16]byte]Known{{1}: {Name: "t", Partitions: []int32{0}}}, map[[16]byte]string{{2}: "u"}}
	return members.Encode("g", []record{memberType.Of("m", m), memberType.Of("m", nil), epochType.Of("", &reached{3, 4}), epochType.Of("", nil),
		assignmentType.Of("", &members.Assignment{Epoch: 3, Made: 5}), assignmentType.Of("", &members.Assignment{Epoch: 3}), targetType.Of("m", &m.Assigned), targetType.Of("m", nil),
		currentType.Of("m", &m.standing), currentType.Of("m", nil), statesType.Of("", known), statesType.Of("", nil)})
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) { grouptest.Records(t, Parse, samples()) }

// FuzzParse: no record makes Parse fall over.
func FuzzParse(f *testing.F) {
	for _, r := range samples() {
		f.Add(r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, k, v []byte) {
		if r := grouptest.WrittenAgain(t, Parse, k, v); r != nil {
			r.Replay(New("g", config, &grouptest.Topics{}))
		}
	})
}
