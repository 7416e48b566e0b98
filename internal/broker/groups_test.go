package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// consumer is a group member that notes what it is assigned and what it reads.
type groupConsumer struct {
	cl   *kgo.Client
	done sync.WaitGroup

	mu       sync.Mutex
	assigned map[int32]bool
	read     map[string]int
	changed  chan struct{}
}

func (b *testBroker) consumer(t *testing.T, name, topic string, opts ...kgo.Opt) *groupConsumer {
	t.Helper()
	c := &groupConsumer{assigned: map[int32]bool{}, read: map[string]int{}, changed: make(chan struct{}, 1)}
	c.cl = b.client(t, append([]kgo.Opt{
		kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(100 * time.Millisecond), kgo.DisableAutoCommit(), kgo.ClientID(name + "-client"),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { c.assign(p[topic], true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { c.assign(p[topic], false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, p map[string][]int32) { c.assign(p[topic], false) }),
	}, opts...)...)
	c.done.Go(c.run)
	t.Cleanup(c.stop)
	return c
}

func (c *groupConsumer) assign(partitions []int32, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range partitions {
		if on {
			c.assigned[p] = true
		} else {
			delete(c.assigned, p)
		}
	}
	c.tell()
}

func (c *groupConsumer) tell() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *groupConsumer) run() {
	for {
		f := c.cl.PollFetches(context.Background())
		if f.IsClientClosed() {
			return
		}
		c.mu.Lock()
		f.EachRecord(func(r *kgo.Record) { c.read[string(r.Value)]++ })
		c.tell()
		c.mu.Unlock()
	}
}

func (c *groupConsumer) stop() {
	c.cl.Close()
	c.done.Wait()
}

// until waits for a condition on what the consumer has seen.
func (c *groupConsumer) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		c.mu.Lock()
		good := ok()
		state := fmt.Sprintf("assigned %v, read %d values", c.assigned, len(c.read))
		c.mu.Unlock()
		if good {
			return
		}
		select {
		case <-c.changed:
		case <-deadline:
			t.Fatalf("never came: %s (%s)", what, state)
		}
	}
}

func TestGroupOfTwo(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 4)
	producer := b.client(t)
	produceSome(t, producer, "t", 0, 100)

	first := b.consumer(t, "g", "t")
	first.until(t, "the first member owns all", func() bool { return len(first.assigned) == 4 && len(first.read) == 100 })
	second := b.consumer(t, "g", "t")
	second.until(t, "the second member owns half", func() bool { return len(second.assigned) == 2 })
	first.until(t, "the first member kept half", func() bool { return len(first.assigned) == 2 })

	adm := b.admin(t)
	described, err := adm.DescribeGroups(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	g := described["g"]
	if g.State != "Stable" || g.ProtocolType != "consumer" || len(g.Members) != 2 || len(g.AssignedPartitions()["t"]) != 4 || g.Members[0].ClientHost != "/127.0.0.1" {
		t.Errorf("described as %+v", g)
	}
	listed, err := adm.ListGroups(t.Context(), "Stable")
	if err != nil || !slices.Equal(listed.Groups(), []string{"g"}) {
		t.Errorf("listed: %v, %v", listed, err)
	}
	if listed, err = adm.ListGroups(t.Context(), "Empty"); err != nil || len(listed) != 0 {
		t.Errorf("listed as empty: %v, %v", listed, err)
	}
	if got, err := adm.DeleteGroups(t.Context(), "g"); err == nil && !errors.Is(got["g"].Err, kerr.NonEmptyGroup) {
		t.Errorf("deleting a group in use: %v", got)
	}
	second.stop()
	first.until(t, "the first member owns all again", func() bool { return len(first.assigned) == 4 })
}

func TestCommittedOffsetsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	b.createTopic(t, "t", 2)
	produceSome(t, b.client(t), "t", 0, 50)
	c := b.consumer(t, "g", "t")
	c.until(t, "all read", func() bool { return len(c.read) == 50 })
	if err := c.cl.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	simple := kadm.Offsets{}
	simple.Add(kadm.Offset{Topic: "t", Partition: 1, At: 7, LeaderEpoch: -1, Metadata: "note"})
	if err := b.admin(t).CommitAllOffsets(t.Context(), "simple", simple); err != nil {
		t.Fatal(err)
	}
	before, err := b.admin(t).FetchOffsets(t.Context(), "g")
	if err != nil || len(before["t"]) != 2 {
		t.Fatalf("offsets %v, %v", before, err)
	}
	c.stop()
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	b = startBroker(t, dir)
	adm := b.admin(t)
	after, err := adm.FetchOffsets(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	for p, o := range before["t"] {
		if after["t"][p].At != o.At {
			t.Errorf("partition %d: %d, was %d", p, after["t"][p].At, o.At)
		}
	}
	got, err := adm.FetchOffsets(t.Context(), "simple")
	if o := got["t"][1]; err != nil || o.At != 7 || o.Metadata != "note" {
		t.Errorf("simple consumer: %+v, %v", o, err)
	}
	d, err := adm.DescribeGroups(t.Context(), "g", "simple", "none")
	if err != nil || d["g"].State != "Empty" || d["simple"].State != "Empty" || d["none"].State != "Dead" && d["none"].Err == nil {
		t.Errorf("described as %+v, %v", d, err)
	}

	c = b.consumer(t, "g", "t")
	c.until(t, "assigned", func() bool { return len(c.assigned) == 2 })
	produceSome(t, b.client(t), "t", 50, 10)
	c.until(t, "only what is new", func() bool { return len(c.read) == 10 })
}

// A power failure right after the answer takes no committed offset away.
func TestCommittedOffsetSurvivesPowerFailure(t *testing.T) {
	fs := vfs.NewCrashableMem()
	if err := fs.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	if root, err := fs.OpenDir("/"); err != nil || root.Sync() != nil || root.Close() != nil {
		t.Fatal("syncing the root")
	}
	on := func(fs vfs.FS) brokerOption { return func(o *Options) { o.FS = fs } }
	b := startBroker(t, "/data", on(fs))
	b.createTopic(t, "t", 1)
	adm := b.admin(t)
	for i := range int64(20) {
		o := kadm.Offsets{}
		o.Add(kadm.Offset{Topic: "t", At: i, LeaderEpoch: -1})
		if err := adm.CommitAllOffsets(t.Context(), "g", o); err != nil {
			t.Fatal(err)
		}
	}
	after := startBroker(t, "/data", on(fs.CrashClone(vfs.CrashCloneCfg{})))
	got, err := after.admin(t).FetchOffsets(t.Context(), "g")
	if err != nil || got["t"][0].At != 19 {
		t.Errorf("offsets %v, %v", got, err)
	}
}

// What compaction leaves of __consumer_offsets is enough: the newest offsets, and no group that was deleted.
func TestOffsetsSurviveCompaction(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir, withKeys("offsets.topic.num.partitions", "1"))
	b.createTopic(t, "t", 1)
	adm := b.admin(t)
	for i := range int64(50) {
		for _, g := range []string{"kept", "deleted"} {
			o := kadm.Offsets{}
			o.Add(kadm.Offset{Topic: "t", At: i, LeaderEpoch: -1})
			if err := adm.CommitAllOffsets(t.Context(), g, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := adm.DeleteGroup(t.Context(), "deleted"); err != nil {
		t.Fatal(err)
	}
	log := b.partition(offsetsTopic, 0).log
	before := log.Stats().Size
	if err := errors.Join(log.Roll(), log.Compact(t.Context())); err != nil {
		t.Fatal(err)
	}
	if after := log.Stats().Size; after > before/2 {
		t.Errorf("%d bytes before, %d after compaction", before, after)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir, withKeys("offsets.topic.num.partitions", "1"))
	adm = b.admin(t)
	if got, err := adm.FetchOffsets(t.Context(), "kept"); err != nil || got["t"][0].At != 49 {
		t.Errorf("kept: %v, %v", got, err)
	}
	if groups, err := adm.ListGroups(t.Context()); err != nil || len(groups) != 1 {
		t.Errorf("groups: %v, %v", groups, err)
	}
}

// A member goes on over a restart of the broker: it is still in the group, in the same generation.
func TestMembersSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	b.createTopic(t, "t", 1)
	cl := b.client(t)
	m := joinAlone(t, cl, "g", "")
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir)
	hb := kmsg.NewPtrHeartbeatRequest()
	hb.Group, hb.Generation, hb.MemberID = "g", m.Generation, m.MemberID
	if got := askReady[*kmsg.HeartbeatResponse](t, b.client(t), hb); got.ErrorCode != errNone {
		t.Errorf("heartbeat: %v", kerr.ErrorForCode(got.ErrorCode))
	}
}

