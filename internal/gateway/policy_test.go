package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	fetchsession "github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// tiered is a cluster of one broker whose topics all have the same records: one a batch, those before localStart in the store, in segments of so many. The broker has all of them, and
// fetch sessions as a broker has.
type tiered struct {
	t                        *testing.T
	topics                   []string
	partitions               int32
	end, localStart, segment int64
	log                      []byte
	at                       []int64 // where each batch begins, and the end
	sessions                 *fetchsession.Cache
	broker                   *fakeBroker
	mute                     atomic.Bool // says nothing of what is asked outside of a session
}

func startTiered(t *testing.T, batches int64) *tiered {
	t.Helper()
	w := &tiered{t: t, topics: []string{"past", "other"}, partitions: 2, end: batches, localStart: batches - 20, segment: batches / 5, sessions: fetchsession.NewCache(100)}
	for i := range batches {
		w.at = append(w.at, int64(len(w.log)))
		w.log = append(w.log, shadowed(i, 0, -1)...)
	}
	w.at = append(w.at, int64(len(w.log)))
	w.broker = startFake(t, nil, w.respond)
	return w
}

// position is where the batch of an offset begins.
func (w *tiered) position(offset int64) int64 { return w.at[min(offset, w.end)] }

func (w *tiered) id(topic string) (id remotestorage.UUID) {
	id[0] = topic[0]
	return id
}

func (w *tiered) respond(h wire.RequestHeader) kmsg.Response {
	req := kmsg.RequestForKey(h.Key)
	req.SetVersion(h.Version)
	if err := req.ReadFrom(h.Body); err != nil {
		w.t.Errorf("the broker got a bad request: %v", err)
		return nil
	}
	resp := req.ResponseKind()
	switch r := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		for _, k := range [][2]int16{{keyFetch, 17}, {keyMetadata, 12}, {keySaslHandshake, 1}, {keyApiVersions, 3}, {keySaslAuthenticate, 2}} {
			key := kmsg.NewApiVersionsResponseApiKey()
			key.ApiKey, key.MaxVersion = k[0], k[1]
			r.ApiKeys = append(r.ApiKeys, key)
		}
	case *kmsg.SASLHandshakeResponse:
		r.SupportedMechanisms = []string{"PLAIN"}
	case *kmsg.MetadataResponse:
		w.metadata(r)
	case *kmsg.FetchResponse:
		return w.fetch(req.(*kmsg.FetchRequest))
	}
	return resp
}

