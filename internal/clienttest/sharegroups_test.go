package clienttest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
)

// ledger is what the members of a share group did with its records.
type ledger struct {
	mu         sync.Mutex
	deliveries map[place][]int           // how often it had been delivered, as the members saw it
	by         map[string]map[place]bool // whom
	ended      map[place][]string        // how it was acknowledged
	unsure     map[place]bool            // it was acknowledged, perhaps
	values     map[place]string
	holds      map[string]int // of members that keep what they have
	left       map[string]bool
	faults     []string
}

func newLedger() *ledger {
	return &ledger{deliveries: map[place][]int{}, by: map[string]map[place]bool{}, ended: map[place][]string{}, unsure: map[place]bool{}, values: map[place]string{}, holds: map[string]int{}, left: map[string]bool{}}
}

func (l *ledger) listen(e clientdrivers.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := func() place {
		n, _ := strconv.Atoi(e.Fields[1])
		offset, _ := strconv.ParseInt(e.Fields[2], 10, 64)
		return place{e.Fields[0], n, offset}
	}
	switch e.What {
	case "read":
		p := at()
		count, _ := strconv.Atoi(e.Fields[4])
		l.deliveries[p] = append(l.deliveries[p], count)
		l.values[p] = e.Fields[3]
		if l.by[e.Member] == nil {
			l.by[e.Member] = map[place]bool{}
		}
		l.by[e.Member][p] = true
	case "acknowledged":
		l.ended[at()] = append(l.ended[at()], e.Fields[3])
	case "unsure":
		l.unsure[at()] = true
	case "holds":
		l.holds[e.Member], _ = strconv.Atoi(e.Fields[0])
	case "left":
		l.left[e.Member] = true
	default:
		l.faults = append(l.faults, fmt.Sprint(e))
	}
}

// shares are how many records each member got.
func (l *ledger) shares() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for m, all := range l.by {
		out[m] = len(all)
	}
	return out
}

// accepted are the records that are done with: accepted or rejected.
func (l *ledger) finished() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, how := range l.ended {
		if slices.Contains(how, "ACCEPT") || slices.Contains(how, "REJECT") {
			n++
		}
	}
	return n
}

// unfinished tells what became of the records that nobody is done with, and which members had them.
func (l *ledger) unfinished() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for p, counts := range l.deliveries {
		if slices.Contains(l.ended[p], "ACCEPT") || slices.Contains(l.ended[p], "REJECT") {
			continue
		}
		var by []string
		for m, had := range l.by {
			if had[p] {
				by = append(by, m)
			}
		}
		slices.Sort(by)
		all = append(all, fmt.Sprintf("%s-%d %06d: deliveries %v to %v, ended %v", p.topic, p.partition, p.offset, counts, by, l.ended[p]))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func (l *ledger) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%v, %d finished\n%s", l.shares(), l.finished(), l.unfinished())
		}
	}()
	eventually(t, what, func() bool {
		l.mu.Lock()
		faults := slices.Clone(l.faults)
		l.mu.Unlock()
		if len(faults) > 0 {
			t.Fatalf("before %s: %v", what, faults)
		}
		return ok()
	})
}

// configureGroup sets configurations of a group.
func (w *world) configureGroup(t *testing.T, group string, pairs ...string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for i := 0; i < len(pairs); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = pairs[i], &pairs[i+1]
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(t.Context(), w.admin)
	if err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("configuring %s: %v, %+v", group, err, resp)
	}
}

// shareLag is how many records of a topic a share group is not done with; false while it is not known.
func (w *world) shareLag(t *testing.T, group, topic string) (lag int64, known bool) {
	t.Helper()
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	g.GroupID = group
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(t.Context(), w.admin)
	if err != nil { // a connection of before a crash
		t.Log(err)
		return 0, false
	}
	for _, rt := range resp.Groups[0].Topics {
		for _, p := range rt.Partitions {
			if rt.Topic != topic {
				continue
			}
			if p.ErrorCode != 0 || p.Lag < 0 {
				return 0, false
			}
			lag, known = lag+p.Lag, true
		}
	}
	return lag, known
}

