package streams

import (
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/grouptest"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// rig is a group of which a test may change the configuration.
type rig struct {
	*grouptest.Rig
	cfg Config
}

func newRig() *rig {
	return &rig{Rig: grouptest.New("g", group.Config{OffsetsRetention: time.Hour, MaxMetadata: 100}),
		cfg: Config{Session: 45 * time.Second, Heartbeat: 5 * time.Second, MaxSize: 100, Assignor: "sticky"}}
}

func (r *rig) make() *Group { return New("g", func() Config { return r.cfg }, r.Topics) }

func (r *rig) streams() *Group {
	g, _ := r.Of.Kind().(*Group)
	return g
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
	o := r.Step(r.heartbeat(id, epoch, change))
	if len(o.Replies) != 1 {
		t.Fatalf("%d replies", len(o.Replies))
	}
	return o.Replies[0].Result.(HeartbeatResult)
}

func plain(topics ...string) *Topology {
	return &Topology{Epoch: 1, Subtopologies: []Subtopology{{ID: "0", Sources: topics}}}
}

func counting(topic string) *Topology {
	return &Topology{Epoch: 1, Subtopologies: []Subtopology{{ID: "0", Sources: []string{topic}, Changelogs: []TopicInfo{{Name: topic + "-changelog"}}}}}
}
