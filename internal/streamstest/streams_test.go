package streamstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
)

const (
	application = "shop"
	partitions  = 4
)

// began is the time of the first record: lately, so that no topic's retention takes it.
var began = time.Now().Add(-2 * time.Hour).Truncate(time.Hour).UnixMilli()

// event is a record of the input.
type event struct {
	topic, customer, value string
	at                     int64
}

// orders and payments of one wave: each customer comes by every few seconds, and some pay in time.
func wave(n, size int) (all []event) {
	for i := n * size; i < (n+1)*size; i++ {
		at := began + int64(i)*150
		customer := fmt.Sprintf("customer-%d", i*7%31)
		all = append(all, event{"orders", customer, fmt.Sprintf("%d city-%d", i, i*i%11), at})
		if i%3 != 0 {
			all = append(all, event{"payments", fmt.Sprintf("customer-%d", (i*7+i%5)%31), strconv.Itoa(i), at + 40})
		}
	}
	return all
}

// results are the values of each key of each topic, in their order.
type results map[string]map[string][]string

func (r results) add(topic, key, value string) {
	if r[topic] == nil {
		r[topic] = make(map[string][]string)
	}
	r[topic][key] = append(r[topic][key], value)
}

func (r results) size() (n int) {
	for _, keys := range r {
		for _, values := range keys {
			n += len(values)
		}
	}
	return n
}

// expected is what the application makes of the input: see programs/Streams.java.
func expected(all []event) results {
	r := make(results)
	counted := func(topic, key string) { r.add(topic, key, strconv.Itoa(len(r[topic][key])+1)) }
	for _, o := range all {
		if o.topic != "orders" {
			continue
		}
		var number int
		var city string
		if _, err := fmt.Sscan(o.value, &number, &city); err != nil {
			panic(err)
		}
		counted("counts", city)
		counted("minutes", fmt.Sprintf("%s@%d", o.customer, o.at-o.at%60_000))
		for _, p := range all {
			if p.topic == "payments" && p.customer == o.customer && max(o.at-p.at, p.at-o.at) <= 5000 {
				r.add("joined", o.customer, o.value+"|"+p.value)
			}
		}
	}
	return r
}

// TestStreams: an application with a repartition topic, stores with changelogs, a window and a join works exactly once on the broker, although it is killed, a second
// instance comes and goes, and the broker is killed.
func TestStreams(t *testing.T) {
	t.Parallel()
	for name, start := range targets() {
		t.Run(name, func(t *testing.T) { testStreams(t, start(t), "classic") })
	}
}

// TestStreamsGroup is TestStreams with the protocol of streams groups (KIP-1071), in which the broker makes the application's topics and shares its tasks out.
func TestStreamsGroup(t *testing.T) {
	t.Parallel()
	for name, start := range targets() {
		t.Run(name, func(t *testing.T) {
			g := start(t)
			testStreams(t, g, "streams")
			g.checkGroup(t)
		})
	}
}