// askReady asks again while the coordinator loads.
func askReady[R kmsg.Response](t *testing.T, cl *kgo.Client, req kmsg.Request) R {
	t.Helper()
	for {
		resp := ask[R](t, cl, req)
		if codeOf(resp) != errCoordinatorLoading {
			return resp
		}
		time.Sleep(time.Millisecond) // the condition is asked for over the wire
	}
}

func codeOf(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode
	case *kmsg.SyncGroupResponse:
		return r.ErrorCode
	}
	return errNone
}

// joinAlone makes a group of one member, by hand.
func joinAlone(t *testing.T, cl *kgo.Client, group, instance string) *kmsg.JoinGroupResponse {
	t.Helper()
	j := kmsg.NewPtrJoinGroupRequest()
	j.Group, j.ProtocolType, j.SessionTimeoutMillis, j.RebalanceTimeoutMillis = group, "consumer", 30_000, 30_000
	if instance != "" {
		j.InstanceID = &instance
	}
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{"t"}
	j.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: meta.AppendTo(nil)}}
	got := askReady[*kmsg.JoinGroupResponse](t, cl, j)
	if got.ErrorCode == errMemberIDRequired {
		j.MemberID = got.MemberID
		got = askReady[*kmsg.JoinGroupResponse](t, cl, j)
	}
	if got.ErrorCode != errNone {
		t.Fatalf("joining: %v", kerr.ErrorForCode(got.ErrorCode))
	}
	s := kmsg.NewPtrSyncGroupRequest()
	s.Group, s.MemberID, s.Generation, s.InstanceID = group, got.MemberID, got.Generation, j.InstanceID
	s.ProtocolType, s.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	s.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: got.MemberID, MemberAssignment: []byte("mine")}}
	if sync := askReady[*kmsg.SyncGroupResponse](t, cl, s); sync.ErrorCode != errNone || string(sync.MemberAssignment) != "mine" {
		t.Fatalf("syncing: %v, %q", kerr.ErrorForCode(sync.ErrorCode), sync.MemberAssignment)
	}
	return got
}

func TestStaticMemberRestarts(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 2)
	one := b.consumer(t, "g", "t", kgo.InstanceID("one"))
	one.until(t, "assigned", func() bool { return len(one.assigned) == 2 })
	two := b.consumer(t, "g", "t", kgo.InstanceID("two"))
	two.until(t, "shared", func() bool { return len(two.assigned) == 1 })
	one.until(t, "shared", func() bool { return len(one.assigned) == 1 })
	mine := func() (p int32) {
		for p = range two.assigned {
		}
		return p
	}
	two.mu.Lock()
	owned := mine()
	two.mu.Unlock()
	two.stop() // a static member does not leave
	again := b.consumer(t, "g", "t", kgo.InstanceID("two"))
	again.until(t, "the same partition again", func() bool { return again.assigned[owned] && len(again.assigned) == 1 })
	one.mu.Lock()
	if len(one.assigned) != 1 {
		t.Errorf("the other member owns %v", one.assigned)
	}
	one.mu.Unlock()

	if _, err := b.admin(t).LeaveGroup(t.Context(), kadm.LeaveGroup("g").InstanceIDs("one", "two")); err != nil {
		t.Error(err)
	}
}

