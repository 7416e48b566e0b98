package metadatatopic_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestCase16_CopiesOfTwoLeaders: two finished segments hold the same offsets; the lineage chooses, which is learnt anew when the leader epoch moves, told by nobody but
// the cluster.
func TestCase16_CopiesOfTwoLeaders(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	r := open(t, c, metadatatopic.Options{Storage: nothing{}, Policy: metadatatopic.Tiered})
	ready(t, r)
	old, err := ask(r, tp, 150)
	if err != nil {
		t.Fatal(err)
	}
	// An unclean election: the new leader had the log up to 120, wrote on in epoch 2, and copied its own segment over the same offsets.
	part := c.topics["t"].parts[0]
	id, records := segmentOf(tp, 110, 219, 0, 110, 2, 120)
	c.publish(records...)
	c.lead(part, 0, 0, 2, 120)
	c.set(func() { part.high, part.stable, part.local = 230, 230, 220 })
	until(t, "the lineage to be learnt anew", func() bool { rng, err := ask(r, tp, 150); return err == nil && rng.ID.ID == id })
	for offset := int64(0); offset < 220; offset++ {
		rng, err := ask(r, tp, offset)
		switch {
		case err != nil || rng.LastOffset < offset:
			t.Fatalf("offset %d: %+v, %v", offset, rng, err)
		case offset >= 120 && (rng.ID.ID != id || rng.LastOffset != 219):
			t.Errorf("offset %d: %+v, want the new leader's segment", offset, rng)
		case rng.ID.ID == old.ID.ID && rng.LastOffset > 119:
			t.Errorf("offset %d: the old leader's segment is read up to %d, past the end of its epoch at 119", offset, rng.LastOffset)
		}
	}
	if facts, err := r.Facts(context.Background(), tp); err != nil || facts.LeaderEpoch != 2 || facts.HighWatermark != 230 {
		t.Errorf("%+v, %v", facts, err)
	}
}

// TestCase17_CutAtTheEndOfTheEpoch: the dead part of a segment is not read, whatever was copied.
func TestCase17_CutAtTheEndOfTheEpoch(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t") // epoch 0 up to 199
	part := c.topics["t"].parts[0]
	c.lead(part, 0, 0, 1, 150)
	c.set(func() { part.high, part.stable, part.local = 300, 300, 300 })
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	if rng, err := ask(r, tp, 100); err != nil || rng.LastOffset != 149 || rng.EndOffset != 199 {
		t.Errorf("%+v, %v; want it up to 149", rng, err)
	}
	if _, err := ask(r, tp, 150); !errors.Is(err, remote.ErrLocal) {
		t.Errorf("behind the cut, where nothing is remote: %v, want %v", err, remote.ErrLocal)
	}
	rng, err := ask(r, tp, 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Location(context.Background(), question(tp, 100, false), &rng); !errors.Is(err, resolve.ErrNotOffered) {
		t.Errorf("a location of a segment with a dead part: %v, want %v", err, resolve.ErrNotOffered)
	}
}

// TestLeaderEpochsOfTheQuestion: KIP-320.
func TestLeaderEpochsOfTheQuestion(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	part := c.topics["t"].parts[0]
	c.lead(part, 0, 0, 3, 200)
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	for _, w := range []struct {
		current, last int32
		offset        int64
		err           error
	}{
		{-1, -1, 0, nil}, {3, -1, 0, nil}, {2, -1, 0, resolve.ErrEpoch}, {4, -1, 0, resolve.ErrEpoch},
		{3, 0, 100, nil}, {-1, 0, 150, nil}, {3, 3, 100, nil}, {3, 1, 100, resolve.ErrEpoch}, {3, 7, 100, resolve.ErrEpoch},
	} {
		until(t, "facts", func() bool { _, err := r.Facts(context.Background(), tp); return err == nil })
		_, err := r.Resolve(context.Background(), resolve.Question{TP: tp, Offset: w.offset, CurrentLeaderEpoch: w.current, LastFetchedEpoch: w.last})
		if !errors.Is(err, w.err) || err != nil && !errors.Is(err, remote.ErrLocal) {
			t.Errorf("current %d, last fetched %d at %d: %v, want %v", w.current, w.last, w.offset, err, w.err)
		}
	}
}

// TestMoved: errors that clients got make the resolver look at once, long before it would by itself.
func TestMoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	if _, err := ask(r, tp, 0); err != nil {
		t.Fatal(err)
	}
	c.lead(c.topics["t"].parts[0], 0, 0, 5, 200)
	r.Moved(tp)
	if _, ok := r.Known(tp); ok {
		t.Error("facts are known right after the leader has moved")
	}
	facts, err := r.Facts(context.Background(), tp)
	if err != nil || facts.LeaderEpoch != 5 {
		t.Errorf("%+v, %v; want epoch 5", facts, err)
	}
}

