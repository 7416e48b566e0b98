package history

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// fakeBroker is one broker of one node that knows KIP-1248, with everything in a test's hands. History lies in segments that an HTTP server gives out;
// what is behind the last segment is its local log.
type fakeBroker struct {
	t        testing.TB
	ln       net.Listener
	store    *fakeStore
	sessions *session.Cache
	conns    sync.WaitGroup

	mu     sync.Mutex
	moved  chan struct{} // closed and made anew whenever a log changes
	open   map[net.Conn]bool
	closed bool
	topics []*fakeTopic

	// Knobs.
	wrap         func(net.Listener) net.Listener
	life         time.Duration                                                // of signatures; an hour if 0
	change       func(p *fakePart, l *remotestorage.Location)                 // of each location
	lenient      bool                                                         // tags that make no sense are no fault of the test
	withhold     bool                                                         // gives no locations
	maxFetch     int16                                                        // newest Fetch version
	fetchError   func(p *fakePart, offset int64, askedForLocation bool) int16 // of a partition
	loseSessions bool
	frozen       chan struct{} // fetches are answered when it is closed
	nodes        []wire.Node
	denied       func(user, topic string) bool // who may not read what
	// seenRemoteMax hears of KIP-1178's limit in each partition of a fetch.
	seenRemoteMax func(int32)

	// What it saw.
	locations   map[string]int // by object: answers with a location
	listOffsets int
	fetches     int
	served      int // bytes of whole batches
	tagged      int // partitions that asked for a location
	full        int // fetches that began a session
	asked       int // questions what a client may read
}

type fakeTopic struct {
	name  string
	id    remotestorage.UUID
	parts []*fakePart
}

type fakePart struct {
	topic        *fakeTopic
	n            int32
	segs         []*fakeSegment
	local        []fakeBatch
	localStart   int64
	logStart, hw int64
	lso          int64
	epoch        int32
	aborted      []abortedTxn
}

type abortedTxn struct{ producer, first, last int64 }

type fakeSegment struct {
	id        remotestorage.UUID
	base, end int64
	data      []byte
	batches   []fakeBatch
}

type fakeBatch struct {
	base, last int64
	pos        int
	raw        []byte
}

func newFakeBroker(t testing.TB) *fakeBroker {
	t.Helper()
	b := &fakeBroker{
		t: t, store: newFakeStore(t), sessions: session.NewCache(100), moved: make(chan struct{}), open: make(map[net.Conn]bool), maxFetch: 18,
		locations: make(map[string]int),
	}
	port, err := freeport.Find(1) // it goes away and comes back there, and no outgoing connection may take the port meanwhile
	if err != nil {
		t.Fatal(err)
	}
	b.listen(freeport.Address(port))
	t.Cleanup(b.stop)
	return b
}

func (b *fakeBroker) listen(addr string) {
	b.t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.wrap != nil {
		ln = b.wrap(ln)
	}
	b.ln, b.closed = ln, false
	b.conns.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.open[c] = true
			b.mu.Unlock()
			b.conns.Go(func() {
				b.serve(c)
				c.Close()
				b.mu.Lock()
				delete(b.open, c)
				b.mu.Unlock()
			})
		}
	})
}

func (b *fakeBroker) addr() string { return b.ln.Addr().String() }

func (b *fakeBroker) stop() {
	b.ln.Close()
	b.mu.Lock()
	b.closed = true
	for c := range b.open {
		c.Close()
	}
	b.changedLocked()
	b.mu.Unlock()
	b.conns.Wait()
}

// restart loses sessions and connections and keeps the data.
func (b *fakeBroker) restart() {
	addr := b.addr()
	b.stop()
	b.sessions = session.NewCache(100)
	b.listen(addr)
}

func (b *fakeBroker) changedLocked() {
	close(b.moved)
	b.moved = make(chan struct{})
}

// set changes something under the lock.
func (b *fakeBroker) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	b.changedLocked()
}

// now reads one of the counters.
func (b *fakeBroker) now(counter *int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *counter
}

