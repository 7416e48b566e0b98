package metadatatopic_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func ask(r *metadatatopic.Resolver, tp remotestorage.TopicIDPartition, offset int64) (remote.Range, error) {
	return r.Resolve(context.Background(), question(tp, offset, false))
}

// TestCase15_NothingIsSaidBeforeTheMetadataIsRead: until a metadata partition has been read to its end, its topics are the brokers', by an error that no consumer is ever
// reset for.
func TestCase15_NothingIsSaidBeforeTheMetadataIsRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	c.set(func() { c.held = true })
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	for _, offset := range []int64{0, 100, 199, 200, 205, 1000} {
		if _, err := ask(r, tp, offset); !errors.Is(err, resolve.ErrNotReady) || !errors.Is(err, remote.ErrLocal) || errors.Is(err, locate.ErrBelowLogStart) {
			t.Errorf("offset %d before the topic is read: %v, want %v", offset, err, resolve.ErrNotReady)
		}
		if !r.Local(tp, offset) {
			t.Errorf("offset %d is not the broker's before the topic is read", offset)
		}
	}
	if r.Ready() || r.Lag() != 4 {
		t.Errorf("ready %v, lag %d; want false, 4", r.Ready(), r.Lag())
	}
	c.set(func() { c.held = false })
	ready(t, r)
	if rng, err := ask(r, tp, 0); err != nil || rng.LastOffset != 99 {
		t.Errorf("%+v, %v", rng, err)
	}
	if r.Lag() != 0 {
		t.Errorf("lag %d when all is read", r.Lag())
	}
}

// TestCase15_NoLeader: a partition between two leaders is the brokers'.
func TestCase15_NoLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	if _, err := ask(r, tp, 0); err != nil {
		t.Fatal(err)
	}
	part := c.topics["t"].parts[0]
	c.set(func() { part.noLeader = true })
	r.Moved(tp)
	if _, err := ask(r, tp, 0); !errors.Is(err, resolve.ErrNotReady) || errors.Is(err, locate.ErrBelowLogStart) {
		t.Errorf("without a leader: %v, want %v", err, resolve.ErrNotReady)
	}
	c.set(func() { part.noLeader = false })
	until(t, "the leader to be found again", func() bool { _, err := ask(r, tp, 0); return err == nil })
}

// TestOneMetadataPartitionIsRead: readiness is per metadata partition.
func TestOneMetadataPartitionIsRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 8)
	a, b := tiered(c, "a"), tiered(c, "b")
	for n := 0; remotelog.MetadataPartition(a, 8) == remotelog.MetadataPartition(b, 8); n++ {
		b = tiered(c, "b")
	}
	home := remotelog.MetadataPartition(b, 8)
	c.set(func() { c.topics[metadatatopic.DefaultTopic].parts[home].noLeader = true })
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	until(t, "the other partitions to be read", func() bool { return r.Status().Unread == 1 })
	if _, err := ask(r, a, 0); err != nil {
		t.Errorf("whose metadata is read: %v", err)
	}
	if _, err := ask(r, b, 0); !errors.Is(err, resolve.ErrNotReady) {
		t.Errorf("whose metadata is not read: %v, want %v", err, resolve.ErrNotReady)
	}
	c.set(func() { c.topics[metadatatopic.DefaultTopic].parts[home].noLeader = false })
	ready(t, r)
	if _, err := ask(r, b, 0); err != nil {
		t.Errorf("when all is read: %v", err)
	}
}

