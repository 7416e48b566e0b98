package history

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
)

// streamed runs a test with the broker's own answers held and streamed.
func streamed(t *testing.T, run func(t *testing.T, o dialOptions)) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			run(t, dialOptions{Change: func(o *Options) { o.Stream = stream }})
		})
	}
}

func remoteBytes(p *fakePart) (n int) {
	for _, s := range p.segs {
		n += len(s.data)
	}
	return n
}

func localBytes(p *fakePart) (n int) {
	for _, b := range p.local {
		n += len(b.raw)
	}
	return n
}

// With a Resolver history comes from the store alone, and what is in the local log through the broker.
func TestResolvedHistory(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		topic := b.topic("history", 3)
		ends, local, past := make(map[int32]int64), 0, 0
		for _, p := range topic.parts {
			ends[p.n] = b.history(p, 3, 40, 10, 1000)
			local, past = local+localBytes(p), past+remoteBytes(p)
		}
		d, r := resolving(t, b, o)
		for _, version := range []int16{18, 12, 11, 4} {
			b.set(func() { b.maxFetch, b.served, b.tagged = version, 0, 0 })
			before := d.Stats() // before there is a client, which fetches at once
			client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			newConsumed(t, 1000).until(client, ends)
			s := d.counted(before.DirectBytes + int64(past))
			client.Close()
			if got := s.DirectBytes - before.DirectBytes; got != int64(past) || b.now(&b.served) != local || b.now(&b.tagged) > 0 || s.Fallbacks > 0 {
				t.Errorf("Fetch %d: %d of %d bytes read directly, %d of %d by the broker, %d questions for locations", version, got, past, b.now(&b.served), local, b.now(&b.tagged))
			}
		}
		if r.count(&r.moved) > 0 {
			t.Error("leaders moved")
		}
	})
}

// A reader of the newest records never waits for a search, and nobody asks what it may read.
func TestTailIsTheBrokers(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		p := b.topic("live", 1).parts[0]
		b.history(p, 1, 2, 10, 1000)
		d, r := resolving(t, b, o)
		c := dialRaw(t, d, b)
		for i := range 5 {
			next := p.hw
			b.append(p, batchOf(0, next, 3, 100))
			if res := c.fetch(17, 10*time.Second, at(p, next)); nextOf(t, res[0]) != next+3 {
				t.Fatalf("fetch %d: %s", i, brief(t, res[0]))
			}
		}
		if r.count(&r.resolved) > 0 || b.now(&b.asked) > 0 {
			t.Errorf("%d searches, %d questions about READ", r.count(&r.resolved), b.now(&b.asked))
		}
		r.set(func() {
			if len(r.learnt) == 0 || r.learnt[len(r.learnt)-1].HighWatermark != p.hw {
				t.Errorf("learnt %v", r.learnt)
			}
		})
	})
}

// Who may not read a topic gets the broker's answer and not a byte of it; who may no longer, after some seconds at most.
func TestReadIsAskedOfTheCluster(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		b.history(p, 1, 200, 10, 1000)
		denied := "nobody"
		b.denied = func(user, _ string) bool { return user == denied }
		o.RemoteMaxPartitionFetchBytes = 1
		d, r := resolving(t, b, o)
		c := dialRaw(t, d, b)
		if res := c.fetch(17, time.Second, at(p, 0)); res[0].ErrorCode != 29 || len(res[0].RecordBatches) > 0 || r.count(&r.gets) > 0 {
			t.Errorf("error %d, %d bytes", res[0].ErrorCode, len(res[0].RecordBatches))
		}
		// Another principal on the same connection: what was known of the first is forgotten.
		c.login("alice")
		if res := c.fetch(17, 10*time.Second, at(p, 0)); nextOf(t, res[0]) != 10 {
			t.Errorf("error %d", res[0].ErrorCode)
		}
		if n := b.now(&b.asked); n != 2 {
			t.Errorf("the cluster was asked %d times", n)
		}
		c.login("nobody")
		if res := c.fetch(17, time.Second, at(p, 10)); res[0].ErrorCode != 29 {
			t.Errorf("error %d", res[0].ErrorCode)
		}
		// Taken away while it is being used.
		c.login("alice")
		next := nextOf(t, c.fetch(17, time.Second, at(p, 0))[0])
		b.set(func() { denied = "alice" })
		for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			res := c.fetch(17, time.Second, at(p, next))
			if res[0].ErrorCode == 29 {
				break
			}
			if next = nextOf(t, res[0]); next >= 1000 || time.Now().After(deadline) {
				next = 10
			}
			if time.Now().After(deadline) {
				t.Fatal("it reads on")
			}
		}
		if d.Stats().UpstreamBytes > 0 {
			t.Error("bytes of the broker's")
		}
	})
}

