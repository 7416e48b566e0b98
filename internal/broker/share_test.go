package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/rewind-kafka/rewind/remotestorage"
)

var earliest = map[string]string{"share.auto.offset.reset": "earliest"}

// ledger is what became of each record of a topic, told by all members.
type ledger struct {
	mu   sync.Mutex
	held map[place]string // by whom
	done map[place]bool   // acknowledged, and told so
	most int16            // deliveries
}

type place struct {
	partition int32
	offset    int64
}

func newLedger() *ledger { return &ledger{held: map[place]string{}, done: map[place]bool{}} }

// take notes a delivery, which must be of records that nobody has and that are not done.
func (l *ledger) take(member string, g got) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := g.First; o <= g.Last; o++ {
		p := place{g.partition, o}
		if l.done[p] {
			return fmt.Errorf("record %v is done, and delivered to %s", p, member)
		}
		if who, held := l.held[p]; held {
			return fmt.Errorf("record %v is with %s, and delivered to %s", p, who, member)
		}
		l.held[p] = member
	}
	l.most = max(l.most, g.Count)
	return nil
}

// give takes records back before they are answered for, for they may be delivered as soon as the answer is on its way.
func (l *ledger) give(g got) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := g.First; o <= g.Last; o++ {
		delete(l.held, place{g.partition, o})
	}
}

func (l *ledger) finish(g got) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := g.First; o <= g.Last; o++ {
		l.done[place{g.partition, o}] = true
	}
}

func (l *ledger) finished() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done)
}

