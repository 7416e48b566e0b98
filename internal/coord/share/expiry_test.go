package share

import (
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/grouptest"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// However long a share group has no members, it is there: Apache Kafka does not let one expire, for what it has read would come once more, or what was written meanwhile never.
func TestNeverExpires(t *testing.T) {
	w := grouptest.New("g", group.Config{OffsetsRetention: time.Hour})
	w.Topics.Set("a", 2)
	beat := func(epoch int32, subscribed []string) HeartbeatResult {
		t.Helper()
		h := &Heartbeat{Member: "m", Epoch: epoch, Topics: subscribed, ClientID: "c", Host: "/127.0.0.1", New: func() *Group { return New("g", config, w.Topics) }}
		h.Token = 1
		r := w.Step(h).Replies[0].Result.(HeartbeatResult)
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
	w.Step(made)
	beat(members.EpochLeave, nil)
	for range 3 {
		w.Now = w.Now.Add(24 * time.Hour)
		if o := w.Step(group.Expire{}); len(o.Records) > 0 || w.Of.Kind().Type() != group.TypeShare || w.Of.Kind().State() != "Empty" {
			t.Fatalf("after %v: %d records, %s, %s", w.Now.Sub(grouptest.T0), len(o.Records), w.Of.Kind().Type(), w.Of.Kind().State())
		}
	}
	o := w.Step(&group.Delete{Token: 1})
	if err := o.Replies[0].Result.(group.DeleteResult).Err; err != nil || len(o.Records) == 0 || !w.Of.Dead() {
		t.Errorf("deleted: %v, %d records", err, len(o.Records))
	}
}
