package history

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/fetch"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// brokerGrace is how much longer than the client's max wait an answer waits for the broker's own, which runs to the same end.
const brokerGrace = time.Second

// demand is one fetch of the client while it is being answered. The tail reader goes on with the last one.
type demand struct {
	number    int64 // of the connection's fetches
	version   int16
	minBytes  int32
	maxBytes  int32
	isolation int8
	rack      string
	capable   bool // the client follows locations
	deadline  time.Time
	parts     []*partition
	shared    int          // bytes read that the cache had; of who puts the answer together
	asked     atomic.Bool  // the broker was asked on its behalf at least once
	read      atomic.Bool  // its answer is being put together
	late      atomic.Bool  // max wait has passed: answer with what there is
	failed    atomic.Int32 // an error of the broker for the whole fetch
}

func (d *demand) committed() bool { return d.isolation == 1 }

// done tells whether there is nothing more to ask the broker on its behalf.
func (d *demand) done() bool { return d.asked.Load() && (d.read.Load() || d.enough()) }

// enough tells whether the broker has brought what the client waits for.
func (d *demand) enough() bool {
	total := 0
	for _, p := range d.parts {
		n, now := p.brought(d)
		if total += n; now || total >= int(max(d.minBytes, 1)) {
			return true
		}
	}
	return false
}

// Begin does what Answer does where nothing is to be waited for. It makes a Conn a clientconn.Beginner.
func (c *Conn) Begin(h wire.RequestHeader) (a clientconn.Answer, ok bool, err error) {
	if h.Version < firstTagged || c.heldBack() {
		return a, false, nil
	}
	a, err = c.answer(c.ctx, h)
	return a, true, err
}

// Answer answers a fetch. It is the carrier's, one call at a time.
func (c *Conn) Answer(ctx context.Context, h wire.RequestHeader) (clientconn.Answer, error) {
	a, err := c.answer(ctx, h)
	for err == nil && a.Later != nil {
		a, err = a.Later(ctx)
	}
	return a, err
}

// answer waits for what the fetch has to wait for before it begins, and for nothing else.
func (c *Conn) answer(ctx context.Context, h wire.RequestHeader) (clientconn.Answer, error) {
	req, done, err := c.decode(h)
	if err != nil {
		return clientconn.Answer{}, err
	}
	defer done()
	version, ok, err := c.upstreamVersion(ctx, h.Version)
	if err != nil {
		return clientconn.Answer{}, err
	}
	if !ok || req.ReplicaID >= 0 || req.ReplicaState.ID >= 0 {
		c.leaveToBroker()
		return clientconn.Answer{}, clientconn.ErrForward
	}
	if err := c.admitFirst(req); err != nil {
		return clientconn.Answer{}, err
	}
	if err := c.whileHeldBack(ctx); err != nil {
		return clientconn.Answer{}, err
	}
	return c.fetch(req, version, h.CorrelationID)
}

// leaveToBroker is for all of a connection's fetches or none: the broker keeps the session then.
func (c *Conn) leaveToBroker() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forward = true
}

// heldBack tells whether whileHeldBack would wait.
func (c *Conn) heldBack() bool {
	if c.streaming != nil {
		select {
		case <-c.streaming:
		default:
			return true
		}
	}
	return time.Until(c.heldUntil) > 0
}