func (b *fakeBroker) topic(name string, partitions int) *fakeTopic {
	t := &fakeTopic{name: name, id: remotestorage.UUID{0: byte(len(b.topics) + 1), 15: 9}}
	for i := range partitions {
		t.parts = append(t.parts, &fakePart{topic: t, n: int32(i), epoch: 3})
	}
	b.set(func() { b.topics = append(b.topics, t) })
	return t
}

// addSegment puts batches of the partition's next offsets into the store.
func (b *fakeBroker) addSegment(p *fakePart, batches ...[]byte) *fakeSegment {
	s := &fakeSegment{id: remotestorage.UUID{byte(p.n), byte(len(p.segs)), 7, p.topic.id[0]}}
	for _, raw := range batches {
		h, err := batch.Parse(raw)
		if err != nil {
			b.t.Fatal(err)
		}
		s.batches = append(s.batches, fakeBatch{h.BaseOffset, h.LastOffset(), len(s.data), raw})
		s.data = append(s.data, raw...)
	}
	s.base, s.end = p.localStart, s.batches[len(s.batches)-1].last
	b.store.mu.Lock()
	b.store.objects[p.object(s)] = s.data
	b.store.mu.Unlock()
	b.set(func() {
		p.segs = append(p.segs, s)
		p.localStart, p.hw, p.lso = s.end+1, max(p.hw, s.end+1), max(p.lso, s.end+1)
	})
	return s
}

func (b *fakeBroker) append(p *fakePart, batches ...[]byte) {
	b.set(func() {
		for _, raw := range batches {
			h, err := batch.Parse(raw)
			if err != nil {
				b.t.Fatal(err)
			}
			p.local = append(p.local, fakeBatch{base: h.BaseOffset, last: h.LastOffset(), raw: raw})
			p.hw, p.lso = h.LastOffset()+1, h.LastOffset()+1
		}
	})
}

func (p *fakePart) object(s *fakeSegment) string {
	return fmt.Sprintf("/%s-%d/%020d-%s.log", p.topic.name, p.n, s.base, s.id)
}

func (b *fakeBroker) serve(c net.Conn) {
	user := "nobody"
	for {
		frame, err := wire.ReadFrame(c, 100<<20, nil)
		if err != nil {
			return
		}
		h, err := wire.ParseRequestHeader(frame)
		if err != nil {
			b.t.Errorf("the broker got a bad request: %v", err)
			return
		}
		req := kmsg.RequestForKey(h.Key)
		req.SetVersion(h.Version)
		if err := req.ReadFrom(h.Body); err != nil {
			b.t.Errorf("the broker got a bad request of key %d version %d: %v", h.Key, h.Version, err)
			return
		}
		var out net.Buffers
		switch req := req.(type) {
		case *kmsg.FetchRequest:
			r := b.fetch(req, user)
			out = r.Buffers(h.Version, h.CorrelationID, nil)
		case *kmsg.ApiVersionsRequest:
			out = net.Buffers{wire.AppendResponse(nil, b.apiVersions(req), h.CorrelationID)}
		case *kmsg.MetadataRequest:
			out = net.Buffers{wire.AppendResponse(nil, b.metadata(req, user), h.CorrelationID)}
		case *kmsg.DeleteRecordsRequest:
			out = net.Buffers{wire.AppendResponse(nil, b.deleteRecords(req), h.CorrelationID)}
		case *kmsg.SASLHandshakeRequest:
			out = net.Buffers{wire.AppendResponse(nil, req.ResponseKind(), h.CorrelationID)}
		case *kmsg.SASLAuthenticateRequest:
			user = string(req.SASLAuthBytes)
			out = net.Buffers{wire.AppendResponse(nil, req.ResponseKind(), h.CorrelationID)}
		case *kmsg.ListOffsetsRequest:
			out = net.Buffers{wire.AppendResponse(nil, b.offsets(req), h.CorrelationID)}
		default:
			b.t.Errorf("the broker got a request of key %d", h.Key)
			return
		}
		if _, err := out.WriteTo(c); err != nil {
			return
		}
	}
}

