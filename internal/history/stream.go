package history

import (
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

// streaming is one fetch that the broker's own answer serves.
type streaming struct {
	c             *Conn
	d             *demand
	f             *session.Fetch
	version       int16 // the client's
	correlationID int32
	client        *session.Client
	sessionless   bool
	want          []session.Part
	tries         int
}

// stream asks the broker what the client asks and passes its answer on. Both sides' sessions keep in step: while one answer after the other is streamed, the client has
// been told whatever the broker's session has told us, so that what the broker leaves out is no news to the client either. An answer that was put together here may
// have said something else; the first stream after it begins the broker's session anew, and so tells all. It is called with tail.use held, which is held until the broker
// answers.
func (c *Conn) stream(d *demand, req *kmsg.FetchRequest, f *session.Fetch, correlationID int32) clientconn.Answer {
	c.mixes(false)
	d.asked.Store(true) // of the tail nothing is wanted, whoever kicks it
	d.read.Store(true)
	t := c.tail
	s := &streaming{c: c, d: d, f: f, version: req.Version, correlationID: correlationID, client: &t.session, sessionless: f.SessionID == 0, want: make([]session.Part, len(f.Parts))}
	switch {
	case s.sessionless:
		s.client = new(session.Client)
	case t.forgot.Swap(false), t.version != d.version || !t.inStep.Load() || !f.Incremental:
		t.session.Renew()
		t.version = d.version
	}
	t.inStep.Store(false)
	for i := range f.Parts {
		s.want[i] = c.h.forUpstream(f.Parts[i])
	}
	return s.ask()
}

func (s *streaming) ask() clientconn.Answer {
	s.tries++
	up := s.c.newFetch(s.d)
	up.MaxWaitMillis, up.MinBytes, up.MaxBytes = int32(max(time.Until(s.d.deadline).Milliseconds(), 0)), s.d.minBytes, s.d.maxBytes
	built := s.client.Build(s.want)
	if built.Set(up); s.sessionless {
		up.SessionEpoch = -1
	}
	s.c.h.counters.upstreamFetches.Add(1)
	return clientconn.Answer{Ask: up, Then: s.answered}
}

// answered goes on when the broker's answer begins to arrive.
func (s *streaming) answered(in *clientconn.Incoming, err error) (clientconn.Answer, error) {
	a, again, err := s.judge(in, err)
	if again {
		return s.ask(), nil
	}
	s.c.tail.use.Unlock()
	return a, err
}

func (s *streaming) judge(in *clientconn.Incoming, err error) (a clientconn.Answer, again bool, _ error) {
	if err != nil {
		s.client.Reset()
		return a, false, err
	}
	head, err := headOf(in, s.d.version)
	if err != nil {
		return a, false, err
	}
	if s.client.Answer(&kmsg.FetchResponse{ErrorCode: head.ErrorCode, SessionID: head.SessionID}) {
		s.c.tail.inStep.Store(!s.sessionless)
		a, err := s.c.passOn(s.d, s.f, in)
		return a, false, err
	}
	if s.tries == sessionTries {
		return ours(&wire.FetchResponse{ErrorCode: head.ErrorCode}, s.version, s.correlationID), false, nil
	}
	return a, true, nil
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
