package consumer

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/grouptest"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// crossing is a group that goes from kind to kind, with offsets that are committed in transactions and without, and the log that tells of it.
type crossing struct {
	*rapid.T
	rig   *grouptest.Rig
	log   []logged
	names int
}

// logged is a record, of a transaction if it has a producer; or the marker that ends one.
type logged struct {
	group.Record
	producer       int64
	marker, commit bool
}

const nobody = -1

func newCrossing(t *rapid.T) *crossing {
	w := &crossing{T: t, rig: grouptest.New("g", group.Config{MaxSession: time.Hour, MaxSize: 5, MaxMetadata: 100, OffsetsRetention: time.Hour})}
	w.rig.Topics.Set("t", 3)
	return w
}

func (w *crossing) make() *Group {
	return New("g", func() Config {
		return Config{Session: 30 * time.Second, Heartbeat: time.Second, MaxSize: 5, ClassicMaxSize: 5, Assignors: []string{"uniform"}, Upgrade: true, Downgrade: true}
	}, w.rig.Topics)
}

func (w *crossing) step(c group.Command) {
	w.rig.Now = w.rig.Now.Add(time.Millisecond)
	o := w.rig.Of.Step(w.rig.Now, c)
	if len(o.Records) > 0 && rapid.IntRange(0, 9).Draw(w.T, "fails") == 0 {
		w.rig.Of.Failed(w.rig.Now, o, group.ErrNotAvailable)
		return
	}
	producer := int64(nobody)
	if o.Producer != nil {
		producer = o.Producer.ID
	}
	for _, r := range o.Records {
		w.log = append(w.log, logged{Record: r, producer: producer})
	}
	if w.rig.Of.Disposable() { // as a coordinator does
		w.rig.Of = w.empty()
	}
}

func (w *crossing) empty() *group.Group {
	return group.New("g", func() group.Config {
		return group.Config{MaxSession: time.Hour, MaxSize: 5, MaxMetadata: 100, OffsetsRetention: time.Hour}
	}, w.rig.Now)
}

func (w *crossing) member() string {
	var ids []string
	switch k := w.rig.Of.Kind().(type) {
	case *group.Classic:
		for _, m := range k.Members() {
			ids = append(ids, m.ID)
		}
	case *Group:
		ids = k.IDs()
	}
	return rapid.SampledFrom(append(ids, "stranger")).Draw(w.T, "member")
}

func (w *crossing) offsets() (out []group.OffsetOf) {
	for n := range rapid.IntRange(1, 2).Draw(w.T, "offsets") {
		tp := group.TopicPartition{Topic: "t", Partition: int32(n)}
		out = append(out, group.OffsetOf{TopicPartition: tp, Offset: group.Offset{Offset: int64(len(w.log)), LeaderEpoch: -1, Committed: w.rig.Now}})
	}
	return out
}

func (w *crossing) act() {
	w.names++
	fresh := fmt.Sprintf("m%d", w.names)
	producer := rapid.Int64Range(1, 2).Draw(w.T, "producer")
	switch rapid.IntRange(0, 12).Draw(w.T, "what") {
	case 0, 1:
		s := kmsg.NewConsumerMemberMetadata()
		s.Version, s.Topics = 3, []string{"t"}
		w.step(&group.Join{Token: 1, NewMemberID: fresh, ProtocolType: "consumer", Session: 10 * time.Second, Rebalance: 10 * time.Second,
			Protocols: []group.Protocol{{Name: "range", Metadata: s.AppendTo(nil)}}})
	case 2:
		k, ok := w.rig.Of.Kind().(*group.Classic)
		if !ok {
			return
		}
		for _, m := range k.Members() {
			w.step(&group.Sync{Token: 1, MemberID: m.ID, Generation: k.Generation(), Assignments: map[string][]byte{}})
		}
	case 3:
		w.step(&group.Leave{Token: 1, Members: []group.LeaveMember{{MemberID: w.member()}}})
	case 4, 5:
		w.step(&Heartbeat{Token: 1, MemberID: fresh, ClientID: "c", ClientHost: "/h", Rebalance: 10_000, Topics: []string{"t"}, Owned: Owned{}, New: w.make})
	case 6:
		w.step(&Heartbeat{Token: 1, MemberID: w.member(), Epoch: members.EpochLeave, New: w.make})
	case 7:
		w.step(&group.Commit{Token: 1, Generation: -1, Offsets: w.offsets()})
	case 8:
		w.step(&group.TxnCommit{Commit: group.Commit{Token: 1, Generation: -1, Offsets: w.offsets()}, Producer: group.Producer{ID: producer}})
	case 9:
		commit := rapid.Bool().Draw(w.T, "commit")
		w.log = append(w.log, logged{producer: producer, marker: true, commit: commit})
		w.step(group.EndTransaction{ProducerID: producer, Commit: commit})
	case 10:
		w.step(&group.Delete{Token: 1})
	case 11:
		w.rig.Now = w.rig.Now.Add(time.Duration(rapid.IntRange(1, 60).Draw(w.T, "minutes")) * time.Minute)
		w.step(group.Expire{})
	}
	for w.rig.Due() {
		w.step(group.Tick{})
	}
}