func (c *rawClient) login(user string) {
	c.t.Helper()
	hs := kmsg.NewPtrSASLHandshakeRequest()
	hs.Version, hs.Mechanism = 1, "PLAIN"
	auth := kmsg.NewPtrSASLAuthenticateRequest()
	auth.Version, auth.SASLAuthBytes = 2, []byte(user)
	for _, req := range []kmsg.Request{hs, auth} {
		c.send(req)
		c.receive(req)
	}
}

// However many partitions a client begins with, the cluster is asked once for each topic.
func TestReadIsAskedOnce(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 50)
	var asks []ask
	for _, p := range topic.parts {
		b.history(p, 1, 5, 10, 1000)
		asks = append(asks, at(p, 0))
	}
	d, _ := resolving(t, b, dialOptions{})
	c := dialRaw(t, d, b)
	for d.Stats().DirectBytes == 0 {
		c.fetch(17, time.Second, asks...)
	}
	if n := b.now(&b.asked); n != 1 {
		t.Errorf("the cluster was asked %d times", n)
	}
}

// A resolver that has lost its cluster does not make a reader of the newest records wait each time.
func TestResolverWithoutCluster(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("live", 1).parts[0]
	b.history(p, 1, 5, 10, 1000)
	d, r := resolving(t, b, dialOptions{Change: streams})
	r.set(func() { r.deaf = true })
	c := dialRaw(t, d, b)
	waited := 0
	for range 20 {
		next := p.hw
		b.append(p, batchOf(0, next, 1, 100))
		for {
			res := c.fetch(17, 50*time.Millisecond, at(p, next))
			if nextOf(t, res[0]) == next+1 {
				break
			}
			if waited++; waited > 200 {
				t.Fatal("it waits for ever")
			}
		}
	}
	if n := r.count(&r.topics); n > 3 {
		t.Errorf("the resolver was waited for %d times", n)
	}
}

// Leader epochs are KIP-320's: one that the resolver has not confirmed is for the broker to judge; errors 6, 74 and 75 are passed on and told the resolver.
func TestResolvedEpochs(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		b.history(p, 1, 50, 10, 1000)
		o.RemoteMaxPartitionFetchBytes = 1
		d, r := resolving(t, b, o)
		c := dialRaw(t, d, b)
		if res := c.fetch(17, 10*time.Second, ask{p, 0, 3, -1}); nextOf(t, res[0]) != 10 {
			t.Fatalf("%s", brief(t, res[0]))
		}
		before := b.now(&b.fetches)
		if res := c.fetch(17, 10*time.Second, ask{p, 10, 3, 3}); nextOf(t, res[0]) != 20 || b.now(&b.fetches) != before {
			t.Errorf("%d fetches by the broker", b.now(&b.fetches)-before)
		}
		if res := c.fetch(17, time.Second, ask{p, 20, 4, 3}); res[0].ErrorCode != 75 || r.count(&r.moved) != 1 {
			t.Errorf("error %d, moved %d times", res[0].ErrorCode, r.count(&r.moved))
		}
		// The leader moves while a segment is being read.
		if res := c.fetch(17, 10*time.Second, ask{p, 20, 3, 3}); nextOf(t, res[0]) != 30 {
			t.Fatalf("%s", brief(t, res[0]))
		}
		b.set(func() { p.epoch = 4 })
		if res := c.fetch(17, time.Second, ask{p, 30, 3, 3}); res[0].ErrorCode != 74 || res[0].CurrentLeader.LeaderEpoch != 4 || r.count(&r.moved) != 2 {
			t.Errorf("error %d, moved %d times", res[0].ErrorCode, r.count(&r.moved))
		}
		if res := c.fetch(17, 10*time.Second, ask{p, 30, 4, -1}); nextOf(t, res[0]) != 40 {
			t.Errorf("%s", brief(t, res[0]))
		}
		// An epoch before the offset that the lineage contradicts.
		before = b.now(&b.fetches)
		c.fetch(17, time.Second, ask{p, 40, 4, 2})
		if b.now(&b.fetches) == before {
			t.Error("another epoch did not go to the broker")
		}
	})
}