// TestUnknownRecords are skipped, with one warning for each kind.
func TestUnknownRecords(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	log := newLog()
	for range 3 {
		c.append(0, []byte{1, 9, 0, 1, 2, 3})   // an api key of the future
		c.append(0, []byte{1, 0, 7, 1})         // a version of the future
		c.append(0, []byte("no record at all")) // frame version 110
	}
	tp := tiered(c, "t")
	id, records := segmentOf(tp, 200, 299, 0, 200)
	value := remotelog.Append(nil, records[0])
	value = append(value[:len(value)-4], 2, 0, 1, 1, 77, 1, 5) // a second tag behind TxnIndexEmpty
	c.append(0, value)
	c.publish(stateOf(tp, id, remotestorage.CopySegmentFinished))
	c.set(func() { c.topics["t"].parts[0].local = 300 })
	r := open(t, c, metadatatopic.Options{Storage: nothing{}, Logger: log.logger()})
	ready(t, r)
	if s := r.Status(); s.Skipped != 9 || s.Segments != 3 || s.Applied != 6 || len(s.Torn) != 0 || s.Err != nil {
		t.Errorf("%+v", s)
	}
	for _, part := range []string{"is not understood", "tagged fields"} {
		if n := log.count(part); n != 1 {
			t.Errorf("%q was logged %d times, want once", part, n)
		}
	}
	if rng, err := ask(r, tp, 250); err != nil || rng.ID.ID != id {
		t.Errorf("the segment with an unknown tag: %+v, %v", rng, err)
	}
}

// TestBeginningIsMissing: what the metadata topic no longer tells is the brokers'; what it does tell is read.
func TestBeginningIsMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		cut  int64 // records gone from the beginning
	}{{"whole segments", 2}, {"an announcement", 1}, {"in the middle", 3}} {
		t.Run(c.what, func(t *testing.T) {
			k := newCluster(t, 1)
			tp := tiered(k, "t")
			log := newLog()
			k.set(func() {
				p := k.topics[metadatatopic.DefaultTopic].parts[0]
				p.start, p.values = c.cut, p.values[c.cut:]
			})
			_, records := segmentOf(tp, 200, 299, 0, 200)
			k.publish(records...)
			k.set(func() { k.topics["t"].parts[0].local = 300 })
			r := open(t, k, metadatatopic.Options{Storage: nothing{}, Logger: log.logger()})
			ready(t, r)
			if rng, err := ask(r, tp, 200); err != nil || rng.LastOffset != 299 {
				t.Errorf("what is left: %+v, %v", rng, err)
			}
			if _, err := ask(r, tp, 50); !errors.Is(err, remote.ErrLocal) || errors.Is(err, remote.ErrDamaged) {
				t.Errorf("what was cut off: %v, want %v", err, remote.ErrLocal)
			}
			if s := r.Status(); len(s.Torn) != 1 || log.count("is not whole") != 1 {
				t.Errorf("%+v, logged %d times", s, log.count("is not whole"))
			}
		})
	}
}

// TestOrphanInTheMiddle: an update of a segment that was never announced makes a hole which is no damage.
func TestOrphanInTheMiddle(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	c.publish(stateOf(tp, remotestorage.RandomUUID(), remotestorage.CopySegmentFinished))
	_, records := segmentOf(tp, 300, 399, 0, 300)
	c.publish(records...)
	c.set(func() { c.topics["t"].parts[0].local = 400 })
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	if _, err := ask(r, tp, 250); !errors.Is(err, remote.ErrLocal) || errors.Is(err, remote.ErrDamaged) {
		t.Errorf("%v, want %v", err, remote.ErrLocal)
	}
}

// TestCase07_HoleInTheMetadata: a hole in a topic that is whole is damage, told aloud; before the first segment that is left it is retention at work.
func TestCase07_HoleInTheMetadata(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	_, records := segmentOf(tp, 300, 399, 0, 300)
	c.publish(records...)
	c.set(func() { c.topics["t"].parts[0].local = 400 })
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	if _, err := ask(r, tp, 250); !errors.Is(err, remote.ErrDamaged) || errors.Is(err, remote.ErrLocal) {
		t.Errorf("%v, want %v", err, remote.ErrDamaged)
	}
	rng, err := ask(r, tp, 0)
	if err != nil {
		t.Fatal(err)
	}
	first := rng.ID.ID
	c.publish(stateOf(tp, first, remotestorage.DeleteSegmentStarted))
	until(t, "the deletion to be seen", func() bool { _, err := ask(r, tp, 50); return err != nil })
	if _, err := ask(r, tp, 50); !errors.Is(err, remote.ErrLocal) || errors.Is(err, remote.ErrDamaged) {
		t.Errorf("while retention runs: %v, want %v", err, remote.ErrLocal)
	}
}