func testStreams(t *testing.T, g *target, protocol string) {
	size := 300
	if full() {
		size = 2000
	}
	adm := kadm.NewClient(g.client(t))
	for _, topic := range []string{"orders", "payments", "counts", "minutes", "joined"} {
		if _, err := adm.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	states := []string{t.TempDir(), t.TempDir()}
	begin := func(i int) *program {
		return run(t, clientdrivers.Program("Streams.java"), g.addr, application, states[i], protocol)
	}
	var all []event
	waves := 0
	feed := func() {
		t.Helper()
		w := wave(waves, size)
		waves++
		all = append(all, w...)
		g.write(t, w)
	}
	out := g.watch(t)

	first := begin(0)
	first.await(t, "running")
	feed()
	out.until(t, expected(all).size()/2) // in the middle of its work
	first.kill()
	feed()
	first = begin(0)
	first.await(t, "running")
	out.until(t, expected(all).size()*3/4)
	feed()
	g.crash(t)
	feed()
	second := begin(1) // takes half of the tasks over
	second.await(t, "running")
	feed()
	out.until(t, expected(all).size())
	first.stop(t, false)
	feed()
	out.until(t, expected(all).size())
	second.stop(t, false)
	out.stop()
	check(t, expected(all), g.read(t))
	g.checkInternals(t)
}

// write produces events and waits until they are there.
func (g *target) write(t *testing.T, all []event) {
	t.Helper()
	c := g.client(t)
	var rs []*kgo.Record
	for _, e := range all {
		rs = append(rs, &kgo.Record{Topic: e.topic, Key: []byte(e.customer), Value: []byte(e.value), Timestamp: time.UnixMilli(e.at)})
	}
	if err := c.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func fromStart() []kgo.Opt {
	return []kgo.Opt{kgo.ConsumeTopics("counts", "minutes", "joined"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
}

// watcher counts the records that the application has committed.
type watcher struct {
	client *kgo.Client
	seen   int
}

func (g *target) watch(t *testing.T) *watcher { return &watcher{client: g.client(t, fromStart()...)} }

func (w *watcher) stop() { w.client.Close() }

// until waits until so many are there, for as long as more come.
func (w *watcher) until(t *testing.T, n int) {
	t.Helper()
	const patience = 120 * time.Second
	for last := time.Now(); w.seen < n; {
		switch got := w.poll(t, last.Add(patience)); {
		case got > 0:
			w.seen, last = w.seen+got, time.Now()
		case time.Since(last) >= patience:
			t.Fatalf("%d results, want %d, and for %v no more came", w.seen, n, patience)
		}
	}
}

// poll gives how many came, at least one or at the deadline. Errors of partitions are tried again: the broker may be down.
func (w *watcher) poll(t *testing.T, deadline time.Time) int {
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	return w.client.PollFetches(ctx).NumRecords()
}

// read gives all that is committed, up to the logs' ends.
func (g *target) read(t *testing.T) results {
	t.Helper()
	c := g.client(t, fromStart()...)
	adm := kadm.NewClient(c)
	ends, err := adm.ListEndOffsets(t.Context(), "counts", "minutes", "joined")
	if err != nil {
		t.Fatal(err)
	}
	stable, err := adm.ListCommittedOffsets(t.Context(), "counts", "minutes", "joined")
	if err != nil {
		t.Fatal(err)
	}
	at := make(map[string]map[int32]int64)
	left := 0
	ends.Each(func(o kadm.ListedOffset) {
		if s, ok := stable.Lookup(o.Topic, o.Partition); !ok || s.Offset != o.Offset {
			t.Errorf("%s/%d ends at %d, but is stable to %d only: a transaction hangs", o.Topic, o.Partition, o.Offset, s.Offset)
		}
		left++
	})
	if t.Failed() {
		t.FailNow()
	}
	r := make(results)
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	// The last record of a partition is a marker, which is not delivered: a record of ours behind it says where to stop.
	var last []*kgo.Record
	ends.Each(func(o kadm.ListedOffset) {
		last = append(last, &kgo.Record{Topic: o.Topic, Partition: o.Partition, Value: []byte("end")})
	})
	w := g.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := w.ProduceSync(t.Context(), last...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for left > 0 {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%d partitions are not read to their end: %v", left, err)
		}
		f.EachRecord(func(k *kgo.Record) {
			if at[k.Topic] == nil {
				at[k.Topic] = make(map[int32]int64)
			}
			if before, ok := at[k.Topic][k.Partition]; ok && k.Offset <= before {
				t.Errorf("%s/%d: offset %d after %d", k.Topic, k.Partition, k.Offset, before)
			}
			at[k.Topic][k.Partition] = k.Offset
			if k.Key == nil && string(k.Value) == "end" {
				left--
				return
			}
			r.add(k.Topic, string(k.Key), string(k.Value))
		})
	}
	return r
}

// check: counts are seen in their order, each once. Of pairs of the join the order is not determined where orders and payments wait for each other.
func check(t *testing.T, want, got results) {
	t.Helper()
	for topic, keys := range want {
		if a, b := slices.Sorted(maps.Keys(keys)), slices.Sorted(maps.Keys(got[topic])); !slices.Equal(a, b) {
			t.Errorf("%s has %d keys, want %d", topic, len(b), len(a))
		}
		for key, values := range keys {
			have := got[topic][key]
			if topic == "joined" {
				values, have = slices.Sorted(slices.Values(values)), slices.Sorted(slices.Values(have))
			}
			if !slices.Equal(values, have) {
				t.Errorf("%s, %s: %d values %.500v, want %d: %.500v", topic, key, len(have), have, len(values), values)
			}
		}
	}
	if len(got) != len(want) {
		t.Errorf("results in %d topics, want %d", len(got), len(want))
	}
}

// checkInternals: the application's own topics are there, made as it asked, and what it has read of the repartition topic is deleted.
func (g *target) checkInternals(t *testing.T) {
	t.Helper()
	adm := kadm.NewClient(g.client(t))
	policies := map[string]string{
		"by-city-repartition": "delete", "cities-changelog": "compact", "per-minute-changelog": "compact,delete", "paid-this-join-store-changelog": "delete", "paid-other-join-store-changelog": "delete",
	}
	var names []string
	for name := range policies {
		names = append(names, application+"-"+name)
	}
	configs, err := adm.DescribeTopicConfigs(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs {
		if c.Err != nil {
			t.Errorf("%s: %v", c.Name, c.Err)
		}
		for _, kv := range c.Configs {
			if want := policies[c.Name[len(application)+1:]]; kv.Key == "cleanup.policy" && kv.MaybeValue() != want {
				t.Errorf("%s has the policy %s, want %s", c.Name, kv.MaybeValue(), want)
			}
		}
	}
	starts, err := adm.ListStartOffsets(t.Context(), application+"-by-city-repartition")
	if err != nil {
		t.Fatal(err)
	}
	purged := false
	starts.Each(func(o kadm.ListedOffset) { purged = purged || o.Offset > 0 })
	if !purged {
		t.Errorf("nothing of the repartition topic is deleted: %v", starts)
	}
}

// checkGroup: the application was a streams group, whose members have all left.
func (g *target) checkGroup(t *testing.T) {
	t.Helper()
	c := g.client(t)
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Groups = []string{application}
	resp, err := req.RequestWith(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	d := resp.Groups[0]
	if d.ErrorCode != 0 || d.State != "Empty" || len(d.Members) != 0 || d.Topology == nil || len(d.Topology.Subtopologies) < 2 || d.Epoch < 4 {
		t.Errorf("the group is %+v", d)
	}
	listed, err := kadm.NewClient(c).ListGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l := listed[application]; l.GroupType != "streams" || l.ProtocolType != "streams" || l.State != "Empty" {
		t.Errorf("listed as %+v", l)
	}
}