// whileHeldBack waits for the end of what the client was throttled by, and for the end of an answer that is streamed: what it tells the client of the session is
// part of the next answer's truth.
func (c *Conn) whileHeldBack(ctx context.Context) error {
	if c.streaming != nil {
		select {
		case <-c.streaming:
			c.streaming = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	wait := time.Until(c.heldUntil)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Conn) fetch(req *kmsg.FetchRequest, version int16, correlationID int32) (clientconn.Answer, error) {
	wire.OwnTags(req)
	f, code := c.sessions.Apply(req)
	if code != 0 {
		return ours(&wire.FetchResponse{ErrorCode: code}, req.Version, correlationID), nil
	}
	if err := c.admit(f.Parts); err != nil {
		return clientconn.Answer{}, err
	}
	c.fetches++
	d := &demand{
		number: c.fetches, version: version, minBytes: req.MinBytes, maxBytes: req.MaxBytes, isolation: req.IsolationLevel, rack: req.Rack, capable: capable(req),
		deadline: time.Now().Add(time.Duration(req.MaxWaitMillis) * time.Millisecond),
	}
	c.sweepNowAndThen()
	c.gather(d, f.Parts)
	if c.mayStream(d) && c.tail.use.TryLock() {
		return c.stream(d, req, f, correlationID), nil
	}
	return clientconn.Answer{Later: func(ctx context.Context) (clientconn.Answer, error) {
		grant := c.h.answers.Grant()
		a := ours(c.putTogether(ctx, d, f, grant), req.Version, correlationID)
		a.Release = grant.Release // the frame is in memory until then, lent or copied
		return a, nil
	}}, nil
}

func ours(resp *wire.FetchResponse, version int16, correlationID int32) clientconn.Answer {
	return clientconn.Answer{Frame: resp.Buffers(version, correlationID, nil), GiveBack: resp.Release}
}

// capable tells whether the client reads segments of the one format that there is.
func capable(req *kmsg.FetchRequest) bool {
	formats, err := wire.SupportedStorageFormatVersions(req)
	return err == nil && slices.Contains(formats, remotestorage.StorageFormatApacheKafkaV1) // a malformed list is none
}

// gather tells each partition what is wanted of it, and where that is to come from. All of them are known before the first is told: whoever hears of the demand from
// one may look at the others.
func (c *Conn) gather(d *demand, asked []session.Part) {
	d.parts = make([]*partition, len(asked))
	for i := range asked {
		d.parts[i] = c.partition(partKeyOf(&asked[i]))
	}
	for i, p := range d.parts {
		p.ask(asked[i], d, int(c.remoteMax(&asked[i])))
	}
	if c.h.opts.Resolver != nil {
		c.makeRoom(d)
	}
	for _, p := range d.parts {
		p.route(d)
	}
}

// remoteMax is how many bytes of history the partition's answer may have.
func (c *Conn) remoteMax(q *session.Part) int32 {
	if n := c.h.opts.RemoteMaxBytes; n > 0 {
		return n
	}
	if n, err := wire.RemotePartitionMaxBytes(&q.FetchRequestTopicPartition); err == nil && n >= 0 {
		return n
	}
	return q.PartitionMaxBytes
}

func (c *Conn) putTogether(ctx context.Context, d *demand, f *session.Fetch, grant *fetch.Grant) *wire.FetchResponse {
	c.mixes(true)
	c.tail.inStep.Store(false)
	results := c.collect(ctx, d, f.Parts, grant.Reserve)
	resp := &wire.FetchResponse{SessionID: f.SessionID}
	c.tellLocated(f.Parts, results)
	owed := c.count(results, d.shared, grant)
	resp.Topics = f.Filter(results)
	if code := int16(d.failed.Load()); code != 0 {
		resp.Release()
		resp.Topics, resp.ErrorCode = nil, code
	}
	c.mu.Lock()
	resp.ThrottleMillis, c.throttle = max(c.throttle, int32(owed.Milliseconds())), 0
	for _, n := range c.nodes {
		if n, ok := c.h.node(wire.Node{ID: n.NodeID, Host: n.Host, Port: n.Port, Rack: n.Rack}); ok {
			resp.Nodes = append(resp.Nodes, n)
		}
	}
	c.nodes = nil
	c.mu.Unlock()
	c.heldUntil = time.Now().Add(owed)
	return resp
}

func (h *History) node(n wire.Node) (wire.Node, bool) {
	if h.opts.Node == nil {
		return n, true
	}
	return h.opts.Node(n)
}

func (c *Conn) collect(ctx context.Context, d *demand, asked []session.Part, reserve func(int) int) []wire.FetchPartition {
	parts, limits := make([]fetch.Part, len(asked)), make([]int, len(asked))
	for i := range asked {
		remoteMax := c.remoteMax(&asked[i])
		parts[i] = &source{p: d.parts[i], d: d, directLimit: int(remoteMax), tailLimit: int(asked[i].PartitionMaxBytes)}
		limits[i] = int(max(remoteMax, asked[i].PartitionMaxBytes))
	}
	if len(parts) == 0 {
		return nil
	}
	c.tail.kick(d)
	lateness := time.AfterFunc(time.Until(d.deadline), func() {
		d.late.Store(true)
		d.wake()
	})
	defer lateness.Stop()
	l := fetch.Limits{Reserve: reserve, MinBytes: int(max(d.minBytes, 1)), MaxBytes: int(d.maxBytes), MaxWait: time.Until(d.deadline) + brokerGrace}
	return fetch.Collect(ctx, l, parts, limits)
}

func (d *demand) wake() {
	for _, p := range d.parts {
		p.wake()
	}
}

// count tells who wants to know what the answer brings, and gives how long the client is to be held back for it.
func (c *Conn) count(results []wire.FetchPartition, shared int, grant *fetch.Grant) time.Duration {
	b := Bytes{Cached: shared}
	granted := int64(0)
	for i := range results {
		n := results[i].Records.Len()
		if results[i].Records.Release != nil { // only what the budget lent has one
			b.Direct += n
		} else {
			b.Upstream += n
		}
		if l := results[i].Location; l != nil {
			granted += l.EndPosition - l.StartPosition
		}
	}
	grant.Used(b.Direct + b.Upstream)
	c.counted(b)
	if owed := int64(b.Direct) + granted; owed > 0 {
		return c.hooks.Throttle(owed)
	}
	return 0
}

// tellLocated says which locations leave with the answer.
func (c *Conn) tellLocated(asked []session.Part, results []wire.FetchPartition) {
	for i := range results {
		l := results[i].Location
		if l == nil {
			continue
		}
		q := &asked[i]
		tp, _ := c.h.topics.known(partKey{q.Topic, q.TopicID, q.Partition}) // it was, when the location was found
		c.hooks.Located(Located{
			Partition: tp, FetchOffset: q.FetchOffset, LastOffset: l.LastOffset, StartPosition: l.StartPosition, EndPosition: l.EndPosition,
			Signed: l.SignedRemoteLogSegmentLocation != "",
		})
	}
}

func (c *Conn) counted(b Bytes) {
	c.h.counters.fetches.Add(1)
	c.h.counters.directBytes.Add(int64(b.Direct))
	c.h.counters.upstreamBytes.Add(int64(b.Upstream))
	c.hooks.Delivered(b)
}

// source is one partition within one fetch.
type source struct {
	p                      *partition
	d                      *demand
	directLimit, tailLimit int
}

func (s *source) Available() (int, bool) {
	n, now := s.p.available()
	return n, now || s.d.late.Load() && !s.p.c.tail.busy() || s.d.failed.Load() != 0
}

func (s *source) Read(limit int, whole bool) wire.FetchPartition {
	s.d.read.Store(true)
	return s.p.read(limit, s.directLimit, whole)
}

func (s *source) Subscribe(wake func()) (cancel func()) { return s.p.subscribe(wake) }