// TestUpdatesAreSeen: a segment is found once its record is in the topic, and not any more once it is being deleted.
func TestUpdatesAreSeen(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	tp := tiered(c, "t")
	r := open(t, c, metadatatopic.Options{Storage: nothing{}, Policy: metadatatopic.Tiered})
	ready(t, r)
	if _, err := ask(r, tp, 200); !errors.Is(err, remote.ErrLocal) {
		t.Fatalf("%v", err)
	}
	if !r.Local(tp, 200) || r.Local(tp, 199) {
		t.Error("the last segment ends at 199")
	}
	id, records := segmentOf(tp, 200, 204, 0, 200)
	c.publish(records[0])
	c.publish(records[1])
	until(t, "the segment to be found", func() bool { _, err := ask(r, tp, 200); return err == nil })
	c.publish(stateOf(tp, id, remotestorage.DeleteSegmentStarted))
	until(t, "the segment to be gone", func() bool { _, err := ask(r, tp, 200); return err != nil })
	c.publish(stateOf(tp, id, remotestorage.DeleteSegmentFinished), stateOf(tp, id, remotestorage.DeleteSegmentFinished))
	until(t, "the segment to be forgotten", func() bool { return r.Segments() == 2 })
}

// TestMetadataTopicMadeAnew: a cluster that was set up again has another metadata topic of the same name.
func TestMetadataTopicMadeAnew(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for the next look at the metadata topic")
	}
	c := newCluster(t, 2)
	old := tiered(c, "t")
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	c.create(metadatatopic.DefaultTopic, 3)
	tp := tiered(c, "t")
	until(t, "the new topic to be read", func() bool { return r.Status().Partitions == 3 && r.Ready() })
	if rng, err := ask(r, tp, 100); err != nil || rng.LastOffset != 199 {
		t.Errorf("%+v, %v", rng, err)
	}
	if _, err := ask(r, old, 0); !errors.Is(err, remote.ErrLocal) {
		t.Errorf("of the old cluster: %v", err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	r.Close()
	began := time.Now()
	if _, err := ask(r, tp, 0); !errors.Is(err, remote.ErrLocal) {
		t.Errorf("%v, want %v", err, remote.ErrLocal)
	}
	if _, _, err := r.Topic(context.Background(), "t", remotestorage.UUID{}); !errors.Is(err, remote.ErrLocal) {
		t.Errorf("%v, want %v", err, remote.ErrLocal)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("a closed resolver was waited for: %v", took)
	}
	r.Close() // a second time does nothing
}

// TestTheTopicIsCutBeforeItIsRead: a reading that was overtaken by the topic's retention goes on, and knows that it does not know all.
func TestTheTopicIsCutBeforeItIsRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	log := newLog()
	r := open(t, c, metadatatopic.Options{Storage: nothing{}, Logger: log.logger()})
	ready(t, r)
	c.set(func() { c.held = true })
	_, missed := segmentOf(tp, 200, 299, 0, 200)
	c.publish(missed...)
	_, kept := segmentOf(tp, 300, 399, 0, 300)
	c.publish(kept...)
	c.set(func() {
		p := c.topics[metadatatopic.DefaultTopic].parts[0]
		p.start, p.values = 6, p.values[6:]
		c.topics["t"].parts[0].local = 400
		c.held = false
	})
	until(t, "what is left to be read", func() bool { _, err := ask(r, tp, 300); return err == nil })
	until(t, "the loss to be seen", func() bool { return len(r.Status().Torn) == 1 })
	if _, err := ask(r, tp, 250); !errors.Is(err, remote.ErrLocal) || errors.Is(err, remote.ErrDamaged) {
		t.Errorf("what was missed: %v, want %v", err, remote.ErrLocal)
	}
	if n := log.count("is not whole"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
}
