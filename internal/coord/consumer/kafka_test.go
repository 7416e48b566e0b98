package consumer

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/grouptest"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// Random histories of groups were held with Apache Kafka 4.4.0: who sent which heartbeat, what it was answered, and what each member was to have then. The state
// machine is given the same heartbeats and topics, with the same ids, and must come to the same. To record them anew, start one with
// group.consumer.assignment.interval.ms=0 and name its address.
var recordHistories = flag.String("record-histories", "", "address of an Apache Kafka with which histories are to be recorded")

const histories = "testdata/histories_kafka_4.4.0.jsonl"

// line is one line of the file: a group begins, a topic comes or grows, a heartbeat with its answer, or what members are to have.
type line struct {
	Group      string `json:"group,omitempty"`
	Topic      string `json:"topic,omitempty"`
	ID         string `json:"id,omitempty"`
	Partitions int32  `json:"partitions,omitempty"`

	Member   string             `json:"member,omitempty"`
	Epoch    int32              `json:"epoch,omitempty"`
	Instance string             `json:"instance,omitempty"`
	Topics   []string           `json:"topics,omitempty"`
	Assignor string             `json:"assignor,omitempty"`
	Full     bool               `json:"full,omitempty"`
	Owned    map[string][]int32 `json:"owned,omitempty"`
	Answer   *answer            `json:"answer,omitempty"`

	Told *told `json:"told,omitempty"`
}

type answer struct {
	Error      string             `json:"error,omitempty"`
	Epoch      int32              `json:"epoch,omitempty"`
	Assignment map[string][]int32 `json:"assignment"`
}

// told is what ConsumerGroupDescribe tells.
type told struct {
	State                  string
	Epoch, AssignmentEpoch int32
	Assignor               string
	Members                map[string]toldMember
}

type toldMember struct {
	Epoch         int32
	Owned, Target map[string][]int32
}

func TestHistoriesAsApacheKafka(t *testing.T) {
	if *recordHistories != "" {
		holdHistories(t)
	}
	f, err := os.Open(histories)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r *replayer
	groups, beats, number := 0, 0, 0
	for s := bufio.NewScanner(f); ; {
		if !s.Scan() {
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			break
		}
		number++
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		switch {
		case l.Group != "":
			groups++
			r = newReplayer(l.Group)
		case l.Topic != "":
			topic := members.Topic{Name: l.Topic, Partitions: l.Partitions}
			if b, err := hex.DecodeString(l.ID); err != nil || copy(topic.ID[:], b) != 16 {
				t.Fatal(l.ID)
			}
			r.Topics.Put(topic)
		case l.Told != nil:
			if got := r.told(); !sameJSON(got, l.Told) {
				t.Fatalf("line %d, group %s\nours:  %s\nKafka: %s", number, r.Of.ID(), text(got), text(l.Told))
			}
		default:
			beats++
			if got := r.beat(&l); !sameJSON(got, l.Answer) {
				t.Fatalf("line %d, group %s, member %s epoch %d\nours:  %s\nKafka: %s", number, r.Of.ID(), l.Member, l.Epoch, text(got), text(l.Answer))
			}
		}
	}
	if groups < 20 || beats < 500 {
		t.Errorf("only %d groups and %d heartbeats", groups, beats)
	}
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func sameJSON(a, b any) bool { return text(a) == text(b) }

func testConfig() Config {
	return Config{Session: 45 * time.Second, Heartbeat: 5 * time.Second, MaxSize: 1000, ClassicMaxSize: 1000, Assignors: []string{"uniform", "range"}, Upgrade: true, Downgrade: true}
}

type replayer struct{ *grouptest.Rig }

func newReplayer(id string) *replayer { return &replayer{grouptest.New(id, group.Config{})} }

func (r *replayer) make() *Group { return New(r.Of.ID(), testConfig, r.Topics) }

func (r *replayer) beat(l *line) *answer {
	c := &Heartbeat{Token: l, MemberID: l.Member, Epoch: l.Epoch, ClientID: "c", ClientHost: "/h", Rebalance: -1, New: r.make}
	if l.Instance != "" {
		c.InstanceID = &l.Instance
	}
	if l.Assignor != "" {
		c.Assignor = &l.Assignor
	}
	if l.Full {
		c.Rebalance, c.Topics = 60_000, append([]string{}, l.Topics...)
	}
	if l.Full || l.Owned != nil {
		c.Owned = Owned{}
		for name, parts := range l.Owned {
			t, _ := r.Topics.ByName(name)
			c.Owned[t.ID] = parts
		}
	}
	result := r.Step(c).Replies[0].Result.(HeartbeatResult)
	a := &answer{Epoch: result.Epoch}
	if result.Err != nil {
		a.Error = errorName(result.Err)
	}
	if result.Assignment != nil {
		a.Assignment = r.named(result.Assignment)
	}
	return a
}

func errorName(err error) string {
	for _, e := range []struct {
		err  error
		name string
	}{{group.ErrFencedEpoch, "FENCED_MEMBER_EPOCH"}, {group.ErrUnknownMember, "UNKNOWN_MEMBER_ID"}, {group.ErrUnreleased, "UNRELEASED_INSTANCE_ID"}, {group.ErrFenced, "FENCED_INSTANCE_ID"}} {
		if strings.Contains(fmt.Sprintf("%v", unwrapped(err)), e.err.Error()) {
			return e.name
		}
	}
	return err.Error()
}

func unwrapped(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return err
}

func (r *replayer) named(p Partitions) map[string][]int32 {
	out := map[string][]int32{}
	for _, id := range p.Topics() {
		t, _ := r.Topics.ByID(id)
		out[t.Name] = p.Of(id)
	}
	return out
}

func (r *replayer) told() *told {
	g, ok := r.Of.Kind().(*Group)
	if !ok {
		return nil
	}
	d := g.Describe()
	out := &told{State: d.State, Epoch: d.Epoch, AssignmentEpoch: d.AssignmentEpoch, Assignor: d.Assignor, Members: map[string]toldMember{}}
	for _, m := range d.Members {
		tm := toldMember{Epoch: m.Epoch, Owned: r.named(m.Owned()), Target: map[string][]int32{}}
		for _, id := range TopicsOf(m.Target) {
			t, _ := r.Topics.ByID(id)
			tm.Target[t.Name] = slices.Sorted(slices.Values(m.Target[id]))
		}
		out.Members[m.ID] = tm
	}
	return out
}