// work reads and answers until all is done: most is accepted, some released.
func (m *shareMember) work(l *ledger, total int, deadline time.Time, random *rand.Rand) error {
	for l.finished() < total {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d records after a long time", l.finished(), total)
		}
		batch, err := m.fetch(200*time.Millisecond, func(r *kmsg.ShareFetchRequest) {
			r.MaxRecords = 1 + random.Int32N(60)
			r.ShareAcquireMode = int8(random.IntN(2))
		})
		if err != nil {
			return err
		}
		for _, g := range batch {
			if err := l.take(m.id, g); err != nil {
				return err
			}
		}
		for _, g := range batch {
			kind := accept
			if g.Count < 3 && random.IntN(5) == 0 {
				kind = release
			}
			l.give(g)
			if kind == accept {
				l.finish(g)
			}
			if err := m.acknowledge(g, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestShareBackfill: members of a share group read history that is in the store only, and all of it, each record once.
func TestShareBackfill(t *testing.T) {
	rsm, _ := directoryStore(t)
	b := startBroker(t, t.TempDir(), withRSM(rsm), tieredKeys(), shareKeys())
	b.tieredTopic(t, "history", 2)
	b.produceTiered(t, "history", 2, 400)
	b.configureGroup(t, "g", earliest)
	members := []*shareMember{b.member(t, "g", "a", "history"), b.member(t, "g", "b", "history"), b.member(t, "g", "c", "history")}
	for _, m := range members {
		m.join(t)
	}
	for _, m := range members {
		if err := m.heartbeat(); err != nil {
			t.Fatal(err)
		}
	}
	l, g := newLedger(), errgroup.Group{}
	for i, m := range members {
		g.Go(func() error {
			return m.work(l, 800, time.Now().Add(60*time.Second), rand.New(rand.NewPCG(1, uint64(i))))
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestShareCrowd: more members than partitions, side by side.
func TestShareCrowd(t *testing.T) {
	b := startBroker(t, t.TempDir(), shareKeys())
	b.createTopic(t, "t", 2)
	produceSome(t, b.client(t), "t", 0, 1000)
	total := int(b.partition("t", 0).log.Offsets().LogEnd + b.partition("t", 1).log.Offsets().LogEnd)
	b.configureGroup(t, "g", earliest)
	var members []*shareMember
	for i := range 6 {
		members = append(members, b.member(t, "g", fmt.Sprint("m", i), "t").join(t))
	}
	l, g := newLedger(), errgroup.Group{}
	for i, m := range members {
		g.Go(func() error {
			m.assigned = []int32{0, 1} // whoever asks gets, as in Apache Kafka
			return m.work(l, total, time.Now().Add(60*time.Second), rand.New(rand.NewPCG(2, uint64(i))))
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestShareAfterPowerLoss: what was acknowledged stays so, what was released keeps its count, what was neither comes again, and members are members still.
func TestShareAfterPowerLoss(t *testing.T) {
	mem := crashableFS(t)
	options := func(fs vfs.FS) []brokerOption {
		return []brokerOption{withFS(fs), shareKeys("share.coordinator.snapshot.update.records.per.snapshot", "3", "acks.all.sync", "true")}
	}
	b := startBroker(t, "/node", options(mem)...)
	b.createTopic(t, "t", 1)
	produceSome(t, b.client(t), "t", 0, 60)
	b.configureGroup(t, "g", earliest)
	m := b.member(t, "g", "m", "t").join(t)
	batch, err := m.fetch(time.Second, func(r *kmsg.ShareFetchRequest) { r.MaxRecords, r.ShareAcquireMode = 40, 1 })
	if err != nil || len(batch) != 1 || batch[0].Last != 39 {
		t.Fatal(batch, err)
	}
	answer := func(first, last int64, kind int8) {
		t.Helper()
		if err := m.acknowledge(got{partition: 0, Delivery: delivery(first, last)}, kind); err != nil {
			t.Fatal(err)
		}
	}
	answer(0, 4, accept)
	answer(10, 14, accept)
	answer(20, 22, reject)
	answer(30, 33, release)
	answer(16, 16, accept)
	answer(18, 18, accept)
	want := map[int64]int16{} // the count with which each comes
	for o := range int64(60) {
		switch {
		case o <= 4, o >= 10 && o <= 14, o >= 20 && o <= 22, o == 16, o == 18:
		case o >= 30 && o <= 33:
			want[o] = 2
		default:
			want[o] = 1
		}
	}
	after := startBroker(t, "/node", options(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0}))...)
	n := after.member(t, "g", "m", "t")
	n.epoch = m.epoch
	await(t, "the coordinator", func() bool { return n.heartbeat() == nil })
	if n.epoch != m.epoch || len(n.assigned) != 1 {
		t.Errorf("epoch %d, was %d; assigned %v", n.epoch, m.epoch, n.assigned)
	}
	for range 50 {
		batch, err := n.fetch(200*time.Millisecond, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range batch {
			for o := g.First; o <= g.Last; o++ {
				if count, ok := want[o]; !ok || count != g.Count {
					t.Errorf("record %d comes with count %d, want %d", o, g.Count, count)
				}
				delete(want, o)
			}
		}
		if len(want) == 0 {
			return
		}
	}
	t.Errorf("never came: %v", want)
}

// TestShareLockEnds: what a member keeps for too long goes to another, with a higher count, and is the first one's no more.
func TestShareLockEnds(t *testing.T) {
	b := startBroker(t, t.TempDir(), shareKeys())
	b.createTopic(t, "t", 1)
	produceSome(t, b.client(t), "t", 0, 10)
	b.configureGroup(t, "g", map[string]string{"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"})
	slow, other := b.member(t, "g", "slow", "t").join(t), b.member(t, "g", "other", "t").join(t)
	batch, err := slow.fetch(time.Second, nil, 0)
	if err != nil || len(batch) == 0 {
		t.Fatal(batch, err)
	}
	held := batch[0]
	var again []got
	await(t, "the lock's end", func() bool {
		if again, err = other.fetch(500*time.Millisecond, nil, 0); err != nil {
			t.Fatal(err)
		}
		return len(again) > 0
	})
	if again[0].First != held.First || again[0].Count != 2 {
		t.Errorf("%v, before that %v", again, held)
	}
	if err := slow.acknowledge(held, accept); !errors.Is(err, codeError(errInvalidRecordState)) {
		t.Errorf("who is too late: %v", err)
	}
}

// TestShareConnectionGone: what a member has comes to others at once when its connection breaks.
func TestShareConnectionGone(t *testing.T) {
	b := startBroker(t, t.TempDir(), shareKeys())
	b.createTopic(t, "t", 1)
	produceSome(t, b.client(t), "t", 0, 10)
	b.configureGroup(t, "g", earliest)
	one, other := b.member(t, "g", "one", "t").join(t), b.member(t, "g", "other", "t").join(t)
	if batch, err := one.fetch(time.Second, nil, 0); err != nil || len(batch) == 0 {
		t.Fatal(batch, err)
	}
	if batch, err := other.fetch(10*time.Millisecond, nil, 0); err != nil || len(batch) != 0 {
		t.Fatal(batch, err)
	}
	if err := one.c.Close(); err != nil {
		t.Fatal(err)
	}
	if batch, err := other.fetch(20*time.Second, nil, 0); err != nil || len(batch) == 0 || batch[0].Count != 2 {
		t.Fatal(batch, err)
	}
	if err := other.c.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "the group to be forgotten", func() bool { return len(b.shares.partitions()) == 0 })
}

// TestShareCommitted: records of aborted transactions are skipped, and the group's start goes on past them.
func TestShareCommitted(t *testing.T) {
	b := startBroker(t, t.TempDir(), shareKeys())
	b.createTopic(t, "t", 1)
	b.configureGroup(t, "g", map[string]string{"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"})
	cl := b.client(t, kgo.TransactionalID("id"), kgo.DefaultProduceTopic("t"))
	for i := range 12 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(i)), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(t.Context(), i%3 == 2); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the last marker", func() bool { o := b.partition("t", 0).log.Offsets(); return o.LastStable == 36 })
	m := b.member(t, "g", "m", "t").join(t)
	seen := map[int64]bool{}
	await(t, "the end", func() bool {
		batch, err := m.fetch(100*time.Millisecond, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range batch {
			for o := g.First; o <= g.Last; o++ {
				seen[o] = true
			}
			if err := m.acknowledge(g, accept); err != nil {
				t.Fatal(err)
			}
		}
		sp := b.shares.known(shareKey{"g", m.topicID, 0})
		sp.mu.Lock()
		defer sp.mu.Unlock()
		return sp.machine.Start() == 36
	})
	for i := range int64(12) { // two records and a marker each
		for o := i * 3; o < i*3+2; o++ {
			if committed := i%3 == 2; seen[o] != committed {
				t.Errorf("record %d of transaction %d is delivered: %v", o, i, seen[o])
			}
		}
	}
}

// TestShareTopicDeleted: a group forgets a topic that is gone, and reads the next one of that name from where it begins.
func TestShareTopicDeleted(t *testing.T) {
	b := startBroker(t, t.TempDir(), shareKeys())
	b.configureGroup(t, "g", earliest)
	for range 2 {
		b.createTopic(t, "t", 1)
		produceSome(t, b.client(t), "t", 0, 10)
		m := b.member(t, "g", "m", "t").join(t)
		batch, err := m.fetch(5*time.Second, nil)
		if err != nil || len(batch) == 0 || batch[0].First != 0 || batch[0].Count != 1 {
			t.Fatal(batch, err)
		}
		if err := m.acknowledge(batch[0], accept); err != nil {
			t.Fatal(err)
		}
		if err := b.deleteTopic("t", remotestorage.UUID{}); err != nil {
			t.Fatal(err)
		}
		if err := m.c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLongestShareGroup: the states of a group whose name is as long as may be are kept like any other's, although their key is longer.
func TestLongestShareGroup(t *testing.T) {
	b := startBroker(t, t.TempDir(), shareKeys())
	b.createTopic(t, "t", 1)
	m := b.member(t, strings.Repeat("g", maxName), "m", "t").join(t)
	if batch, err := m.fetch(0, nil); err != nil || len(batch) != 0 { // from here on
		t.Fatalf("%v, %v", batch, err)
	}
	produceSome(t, b.client(t), "t", 0, 10)
	batch, err := m.fetch(10*time.Second, nil)
	if err != nil || len(batch) == 0 {
		t.Fatalf("%v, %v", batch, err)
	}
	if err := m.acknowledge(batch[0], accept); err != nil {
		t.Error(err)
	}
}
