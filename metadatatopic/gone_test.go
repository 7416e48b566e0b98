package metadatatopic_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// leftToBrokers: nothing of the partition is resolved, by an error that no consumer is reset for.
func leftToBrokers(t *testing.T, r *metadatatopic.Resolver, tp remotestorage.TopicIDPartition) {
	t.Helper()
	for _, offset := range []int64{0, 50, 150, 205} {
		if _, err := ask(r, tp, offset); !errors.Is(err, resolve.ErrNotReady) || !errors.Is(err, remote.ErrLocal) {
			t.Errorf("offset %d: %v, want %v", offset, err, resolve.ErrNotReady)
		}
		if !r.Local(tp, offset) {
			t.Errorf("offset %d is not the brokers'", offset)
		}
	}
	if _, err := r.History(context.Background(), tp); !errors.Is(err, resolve.ErrNotReady) {
		t.Errorf("history: %v, want %v", err, resolve.ErrNotReady)
	}
}

// TestMetadataTopicDeleted: whatever was read of a topic that is not there any more, or may not be read any more, is not served. One that is made in its place is read from its
// beginning, and nothing of the old one counts.
func TestMetadataTopicDeleted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		take func(c *cluster)
		is   error
	}{
		{"deleted", func(c *cluster) { delete(c.topics, metadatatopic.DefaultTopic) }, metadatatopic.ErrNoTopic},
		{"no Describe any more", func(c *cluster) { c.topics[metadatatopic.DefaultTopic].err = errUnauthorized }, metadatatopic.ErrNotAllowed},
		{"no Read any more", func(c *cluster) { c.topics[metadatatopic.DefaultTopic].operations = 1 << 8 }, metadatatopic.ErrNotAllowed},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			k := newCluster(t, 2)
			tp := tiered(k, "t")
			log := newLog()
			r := open(t, k, metadatatopic.Options{Storage: nothing{}, Logger: log.logger()})
			ready(t, r)
			had, err := ask(r, tp, 50)
			if err != nil {
				t.Fatal(err)
			}
			topic := k.topics[metadatatopic.DefaultTopic]
			k.set(func() { c.take(k) })
			until(t, "the loss to be seen", func() bool { return !r.Ready() })
			leftToBrokers(t, r, tp)
			if s := r.Status(); !s.Gone || s.Segments != 0 || !errors.Is(s.Err, c.is) || r.Segments() != 0 || log.count("all history is left to the brokers") != 1 {
				t.Errorf("%+v, logged %d times", s, log.count("all history is left to the brokers"))
			}
			// The same topic once more.
			k.set(func() {
				topic.err, topic.operations = 0, allOperations
				k.topics[metadatatopic.DefaultTopic] = topic
			})
			ready(t, r)
			if rng, err := ask(r, tp, 50); err != nil || rng.ID != had.ID {
				t.Errorf("of the same topic: %+v, %v; want %v", rng, err, had.ID)
			}
			k.set(func() { delete(k.topics, metadatatopic.DefaultTopic) })
			until(t, "the loss to be seen", func() bool { return !r.Ready() })
			// Another of its name. Of the same partition it tells something else.
			k.create(metadatatopic.DefaultTopic, 3)
			id, records := segmentOf(tp, 0, 79, 0, 0)
			k.publish(records...)
			until(t, "the new topic to be read", func() bool { return r.Status().Partitions == 3 && r.Ready() })
			if rng, err := ask(r, tp, 50); err != nil || rng.ID.ID != id || rng.LastOffset != 79 {
				t.Errorf("of the new topic: %+v, %v; want segment %v", rng, err, id)
			}
			if _, err := ask(r, tp, 150); !errors.Is(err, remote.ErrLocal) {
				t.Errorf("what only the old topic knew: %v, want %v", err, remote.ErrLocal)
			}
			if n := r.Segments(); n != 1 {
				t.Errorf("%d segments, want 1", n)
			}
		})
	}
}

// TestMetadataPartitionLost: a metadata partition that nobody can read for a while makes its topics the brokers', and only those.
func TestMetadataPartitionLost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for several looks at the metadata topic")
	}
	c := newCluster(t, 8)
	a, b := tiered(c, "a"), tiered(c, "b")
	for remotelog.MetadataPartition(a, 8) == remotelog.MetadataPartition(b, 8) {
		b = tiered(c, "b")
	}
	home := remotelog.MetadataPartition(b, 8)
	log := newLog()
	r := open(t, c, metadatatopic.Options{Storage: nothing{}, Logger: log.logger()}.WithLostAfter(time.Second))
	ready(t, r)
	c.set(func() { c.topics[metadatatopic.DefaultTopic].parts[home].noLeader = true })
	until(t, "the loss to be seen", func() bool { return !r.Ready() })
	if s := r.Status(); len(s.Lost) != 1 || s.Lost[0] != home || s.Err == nil || s.Gone || s.Segments == 0 || log.count("a metadata partition cannot be read any more") != 1 {
		t.Errorf("%+v, want partition %d lost", s, home)
	}
	leftToBrokers(t, r, b)
	if _, err := ask(r, a, 0); err != nil {
		t.Errorf("whose metadata is read: %v", err)
	}
	c.set(func() { c.topics[metadatatopic.DefaultTopic].parts[home].noLeader = false })
	ready(t, r)
	if _, err := ask(r, b, 0); err != nil {
		t.Errorf("when it is read again: %v", err)
	}
}

// TestMetadataPartitionStuck: ends that run ahead of the reading count as well. The leader answers questions but gives no records.
func TestMetadataPartitionStuck(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for several looks at the metadata topic")
	}
	c := newCluster(t, 1)
	tp := tiered(c, "t")
	r := open(t, c, metadatatopic.Options{Storage: nothing{}}.WithLostAfter(time.Second))
	ready(t, r)
	c.set(func() { c.held = true })
	_, records := segmentOf(tp, 200, 204, 0, 200)
	c.publish(records...)
	until(t, "the loss to be seen", func() bool { return len(r.Status().Lost) == 1 })
	leftToBrokers(t, r, tp)
	c.set(func() { c.held = false })
	ready(t, r)
	if _, err := ask(r, tp, 0); err != nil {
		t.Errorf("when it is read again: %v", err)
	}
}