// Whoever goes away while its JoinGroup is parked holds nobody up for longer than its session.
func TestClientVanishesWhileJoining(t *testing.T) {
	b := startBroker(t, t.TempDir(), withKeys("group.min.session.timeout.ms", "200"))
	b.createTopic(t, "t", 1)
	cl := b.client(t)
	first := joinAlone(t, cl, "g", "")

	j := kmsg.NewPtrJoinGroupRequest()
	j.Group, j.ProtocolType, j.SessionTimeoutMillis, j.RebalanceTimeoutMillis = "g", "consumer", 200, 60_000
	j.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	other := b.client(t)
	got := ask[*kmsg.JoinGroupResponse](t, other, j)
	j.MemberID = got.MemberID
	ctx, cancel := context.WithCancel(t.Context())
	parked := make(chan error, 1)
	go func() { _, err := other.Request(ctx, j); parked <- err }()
	waitFor(t, "a rebalance", func() bool {
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Group, hb.Generation, hb.MemberID = "g", first.Generation, first.MemberID
		return ask[*kmsg.HeartbeatResponse](t, cl, hb).ErrorCode == errRebalanceInProgress
	})
	cancel()
	other.Close()
	<-parked
	waitFor(t, "the broker to notice", func() bool {
		n := -1
		if err := b.groups.look(t.Context(), "g", func(g *group.Group) { n = g.Kind().(*group.Classic).Waiting() }); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	j.MemberID, j.SessionTimeoutMillis = first.MemberID, 30_000
	if got := ask[*kmsg.JoinGroupResponse](t, cl, j); got.ErrorCode != errNone || len(got.Members) != 1 {
		t.Errorf("joined with %v, %d members", kerr.ErrorForCode(got.ErrorCode), len(got.Members))
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
		time.Sleep(2 * time.Millisecond) // asked for over the wire
	}
}

func TestOffsetAdmin(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 2)
	b.createTopic(t, "u", 1)
	adm := b.admin(t)
	offsets := kadm.Offsets{}
	for _, tp := range []struct {
		topic     string
		partition int32
	}{{"t", 0}, {"t", 1}, {"u", 0}} {
		offsets.Add(kadm.Offset{Topic: tp.topic, Partition: tp.partition, At: 3, LeaderEpoch: 0})
	}
	offsets.Add(kadm.Offset{Topic: "none", Partition: 0, At: 3})
	offsets.Add(kadm.Offset{Topic: "t", Partition: 9, At: 3})
	offsets.Add(kadm.Offset{Topic: "u", Partition: 0, At: 4, Metadata: strings.Repeat("x", 5000)})
	got, err := adm.CommitOffsets(t.Context(), "g", offsets)
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]map[int32]error{"t": {0: nil, 1: nil, 9: kerr.UnknownTopicOrPartition}, "none": {0: kerr.UnknownTopicOrPartition}, "u": {0: kerr.OffsetMetadataTooLarge}} {
		for p, w := range want {
			if o, ok := got.Lookup(topic, p); !ok || !errors.Is(o.Err, w) {
				t.Errorf("%s-%d: %v, want %v", topic, p, o.Err, w)
			}
		}
	}

	var del kadm.TopicsSet
	del.Add("t", 0)
	del.Add("none", 0)
	deleted, err := adm.DeleteOffsets(t.Context(), "g", del)
	if err != nil {
		t.Fatal(err)
	}
	if err, _ := deleted.Lookup("t", 0); err != nil {
		t.Error(err)
	}
	if err, _ := deleted.Lookup("none", 0); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("an unknown topic: %v", err)
	}
	left, err := adm.FetchOffsets(t.Context(), "g")
	if err != nil || len(left["t"]) != 1 || left["t"][1].At != 3 {
		t.Errorf("left: %v, %v", left, err)
	}

	// A topic that goes takes its offsets with it.
	if _, err := adm.DeleteTopics(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if left, err = adm.FetchOffsets(t.Context(), "g"); err != nil || len(left["t"]) != 0 {
		t.Errorf("left of a deleted topic: %v, %v", left, err)
	}

	offsets = kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "u", Partition: 0, At: 3, LeaderEpoch: -1})
	if err := adm.CommitAllOffsets(t.Context(), "g", offsets); err != nil {
		t.Fatal(err)
	}
	if got, err := adm.DeleteGroups(t.Context(), "g", "none"); err != nil || got["g"].Err != nil || !errors.Is(got["none"].Err, kerr.GroupIDNotFound) {
		t.Errorf("deleting groups: %v, %v", got, err)
	}
	if groups, err := adm.ListGroups(t.Context()); err != nil || len(groups) != 0 {
		t.Errorf("left: %v, %v", groups, err)
	}
}

func TestGroupPartition(t *testing.T) {
	// What Apache Kafka's Utils.abs(name.hashCode()) % 50 gives; the hash of the fourth is the smallest int32, those of the last three are negative too.
	for group, want := range map[string]int{
		"g1": 42, "test-group": 12, "ÄÖ": 40, "polygenelubricants": 0, "𝄞-group": 32, "consumer-group": 38, "billing": 9, "my-app": 0,
	} {
		if got := partitionOf(group, 50); got != want {
			t.Errorf("%q: %d, want %d", group, got, want)
		}
	}
	if got := partitionOf("g1", 4); got != 2 { // seen on a running Apache Kafka
		t.Errorf("g1 of 4: %d", got)
	}
}