func (w *tiered) metadata(r *kmsg.MetadataResponse) {
	b := kmsg.NewMetadataResponseBroker()
	b.NodeID, b.Host, b.Port = 1, "127.0.0.1", w.broker.port()
	r.Brokers, r.ControllerID = append(r.Brokers, b), 1
	for _, name := range w.topics {
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.TopicID, topic.AuthorizedOperations = &name, w.id(name), 1<<3|1<<8 // READ and DESCRIBE
		for i := range w.partitions {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR = i, 1, 0, []int32{1}, []int32{1}
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
	}
}

func (w *tiered) fetch(req *kmsg.FetchRequest) kmsg.Response {
	version := req.Version
	out := &wire.FetchResponse{}
	if f, code := w.sessions.Apply(req); code != 0 {
		out.ErrorCode = code
	} else {
		results, some := make([]wire.FetchPartition, len(f.Parts)), false
		for i, q := range f.Parts {
			from, to := w.position(q.FetchOffset), w.position(q.FetchOffset)
			for o := q.FetchOffset; o < w.end && (to == from || w.position(o+1)-from <= int64(q.PartitionMaxBytes)); o++ {
				to = w.position(o + 1)
			}
			some = some || to > from
			results[i] = wire.FetchPartition{Partition: q.Partition, HighWatermark: w.end, LastStableOffset: w.end, PreferredReadReplica: -1, Records: wire.Records{Bufs: [][]byte{w.log[from:to]}}}
		}
		if !some {
			time.Sleep(time.Duration(min(req.MaxWaitMillis, 20)) * time.Millisecond)
		}
		out.SessionID, out.Topics = f.SessionID, f.Filter(results)
		if req.SessionEpoch < 0 && w.mute.Load() {
			out.Topics = nil
		}
	}
	var frame []byte
	for _, b := range out.Buffers(version, 1, nil) {
		frame = append(frame, b...)
	}
	_, body, err := wire.ResponseBody(frame[4:], keyFetch, version)
	resp := &kmsg.FetchResponse{Version: version}
	if err == nil {
		err = resp.ReadFrom(body)
	}
	if err != nil {
		w.t.Error(err)
		return nil
	}
	return resp
}

func (w *tiered) Topic(_ context.Context, name string, id remotestorage.UUID) (string, remotestorage.UUID, error) {
	for _, n := range w.topics {
		if name == n || w.id(n) == id {
			return n, w.id(n), nil
		}
	}
	return "", id, resolve.ErrNotReady
}

func (w *tiered) Facts(context.Context, remotestorage.TopicIDPartition) (resolve.Facts, error) {
	return resolve.Facts{HighWatermark: w.end, LastStable: w.end, LocalStart: w.localStart}, nil
}

func (w *tiered) Known(tp remotestorage.TopicIDPartition) (resolve.Facts, bool) {
	f, err := w.Facts(context.Background(), tp)
	return f, err == nil
}

func (w *tiered) Local(_ remotestorage.TopicIDPartition, offset int64) bool {
	return offset >= w.localStart
}

func (w *tiered) Resolve(_ context.Context, q resolve.Question) (remote.Range, error) {
	if q.Offset >= w.localStart {
		return remote.Range{}, remote.ErrLocal
	}
	base := q.Offset / w.segment * w.segment
	last := min(base+w.segment, w.localStart) - 1
	object := w.log[w.position(base):w.position(last+1)]
	rng := remote.Range{
		Segment: remote.Segment{ID: remotestorage.RemoteLogSegmentID{TopicIDPartition: q.TP, ID: remotestorage.UUID{1: byte(base / w.segment), 2: q.TP.TopicID[0], 3: byte(q.TP.Partition)}},
			BaseOffset: base, EndOffset: last, Size: int64(len(object)), Source: inMemory(object)},
		StartPosition: w.position(q.Offset) - w.position(base), EndPosition: int64(len(object)), FirstOffset: q.Offset, LastOffset: last,
	}
	if q.Committed {
		rng.Aborted = []wire.AbortedTransaction{}
	}
	return rng, nil
}

func (w *tiered) Location(context.Context, resolve.Question, *remote.Range) (*remotestorage.Location, error) {
	return nil, resolve.ErrNotOffered
}
func (w *tiered) Learn(remotestorage.TopicIDPartition, resolve.Learnt) {}
func (w *tiered) Moved(remotestorage.TopicIDPartition)                 {}

type inMemory []byte

func (m inMemory) ReadRange(_ context.Context, start, end int64) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(m[start:end])), nil
}

// reader is a client of the gateway's that reads all partitions of all topics from their beginning.
type reader struct {
	w    *tiered
	k    *kgo.Client
	next map[string]int64 // by topic and partition
}

