package clientconn

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/rewind-kafka/rewind/internal/wire"
)

const (
	keyProduce          = 0
	keySaslHandshake    = 17
	keySaslAuthenticate = 36

	// headPeek is how much of a request is looked at before it is decided what to do with it: the header, and a produce's acks.
	headPeek = 2 << 10

	// Most connections carry next to nothing, and there may be thousands. One that carries more gets a larger buffer: with a small one a large frame took a tenth more CPU.
	firstBuffer = 2 * headPeek
	smallBuffer = 16 << 10
	largeBuffer = 64 << 10
)

// requestReader is the state of the goroutine that reads the client's requests.
type requestReader struct {
	c  *Conn
	h  Handler
	br *bufio.Reader
	// answering is closed when the answer before is being written; nil if there is none. Until then the requests behind it wait.
	answering chan struct{}
	last      chan struct{} // closed when the response to the request before has been written
	// tokens counts frames without a header that are still to come after a SaslHandshake v0.
	tokens int
}

func (c *Conn) readRequests(h Handler) error {
	r := &requestReader{c: c, h: h, br: bufio.NewReaderSize(&c.fromClient, firstBuffer)}
	return r.run()
}

func (r *requestReader) run() error {
	for {
		// Looked at before waiting for the answer under way: a client that has gone is noticed while its fetch is held.
		prefix, err := r.br.Peek(4)
		if err != nil {
			if len(prefix) > 0 {
				err = midFrame(err)
			}
			return err
		}
		size, err := wire.FrameSize(prefix, r.c.opts.MaxRequestBytes)
		if err != nil {
			return fmt.Errorf("reading from the client: %w", err)
		}
		r.c.fromClient.expect(size)
		if err := r.awaitAnswer(); err != nil {
			return err
		}
		if !r.c.life.begin() {
			return r.c.refuse()
		}
		if err := r.request(size); err != nil {
			return err
		}
		r.c.life.end()
	}
}

func (r *requestReader) awaitAnswer() error {
	if r.answering == nil {
		return nil
	}
	select {
	case <-r.answering:
		r.answering = nil
		return nil
	case <-r.c.ctx.Done():
		return ErrClosed
	}
}

func (r *requestReader) request(size int) error {
	if r.tokens > 0 {
		r.tokens--
		return r.forwardStream(size, &slot{}, &pending{raw: true})
	}
	// First the little that tells: a TLS greeting is shorter than the size that it seems to announce, and nothing follows it.
	head, err := r.br.Peek(4 + min(size, 2))
	if err != nil {
		return midFrame(err)
	}
	if err := foreignRequest(head); err != nil {
		return err
	}
	if head, err = r.br.Peek(4 + min(size, headPeek)); err != nil {
		return midFrame(err)
	}
	q, err := parseHead(head[4:])
	if err != nil && size > headPeek {
		return r.whole(size) // a client id or a transactional id of many KiB
	}
	if err != nil {
		return fmt.Errorf("reading from the client: %w", err)
	}
	r.note(&q)
	if r.h.Wants(q.Key, q.Version) {
		return r.whole(size)
	}
	if q.Key == keySaslHandshake && q.Version == 0 {
		return r.handshake(size)
	}
	return r.forwardStream(size, r.slotFor(&q), &pending{key: q.Key, version: q.Version})
}

// head is what is known of a request from its first bytes.
type head struct {
	wire.RequestHeader
	unanswered bool // produce with acks=0
}

func parseHead(b []byte) (head, error) {
	h, err := wire.ParseRequestHeader(b)
	if err != nil || h.Key != keyProduce {
		return head{RequestHeader: h}, err
	}
	body := kbin.Reader{Src: h.Body}
	switch {
	case h.Version >= 9:
		body.CompactNullableString()
	case h.Version >= 3:
		body.NullableString()
	}
	acks := body.Int16()
	if err := body.Complete(); err != nil {
		return head{}, fmt.Errorf("%w: produce: %w", wire.ErrMalformed, err)
	}
	return head{RequestHeader: h, unanswered: acks == 0}, nil
}

// note keeps the client's id for requests of our own, and whether it is authenticating.
func (r *requestReader) note(q *head) {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.ClientID != nil && (c.clientID == nil || *c.clientID != *q.ClientID) {
		c.clientID = q.ClientID
	}
	switch auth := q.Key == keySaslHandshake || q.Key == keySaslAuthenticate; {
	case auth && !c.authenticating:
		c.authenticating, c.authDone = true, make(chan struct{})
		c.beginsLocked()
	case !auth && c.authenticating:
		c.authenticating = false
		close(c.authDone)
	}
}

// slotFor is nil for a request that gets no response.
func (r *requestReader) slotFor(q *head) *slot {
	if q.unanswered {
		return nil
	}
	return &slot{correlationID: q.CorrelationID}
}

// enqueue promises a response to the client; it blocks while too many are owed.
func (r *requestReader) enqueue(s *slot) error {
	r.c.mu.Lock()
	s.after = r.c.sent
	r.c.mu.Unlock()
	r.c.life.owe()
	select {
	case r.c.room <- struct{}{}:
		s.before, s.left = r.last, make(chan struct{})
		r.last = s.left
		return nil
	case <-r.c.ctx.Done():
		return ErrClosed
	}
}

