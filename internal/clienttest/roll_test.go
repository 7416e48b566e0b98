package clienttest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
)

// place is where a record is.
type place struct {
	topic     string
	partition int
	offset    int64
}

// roll is what the members of one group did, as they tell it.
type roll struct {
	mu       sync.Mutex
	readers  map[place][]string // who read each record
	values   map[place]string
	last     map[string]map[string]int64 // of each member and partition, the last offset since it was assigned
	pending  map[string][]place          // of each member, what it has not committed yet
	excused  map[place]int               // how often a record may come again, for it was read and not committed
	owned    map[string]map[string]bool  // the partitions of each member
	gone     map[string]bool             // who has left or was killed
	faults   []string
	refused  map[string]string // who is to fail, and how it did
	notes    []string
	distinct map[string]int // records of each topic
}

func newRoll() *roll {
	return &roll{readers: map[place][]string{}, values: map[place]string{}, last: map[string]map[string]int64{}, pending: map[string][]place{}, excused: map[place]int{},
		owned: map[string]map[string]bool{}, gone: map[string]bool{}, refused: map[string]string{}, distinct: map[string]int{}}
}

// listen is for the hosts of all members.
func (r *roll) listen(e clientdrivers.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := e.Member
	if r.owned[m] == nil {
		r.owned[m], r.last[m] = map[string]bool{}, map[string]int64{}
	}
	switch e.What {
	case "read":
		r.readLocked(m, e.Fields)
		return
	case "committed":
		r.pending[m] = nil
		return
	case "uncommitted":
		r.excuseLocked(m)
	case "assigned", "revoked", "lost":
		for p := range strings.SplitSeq(e.Fields[0], ",") {
			if p == "" {
				continue
			}
			if e.What == "assigned" {
				r.owned[m][p] = true
			} else {
				delete(r.owned[m], p)
			}
			delete(r.last[m], p)
		}
	case "left":
		r.goneLocked(m)
	case "failed":
		if _, expected := r.refused[m]; expected {
			r.refused[m] = e.Fields[0]
			return
		}
		r.faults = append(r.faults, fmt.Sprint(e))
	}
	r.notes = append(r.notes, fmt.Sprint(time.Now().Format("05.000 "), e))
}

func (r *roll) readLocked(m string, f []string) {
	n, _ := strconv.Atoi(f[1])
	offset, _ := strconv.ParseInt(f[2], 10, 64)
	p, partition := place{f[0], n, offset}, f[0]+"-"+f[1]
	if len(r.readers[p]) == 0 {
		r.distinct[p.topic]++
	}
	r.readers[p] = append(r.readers[p], m)
	r.pending[m] = append(r.pending[m], p)
	if before, ok := r.values[p]; ok && before != f[3] {
		r.faults = append(r.faults, fmt.Sprintf("%v was %q and is %q", p, before, f[3]))
	}
	r.values[p] = f[3]
	// What a consumer had of a commit that was refused it does not read again before it has lost the partition.
	if before, ok := r.last[m][partition]; ok && offset != before+1 {
		r.faults = append(r.faults, fmt.Sprintf("%s read %v after %d", m, p, before))
	}
	r.last[m][partition] = offset
	if !r.owned[m][partition] {
		r.faults = append(r.faults, fmt.Sprintf("%s read %v, which is not its partition", m, p))
	}
}

func (r *roll) excuseLocked(m string) {
	for _, p := range r.pending[m] {
		r.excused[p]++
	}
	r.pending[m] = nil
}

func (r *roll) goneLocked(m string) {
	r.gone[m] = true
	r.owned[m] = map[string]bool{}
}

// killed is called when a host was: what its members had not committed comes again.
func (r *roll) killed(members ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range members {
		r.excuseLocked(m)
		r.goneLocked(m)
	}
}

// awaitRefusal waits until a member has failed that is to.
func (r *roll) awaitRefusal(t *testing.T, member string) (why string) {
	t.Helper()
	r.until(t, member+" to be refused", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		why = r.refused[member]
		return why != ""
	})
	return why
}

// owners are the partitions that each member has.
func (r *roll) owners() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string][]string{}
	for m, owned := range r.owned {
		if len(owned) > 0 {
			out[m] = slices.Sorted(maps.Keys(owned))
		}
	}
	return out
}