// replayed is the group that the log tells of.
func (w *crossing) replayed() *group.Group {
	g, format := w.empty(), Format(func(string) *Group { return w.make() })
	for _, l := range w.log {
		if l.marker {
			g.ReplayEnd(l.producer, l.commit)
			continue
		}
		if _, k, err := Parse(l.Key, l.Value); err == nil {
			g.ReplayKind(&format, k, w.rig.Now)
			continue
		}
		e, err := group.ParseRecord(l.Key, l.Value)
		switch {
		case err != nil:
			w.Fatalf("%x: %v", l.Key, err)
		case l.producer != nobody:
			g.ReplayTransactional(l.producer, e, w.rig.Now)
		default:
			g.Replay(e, w.rig.Now)
		}
	}
	return g
}

// hold: whenever the node is killed, the next start finds each offset as it was, and those that are pending; and a group that it does not throw away.
func (w *crossing) hold() {
	is, again := w.rig.Of, w.replayed()
	if !slices.Equal(again.Offsets(), is.Offsets()) {
		w.Fatalf("replayed there are offsets of %v, there were of %v", again.Offsets(), is.Offsets())
	}
	for _, tp := range is.Offsets() {
		a, _ := is.Offset(tp)
		b, _ := again.Offset(tp)
		if a.Offset != b.Offset || is.Unstable(tp) != again.Unstable(tp) {
			w.Fatalf("replayed %v is at %d, pending %v; was at %d, pending %v", tp, b.Offset, again.Unstable(tp), a.Offset, is.Unstable(tp))
		}
	}
	if len(is.Offsets()) > 0 && again.Disposable() {
		w.Fatalf("replayed the group is %s and thrown away, with offsets of %v", again.Kind().State(), is.Offsets())
	}
	switch k := is.Kind().(type) {
	case *Group:
		h, ok := again.Kind().(*Group)
		if !ok || !slices.Equal(h.IDs(), k.IDs()) || h.reached != k.reached || h.Assignment != k.Assignment {
			w.Fatalf("replayed it is of kind %T, was a consumer group of %v in epoch %d", again.Kind(), k.IDs(), k.epoch)
		}
	case *group.Classic:
		if h, ok := again.Kind().(*group.Classic); k.State() == "Stable" && (!ok || h.Generation() != k.Generation() || !slices.EqualFunc(h.Members(), k.Members(), sameClassicMember)) {
			w.Fatalf("replayed it is of kind %T, was a classic group of %+v in generation %d", again.Kind(), k.Members(), k.Generation())
		}
	}
	for _, p := range is.Producers() {
		if !slices.Contains(again.Producers(), p) {
			w.Fatalf("replayed nothing is pending of producer %d", p)
		}
	}
}

func sameClassicMember(a, b group.ClassicMember) bool {
	return a.ID == b.ID && a.Session == b.Session && a.Rebalance == b.Rebalance && bytes.Equal(a.Assignment, b.Assignment)
}

func TestOffsetsOutliveEveryKind(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newCrossing(rt)
		for range rapid.IntRange(5, 50).Draw(rt, "steps") {
			w.act()
			w.hold()
		}
		for _, p := range []int64{1, 2} { // what is pending comes to the same
			w.log = append(w.log, logged{producer: p, marker: true, commit: true})
			w.step(group.EndTransaction{ProducerID: p, Commit: true})
			w.hold()
		}
	})
}