// whole reads a request into memory and lets the handler answer it, if it wants it.
func (r *requestReader) whole(size int) error {
	if limit := r.c.opts.MaxHeldBytes; size > int(limit) {
		return fmt.Errorf("reading from the client: %w: a request of %d bytes that is to be kept whole, limit %d", wire.ErrFrameTooLarge, size, limit)
	}
	give, err := r.c.opts.Held.request(r.c.ctx, size)
	if err != nil {
		return fmt.Errorf("reading from the client: %w", err)
	}
	kept := false
	defer func() {
		if !kept {
			give()
		}
	}()
	r.c.fromClient.sips = false
	there := r.c.opts.Held.hurryRequest(size, func() {
		r.c.end(fmt.Errorf("reading from the client: %w: a request of %d bytes has not come within %v, and others wait for its room", ErrHeld, size, slowPatience))
	})
	frame, err := wire.ReadFrame(r.br, r.c.opts.MaxRequestBytes, nil)
	there()
	if err != nil {
		return midFrame(err)
	}
	q, err := parseHead(frame)
	if err != nil {
		return fmt.Errorf("reading from the client: %w", err)
	}
	if size > headPeek {
		r.note(&q)
	}
	s := r.slotFor(&q)
	if s != nil {
		if err := r.enqueue(s); err != nil {
			return err
		}
	}
	if !r.h.Wants(q.Key, q.Version) || s == nil {
		return r.c.forwardFrame(q.RequestHeader, frame, s)
	}
	began := make(chan struct{})
	r.answering, kept = began, true
	give = sync.OnceFunc(give)
	return (&answering{r.c, q.RequestHeader, frame, s, give, sync.OnceFunc(func() {
		give()
		close(began)
	})}).begin(r.h)
}

// handshake forwards a SaslHandshake v0, after which the client sends bare tokens. How many depends on the mechanism; where that is not known,
// the rest of the connection is opaque.
func (r *requestReader) handshake(size int) error {
	b, err := r.br.Peek(4 + min(size, headPeek))
	if err != nil {
		return midFrame(err)
	}
	q, err := wire.ParseRequestHeader(b[4:])
	if err != nil {
		return err
	}
	body := kbin.Reader{Src: q.Body}
	mechanism := body.String()
	switch mechanism {
	case "PLAIN", "OAUTHBEARER":
		r.tokens = 1
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
		r.tokens = 2
	}
	opaque := r.tokens == 0
	s := &slot{correlationID: q.CorrelationID}
	if err := r.forwardStream(size, s, &pending{key: q.Key, version: q.Version, opaque: opaque}); err != nil || !opaque {
		return err
	}
	// The turn is kept: nothing of ours may be written any more.
	select {
	case r.c.turn <- struct{}{}:
	case <-r.c.ctx.Done():
		return ErrClosed
	}
	r.c.life.blind()
	_, err = io.Copy(r.c.upstream, r.br)
	return err
}

// forwardStream passes the next request on as it comes in. s is nil if there will be no response.
func (r *requestReader) forwardStream(size int, s *slot, p *pending) error {
	if s != nil {
		if err := r.enqueue(s); err != nil {
			return err
		}
	}
	p.slot = s
	defer func() { r.br = roomFor(r.br, &r.c.fromClient, size, spliceFrom) }()
	return r.c.inTurn(p, func(correlationID int32) error {
		left := 4 + size
		if !p.raw {
			b, err := r.br.Peek(12)
			if err != nil {
				return midFrame(err)
			}
			putRequestCorrelationID(b, correlationID)
		}
		return stream{from: r.br, source: &r.c.fromClient, src: r.c.clientTCP, dst: r.c.upstreamTCP, write: r.c.writeUpstream, life: r.c.life}.pass(left)
	})
}

// roomFor gives a buffer for frames as large as the last: the largest from a size on, one of smallBuffer if it did not fit into the first. It changes when the buffer happens to be
// empty, and never to a smaller one.
func roomFor(br *bufio.Reader, from io.Reader, size, largeFrom int) *bufio.Reader {
	want := br.Size()
	switch {
	case size >= largeFrom:
		want = largeBuffer
	case size > firstBuffer:
		want = max(want, smallBuffer)
	}
	if want == br.Size() || br.Buffered() > 0 {
		return br
	}
	return bufio.NewReaderSize(from, want)
}

// forwardFrame sends a request that was read whole.
func (c *Conn) forwardFrame(q wire.RequestHeader, frame []byte, s *slot) error {
	out := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(frame)), uint32(len(frame)))
	out = append(out, frame...)
	return c.inTurn(&pending{slot: s, key: q.Key, version: q.Version}, func(correlationID int32) error {
		putRequestCorrelationID(out, correlationID)
		_, err := c.upstream.Write(out)
		return err
	})
}

func (c *Conn) writeUpstream(b []byte) error {
	_, err := c.upstream.Write(b)
	return err
}

// A request is size, key, version, correlation id; a response is size, correlation id.
func putRequestCorrelationID(b []byte, id int32) { binary.BigEndian.PutUint32(b[8:], uint32(id)) }
func putCorrelationID(b []byte, id int32)        { binary.BigEndian.PutUint32(b[4:], uint32(id)) }