func (b *fakeBroker) apiVersions(req *kmsg.ApiVersionsRequest) kmsg.Response {
	r := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range [][3]int16{{1, 4, b.maxFetch}, {2, 1, 8}, {3, 0, 12}, {18, 0, 3}} {
		if k[0] == 3 && b.maxFetch < firstByID {
			k[2] = 9
		}
		key := kmsg.NewApiVersionsResponseApiKey()
		key.ApiKey, key.MinVersion, key.MaxVersion = k[0], k[1], k[2]
		r.ApiKeys = append(r.ApiKeys, key)
	}
	return r
}

func (b *fakeBroker) metadata(req *kmsg.MetadataRequest, user string) kmsg.Response {
	r := req.ResponseKind().(*kmsg.MetadataResponse)
	host, port := b.ln.Addr().(*net.TCPAddr).IP.String(), b.ln.Addr().(*net.TCPAddr).Port
	br := kmsg.NewMetadataResponseBroker()
	br.NodeID, br.Host, br.Port = 1, host, int32(port)
	r.Brokers = append(r.Brokers, br)
	r.ControllerID = 1
	b.mu.Lock()
	defer b.mu.Unlock()
	if req.IncludeTopicAuthorizedOperations {
		b.asked++
	}
	for _, t := range b.topics {
		wanted := req.Topics == nil
		for _, q := range req.Topics {
			wanted = wanted || q.Topic != nil && *q.Topic == t.name || q.TopicID == t.id
		}
		if !wanted {
			continue
		}
		mt := kmsg.NewMetadataResponseTopic()
		mt.Topic, mt.TopicID = kmsg.StringPtr(t.name), t.id
		for _, p := range t.parts {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.Leader, mp.LeaderEpoch, mp.Replicas, mp.ISR = p.n, 1, p.epoch, []int32{1}, []int32{1}
			mt.Partitions = append(mt.Partitions, mp)
		}
		if req.IncludeTopicAuthorizedOperations {
			mt.AuthorizedOperations = 1 << 8 // DESCRIBE
			if b.denied == nil || !b.denied(user, t.name) {
				mt.AuthorizedOperations |= 1 << 3
			}
		}
		r.Topics = append(r.Topics, mt)
	}
	return r
}

func (b *fakeBroker) offsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	r := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listOffsets++
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, q := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = q.Partition
			p := b.findLocked(t.Topic, remotestorage.UUID{}, q.Partition)
			switch {
			case p == nil:
				rp.ErrorCode = 3
			case q.CurrentLeaderEpoch >= 0 && q.CurrentLeaderEpoch < p.epoch:
				rp.ErrorCode = 74
			case q.CurrentLeaderEpoch > p.epoch:
				rp.ErrorCode = 75
			default:
				rp.LeaderEpoch = p.epoch
				rp.Offset = p.hw
				if q.Timestamp == earliest {
					rp.Offset = p.logStart
				} else if req.IsolationLevel == 1 {
					rp.Offset = p.lso
				}
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (b *fakeBroker) deleteRecords(req *kmsg.DeleteRecordsRequest) kmsg.Response {
	r := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	b.set(func() {
		for _, t := range req.Topics {
			rt := kmsg.NewDeleteRecordsResponseTopic()
			rt.Topic = t.Topic
			for _, q := range t.Partitions {
				b.findLocked(t.Topic, remotestorage.UUID{}, q.Partition).logStart = q.Offset
				rp := kmsg.NewDeleteRecordsResponseTopicPartition()
				rp.Partition, rp.LowWatermark = q.Partition, q.Offset
				rt.Partitions = append(rt.Partitions, rp)
			}
			r.Topics = append(r.Topics, rt)
		}
	})
	return r
}

func (b *fakeBroker) findLocked(name string, id remotestorage.UUID, n int32) *fakePart {
	for _, t := range b.topics {
		if (t.name == name || t.id == id) && int(n) < len(t.parts) {
			return t.parts[n]
		}
	}
	return nil
}

// history fills a partition with segments of batches, and a local tail of one batch.
func (b *fakeBroker) history(p *fakePart, segments, batches, records, size int) (end int64) {
	at := p.hw
	for range segments {
		var raws [][]byte
		for range batches {
			raws = append(raws, batchOf(p.n, at, records, size))
			at += int64(records)
		}
		b.addSegment(p, raws...)
	}
	b.append(p, batchOf(p.n, at, records, size))
	return at + int64(records)
}
