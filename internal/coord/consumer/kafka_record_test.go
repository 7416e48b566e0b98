package consumer

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
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
)

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