// shared tells whether exactly these members have all partitions of the topics between them, each once and nobody without one.
func (r *roll) shared(topics []topic, members ...string) bool {
	all := 0
	for _, t := range topics {
		all += int(t.partitions)
	}
	seen := map[string]bool{}
	owners := r.owners()
	for _, parts := range owners {
		for _, p := range parts {
			if seen[p] {
				return false
			}
			seen[p] = true
		}
	}
	slices.Sort(members)
	return len(seen) == all && slices.Equal(slices.Sorted(maps.Keys(owners)), members)
}

// await waits until the members share the partitions.
func (r *roll) await(t *testing.T, topics []topic, members ...string) {
	t.Helper()
	r.until(t, fmt.Sprintf("%v sharing %v", members, topics), func() bool { return r.shared(topics, members...) })
}

func (r *roll) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Logf("%v; at last:\n%s", r.distinct, strings.Join(r.notes[max(0, len(r.notes)-60):], "\n"))
		}
	}()
	eventually(t, what, func() bool {
		r.mu.Lock()
		faults := r.faults
		r.mu.Unlock()
		if len(faults) > 0 {
			t.Fatalf("before %s: %v", what, faults)
		}
		return ok()
	})
}

// repeated is how many records came more than once although nobody had a reason to read them again.
func (r *roll) repeated() (bad []string, excused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, by := range r.readers {
		switch more := len(by) - 1; {
		case more > r.excused[p]:
			bad = append(bad, fmt.Sprintf("%v by %v", p, by))
		case more > 0:
			excused += more
		}
	}
	slices.Sort(bad)
	return bad, excused
}

// complete waits until every record up to the ends was read, and looks at what was.
func (r *roll) complete(t *testing.T, ends map[string]map[int32]int64) {
	t.Helper()
	r.until(t, "all records", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for topic, parts := range ends {
			n := 0
			for _, end := range parts {
				n += int(end)
			}
			if r.distinct[topic] < n {
				return false
			}
		}
		return true
	})
	bad, excused := r.repeated()
	t.Logf("%v records, %d came again as they may", ends, excused)
	if len(bad) > 0 {
		t.Errorf("%d records came again: %.1000v", len(bad), bad)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, v := range r.values {
		if want := flowValue(p.topic, int32(p.partition), p.offset); v != want {
			t.Errorf("%v is %q, want %q", p, v, want)
		}
	}
	if t.Failed() {
		t.Logf("what happened:\n%s", strings.Join(r.notes, "\n"))
	}
}

// committedUpTo: what the members have told to be committed is what the group has.
func committedUpTo(t *testing.T, w *world, group string, ends map[string]map[int32]int64) {
	t.Helper()
	got := groupOffsets(t, w, group)
	for topic, parts := range ends {
		for p, end := range parts {
			if at := got[topic][p]; at != end {
				t.Errorf("group %s: %s-%d is committed up to %d, want %d", group, topic, p, at, end)
			}
		}
	}
}

// flow are records that go into topics until it is stopped: of each partition one every now and then, in order and each once.
type flow struct {
	stop chan struct{}
	done chan struct{}
	err  error // valid after done
}

func flowValue(topic string, partition int32, offset int64) string {
	return fmt.Sprintf("%s-%d-%d", topic, partition, offset)
}

func startFlow(t *testing.T, w *world, every time.Duration, topics ...topic) *flow {
	t.Helper()
	c := w.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }))
	f := &flow{stop: make(chan struct{}), done: make(chan struct{})}
	next := w.offsets(t, topics, latest)
	go func() {
		defer close(f.done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for f.err == nil {
			select {
			case <-f.stop:
				return
			case <-tick.C:
			}
			var rs []*kgo.Record
			for _, tp := range topics {
				for p := range tp.partitions {
					rs = append(rs, &kgo.Record{Topic: tp.name, Partition: p, Value: []byte(flowValue(tp.name, p, next[tp.name][p]))})
					next[tp.name][p]++
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			f.err = c.ProduceSync(ctx, rs...).FirstErr()
			cancel()
		}
	}()
	t.Cleanup(f.halt)
	return f
}

func (f *flow) halt() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	<-f.done
}

// finish ends the flow and says where the logs end.
func (f *flow) finish(t *testing.T, w *world, topics ...topic) map[string]map[int32]int64 {
	t.Helper()
	f.halt()
	if f.err != nil {
		t.Fatal(f.err)
	}
	return w.offsets(t, topics, latest)
}