// append appends records with values that a function gives.
func (w *world) append(t *testing.T, tp topic, n int, value func(i int) string) {
	t.Helper()
	c := w.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(4000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	var rs []*kgo.Record
	for i := range n {
		for p := range tp.partitions {
			rs = append(rs, &kgo.Record{Topic: tp.name, Partition: p, Value: []byte(value(i))})
		}
	}
	if err := c.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// fate has the records' values, of which some say what is to become of them.
func fate(i int) string {
	text := fmt.Sprintf("-%d-%s", i, strings.Repeat("x", 100))
	switch {
	case i%10 == 3:
		return "reject" + text
	case i%10 == 7:
		return "release" + text
	}
	return "plain" + text
}

// Share consumers of two libraries read history that is in the store only, and what comes after it. One keeps what it has until its locks end, one is killed with
// what it has, and the broker is killed: every record is finished in the end, those that were released or held were delivered once more, and none was when it was finished.
func TestShareGroup(t *testing.T) {
	t.Parallel()
	w := newLastingWorld(t, append(slices.Clone(soon), "offsets.retention.check.interval.ms=500")...)
	tp := topic{"queue", 2}
	w.create(t, []topic{tp}, tiered("internal.segment.bytes", segmentBytes))
	const old = 200
	w.append(t, tp, old, fate)
	w.sink(t, []topic{tp}, segmentBytes-200)
	total := 2 * (old + 1)
	w.configureGroup(t, "workers", "share.auto.offset.reset", "earliest")

	l := newLedger()
	how := clientdrivers.Membership{Addr: w.addr, Group: "workers", Topics: []string{tp.name}, Share: true, Batch: 10}
	hold := how
	hold.Hold = true
	java, doomed, gos := clientdrivers.StartHost(t, "java", l.listen), clientdrivers.StartHost(t, "java", l.listen), clientdrivers.StartHost(t, "kgo", l.listen)
	java.Join(t, "held", hold)
	doomed.Join(t, "doomed", hold)
	l.until(t, "two that keep what they have", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.holds) == 2
	})
	doomed.Kill(t)
	java.Join(t, "j1", how)
	java.Join(t, "j2", how)
	gos.Join(t, "k1", how)
	l.until(t, "the history", func() bool { return l.finished() == total })

	// What comes now is shared, too, also over a loss of the broker.
	w.append(t, tp, 150, fate)
	total += 2 * 150
	l.until(t, "some of the new records", func() bool { return l.finished() > total-200 })
	l.mu.Lock()
	if len(l.unsure) > 0 {
		t.Errorf("acknowledgements failed although nothing had happened: %v", l.unsure)
	}
	l.mu.Unlock()
	if err := w.crash(); err != nil {
		t.Fatal(err)
	}
	w.append(t, tp, 50, fate)
	total += 2 * 50
	l.until(t, "all records", func() bool {
		lag, known := w.shareLag(t, "workers", tp.name)
		return known && lag == 0
	})
	for _, name := range []string{"held", "j1", "j2"} {
		java.Leave(t, name)
	}
	gos.Leave(t, "k1")
	l.until(t, "everybody to leave", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.left["held"] && l.left["j1"] && l.left["j2"] && l.left["k1"]
	})
	l.check(t)
	if len(l.deliveries) != total {
		t.Errorf("%d records of %d were delivered", len(l.deliveries), total)
	}
	for name, n := range l.shares() {
		t.Logf("%s got %d records", name, n)
		if n == 0 {
			t.Errorf("%s got nothing", name)
		}
	}
	// An empty group is not forgotten.
	w.append(t, tp, 5, func(i int) string { return "late" })
	time.Sleep(1500 * time.Millisecond) // three looks for what has expired: that nothing happens has no sign
	if lag, known := w.shareLag(t, "workers", tp.name); !known || lag != 10 {
		t.Errorf("an empty group has a lag of %d (known: %v) after ten more records", lag, known)
	}
}

// check looks at how often each record came, and why.
func (l *ledger) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	again := 0
	for p, counts := range l.deliveries {
		value, _, _ := strings.Cut(l.values[p], "-")
		held := l.by["held"][p] || l.by["doomed"][p]
		most := slices.Max(counts)
		switch {
		case value == "release" && most < 2 && !held:
			t.Errorf("%v was released, and is finished with %v deliveries", p, counts)
		case held && most < 2:
			t.Errorf("%v was never acknowledged by who had it first, and is finished with %v deliveries", p, counts)
		}
		if len(counts) > 1 {
			again++
		}
		finals := 0
		for _, how := range l.ended[p] {
			if how != "RELEASE" {
				finals++
			}
			if (how == "REJECT") != (value == "reject") && how != "RELEASE" {
				t.Errorf("%v (%s) ended with %s", p, value, how)
			}
		}
		if finals > 1 || finals == 0 && !l.unsure[p] {
			t.Errorf("%v is finished %d times: %v, deliveries %v", p, finals, l.ended[p], counts)
		}
	}
	t.Logf("%d records, %d more than once, %d of which it is not known whether they were acknowledged", len(l.deliveries), again, len(l.unsure))
}
