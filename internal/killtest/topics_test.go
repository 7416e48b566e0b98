package killtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The topics under load.
const (
	history   = "history"   // tiered, kept for ever, local part as short as can be
	short     = "short"     // tiered, with a total retention that is always deleting
	local     = "local"     // not tiered, kept for ever
	compacted = "compacted" // compacted all the time
	trimmed   = "trimmed"   // tiered, kept for ever, but for what DeleteRecords takes

	compactedKeys = 50
	shortBytes    = 1 << 20
)

var partitionsOf = map[string]int32{history: 3, short: 2, local: 2, compacted: 1, trimmed: 1}

func tiered(segment int, more map[string]string) map[string]string {
	c := map[string]string{
		"remote.storage.enable": "true", "internal.segment.bytes": fmt.Sprint(segment), "local.retention.bytes": "1", "retention.ms": "-1",
		"file.delete.delay.ms": "100",
	}
	for k, v := range more {
		c[k] = v
	}
	return c
}

var configsOf = map[string]map[string]string{
	history: tiered(256<<10, nil),
	trimmed: tiered(64<<10, nil),
	short:   tiered(128<<10, map[string]string{"retention.bytes": fmt.Sprint(shortBytes)}),
	local:   {"internal.segment.bytes": "262144", "retention.ms": "-1"},
	compacted: {"cleanup.policy": "compact", "internal.segment.bytes": "65536", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0",
		"file.delete.delay.ms": "100"},
}

func (l *load) createTopics() {
	l.t.Helper()
	c, err := l.client()
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	for topic, n := range partitionsOf {
		if err := l.create(l.ctx, kadm.NewClient(c), topic, n, configsOf[topic]); err != nil {
			l.t.Fatal(err)
		}
	}
}

func placesOf(topic string) (all []place) {
	for n := range partitionsOf[topic] {
		all = append(all, place{topic, n})
	}
	return all
}

// trim deletes the oldest records of a topic again and again.
type trim struct {
	l *load
	p place

	mu   sync.Mutex
	upTo int64 // the highest log start that was confirmed
	n    int
}

func (l *load) trim(p place) *trim {
	tr := &trim{l: l, p: p}
	l.writers.Go(func() {
		c, err := l.client()
		if err != nil {
			l.ledger.fault("making the deleter's client: %v", err)
			return
		}
		defer c.Close()
		for pause(l.writing, 200*time.Millisecond) {
			if err := tr.once(kadm.NewClient(c)); err != nil && l.writing.Err() == nil {
				l.ledger.fault("deleting records of %s: %v", p, err)
				return
			}
		}
	})
	return tr
}

const trimLeaves = 300

func (tr *trim) once(adm *kadm.Client) error {
	_, ends, err := tr.l.bounds(tr.l.writing, []string{tr.p.topic})
	if err != nil || ends[tr.p] <= trimLeaves {
		return err
	}
	var to kadm.Offsets
	to.Add(kadm.Offset{Topic: tr.p.topic, Partition: tr.p.partition, At: ends[tr.p] - trimLeaves, LeaderEpoch: -1})
	return whenUp(tr.l.writing, func() error {
		got, err := adm.DeleteRecords(tr.l.writing, to)
		if err == nil {
			err = got.Error()
		}
		if err != nil {
			return err
		}
		tr.mu.Lock()
		defer tr.mu.Unlock()
		got.Each(func(r kadm.DeleteRecordsResponse) { tr.upTo = max(tr.upTo, r.LowWatermark) })
		tr.n++
		return nil
	})
}

// check: what was confirmed to be deleted stays so.
func (tr *trim) check() error {
	tr.mu.Lock()
	want := tr.upTo
	tr.mu.Unlock()
	starts, _, err := tr.l.bounds(tr.l.ctx, []string{tr.p.topic})
	if err == nil && starts[tr.p] < want {
		tr.l.ledger.fault("%s: records below %d were deleted, and it begins at %d", tr.p, want, starts[tr.p])
	}
	return err
}

// churn makes tiered topics, fills them and deletes most of them, some while they are still being copied.
type churn struct {
	l *load

	mu    sync.Mutex
	alive map[string]bool // true: exists and stays; false: deleted
}

func (l *load) churn(stream uint64) *churn {
	ch := &churn{l: l, alive: map[string]bool{}}
	l.writers.Go(func() {
		rnd := l.random(stream)
		for n := 0; l.writing.Err() == nil; n++ {
			if err := ch.one(fmt.Sprintf("churn-%d", n), rnd.IntN(400), time.Duration(rnd.IntN(1500))*time.Millisecond, rnd.IntN(4) > 0); err != nil && l.ctx.Err() == nil {
				l.ledger.fault("topic churn-%d: %v", n, err)
				return
			}
		}
	})
	return ch
}

func (ch *churn) one(topic string, records int, wait time.Duration, remove bool) error {
	l := ch.l
	w := writer{places: []place{{topic, 0}}, codec: kgo.NoCompression()}
	c, err := l.client(w.options()...)
	if err != nil {
		return err
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	if err := l.create(l.ctx, adm, topic, 1, tiered(32<<10, nil)); err != nil {
		return err
	}
	ch.set(topic, true)
	number := l.ledger.newClient()
	for range records {
		l.produce(c, number, w.places[0], true, 1000)
	}
	if records%2 == 0 || !remove { // else it goes while records are on their way
		l.flush(c, &w)
		pause(l.writing, wait)
	}
	if !remove {
		return nil
	}
	l.ledger.drop(topic)
	if err := ch.remove(adm, topic); err != nil {
		return err
	}
	ch.set(topic, false)
	return nil
}

func (ch *churn) remove(adm *kadm.Client, topic string) error {
	return whenUp(ch.l.ctx, func() error {
		_, err := adm.DeleteTopic(ch.l.ctx, topic)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil // an earlier request did it, whose answer was lost
		}
		return err
	})
}

func (ch *churn) set(topic string, alive bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.alive[topic] = alive
}

// topics are those that exist, and those that were deleted.
func (ch *churn) topics() (alive, deleted []string) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for t, a := range ch.alive {
		if a {
			alive = append(alive, t)
		} else {
			deleted = append(deleted, t)
		}
	}
	return alive, deleted
}
