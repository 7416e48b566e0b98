package history

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// mayStream tells whether the answer can come from the broker as it is: every partition is the broker's, and nothing that it sent already waits for the client.
func (c *Conn) mayStream(d *demand) bool {
	if !c.h.opts.Stream || c.h.opts.Locations != nil || len(d.parts) == 0 {
		return false
	}
	for _, p := range d.parts {
		if !p.upstreamOnly() {
			return false
		}
	}
	return true
}

// upstreamOnly tells whether all that is known of the partition's next records is that the broker has them.
func (p *partition) upstreamOnly() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.direct == nil && p.held == nil && p.finding == nil && !p.waits
}

// stream asks the broker what the client asks and passes its answer on. Both sides' sessions keep in step: while one answer after the other is streamed, the client has
// been told whatever the broker's session has told us, so that what the broker leaves out is no news to the client either. An answer that was put together here may
// have said something else; the first stream after it begins the broker's session anew, and so tells all. It is called with tail.use held.
func (c *Conn) stream(ctx context.Context, d *demand, req *kmsg.FetchRequest, f *session.Fetch, correlationID int32) (clientconn.Answer, error) {
	c.mixes(false)
	d.asked.Store(true) // of the tail nothing is wanted, whoever kicks it
	d.read.Store(true)
	t := c.tail
	sessionless := f.SessionID == 0
	client := &t.session
	switch {
	case sessionless:
		client = new(session.Client)
	case t.version != d.version || !t.inStep.Load() || !f.Incremental:
		t.session.Renew()
		t.version = d.version
	}
	t.inStep.Store(false)
	want := make([]session.Part, len(f.Parts))
	for i := range f.Parts {
		want[i] = c.h.forUpstream(f.Parts[i])
	}
	for try := 1; ; try++ {
		up := c.newFetch(d)
		up.MaxWaitMillis, up.MinBytes, up.MaxBytes = int32(max(time.Until(d.deadline).Milliseconds(), 0)), d.minBytes, d.maxBytes
		built := client.Build(want)
		if built.Set(up); sessionless {
			up.SessionEpoch = -1
		}
		c.h.counters.upstreamFetches.Add(1)
		in, err := c.carrier.Pull(ctx, up)
		if err != nil {
			client.Reset()
			return clientconn.Answer{}, err
		}
		head, err := headOf(in, d.version)
		if err != nil {
			return clientconn.Answer{}, err
		}
		if client.Answer(&kmsg.FetchResponse{ErrorCode: head.ErrorCode, SessionID: head.SessionID}) {
			t.inStep.Store(!sessionless)
			return c.passOn(d, f, in)
		}
		if err := in.Discard(); err != nil {
			return clientconn.Answer{}, err
		}
		if try == sessionTries {
			return ours(&wire.FetchResponse{ErrorCode: head.ErrorCode}, req.Version, correlationID), nil
		}
	}
}

func headOf(in *clientconn.Incoming, version int16) (wire.FetchHead, error) {
	b, err := in.Peek(wire.FetchHeadBytes)
	if err != nil {
		return wire.FetchHead{}, err
	}
	head, err := wire.ParseFetchHead(b, version)
	if err != nil {
		return head, fmt.Errorf("reading from the broker: %w", err)
	}
	return head, nil
}

// passOn hands the response to the carrier, with the client's session in it, and takes note of what goes by.
func (c *Conn) passOn(d *demand, f *session.Fetch, in *clientconn.Incoming) (clientconn.Answer, error) {
	w, err := wire.NewFetchWalker(d.version)
	if err != nil {
		return clientconn.Answer{}, err
	}
	done := make(chan struct{})
	var b Bytes
	w.Session, w.SetSession, w.HideNodes = f.SessionID, true, true
	w.OnPartition = func(p *wire.WalkedPartition) error {
		b.Upstream += p.RecordBytes
		f.Note(session.Told{
			Topic: p.Topic, TopicID: p.TopicID, Partition: p.Partition, Failed: p.ErrorCode != 0, Records: p.RecordBytes > 0,
			HighWatermark: p.HighWatermark, LastStableOffset: p.LastStableOffset, LogStartOffset: p.LogStartOffset,
		})
		c.heard(p)
		return nil
	}
	c.streaming = done
	return clientconn.Answer{Stream: in, Transform: w.Walk, Skip: w, Release: func() {
		c.counted(b)
		close(done)
	}}, nil
}

// heard takes note of what a streamed answer says of a partition.
func (c *Conn) heard(w *wire.WalkedPartition) {
	k := partKey{w.Topic, w.TopicID, w.Partition}
	c.learn(k, w.ErrorCode, resolve.Learnt{LogStart: w.LogStartOffset, HighWatermark: w.HighWatermark, LastStable: w.LastStableOffset})
	c.mu.Lock()
	p := c.parts[k]
	c.mu.Unlock()
	if p == nil || w.ErrorCode != 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hw, p.lso, p.logStart = w.HighWatermark, w.LastStableOffset, w.LogStartOffset
}
