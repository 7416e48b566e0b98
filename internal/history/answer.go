package history

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/fetch"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// brokerGrace is how much longer than the client's max wait an answer waits for the broker's own, which runs to the same end.
const brokerGrace = time.Second

// demand is one fetch of the client while it is being answered. The tail reader goes on with the last one.
type demand struct {
	version   int16
	minBytes  int32
	maxBytes  int32
	isolation int8
	rack      string
	deadline  time.Time
	parts     []*partition
	asked     atomic.Bool  // the broker was asked on its behalf at least once
	read      atomic.Bool  // its answer is being put together
	late      atomic.Bool  // max wait has passed: answer with what there is
	failed    atomic.Int32 // an error of the broker for the whole fetch
}

func (d *demand) committed() bool { return d.isolation == 1 }

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

// Answer answers a fetch. It is the carrier's, one call at a time.
func (c *Conn) Answer(ctx context.Context, h wire.RequestHeader) (clientconn.Answer, error) {
	req := kmsg.NewPtrFetchRequest()
	req.Version = h.Version
	if err := req.ReadFrom(h.Body); err != nil {
		return clientconn.Answer{}, fmt.Errorf("decoding a fetch of version %d: %w", h.Version, err)
	}
	version, ok, err := c.upstreamVersion(ctx, h.Version)
	if err != nil {
		return clientconn.Answer{}, err
	}
	if !ok || req.ReplicaID >= 0 || req.ReplicaState.ID >= 0 {
		c.mu.Lock()
		c.forward = true // all of a connection's fetches or none: the broker keeps the session then
		c.mu.Unlock()
		return clientconn.Answer{}, clientconn.ErrForward
	}
	c.run()
	resp := c.fetch(ctx, req, version)
	return clientconn.Answer{Frame: resp.Buffers(h.Version, h.CorrelationID, nil), Release: resp.Release}, nil
}

func (c *Conn) fetch(ctx context.Context, req *kmsg.FetchRequest, version int16) *wire.FetchResponse {
	f, code := c.sessions.Apply(req)
	if code != 0 {
		return &wire.FetchResponse{ErrorCode: code}
	}
	d := &demand{
		version: version, minBytes: req.MinBytes, maxBytes: req.MaxBytes, isolation: req.IsolationLevel, rack: req.Rack,
		deadline: time.Now().Add(time.Duration(req.MaxWaitMillis) * time.Millisecond),
	}
	results := c.collect(ctx, d, f.Parts)
	resp := &wire.FetchResponse{SessionID: f.SessionID}
	c.count(results)
	if code := int16(d.failed.Load()); code != 0 {
		resp.Topics = f.Filter(results)
		resp.Release()
		resp.Topics, resp.ErrorCode = nil, code
	} else {
		resp.Topics = f.Filter(results)
	}
	c.mu.Lock()
	resp.ThrottleMillis, c.throttle = c.throttle, 0
	for _, n := range c.nodes {
		resp.Nodes = append(resp.Nodes, wire.Node{ID: n.NodeID, Host: n.Host, Port: n.Port, Rack: n.Rack})
	}
	c.nodes = nil
	c.mu.Unlock()
	return resp
}

func (c *Conn) collect(ctx context.Context, d *demand, asked []session.Part) []wire.FetchPartition {
	parts, limits := make([]fetch.Part, len(asked)), make([]int, len(asked))
	for i := range asked {
		p := c.partition(partKey{asked[i].Topic, asked[i].TopicID, asked[i].Partition})
		remoteMax := asked[i].PartitionMaxBytes
		if n := c.h.opts.RemoteMaxBytes; n > 0 {
			remoteMax = n
		}
		p.ask(asked[i], d, int(remoteMax))
		d.parts = append(d.parts, p)
		parts[i] = &source{p: p, d: d, directLimit: int(remoteMax), tailLimit: int(asked[i].PartitionMaxBytes)}
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
	l := fetch.Limits{MinBytes: int(max(d.minBytes, 1)), MaxBytes: int(d.maxBytes), MaxWait: time.Until(d.deadline) + brokerGrace}
	return fetch.Collect(ctx, l, parts, limits)
}

func (d *demand) wake() {
	for _, p := range d.parts {
		p.wake()
	}
}

func (c *Conn) count(results []wire.FetchPartition) {
	c.h.counters.fetches.Add(1)
	direct, broker := 0, 0
	for i := range results {
		n := results[i].Records.Len()
		if results[i].Records.Release != nil { // only what the budget lent has one
			direct += n
		} else {
			broker += n
		}
	}
	c.h.counters.directBytes.Add(int64(direct))
	c.h.counters.upstreamBytes.Add(int64(broker))
	c.hooks.Delivered(Bytes{Direct: direct, Upstream: broker})
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
