package consumer

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/coord/group"
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
			r.topics.set(l.Topic, l.ID, l.Partitions)
		case l.Told != nil:
			if got := r.told(); !sameJSON(got, l.Told) {
				t.Fatalf("line %d, group %s\nours:  %s\nKafka: %s", number, r.of.ID(), text(got), text(l.Told))
			}
		default:
			beats++
			if got := r.beat(&l); !sameJSON(got, l.Answer) {
				t.Fatalf("line %d, group %s, member %s epoch %d\nours:  %s\nKafka: %s", number, r.of.ID(), l.Member, l.Epoch, text(got), text(l.Answer))
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

// fakeTopics are topics that a test sets.
type fakeTopics struct {
	byName  map[string]Topic
	version int64
}

func newTopics() *fakeTopics { return &fakeTopics{byName: map[string]Topic{}} }

func (f *fakeTopics) set(name, id string, partitions int32) {
	t := Topic{Name: name, Partitions: partitions}
	if b, err := hex.DecodeString(id); err != nil || copy(t.ID[:], b) != 16 {
		panic(id)
	}
	f.byName[name] = t
	f.version++
}

func (f *fakeTopics) drop(name string) {
	delete(f.byName, name)
	f.version++
}

func (f *fakeTopics) Version() int64 { return f.version }

func (f *fakeTopics) ByName(name string) (Topic, bool) {
	t, ok := f.byName[name]
	return t, ok
}

func (f *fakeTopics) ByID(id TopicID) (Topic, bool) {
	for _, t := range f.byName {
		if t.ID == id {
			return t, true
		}
	}
	return Topic{}, false
}

func (f *fakeTopics) Names() []string { return slices.Sorted(maps.Keys(f.byName)) }

func testConfig() Config {
	return Config{Session: 45 * time.Second, Heartbeat: 5 * time.Second, MaxSize: 1000, ClassicMaxSize: 1000, Assignors: []string{"uniform", "range"}, Upgrade: true, Downgrade: true}
}

var t0 = time.Unix(1_700_000_000, 0)

type replayer struct {
	topics *fakeTopics
	of     *group.Group
	now    time.Time
	log    []group.Record
}

func newReplayer(id string) *replayer {
	return &replayer{topics: newTopics(), of: group.New(id, func() group.Config { return group.Config{} }, t0), now: t0}
}

func (r *replayer) step(c group.Command) group.Output {
	r.now = r.now.Add(time.Millisecond)
	o := r.of.Step(r.now, c)
	r.log = append(r.log, o.Records...)
	return o
}

func (r *replayer) beat(l *line) *answer {
	c := &Heartbeat{Token: l, MemberID: l.Member, Epoch: l.Epoch, ClientID: "c", ClientHost: "/h", Rebalance: -1, New: func() *Group {
		return New(r.of.ID(), testConfig, r.topics)
	}}
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
			t, _ := r.topics.ByName(name)
			c.Owned[t.ID] = parts
		}
	}
	result := r.step(c).Replies[0].Result.(HeartbeatResult)
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
		t, _ := r.topics.ByID(id)
		out[t.Name] = p.Of(id)
	}
	return out
}

func (r *replayer) told() *told {
	g, ok := r.of.Kind().(*Group)
	if !ok {
		return nil
	}
	d := g.Describe()
	out := &told{State: d.State, Epoch: d.Epoch, AssignmentEpoch: d.AssignmentEpoch, Assignor: d.Assignor, Members: map[string]toldMember{}}
	for _, m := range d.Members {
		tm := toldMember{Epoch: m.Epoch, Owned: r.named(m.Owned()), Target: map[string][]int32{}}
		for _, id := range TopicsOf(m.Target) {
			t, _ := r.topics.ByID(id)
			tm.Target[t.Name] = slices.Sorted(slices.Values(m.Target[id]))
		}
		out.Members[m.ID] = tm
	}
	return out
}

// recorder holds histories with an Apache Kafka.
type recorder struct {
	t     *testing.T
	cl    *kgo.Client
	out   *bufio.Writer
	rng   *rand.Rand
	group string

	topics  []string
	ids     map[TopicID]string
	counts  map[string]int32
	members map[string]*actor
}

// actor is a member as a test plays it.
type actor struct {
	id, instance, assignor string
	epoch                  int32
	topics                 []string
	owned                  map[string][]int32
	away                   bool
}