func (w *tiered) reader(g *Gateway, user, clientID string, committed bool) *reader {
	w.t.Helper()
	r, from := &reader{w: w, next: make(map[string]int64)}, make(map[string]map[int32]kgo.Offset)
	for _, topic := range w.topics {
		from[topic] = make(map[int32]kgo.Offset)
		for i := range w.partitions {
			from[topic][i] = kgo.NewOffset().At(0)
		}
	}
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	var err error
	r.k, err = kgo.NewClient(kgo.SeedBrokers(g.Addr().String()), kgo.SASL(plain.Auth{User: user, Pass: "?"}.AsMechanism()), kgo.ClientID(clientID), kgo.ConsumePartitions(from),
		kgo.FetchIsolationLevel(level), kgo.FetchMaxPartitionBytes(4<<10), kgo.FetchMaxWait(100*time.Millisecond), kgo.MetadataMinAge(50*time.Millisecond), kgo.DisableClientMetrics())
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// poll tells whether all was read. Each offset is to come once, in order, whatever the policy does.
func (r *reader) poll(ctx context.Context) (done bool) {
	r.k.PollFetches(ctx).EachRecord(func(rec *kgo.Record) {
		k := fmt.Sprintf("%s/%d", rec.Topic, rec.Partition)
		if rec.Offset != r.next[k] {
			r.w.t.Errorf("%s: %d comes where %d is due", k, rec.Offset, r.next[k])
		}
		r.next[k] = rec.Offset + 1
	})
	for _, next := range r.next {
		done = next == r.w.end
		if !done {
			break
		}
	}
	return done && len(r.next) == len(r.w.topics)*int(r.w.partitions)
}

func (r *reader) rest(ctx context.Context) {
	defer r.k.Close()
	for !r.poll(ctx) {
		if ctx.Err() != nil {
			r.w.t.Errorf("it has come to %v", r.next)
			return
		}
	}
}

func (w *tiered) gateway(budget *remote.Budget) *Gateway {
	return startGateway(w.t, Options{Upstream: []string{w.broker.addr()}, Brokers: noBrokers, Logger: quiet(), Registerer: prometheus.NewRegistry(),
		History: &History{Resolver: w, MaxFallbacks: 4, Read: remote.Options{Budget: budget, ChunkSize: 64 << 10, Parallelism: 4, ReadAhead: true, Deadline: 20 * time.Second}}})
}

// The policy changes all the time while clients read: each offset comes once, in order, from wherever, and in the end nothing is left of what was counted.
func TestPolicyChangesWhileClientsRead(t *testing.T) {
	w := startTiered(t, 5_000)
	budget := remote.NewBudget(32 << 20)
	g := w.gateway(budget)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	policies := []Policy{{}, {Off: true}, {}, {Topics: []string{"pa*"}}, {}, {TopicsExcluded: []string{"past"}}, {Principals: []string{"User:alice"}}, {ClientIDs: []string{"back*"}}, {Reads: 1},
		{BytesPerSecond: 1 << 30}, {ShadowPerMillion: 1_000_000}, {Reads: 2, Topics: []string{"other"}}}
	stop := make(chan struct{})
	var changing, reading sync.WaitGroup
	changes := 0
	changing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(3000)) * time.Microsecond):
				g.SetPolicy(policies[rand.IntN(len(policies))])
				_ = g.ReadsOff()
				changes++
			}
		}
	})
	for i := range 6 {
		reading.Go(func() {
			w.reader(g, []string{"alice", "bob"}[i%2], []string{"backfill", "web"}[i/2%2], i%3 == 0).rest(ctx)
		})
	}
	reading.Wait()
	close(stop)
	changing.Wait()
	passed := fetched(g, "passed") + fetched(g, "brokers")
	t.Logf("%d changes, %v bytes from the store, %v from the broker, %v comparisons", changes, storeBytes(g), passed, testutil.ToFloat64(g.metrics.shadowed.WithLabelValues("same")))
	if storeBytes(g) == 0 || passed == 0 || changes < 10 {
		t.Error("one of both was not read from: the test shows nothing")
	}
	if n := testutil.ToFloat64(g.metrics.shadowed.WithLabelValues("different")); n > 0 {
		t.Errorf("%v answers differ from the broker's", n)
	}
	eventually(t, "all clients to have gone", func() bool { return g.Connections() == 0 })
	g.principals.mu.Lock()
	defer g.principals.mu.Unlock()
	for name, u := range g.principals.known {
		if u.reads != 0 || u.reading != 0 {
			t.Errorf("%s: %d partitions and %d connections are still counted", name, u.reads, u.reading)
		}
	}
	if n := testutil.ToFloat64(g.metrics.reading); n != 0 || budget.InUse() != 0 {
		t.Errorf("%v reads are in flight, %d bytes in use", n, budget.InUse())
	}
}

// What is switched off in the middle of a backfill ends with the fetches that are under way, in each of the ways in which it may be said, and goes on once it is switched on again.
func TestPolicyEndsReadsUnderWay(t *testing.T) {
	w := startTiered(t, 6_000)
	g := w.gateway(remote.NewBudget(32 << 20))
	for name, off := range map[string]Policy{"kill switch": {Off: true}, "topics": {Topics: []string{"else"}}, "topics left out": {TopicsExcluded: []string{"*"}},
		"principals": {Principals: []string{"User:bob"}}, "client ids": {ClientIDs: []string{"web"}}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			g.SetPolicy(Policy{})
			r := w.reader(g, "alice", "backfill", false)
			had := storeBytes(g)
			for storeBytes(g) == had && ctx.Err() == nil {
				r.poll(ctx)
			}
			g.SetPolicy(off)
			// What the client has got already, and what was under way.
			for range 6 {
				r.poll(ctx)
			}
			had = storeBytes(g)
			for range 20 {
				r.poll(ctx)
			}
			if n := storeBytes(g) - had; n > 0 {
				t.Errorf("%v bytes came from the store afterwards", n)
			}
			g.SetPolicy(Policy{})
			r.rest(ctx)
			if storeBytes(g) == had {
				t.Error("nothing came from the store once it was switched on again")
			}
		})
	}
}

// A broker that says nothing of a partition has not said that it has the same.
func TestShadowOfAMuteBroker(t *testing.T) {
	w := startTiered(t, 2_000)
	w.mute.Store(true)
	g := w.gateway(remote.NewBudget(32 << 20))
	g.SetPolicy(Policy{ShadowPerMillion: 1_000_000})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w.reader(g, "alice", "backfill", false).rest(ctx)
	count := func(result string) float64 { return testutil.ToFloat64(g.metrics.shadowed.WithLabelValues(result)) }
	eventually(t, "a comparison", func() bool { return count("not-compared")+count("same") > 0 })
	if count("same") > 0 || count("different") > 0 {
		t.Errorf("%v are the same, %v differ, %v were not compared", count("same"), count("different"), count("not-compared"))
	}
}
