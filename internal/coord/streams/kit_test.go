package streams

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

var t0 = time.UnixMilli(1_700_000_000_000)

// fakeTopics are topics that a test sets.
type fakeTopics struct {
	byName  map[string]members.Topic
	version int64
}

func (f *fakeTopics) set(name string, partitions int32) {
	t := f.byName[name]
	if t.Name == "" {
		t = members.Topic{Name: name, ID: [16]byte{byte(len(f.byName) + 1), byte(f.version)}}
	}
	t.Partitions = partitions
	f.byName[name] = t
	f.version++
}

func (f *fakeTopics) drop(name string) {
	delete(f.byName, name)
	f.version++
}

func (f *fakeTopics) Version() int64 { return f.version }

func (f *fakeTopics) ByName(name string) (members.Topic, bool) {
	t, ok := f.byName[name]
	return t, ok
}

// rig is a group with its log and its clock.
type rig struct {
	topics *fakeTopics
	cfg    Config
	of     *group.Group
	now    time.Time
	log    []group.Record
}

func newRig() *rig {
	r := &rig{topics: &fakeTopics{byName: map[string]members.Topic{}}, now: t0,
		cfg: Config{Session: 45 * time.Second, Heartbeat: 5 * time.Second, MaxSize: 100, Assignor: "sticky"}}
	r.of = group.New("g", func() group.Config { return group.Config{OffsetsRetention: time.Hour, MaxMetadata: 100} }, t0)
	return r
}

func (r *rig) make() *Group { return New("g", func() Config { return r.cfg }, r.topics) }

func (r *rig) streams() *Group {
	g, _ := r.of.Kind().(*Group)
	return g
}

func (r *rig) step(c group.Command) group.Output {
	r.now = r.now.Add(time.Millisecond)
	o := r.of.Step(r.now, c)
	r.log = append(r.log, o.Records...)
	return o
}

func (r *rig) heartbeat(id string, epoch int32, change func(*Heartbeat)) *Heartbeat {
	process := "process-" + id
	c := &Heartbeat{Version: 1, MemberID: id, Epoch: epoch, ClientID: "c", ClientHost: "/h", Rebalance: -1, New: r.make}
	if epoch == members.EpochJoin {
		c.Rebalance, c.Owned, c.ProcessID = 30_000, &Owned{}, &process
	}
	if change != nil {
		change(c)
	}
	return c
}

func (r *rig) beat(t *testing.T, id string, epoch int32, change func(*Heartbeat)) HeartbeatResult {
	t.Helper()
	o := r.step(r.heartbeat(id, epoch, change))
	if len(o.Replies) != 1 {
		t.Fatalf("%d replies", len(o.Replies))
	}
	return o.Replies[0].Result.(HeartbeatResult)
}

// replayed is the group that the log tells of.
func (r *rig) replayed(t interface{ Fatal(...any) }, log []group.Record) *group.Group {
	again := group.New("g", func() group.Config { return group.Config{} }, r.now)
	format := Format(func(string) *Group { return r.make() })
	for _, rec := range log {
		if _, k, err := Parse(rec.Key, rec.Value); err == nil {
			again.ReplayKind(&format, k, r.now)
		} else if e, err := group.ParseRecord(rec.Key, rec.Value); err == nil {
			again.Replay(e, r.now)
		} else {
			t.Fatal(err)
		}
	}
	return again
}

// compacted is the log with the last record of each key, tombstones left out.
func compacted(log []group.Record) []group.Record {
	last := map[string]int{}
	for i, r := range log {
		last[string(r.Key)] = i
	}
	var out []group.Record
	for _, i := range slices.Sorted(maps.Values(last)) {
		if log[i].Value != nil {
			out = append(out, log[i])
		}
	}
	return out
}

func plain(topics ...string) *Topology {
	return &Topology{Epoch: 1, Subtopologies: []Subtopology{{ID: "0", Sources: topics}}}
}

func counting(topic string) *Topology {
	return &Topology{Epoch: 1, Subtopologies: []Subtopology{{ID: "0", Sources: []string{topic}, Changelogs: []TopicInfo{{Name: topic + "-changelog"}}}}}
}