func holdHistories(t *testing.T) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(*recordHistories))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	f, err := os.Create(histories)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	defer w.Flush()
	find := kmsg.NewPtrFindCoordinatorRequest() // makes __consumer_offsets
	find.CoordinatorKeys = []string{"any"}
	if _, err := find.RequestWith(t.Context(), cl); err != nil {
		t.Fatal(err)
	}
	run := strconv.FormatInt(time.Now().Unix()%46656, 36)
	for i := range 26 {
		r := &recorder{t: t, cl: cl, out: w, rng: rand.New(rand.NewPCG(uint64(i), 7)), group: fmt.Sprintf("%s%c", run, 'a'+i), ids: map[TopicID]string{}, counts: map[string]int32{}, members: map[string]*actor{}}
		r.hold()
	}
}

func (r *recorder) write(l *line) {
	b, err := json.Marshal(l)
	if err != nil {
		r.t.Fatal(err)
	}
	r.out.Write(append(b, '\n'))
}

func (r *recorder) ask(req kmsg.Request) kmsg.Response {
	for range 100 {
		resp, err := r.cl.SeedBrokers()[0].Request(r.t.Context(), req)
		if err != nil {
			r.t.Fatal(err)
		}
		if h, ok := resp.(*kmsg.ConsumerGroupHeartbeatResponse); ok && (h.ErrorCode == 14 || h.ErrorCode == 15 || h.ErrorCode == 16) {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		return resp
	}
	r.t.Fatal("no coordinator")
	return nil
}

func (r *recorder) hold() {
	r.write(&line{Group: r.group})
	for i := range 1 + r.rng.IntN(4) {
		name := fmt.Sprintf("%s%d", r.group, i)
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = 10_000
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, int32(1+r.rng.IntN(r.most())), 1
		req.Topics = append(req.Topics, rt)
		if c := r.ask(req).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; c != 0 {
			r.t.Fatal(kerr.ErrorForCode(c))
		}
		r.learn(name, rt.NumPartitions)
		r.topics = append(r.topics, name)
	}
	for i := range 40 {
		r.act()
		if i%8 == 7 {
			r.tell()
		}
	}
	r.settle()
	r.tell()
}

// learn waits until a topic is there as it should be.
func (r *recorder) learn(name string, partitions int32) {
	for range 200 {
		m := kmsg.NewPtrMetadataRequest()
		m.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		if t := r.ask(m).(*kmsg.MetadataResponse).Topics[0]; len(t.Partitions) == int(partitions) {
			r.ids[t.TopicID], r.counts[name] = name, partitions
			time.Sleep(time.Second) // the coordinator sees it a little later
			r.write(&line{Topic: name, ID: hex.EncodeToString(t.TopicID[:]), Partitions: partitions})
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.t.Fatal("no topic")
}

// most is how many partitions a topic has at most: some groups have enough for the order of Java's hash sets to be another than that of the numbers.
func (r *recorder) most() int {
	if r.rng.IntN(4) == 0 {
		return 40
	}
	return 9
}

func (r *recorder) pick() *actor {
	ids := slices.Sorted(maps.Keys(r.members))
	if len(ids) == 0 {
		return nil
	}
	return r.members[ids[r.rng.IntN(len(ids))]]
}

func (r *recorder) subscription() []string {
	if r.rng.IntN(3) > 0 {
		return slices.Clone(r.topics)
	}
	var out []string
	for _, t := range r.topics {
		if r.rng.IntN(2) == 0 {
			out = append(out, t)
		}
	}
	if out == nil {
		out = []string{r.topics[0]}
	}
	return out
}

func (r *recorder) act() {
	a := r.pick()
	switch n := r.rng.IntN(20); {
	case a == nil || n < 4 && len(r.members) < 9:
		r.join(&actor{id: fmt.Sprintf("%08x-%04x-m", r.rng.Uint32(), r.rng.IntN(1<<16)), topics: r.subscription()})
	case n == 4 && len(r.members) < 9:
		id := fmt.Sprintf("%08x-s", r.rng.Uint32())
		r.join(&actor{id: id, instance: "i" + id, topics: r.subscription()})
	case n == 5:
		a.topics = r.subscription()
		r.beat(a, true)
	case n == 6:
		r.leave(a, -1)
	case n == 7 && a.instance != "" && !a.away:
		r.leave(a, -2)
	case n == 8 && a.away:
		old := a.id
		delete(r.members, old)
		a.id, a.away = old+"+", false
		r.join(a)
	case n == 9:
		// Of one kind in a group: where as many members ask for each assignor, Apache Kafka begins a rebalance with every heartbeat.
		a.assignor = []string{"range", "uniform"}[int(r.group[len(r.group)-1])%2]
		r.beat(a, true)
	case n == 10 && r.rng.IntN(3) == 0:
		t := r.topics[r.rng.IntN(len(r.topics))]
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis = 10_000
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = t, r.counts[t]+1+int32(r.rng.IntN(5))
		req.Topics = append(req.Topics, rt)
		r.ask(req)
		r.learn(t, rt.Count)
	case n == 11 && !a.away: // an answer was lost
		before := *a
		r.beat(a, false)
		*a = before
	default:
		r.beat(a, r.rng.IntN(3) == 0)
	}
}

func (r *recorder) join(a *actor) {
	a.epoch, a.owned = 0, nil
	r.members[a.id] = a
	r.beat(a, true)
}

func (r *recorder) leave(a *actor, epoch int32) {
	l := &line{Member: a.id, Epoch: epoch, Instance: a.instance}
	r.send(l)
	if a.away = epoch == -2; !a.away {
		delete(r.members, a.id)
	}
}

// beat sends a heartbeat and takes the assignment at once.
func (r *recorder) beat(a *actor, full bool) {
	if a.away {
		return
	}
	l := &line{Member: a.id, Epoch: a.epoch, Instance: a.instance, Full: full, Assignor: a.assignor}
	if full {
		l.Topics = a.topics
	}
	if full || r.rng.IntN(2) == 0 {
		l.Owned = maps.Clone(a.owned)
		if l.Owned == nil {
			l.Owned = map[string][]int32{}
		}
		if !full && len(l.Owned) == 0 {
			l.Owned = nil
		}
	}
	got := r.send(l)
	if got.Error != "" {
		delete(r.members, a.id)
		return
	}
	a.epoch = got.Epoch
	if got.Assignment != nil {
		a.owned = got.Assignment
	}
}

func (r *recorder) send(l *line) *answer {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = 1, r.group, l.Member, l.Epoch, -1
	if l.Instance != "" {
		req.InstanceID = &l.Instance
	}
	if l.Assignor != "" {
		req.ServerAssignor = &l.Assignor
	}
	if l.Full {
		req.RebalanceTimeoutMillis, req.SubscribedTopicNames = 60_000, l.Topics
	}
	if l.Full || l.Owned != nil {
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for id, name := range r.ids {
			if parts := l.Owned[name]; len(parts) > 0 {
				t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
				t.TopicID, t.Partitions = id, parts
				req.Topics = append(req.Topics, t)
			}
		}
	}
	resp := r.ask(req).(*kmsg.ConsumerGroupHeartbeatResponse)
	l.Answer = &answer{Epoch: resp.MemberEpoch}
	if resp.ErrorCode != 0 {
		l.Answer.Error = strings.SplitN(kerr.ErrorForCode(resp.ErrorCode).Error(), ":", 2)[0]
	}
	if resp.Assignment != nil {
		l.Answer.Assignment = map[string][]int32{}
		for _, t := range resp.Assignment.Topics {
			l.Answer.Assignment[r.ids[t.TopicID]] = slices.Sorted(slices.Values(t.Partitions))
		}
	}
	r.write(l)
	return l.Answer
}

// settle lets all members get what they are to have.
func (r *recorder) settle() {
	for range 4 {
		for _, id := range slices.Sorted(maps.Keys(r.members)) {
			if a := r.members[id]; a != nil {
				r.beat(a, true)
			}
		}
	}
}

func (r *recorder) tell() {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{r.group}
	g := r.ask(req).(*kmsg.ConsumerGroupDescribeResponse).Groups[0]
	if g.ErrorCode != 0 {
		return
	}
	out := &told{State: g.State, Epoch: g.Epoch, AssignmentEpoch: g.AssignmentEpoch, Assignor: g.AssignorName, Members: map[string]toldMember{}}
	named := func(a kmsg.Assignment) map[string][]int32 {
		m := map[string][]int32{}
		for _, t := range a.TopicPartitions {
			m[r.ids[t.TopicID]] = slices.Sorted(slices.Values(t.Partitions))
		}
		return m
	}
	for _, m := range g.Members {
		out.Members[m.MemberID] = toldMember{Epoch: m.MemberEpoch, Owned: named(m.Assignment), Target: named(m.TargetAssignment)}
	}
	r.write(&line{Told: out})
}