// TestDeleteRecords: the log start moves up at once when an answer that passed by says so, and within seconds by itself.
func TestDeleteRecords(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	if _, err := ask(r, tp, 10); err != nil {
		t.Fatal(err)
	}
	r.Learn(tp, resolve.Learnt{LogStart: 50, HighWatermark: -1, LastStable: -1})
	if _, err := ask(r, tp, 49); !errors.Is(err, locate.ErrBelowLogStart) || !errors.Is(err, remote.ErrLocal) {
		t.Errorf("below the log start that was learnt: %v, want %v", err, locate.ErrBelowLogStart)
	}
	rng, err := ask(r, tp, 50)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Location(context.Background(), question(tp, 50, false), &rng); !errors.Is(err, resolve.ErrNotOffered) {
		t.Errorf("a location of a segment with deleted offsets: %v, want %v", err, resolve.ErrNotOffered)
	}
	if rng, err = ask(r, tp, 100); err != nil {
		t.Fatal(err)
	}
	if l, err := r.Location(context.Background(), question(tp, 100, false), &rng); err != nil || l.RemoteLogSegmentLocation == "" || l.LastOffset != 199 {
		t.Errorf("a whole segment: %+v, %v", l, err)
	}
	r.Learn(tp, resolve.Learnt{LogStart: -1, HighWatermark: 1000, LastStable: 990})
	if facts, ok := r.Known(tp); !ok || facts.HighWatermark != 1000 || facts.LastStable != 990 || facts.LogStart != 50 {
		t.Errorf("%+v, %v", facts, ok)
	}
	c.set(func() { c.topics["t"].parts[0].start = 120 })
	until(t, "the log start to be heard of", func() bool {
		facts, err := r.Facts(context.Background(), tp)
		return err == nil && facts.LogStart == 120
	})
	if _, err := ask(r, tp, 119); !errors.Is(err, locate.ErrBelowLogStart) {
		t.Errorf("%v, want %v", err, locate.ErrBelowLogStart)
	}
}

// TestEdgeBetweenTheTiers: reading from the store begins below the local log start only, but goes on to the segment's end.
func TestEdgeBetweenTheTiers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	c.set(func() { c.topics["t"].parts[0].local = 150 })
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	if rng, err := ask(r, tp, 149); err != nil || rng.LastOffset != 199 {
		t.Errorf("%+v, %v; want it up to the segment's end at 199", rng, err)
	}
	if _, err := ask(r, tp, 150); !errors.Is(err, remote.ErrLocal) {
		t.Errorf("at the local log start: %v, want %v", err, remote.ErrLocal)
	}
	if r.Local(tp, 149) || !r.Local(tp, 150) {
		t.Error("the local log starts at 150")
	}
}

// TestTopicMadeAnew: the same name with another id starts from nothing, and nothing of the old one is served any more.
func TestTopicMadeAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	old := tiered(c, "t")
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	if name, id, err := r.Topic(context.Background(), "t", remotestorage.UUID{}); err != nil || name != "t" || id != old.TopicID {
		t.Fatalf("%s %s, %v", name, id, err)
	}
	if name, id, err := r.Topic(context.Background(), "", old.TopicID); err != nil || name != "t" || id != old.TopicID {
		t.Fatalf("%s %s, %v", name, id, err)
	}
	if _, err := ask(r, old, 10); err != nil {
		t.Fatal(err)
	}
	topic := c.create("t", 1)
	tp := remotestorage.TopicIDPartition{Topic: "t", TopicID: topic.id}
	c.set(func() { topic.parts[0].high, topic.parts[0].stable = 5, 5 })
	until(t, "the old topic to be gone", func() bool { _, err := ask(r, old, 10); return err != nil })
	if _, err := ask(r, old, 10); !errors.Is(err, remote.ErrLocal) {
		t.Errorf("of the old topic: %v, want %v", err, remote.ErrLocal)
	}
	if _, err := ask(r, tp, 0); !errors.Is(err, remote.ErrLocal) || !r.Local(tp, 0) {
		t.Errorf("of the new topic, which has nothing remote: %v, want %v", err, remote.ErrLocal)
	}
	if facts, err := r.Facts(context.Background(), tp); err != nil || facts.HighWatermark != 5 {
		t.Errorf("%+v, %v", facts, err)
	}
	until(t, "the name to stand for the new id", func() bool {
		_, id, err := r.Topic(context.Background(), "t", remotestorage.UUID{})
		return err == nil && id == topic.id
	})
	for _, unknown := range []struct {
		name string
		id   remotestorage.UUID
	}{{"u", remotestorage.UUID{}}, {"", remotestorage.RandomUUID()}} {
		if _, _, err := r.Topic(context.Background(), unknown.name, unknown.id); !errors.Is(err, remote.ErrLocal) {
			t.Errorf("%v: %v, want %v", unknown, err, remote.ErrLocal)
		}
	}
}

