package share

import (
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// However long a share group has no members, it is there: Apache Kafka does not let one expire, for what it has read would come once more, or what was written meanwhile never.
func TestNeverExpires(t *testing.T) {
	topics := topicMap{"a": {ID: [16]byte{1}, Name: "a", Partitions: 2}}
	now := base
	g := group.New("g", func() group.Config { return group.Config{OffsetsRetention: time.Hour} }, now)
	beat := func(epoch int32, subscribed []string) HeartbeatResult {
		t.Helper()
		h := &Heartbeat{Member: "m", Epoch: epoch, Topics: subscribed, ClientID: "c", Host: "/127.0.0.1", New: func() *Group { return New("g", config, topics) }}
		h.Token = 1
		r := g.Step(now, h).Replies[0].Result.(HeartbeatResult)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r
	}
	r := beat(members.EpochJoin, []string{"a"})
	if r.Initialize == nil {
		t.Fatal("nothing to make")
	}
	made := &Initialized{States: r.Initialize.States}
	made.Token = 1
	g.Step(now, made)
	beat(members.EpochLeave, nil)
	for range 3 {
		now = now.Add(24 * time.Hour)
		if o := g.Step(now, group.Expire{}); len(o.Records) > 0 || g.Kind().Type() != group.TypeShare || g.Kind().State() != "Empty" {
			t.Fatalf("after %v: %d records, %s, %s", now.Sub(base), len(o.Records), g.Kind().Type(), g.Kind().State())
		}
	}
	o := g.Step(now, &group.Delete{Token: 1})
	if err := o.Replies[0].Result.(group.DeleteResult).Err; err != nil || len(o.Records) == 0 || !g.Dead() {
		t.Errorf("deleted: %v, %d records", err, len(o.Records))
	}
}