// What DeleteRecords hides is hidden from direct readers, and what the answers say of the partition moves on.
func TestResolvedOffsetsStayTrue(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 50, 10, 1000)
	d, _ := resolving(t, b, dialOptions{RemoteMaxPartitionFetchBytes: 1})
	c := dialRaw(t, d, b)
	c.fetch(17, time.Second, at(p, 0))
	b.set(func() { p.hw, p.lso, p.logStart = 5000, 4000, 5 })
	if res := c.fetch(17, 10*time.Second, at(p, 10))[0]; res.HighWatermark != 5000 || res.LastStableOffset != 4000 || res.LogStartOffset != 5 || nextOf(t, res) != 20 {
		t.Errorf("%d, %d, %d", res.HighWatermark, res.LastStableOffset, res.LogStartOffset)
	}
	b.set(func() { p.logStart = 100 })
	if res := c.fetch(17, time.Second, at(p, 20))[0]; res.ErrorCode != 1 {
		t.Errorf("error %d", res.ErrorCode)
	}
	if res := c.fetch(17, time.Second, at(p, 50))[0]; res.ErrorCode != 1 {
		t.Errorf("below the log start: error %d", res.ErrorCode)
	}
	if res := c.fetch(17, 10*time.Second, at(p, 100))[0]; nextOf(t, res) != 110 {
		t.Errorf("%s", brief(t, res))
	}
}

// When nothing is learnt of a partition any more, direct reading ends before what is known is too old; the broker serves until it is known again.
func TestFactsGrowOld(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 100, 10, 1000)
	d, r := resolving(t, b, dialOptions{RemoteMaxPartitionFetchBytes: 1})
	c := dialRaw(t, d, b)
	next := int64(0)
	step := func() (direct bool) {
		before := d.Stats().DirectBytes
		res := c.fetch(17, time.Second, at(p, next))
		if nextOf(t, res[0]) != next+10 {
			t.Fatalf("at %d: %s", next, brief(t, res[0]))
		}
		next += 10
		return d.Stats().DirectBytes > before
	}
	if !step() {
		t.Fatal("not read directly")
	}
	r.set(func() { r.unknown = true })
	if !step() {
		t.Error("a moment without facts ends direct reading")
	}
	age := func(by time.Duration) {
		part := d.only(t).partition(partKey{id: p.topic.id})
		part.mu.Lock()
		defer part.mu.Unlock()
		if part.direct != nil {
			part.direct.refreshed = part.direct.refreshed.Add(-by)
		}
		part.tryAgain = part.tryAgain.Add(-by)
	}
	age(2 * factsKept)
	if step() || step() {
		t.Error("it is read directly with facts that are too old")
	}
	r.set(func() { r.unknown = false })
	age(2 * notReadyFor)
	if !step() || d.Stats().Fallbacks > 0 {
		t.Errorf("not read directly again: %+v", d.Stats())
	}
}

// Until the resolver is ready, and where it cannot decide, the broker serves; once it can, history is read directly again.
func TestResolverNotReady(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		b.history(p, 3, 50, 10, 1000)
		d, r := resolving(t, b, o)
		r.set(func() { r.notReady = true })
		c := dialRaw(t, d, b)
		res := c.fetch(17, time.Second, at(p, 0))
		if nextOf(t, res[0]) != 500 || d.Stats().DirectBytes > 0 {
			t.Errorf("next %d, %+v", nextOf(t, res[0]), d.Stats())
		}
		r.set(func() {
			r.notReady = false
			r.resolve = func(_ context.Context, q resolve.Question) (remote.Range, error) {
				if q.Offset < 700 {
					return remote.Range{}, fmt.Errorf("undecided: %w", remote.ErrLocal)
				}
				return remote.Range{}, nil
			}
		})
		served := b.now(&b.served)
		if res = c.fetch(17, 10*time.Second, at(p, 500)); nextOf(t, res[0]) != 1000 || b.now(&b.served) == served {
			t.Errorf("next %d", nextOf(t, res[0]))
		}
		served = b.now(&b.served)
		if res = c.fetch(17, 10*time.Second, at(p, 1000)); nextOf(t, res[0]) == 0 || b.now(&b.served) != served || d.Stats().Fallbacks > 0 {
			t.Errorf("%+v", d.Stats())
		}
	})
}

