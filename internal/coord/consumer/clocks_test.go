package consumer

import (
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// TestClockOfWhoHasLeft: the time that a static member had for giving partitions up says nothing once it has left for a while. A tick that changes nothing is not due.
func TestClockOfWhoHasLeft(t *testing.T) {
	r := newReplayer("g")
	r.Topics.Set("t", 4)
	epochs := map[string]int32{}
	beat := func(id string, change func(*Heartbeat)) {
		t.Helper()
		c := &Heartbeat{Token: 1, MemberID: id, Epoch: epochs[id], InstanceID: &id, ClientID: "c", ClientHost: "/h", Rebalance: -1, New: r.make}
		if c.Epoch == 0 {
			c.Rebalance, c.Topics, c.Owned = 10_000, []string{"t"}, Owned{}
		}
		if change != nil {
			change(c)
		}
		got := r.Step(c).Replies[0].Result.(HeartbeatResult)
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		epochs[id] = got.Epoch
	}
	beat("a", nil)
	r.Now = r.Now.Add(5 * time.Second)
	beat("b", nil)
	beat("a", nil)
	g := r.Of.Kind().(*Group)
	if m := g.Get("a"); m.State != members.Unrevoked {
		t.Fatalf("%+v", m)
	}
	beat("a", func(c *Heartbeat) { c.Epoch = members.EpochLeaveStatic })
	for range 60 {
		r.Now = r.Now.Add(time.Second)
		for ticks := 0; r.Due(); ticks++ {
			if ticks > 5 {
				t.Fatal("a tick does not move the deadline")
			}
			r.Try(group.Tick{}, func() bool { return false })
		}
	}
	if g.Get("a") != nil {
		t.Error("it is there still")
	}
}