// TestQuestionsAreAskedTogether: facts of many partitions cost few requests, and those of a partition that nobody reads none.
func TestQuestionsAreAskedTogether(t *testing.T) {
	t.Parallel()
	const partitions = 500
	c := newCluster(t, 1)
	topics := make([]*topic, 5)
	for i := range topics {
		topics[i] = c.create(fmt.Sprintf("t%d", i), partitions/len(topics))
	}
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	before := []int{c.requests(2), c.requests(3), c.requests(23)}
	var all sync.WaitGroup
	for i, topic := range topics {
		for p := range topic.parts {
			all.Go(func() {
				tp := remotestorage.TopicIDPartition{Topic: fmt.Sprintf("t%d", i), TopicID: topic.id, Partition: int32(p)}
				if _, err := r.Facts(context.Background(), tp); err != nil {
					t.Error(err)
				}
				for range 20 {
					r.Known(tp)
					r.Local(tp, 7)
				}
			})
		}
	}
	all.Wait()
	for i, key := range []int16{2, 3, 23} {
		n := c.requests(key) - before[i]
		t.Logf("%d requests of key %d for %d partitions", n, key, partitions)
		if n > partitions/2 {
			t.Errorf("%d requests of key %d for %d partitions", n, key, partitions)
		}
	}
	other := remotestorage.TopicIDPartition{Topic: "t0", TopicID: topics[0].id, Partition: 1000}
	if _, ok := r.Known(other); ok || !r.Local(other, 0) {
		t.Error("something is known of a partition that nobody asked for")
	}
	if _, err := r.Facts(context.Background(), other); !errors.Is(err, remote.ErrLocal) {
		t.Errorf("a partition that does not exist: %v, want %v", err, remote.ErrLocal)
	}
}

// TestAClientThatSticksToAnOldEpoch: what brokers refuse to one client does not keep the others from reading.
func TestAClientThatSticksToAnOldEpoch(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	if _, err := ask(r, tp, 0); err != nil {
		t.Fatal(err)
	}
	before := c.requests(23)
	for range 1000 {
		r.Moved(tp)
		if _, err := ask(r, tp, 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.requests(23) - before; n > 20 {
		t.Errorf("the lineage was asked for %d times", n)
	}
}

// TestFactsGrowOld: what a broker does not confirm any more is not said to clients, and known again once it is.
func TestFactsGrowOld(t *testing.T) {
	t.Parallel()
	const offsetNotAvailable = 78
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	r := open(t, c, metadatatopic.Options{Storage: nothing{}})
	ready(t, r)
	if _, err := r.Facts(context.Background(), tp); err != nil {
		t.Fatal(err)
	}
	part := c.topics["t"].parts[0]
	c.set(func() { part.offsetsError = offsetNotAvailable })
	until(t, "the facts to be too old", func() bool { _, ok := r.Known(tp); return !ok })
	if _, err := r.Facts(context.Background(), tp); !errors.Is(err, resolve.ErrNotReady) || !errors.Is(err, remote.ErrLocal) {
		t.Errorf("%v, want %v", err, resolve.ErrNotReady)
	}
	c.set(func() { part.offsetsError, part.high, part.stable = 0, 220, 215 })
	until(t, "the facts to be there again", func() bool {
		f, ok := r.Known(tp)
		return ok && f.HighWatermark == 220 && f.LastStable == 215
	})
	// While somebody asks, they never grow too old.
	for range 300 {
		if _, ok := r.Known(tp); !ok {
			if _, err := r.Facts(context.Background(), tp); err != nil {
				t.Fatal(err)
			}
			t.Log("the machine was too slow to keep the facts fresh")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
