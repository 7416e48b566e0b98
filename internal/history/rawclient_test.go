package history

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// rawClient sends single requests, so that a test says exactly what is asked.
type rawClient struct {
	t    testing.TB
	conn net.Conn
	corr int32
}

func dialRaw(t testing.TB, d *testDialer, b *fakeBroker) *rawClient {
	t.Helper()
	c, err := d.DialContext(t.Context(), "tcp", b.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &rawClient{t: t, conn: c}
}

func (c *rawClient) send(req kmsg.Request) {
	c.t.Helper()
	c.corr++
	if _, err := c.conn.Write(wire.AppendRequest(nil, req, c.corr, kmsg.StringPtr("raw"))); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawClient) receive(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	frame, err := wire.ReadFrame(c.conn, 100<<20, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	corr, body, err := wire.ResponseBody(frame, req.Key(), req.GetVersion())
	if err != nil || corr != c.corr {
		c.t.Fatal(corr, err)
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// ask is one partition of a fetch.
type ask struct {
	p         *fakePart
	offset    int64
	epoch     int32
	lastEpoch int32
}

func at(p *fakePart, offset int64) ask { return ask{p, offset, -1, -1} }

// fetchOf is a full fetch without a session.
func fetchOf(version int16, wait time.Duration, asks ...ask) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID, req.SessionEpoch = version, int32(wait.Milliseconds()), 1, 50<<20, -1, -1
	for _, a := range asks {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = a.p.topic.name, a.p.topic.id
		q := kmsg.NewFetchRequestTopicPartition()
		q.Partition, q.FetchOffset, q.PartitionMaxBytes, q.CurrentLeaderEpoch, q.LastFetchedEpoch = a.p.n, a.offset, 1<<20, a.epoch, a.lastEpoch
		t.Partitions = append(t.Partitions, q)
		req.Topics = append(req.Topics, t)
	}
	return req
}

func (c *rawClient) fetch(version int16, wait time.Duration, asks ...ask) []kmsg.FetchResponseTopicPartition {
	c.t.Helper()
	req := fetchOf(version, wait, asks...)
	c.send(req)
	resp := c.receive(req).(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("error %d", resp.ErrorCode)
	}
	var out []kmsg.FetchResponseTopicPartition
	for _, t := range resp.Topics {
		out = append(out, t.Partitions...)
	}
	return out
}

// readTo fetches until what lies before end has come, and nothing more: an answer goes out with what is there.
func (c *rawClient) readTo(version int16, p *fakePart, from, end int64) {
	c.t.Helper()
	for next, deadline := from, time.Now().Add(20*time.Second); next != end; {
		r := c.fetch(version, 5*time.Second, at(p, next))[0]
		if n := nextOf(c.t, r); n > 0 {
			next = n
		}
		if r.ErrorCode != 0 || next > end || time.Now().After(deadline) {
			c.t.Fatalf("at %d, from %d to %d: %s", next, from, end, brief(c.t, r))
		}
	}
}

// nextOf is the offset behind the last whole batch.
func nextOf(t testing.TB, p kmsg.FetchResponseTopicPartition) (next int64) {
	t.Helper()
	if _, err := batch.Each(p.RecordBatches, func(h batch.Header, _ []byte) error {
		next = h.LastOffset() + 1
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return next
}

// Every Fetch version that a client may speak is answered in kind, read directly.
func TestEveryFetchVersion(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 5, 10, 1000)
	d := newDialer(t, dialOptions{})
	for version := int16(minClientFetch); version <= maxClientFetch; version++ {
		before := d.Stats().DirectBytes
		r := dialRaw(t, d, b).fetch(version, time.Second, at(p, 0))
		if len(r) != 1 || r[0].ErrorCode != 0 || r[0].HighWatermark != 60 || nextOf(t, r[0]) == 0 || d.Stats().DirectBytes == before {
			t.Errorf("version %d: %d partitions, %+v", version, len(r), d.Stats())
		}
	}
}

// What the dialer cannot better it leaves alone: fetches of brokers without tags, and of followers.
func TestFetchesThatAreForwarded(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 5, 10, 1000)
	d := newDialer(t, dialOptions{})
	b.set(func() { b.maxFetch = 11 })
	if r := dialRaw(t, d, b).fetch(10, 10*time.Second, at(p, 0)); nextOf(t, r[0]) != 50 {
		t.Errorf("%+v", r)
	}
	b.set(func() { b.maxFetch = 18 })
	c := dialRaw(t, d, b)
	req := fetchOf(11, time.Second, at(p, 0))
	req.ReplicaID = 2
	c.send(req)
	if r := c.receive(req).(*kmsg.FetchResponse); nextOf(t, r.Topics[0].Partitions[0]) != 50 {
		t.Errorf("%+v", r)
	}
	if s := d.Stats(); s.DirectBytes != 0 || s.Fetches != 0 {
		t.Errorf("%+v", s)
	}
}

// High watermark, last stable offset and log start move on while a segment is read directly.
func TestDirectReadsStayTrue(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.history(p, 1, 50, 10, 1000)
	d := newDialer(t, dialOptions{RemoteMaxPartitionFetchBytes: 1})
	c := dialRaw(t, d, b)
	r := c.fetch(17, time.Second, at(p, 0))
	next := nextOf(t, r[0])
	b.set(func() { p.hw, p.lso, p.logStart = 5000, 4000, 10 })
	for deadline := time.Now().Add(10 * time.Second); ; {
		r = c.fetch(17, time.Second, at(p, next))
		if r[0].ErrorCode != 0 {
			t.Fatalf("error %d", r[0].ErrorCode)
		}
		if r[0].HighWatermark == 5000 && r[0].LastStableOffset == 4000 && b.now(&b.listOffsets) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %d and %d", r[0].HighWatermark, r[0].LastStableOffset)
		}
		next = max(next, nextOf(t, r[0]))
		if next >= 400 {
			next = 100 // not to the end: a seek is fine
		}
		time.Sleep(50 * time.Millisecond)
	}
	if d.Stats().DirectBytes == 0 {
		t.Error("not read directly")
	}
}

// A log start that has passed the offset, a leader epoch that has moved on, a last fetched epoch that is another: the broker answers.
func TestQuestionsForTheBroker(t *testing.T) {
	setUp := func(t *testing.T) (*fakeBroker, *fakePart, *rawClient, int64) {
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		b.history(p, 1, 50, 10, 1000)
		c := dialRaw(t, newDialer(t, dialOptions{RemoteMaxPartitionFetchBytes: 1}), b)
		r := c.fetch(17, time.Second, ask{p, 0, 3, -1})
		if nextOf(t, r[0]) != 10 {
			t.Fatal("not one batch")
		}
		return b, p, c, 10
	}
	t.Run("epoch is fenced", func(t *testing.T) {
		b, p, c, next := setUp(t)
		b.set(func() { p.epoch = 4 })
		for r := c.fetch(17, time.Second, ask{p, next, 3, 3}); r[0].ErrorCode != 74; r = c.fetch(17, time.Second, ask{p, next, 3, 3}) {
			if r[0].ErrorCode != 0 {
				t.Fatalf("error %d", r[0].ErrorCode)
			}
			if n := nextOf(t, r[0]); n > 0 {
				next = n
			}
			time.Sleep(50 * time.Millisecond) // until the next refresh hears of it
		}
	})
	t.Run("newer epoch", func(t *testing.T) {
		_, p, c, next := setUp(t)
		if r := c.fetch(17, time.Second, ask{p, next, 4, 3}); r[0].ErrorCode != 75 {
			t.Errorf("error %d", r[0].ErrorCode)
		}
	})
	t.Run("last fetched epoch", func(t *testing.T) {
		b, p, c, next := setUp(t)
		before := b.now(&b.fetches)
		c.fetch(17, time.Second, ask{p, next, 3, 3})
		if b.now(&b.fetches) != before {
			t.Error("the broker was asked about the epoch that was delivered")
		}
		c.fetch(17, time.Second, ask{p, next + 10, 3, 2})
		if b.now(&b.fetches) == before {
			t.Error("another epoch did not go to the broker")
		}
	})
	t.Run("log start", func(t *testing.T) {
		b, p, c, next := setUp(t)
		b.set(func() { p.logStart = 450 })
		for r := c.fetch(17, time.Second, at(p, next)); r[0].ErrorCode != 1; r = c.fetch(17, time.Second, at(p, next)) {
			if n := nextOf(t, r[0]); n > 0 {
				next = n
			}
			if next >= 400 {
				t.Fatal("read past the log start")
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	t.Run("below the log start", func(t *testing.T) {
		b, p, c, _ := setUp(t)
		b.set(func() { p.logStart = 5 })
		if r := c.fetch(17, time.Second, at(p, 0)); r[0].ErrorCode != 1 {
			t.Errorf("error %d", r[0].ErrorCode)
		}
	})
}

// A store that does not answer holds neither the partitions that have data nor the client beyond its max wait; the data is there for a later fetch.
func TestSlowStoreKeepsMaxWait(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	slow, quick := topic.parts[0], topic.parts[1]
	b.history(slow, 1, 5, 10, 1000)
	b.history(quick, 1, 5, 10, 1000)
	let := make(chan struct{})
	b.store.setFault(func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.URL.Path == slow.object(slow.segs[0]) {
			<-let
		}
		return false
	})
	d := newDialer(t, dialOptions{DisableHedging: true})
	c := dialRaw(t, d, b)
	r := c.fetch(17, 10*time.Second, at(slow, 0), at(quick, 0))
	if len(r[0].RecordBatches) != 0 || nextOf(t, r[1]) == 0 || r[0].HighWatermark != 60 {
		t.Errorf("%d and %d bytes", len(r[0].RecordBatches), len(r[1].RecordBatches))
	}
	start := time.Now()
	r = c.fetch(17, 50*time.Millisecond, at(slow, 0))
	if took := time.Since(start); len(r[0].RecordBatches) != 0 || took < 50*time.Millisecond || took > 5*time.Second {
		t.Errorf("%d bytes after %v", len(r[0].RecordBatches), took)
	}
	close(let)
	c.readTo(17, slow, 0, 50) // the read went on in the background
	if n := b.store.requests(); n != 2 {
		t.Errorf("%d ranges for two objects", n)
	}
}

// The broker's long poll goes on when the client was answered, and what it brings serves the next fetch.
func TestLongPollServesTheNextFetch(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	past, tip := topic.parts[0], topic.parts[1]
	b.history(past, 1, 5, 10, 1000)
	b.append(tip, batchOf(1, 0, 1, 10))
	d := newDialer(t, dialOptions{})
	c := dialRaw(t, d, b)
	c.fetch(17, 5*time.Second, at(past, 0), at(tip, 1))
	b.append(tip, batchOf(1, 1, 1, 10))
	if r := c.fetch(17, 5*time.Second, at(tip, 1)); nextOf(t, r[0]) != 2 {
		t.Errorf("%+v", r)
	}
	// At the tip with nothing new: empty, after max wait, and the broker is not asked in a spin.
	before := b.now(&b.fetches)
	start := time.Now()
	r := c.fetch(17, 300*time.Millisecond, at(tip, 2))
	if took := time.Since(start); len(r[0].RecordBatches) > 0 || r[0].HighWatermark != 2 || took < 200*time.Millisecond {
		t.Errorf("%+v after %v", r, took)
	}
	if n := b.now(&b.fetches) - before; n > 2 {
		t.Errorf("%d fetches upstream for one", n)
	}
}

func TestZeroMaxWait(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("history", 1).parts[0]
	b.append(p, batchOf(0, 0, 1, 10))
	c := dialRaw(t, newDialer(t, dialOptions{}), b)
	if r := c.fetch(17, 0, at(p, 0)); nextOf(t, r[0]) != 1 {
		t.Errorf("%+v", r)
	}
	if r := c.fetch(17, 0, at(p, 1)); len(r[0].RecordBatches) != 0 || r[0].HighWatermark != 1 {
		t.Errorf("%+v", r)
	}
}
