package broker

import (
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/sharepart"
)

const deadQueue = "dlq.dead"

// letterOf is a record of a dead letter queue.
type letterOf struct {
	headers    map[string]string
	key, value []byte
}

func (b *testBroker) letterQueue(t *testing.T, group string, pairs ...string) {
	t.Helper()
	b.createTopic(t, deadQueue, 1, "errors.deadletterqueue.group.enable", "true", "retention.ms", "-1")
	values := map[string]string{"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": deadQueue}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	b.configureGroup(t, group, values)
}

// deadLetters are the records in the queue, by the offset of what they are about.
func (b *testBroker) deadLetters(t *testing.T) map[int64][]letterOf {
	t.Helper()
	out := map[int64][]letterOf{}
	c := b.raw(t)
	defer c.Close()
	for at := int64(0); ; {
		p := c.ask(t, fetchRequestOf(deadQueue, 0, at, 1<<20)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			t.Fatal(code(p.ErrorCode))
		}
		next := at
		_, err := batch.Each(p.RecordBatches, func(h batch.Header, raw []byte) error {
			next = h.LastOffset() + 1
			return batch.EachRecord(batch.Payload(raw), h.NumRecords, func(r *batch.Record) error {
				l := letterOf{map[string]string{}, r.Key, r.Value}
				for rest, i := r.Headers, int32(0); i < r.HeaderCount; i++ {
					var field [2]string
					for j := range field {
						size, n := binary.Varint(rest)
						field[j], rest = string(rest[n:n+int(size)]), rest[n+int(size):]
					}
					l.headers[field[0]] = field[1]
				}
				offset, err := strconv.ParseInt(l.headers["__dlq.errors.offset"], 10, 64)
				out[offset] = append(out[offset], l)
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if next == at {
			return out
		}
		at = next
	}
}

// archiving tells whether something of a partition is on its way to the queue.
func (b *testBroker) archiving(k shareKey) bool {
	b.shares.letters.mu.Lock()
	_, writing := b.shares.letters.queues[k]
	b.shares.letters.mu.Unlock()
	sp := b.shares.known(k)
	if sp == nil {
		return writing
	}
	select {
	case <-sp.ready:
	default:
		return true // or not: it is being taken up
	}
	sp.mu.Lock()
	defer sp.mu.Unlock()
	for o := sp.machine.Start(); o < 1000; o++ {
		if s, _, _, ok := sp.machine.Held(o); ok && s == sharepart.Archiving {
			return true
		}
	}
	return writing
}

// TestLettersAfterPowerLoss: what was rejected before the power went, and confirmed, is in the dead letter queue in the end, also if it had not got there; and it is
// not delivered again.
func TestLettersAfterPowerLoss(t *testing.T) {
	mem := crashableFS(t)
	options := func(fs vfs.FS) []brokerOption { return []brokerOption{withFS(fs), shareKeys("acks.all.sync", "true")} }
	b := startBroker(t, "/node", options(mem)...)
	b.createTopic(t, "t", 1)
	produceSome(t, b.client(t), "t", 0, 40)
	b.letterQueue(t, "g", "errors.deadletterqueue.copy.record.enable", "true")
	m := b.member(t, "g", "m", "t").join(t)
	held, err := m.fetch(time.Second, nil, 0)
	if err != nil || len(held) != 1 || held[0].Last != 39 {
		t.Fatal(held, err)
	}
	reject := func(o int64) {
		t.Helper()
		if err := m.acknowledge(got{partition: 0, Delivery: delivery(o, o)}, reject); err != nil {
			t.Fatal(err)
		}
	}
	after := func(what string, rejected int64) {
		t.Helper()
		n := startBroker(t, "/node", options(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0}))...)
		other := n.member(t, "g", "m", "t")
		other.epoch = m.epoch
		await(t, "the coordinator", func() bool { return other.heartbeat() == nil })
		again, err := other.fetch(time.Second, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range again {
			if g.First < rejected {
				t.Errorf("%s: what was rejected is delivered again: %v", what, g)
			}
		}
		k := shareKey{"g", other.topicID, 0}
		await(t, "the letters", func() bool { return !n.archiving(k) })
		letters := n.deadLetters(t)
		for o := range rejected {
			if l := letters[o]; len(l) == 0 || string(l[0].value) != fmt.Sprint("value-", o) || l[0].headers["__dlq.errors.message"] != letterRejected {
				t.Errorf("%s: letters of %d: %q", what, o, l)
			}
		}
	}
	for o := range int64(6) { // some are on their way
		reject(o)
		after(fmt.Sprintf("%d rejected", o+1), o+1)
	}
	away := b.logs.take(deadQueue) // nothing gets there any more
	for o := int64(6); o < 10; o++ {
		reject(o)
	}
	after("while the queue is away", 10)
	b.logs.put(deadQueue, away)
	k := shareKey{"g", m.topicID, 0}
	await(t, "the letters to be tried again", func() bool { return !b.archiving(k) })
	letters := b.deadLetters(t)
	for o := range int64(10) {
		if len(letters[o]) != 1 {
			t.Errorf("letters of %d: %d", o, len(letters[o]))
		}
	}
}

// TestLettersOfHistory: a record of the dead letter queue has what lies in the store only.
func TestLettersOfHistory(t *testing.T) {
	rsm, _ := directoryStore(t)
	b := startBroker(t, t.TempDir(), withRSM(rsm), tieredKeys(), shareKeys())
	b.tieredTopic(t, "history", 1)
	b.produceTiered(t, "history", 1, 400)
	b.letterQueue(t, "g", "errors.deadletterqueue.copy.record.enable", "true")
	m := b.member(t, "g", "m", "history").join(t)
	var all int64
	for all < 300 {
		held, err := m.fetch(10*time.Second, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range held {
			types := make([]int8, g.Last-g.First+1)
			for i := range types {
				if types[i] = accept; (g.First+int64(i))%3 == 0 {
					types[i] = reject
				}
			}
			if err := m.acknowledge(g, types...); err != nil {
				t.Fatal(err)
			}
			all = g.Last + 1
		}
	}
	k := shareKey{"g", m.topicID, 0}
	await(t, "the letters", func() bool { return !b.archiving(k) })
	letters := b.deadLetters(t)
	for o := range all {
		switch l := letters[o]; {
		case o%3 != 0:
			if len(l) != 0 {
				t.Errorf("%d letters of %d, which was accepted", len(l), o)
			}
		case len(l) != 1 || string(l[0].key) != strconv.FormatInt(o, 10) || len(l[0].value) != int(100+o*7%900):
			t.Errorf("letters of %d: %.100q", o, l)
		}
	}
}

// TestLettersOfWhoHasGone: letters of a group that nobody reads any more are written, once, and then it is forgotten.
func TestLettersOfWhoHasGone(t *testing.T) {
	b := startBroker(t, t.TempDir(), shareKeys())
	b.createTopic(t, "t", 1)
	produceSome(t, b.client(t), "t", 0, 30)
	b.letterQueue(t, "g", "share.delivery.count.limit", "2")
	away := b.logs.take(deadQueue)
	m := b.member(t, "g", "m", "t").join(t)
	held, err := m.fetch(time.Second, nil, 0)
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	if err := m.acknowledge(got{partition: 0, Delivery: delivery(0, 9)}, reject); err != nil {
		t.Fatal(err)
	}
	if err := m.acknowledge(got{partition: 0, Delivery: delivery(10, 29)}, release); err != nil {
		t.Fatal(err)
	}
	if held, err = m.fetch(time.Second, nil, 0); err != nil || len(held) != 1 || held[0].Count != 2 {
		t.Fatal(held, err)
	}
	if err := m.c.Close(); err != nil { // those are released, as often as they may be
		t.Fatal(err)
	}
	k := shareKey{"g", m.topicID, 0}
	await(t, "the partition to be forgotten", func() bool { return b.shares.known(k) == nil })
	b.logs.put(deadQueue, away)
	await(t, "the letters", func() bool { return !b.archiving(k) && b.shares.known(k) == nil })
	letters := b.deadLetters(t)
	for o := range int64(30) {
		want := letterExceeded
		if o < 10 {
			want = letterRejected
		}
		if l := letters[o]; len(l) != 1 || l[0].headers["__dlq.errors.message"] != want || l[0].headers["__dlq.errors.group"] != "g" || l[0].value != nil {
			t.Errorf("letters of %d: %q", o, l)
		}
	}
	other := b.member(t, "g", "other", "t").join(t)
	if again, err := other.fetch(100*time.Millisecond, nil, 0); err != nil || len(again) != 0 {
		t.Errorf("delivered again: %v, %v", again, err)
	}
}

func TestLettersAreNotPostedTwice(t *testing.T) {
	letter := func(first, last int64) sharepart.Letter { return sharepart.Letter{First: first, Last: last, Count: 3} }
	for _, c := range []struct {
		first, last int64
		want        []sharepart.Letter
	}{
		{-5, -1, []sharepart.Letter{letter(0, 9), letter(20, 20)}},
		{0, 0, []sharepart.Letter{letter(1, 9), letter(20, 20)}},
		{3, 5, []sharepart.Letter{letter(0, 2), letter(6, 9), letter(20, 20)}},
		{9, 20, []sharepart.Letter{letter(0, 8)}},
		{0, 9, []sharepart.Letter{letter(20, 20)}},
		{10, 19, []sharepart.Letter{letter(0, 9), letter(20, 20)}},
		{-1, 30, nil},
	} {
		if got := withoutRange([]sharepart.Letter{letter(0, 9), letter(20, 20)}, c.first, c.last); !reflect.DeepEqual(got, c.want) {
			t.Errorf("without %d to %d: %v, want %v", c.first, c.last, got, c.want)
		}
	}
}

// stuckLog is a log that takes nothing for a while.
type stuckLog struct {
	stateLog
	stuck atomic.Bool
	tried atomic.Int64
}

func (l *stuckLog) Append(b []byte, o partlog.Origin) (partlog.AppendInfo, error) {
	if l.stuck.Load() {
		l.tried.Add(1)
		return partlog.AppendInfo{}, errNoSpace
	}
	return l.stateLog.Append(b, o)
}

// TestLettersWhileStatesCannotBeKept: letters that are in the queue are archived as soon as that can be kept, with nobody to ask for it, and are not written once more,
// whoever reads the partition meanwhile.
func TestLettersWhileStatesCannotBeKept(t *testing.T) {
	b := startBroker(t, t.TempDir(), shareKeys())
	b.createTopic(t, "t", 1)
	produceSome(t, b.client(t), "t", 0, 30)
	b.letterQueue(t, "g")
	m := b.member(t, "g", "m", "t").join(t)
	if held, err := m.fetch(time.Second, nil, 0); err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	k := shareKey{"g", m.topicID, 0}
	c, err := b.shares.states.of(k.state().String())
	if err != nil {
		t.Fatal(err)
	}
	var log *stuckLog
	if err := c.wait(t.Context(), func() { log = &stuckLog{stateLog: c.log}; c.log = log }); err != nil {
		t.Fatal(err)
	}
	away := b.logs.take(deadQueue)
	types := make([]int8, 30)
	for i := range types {
		if types[i] = accept; i%2 == 0 {
			types[i] = reject
		}
	}
	if err := m.acknowledge(got{partition: 0, Delivery: delivery(0, 29)}, types...); err != nil {
		t.Fatal(err)
	}
	log.stuck.Store(true)
	b.logs.put(deadQueue, away)
	await(t, "an attempt to archive", func() bool { return log.tried.Load() > 0 })
	if held, err := m.fetch(10*time.Millisecond, nil, 0); err != nil || len(held) != 0 {
		t.Fatal(held, err)
	}
	log.stuck.Store(false)
	await(t, "the letters to be archived", func() bool { sp := b.shares.known(k); return sp != nil && !b.archiving(k) })
	letters := b.deadLetters(t)
	for o := range int64(30) {
		if n := len(letters[o]); n != int(1-o%2) {
			t.Errorf("%d letters of %d", n, o)
		}
	}
}

// TestLettersOfDeletedRecords: records that are gone from the log do not keep those behind them from being copied.
func TestLettersOfDeletedRecords(t *testing.T) {
	b := startBroker(t, t.TempDir(), shareKeys())
	b.createTopic(t, "t", 1)
	produceSome(t, b.client(t), "t", 0, 30)
	p := b.partition("t", 0)
	if _, err := p.log.DeleteRecords(10); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		letters []sharepart.Letter
		copied  []int64
	}{
		{[]sharepart.Letter{{First: 0, Last: 2}, {First: 20, Last: 21}}, []int64{20, 21}},
		{[]sharepart.Letter{{First: 8, Last: 11}}, []int64{10, 11}},
		{[]sharepart.Letter{{First: 0, Last: 2}, {First: 4, Last: 9}}, nil},
	} {
		got, err := b.shares.letters.read(t.Context(), p, c.letters, 1<<20, false)
		if err != nil {
			t.Error(err)
		}
		if of := slices.Sorted(maps.Keys(got.of)); !slices.Equal(of, c.copied) || got.resolved < c.letters[len(c.letters)-1].Last {
			t.Errorf("%v: copies of %v, resolved up to %d", c.letters, of, got.resolved)
		}
	}
}
