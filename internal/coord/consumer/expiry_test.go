package consumer

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/grouptest"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

const retention = time.Hour

// expiring is a group of one member that subscribes to t, with offsets of t and of a topic that nobody subscribes to.
type expiring struct {
	*replayer
	t     *testing.T
	epoch int32
}

func newExpiring(t *testing.T, change ...func(*Heartbeat)) *expiring {
	t.Helper()
	e := &expiring{replayer: &replayer{grouptest.New("g", group.Config{OffsetsRetention: retention, MaxMetadata: 10})}, t: t}
	e.Topics.Set("t", 2)
	c := &Heartbeat{Token: 1, MemberID: "m", ClientID: "c", ClientHost: "/h", Rebalance: 60_000, Topics: []string{"t"}, Owned: Owned{}, New: e.make}
	for _, f := range change {
		f(c)
	}
	r := e.Step(c).Replies[0].Result.(HeartbeatResult)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	e.epoch = r.Epoch
	e.commit("t", "other")
	return e
}

func (e *expiring) commit(topics ...string) {
	e.t.Helper()
	c := &group.Commit{Token: 1, MemberID: "m", Generation: e.epoch, Version: 9}
	for _, topic := range topics {
		c.Offsets = append(c.Offsets, group.OffsetOf{TopicPartition: group.TopicPartition{Topic: topic}, Offset: group.Offset{Offset: 5, LeaderEpoch: -1, Committed: e.Now}})
	}
	r := e.Step(c).Replies[0].Result.(group.CommitResult)
	if err := errors.Join(append(r.Partitions, r.Err)...); err != nil {
		e.t.Fatal(err)
	}
}

func (e *expiring) after(d time.Duration) *expiring {
	e.Now = e.Now.Add(d)
	e.Step(group.Expire{})
	return e
}

func (e *expiring) beat(change ...func(*Heartbeat)) {
	e.t.Helper()
	c := &Heartbeat{Token: 1, MemberID: "m", Epoch: e.epoch, ClientID: "c", ClientHost: "/h", Rebalance: -1}
	for _, f := range change {
		f(c)
	}
	r := e.Step(c).Replies[0].Result.(HeartbeatResult)
	if r.Err != nil {
		e.t.Fatal(r.Err)
	}
	e.epoch = r.Epoch
}

// left are the topics whose offsets are there.
func (e *expiring) left(want ...string) {
	e.t.Helper()
	var got []string
	for _, tp := range e.Of.Offsets() {
		got = append(got, tp.Topic)
	}
	if !slices.Equal(got, want) {
		e.t.Errorf("offsets of %v are left, want %v", got, want)
	}
}

// TestExpiry is KIP-211 for groups of KIP-848. Unlike a classic group's, the offsets of one that has emptied are kept since they were committed.
func TestExpiry(t *testing.T) {
	t.Run("a member keeps what it subscribes to", func(t *testing.T) {
		e := newExpiring(t).after(retention - time.Minute)
		e.left("other", "t")
		e.after(time.Minute).left("t")
		e.after(100 * retention).left("t")
	})
	t.Run("a regular expression keeps what it stands for", func(t *testing.T) {
		regex := "t.*"
		e := newExpiring(t, func(c *Heartbeat) { c.Topics, c.Regex = nil, &regex })
		e.Step(group.Tick{}) // looks the expression up
		e.after(100 * retention).left("t")
	})
	t.Run("a topic that is not subscribed to any more", func(t *testing.T) {
		e := newExpiring(t)
		e.Topics.Set("u", 1)
		e.beat(func(c *Heartbeat) { c.Rebalance, c.Topics, c.Owned = 60_000, []string{"u"}, Owned{} })
		e.after(retention-time.Minute).left("other", "t")
		e.after(time.Minute).left()
		if e.Of.Kind().Empty() || e.Of.Kind().Type() != group.TypeConsumer {
			t.Error("the group went with its offsets, with a member in it")
		}
	})
	t.Run("a group that emptied", func(t *testing.T) {
		e := newExpiring(t).after(retention / 2)
		e.commit("t")
		e.after(0)
		e.beat(func(c *Heartbeat) { c.Epoch = members.EpochLeave })
		e.after(retention / 2).left("t")
		if e.Of.Dead() {
			t.Fatal("the group is gone and has offsets")
		}
		e.after(retention / 2).left()
		if !e.Of.Dead() {
			t.Error("the group is there although nothing is left of it")
		}
	})
	t.Run("a static member that is away keeps its offsets", func(t *testing.T) {
		instance := "i"
		e := newExpiring(t, func(c *Heartbeat) { c.InstanceID = &instance })
		e.beat(func(c *Heartbeat) { c.Epoch, c.InstanceID = members.EpochLeaveStatic, &instance })
		e.after(2 * retention).left("t")
	})
}