// A search that takes longer than the client waits: the answer goes out without the partition, which serves the next fetch. A stale one is dropped.
func TestSlowSearch(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		topic := b.topic("history", 2)
		slow, live := topic.parts[0], topic.parts[1]
		b.history(slow, 2, 50, 10, 1000)
		b.append(live, batchOf(1, 0, 3, 100))
		d, r := resolving(t, b, o)
		let := make(chan struct{})
		r.set(func() {
			r.resolve = func(ctx context.Context, q resolve.Question) (remote.Range, error) {
				select {
				case <-let:
				case <-ctx.Done():
				}
				return remote.Range{}, ctx.Err()
			}
		})
		c := dialRaw(t, d, b)
		res := c.fetch(17, 10*time.Second, at(slow, 0), at(live, 0))
		if len(res[0].RecordBatches) > 0 || nextOf(t, res[1]) != 3 {
			t.Errorf("%d bytes, next %d", len(res[0].RecordBatches), nextOf(t, res[1]))
		}
		if res = c.fetch(17, 50*time.Millisecond, at(slow, 20)); len(res[0].RecordBatches) > 0 {
			t.Error("records")
		}
		close(let)
		if c.readTo(17, slow, 20, 500); d.Stats().UpstreamBytes > 1000 {
			t.Errorf("%+v", d.Stats())
		}
	})
}

// The kill switch, and a topic that is left out, take effect with the next fetch.
func TestAllow(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		b.history(p, 1, 100, 10, 1000)
		on := make(chan bool, 1)
		on <- true
		change := o.Change
		o.RemoteMaxPartitionFetchBytes = 20_000
		o.Change = func(h *Options) {
			change(h)
			h.Allow = func(topic string) bool {
				v := <-on
				on <- v
				return v && topic == "history"
			}
		}
		d, _ := resolving(t, b, o)
		c := dialRaw(t, d, b)
		next := int64(0)
		for i := range 6 {
			<-on
			on <- i%2 == 0
			before := d.Stats()
			res := c.fetch(17, time.Second, at(p, next))
			next = nextOf(t, res[0])
			after := d.Stats()
			if direct := after.DirectBytes > before.DirectBytes; direct != (i%2 == 0) {
				t.Errorf("fetch %d: read directly: %v", i, direct)
			}
		}
	})
}

// A topic deleted and made anew under the same name: clients that go by names get the new one's records.
func TestTopicMadeAnew(t *testing.T) {
	b := newFakeBroker(t)
	old := b.topic("history", 1)
	b.history(old.parts[0], 1, 5, 10, 1000)
	d, _ := resolving(t, b, dialOptions{})
	c := dialRaw(t, d, b)
	c.readTo(12, old.parts[0], 0, 50)
	b.set(func() { b.topics = nil })
	if res := c.fetch(12, time.Second, at(old.parts[0], 50)); res[0].ErrorCode != 3 {
		t.Errorf("error %d", res[0].ErrorCode)
	}
	anew := b.topic("history", 1)
	b.set(func() { anew.id[3] = 77 })
	b.history(anew.parts[0], 1, 5, 7, 1000)
	c.readTo(12, anew.parts[0], 0, 35)
}

// Aborted transactions go with direct reads of either isolation as a broker gives them.
func TestResolvedTransactions(t *testing.T) {
	streamed(t, func(t *testing.T, o dialOptions) {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		const bad, good = 8, 9
		b.addSegment(p, makeBatch(0, 0, 5, 1000, batch.Transactional, bad), makeBatch(0, 5, 5, 1000, batch.Transactional, good), makeBatch(0, 10, 5, 1000, batch.Transactional, bad))
		b.addSegment(p, makeBatch(0, 15, 5, 1000, batch.Transactional, bad), marker(20, good, false), marker(21, bad, true), makeBatch(0, 22, 5, 1000, batch.Transactional, bad), marker(27, bad, false))
		b.set(func() { p.aborted = []abortedTxn{{bad, 0, 21}} })
		b.append(p, batchOf(0, 28, 1, 1000))
		for _, limit := range []int32{1, 6_000, 1 << 20} {
			d, _ := resolving(t, b, o)
			client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
				kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxPartitionBytes(limit))
			expectOffsets(t, client, []int64{5, 6, 7, 8, 9, 22, 23, 24, 25, 26, 28})
			if s := d.Stats(); s.DirectBytes == 0 || s.Fallbacks > 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

func brief(t testing.TB, p kmsg.FetchResponseTopicPartition) string {
	t.Helper()
	return fmt.Sprintf("partition %d: error %d, %d bytes, next %d", p.Partition, p.ErrorCode, len(p.RecordBatches), nextOf(t, p))
}
