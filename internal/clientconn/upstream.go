package clientconn

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// pending is a response that upstream owes. A broker answers a connection's requests in order, so the next response is the oldest entry's.
type pending struct {
	correlationID int32
	sent          int64 // its place among all requests
	key, version  int16
	slot          *slot // the client's, or
	own           *own  // ours
	raw           bool  // a SASL token: no correlation id
	opaque        bool  // after this response the connection is no longer looked into
}

// own is a request of ours. answer has room for one, so that the reader never waits for who asked.
type own struct {
	req    kmsg.Request
	gone   context.Context // done if nobody waits any more
	answer chan result
	pulled chan *Incoming // of a Pull: takes the place of answer

	// Of an Answer that asks, in place of all that: whose it is, and what is made of the response.
	whose *answering
	then  func(*Incoming, error) (Answer, error)
}

type result struct {
	resp kmsg.Response
	err  error
}

// inTurn writes one request upstream when it is its turn.
func (c *Conn) inTurn(p *pending, write func(correlationID int32) error) error {
	select {
	case c.turn <- struct{}{}:
	case <-c.ctx.Done():
		return ErrClosed
	}
	defer func() { <-c.turn }()
	return c.writeHoldingTurn(p, write)
}

func (c *Conn) writeHoldingTurn(p *pending, write func(correlationID int32) error) error {
	c.mu.Lock()
	c.sent++
	p.sent, p.correlationID = c.sent, int32(c.sent&0x7fffffff)
	if p.slot != nil || p.own != nil {
		c.pending = append(c.pending, p)
	}
	c.mu.Unlock()
	if err := write(p.correlationID); err != nil {
		if c.ctx.Err() != nil { // closed meanwhile, or before: a select takes a free turn as readily as the end
			return ErrClosed
		}
		return fmt.Errorf("writing to the broker: %w", err)
	}
	return nil
}

// Request sends a request of our own on the client's connection, and so with the client's principal, and waits for its response. It waits while the
// client authenticates, or is to authenticate again: a broker bears nothing in between. The broker handles it in its order behind what the client has sent. If ctx ends
// before, the response is thrown away when it comes.
func (c *Conn) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	o := &own{req: req, gone: ctx, answer: make(chan result, 1)}
	if err := c.send(ctx, o); err != nil {
		return nil, err
	}
	select {
	case r := <-o.answer:
		return r.resp, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, ErrClosed
	}
}

func (c *Conn) send(ctx context.Context, o *own) error {
	for waited := false; ; {
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ctx.Done():
			return ErrClosed
		}
		// Looked at with the turn in hand: a handshake is noted before it asks for the turn, so none can slip in between.
		c.mu.Lock()
		wait, clientID := c.authDone, c.clientID
		authenticating := c.authenticating
		begins, expired := c.expiredLocked()
		c.mu.Unlock()
		if !authenticating && (!expired || waited) {
			err := c.writeHoldingTurn(&pending{own: o}, func(id int32) error {
				_, err := c.upstream.Write(wire.AppendRequest(nil, o.req, id, clientID))
				return err
			})
			<-c.turn
			if err != nil {
				c.end(err) // before anybody hears of it, who may make an answer of that
			}
			return err
		}
		<-c.turn
		if !authenticating {
			over, err := c.awaitLogin(ctx, begins)
			if err != nil {
				return err
			}
			waited = over
			continue
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ctx.Done():
			return ErrClosed
		}
	}
}

// readUpstream is the only reader of upstream.
func (c *Conn) readUpstream() error {
	br := bufio.NewReaderSize(&c.fromUpstream, firstBuffer)
	for {
		prefix, err := br.Peek(4)
		if err != nil {
			if len(prefix) > 0 {
				err = midFrame(err)
			}
			return handshakeCut(c.upstream, err)
		}
		// A forwarded response is streamed, so no limit of ours holds for it but the protocol's.
		size, err := wire.FrameSize(prefix, 1<<31-1)
		if err != nil {
			return fmt.Errorf("reading from the broker: %w", err)
		}
		c.fromUpstream.expect(size)
		p := c.oldest()
		five, _ := br.Peek(min(5, 4+size)) // what is missing is missed below
		if err := foreignResponse(five, p); err != nil {
			return err
		}
		if p == nil {
			return fmt.Errorf("reading from the broker: %w: a response to nothing (a frame of %d bytes)", wire.ErrMalformed, size)
		}
		if err := c.response(br, size, p); err != nil {
			return err
		}
		if p.opaque {
			return c.opaque(br)
		}
		br = roomFor(br, &c.fromUpstream, size, largeBuffer)
	}
}

func (c *Conn) oldest() *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return nil
	}
	p := c.pending[0]
	c.pending[0] = nil
	if c.pending = c.pending[1:]; len(c.pending) == 0 {
		c.pending = nil // the array behind it would only grow otherwise
	}
	return p
}

func (c *Conn) response(br *bufio.Reader, size int, p *pending) error {
	if !p.raw {
		if size < 4 {
			return fmt.Errorf("reading from the broker: %w: a response of %d bytes", wire.ErrMalformed, size)
		}
		b, err := br.Peek(8)
		if err != nil {
			return midFrame(err)
		}
		if id := int32(binary.BigEndian.Uint32(b[4:])); id != p.correlationID {
			return fmt.Errorf("reading from the broker: %w: correlation id %d, expected %d", wire.ErrMalformed, id, p.correlationID)
		}
	}
	c.noteLifetime(br, size, p)
	switch {
	case p.own != nil && p.own.then != nil:
		return c.goOn(br, size, p)
	case p.own != nil && p.own.pulled != nil:
		return c.hold(br, size, p)
	case p.own != nil:
		return c.ownResponse(br, size, p.own)
	case c.filter != nil && !p.raw && !p.opaque && c.filter.WantsResponse(p.key, p.version):
		return c.filtered(br, size, p)
	}
	return c.respondFrom(p.slot, br, 4+size, p.raw)
}

func (c *Conn) ownResponse(br *bufio.Reader, size int, o *own) error {
	if o.gone.Err() != nil {
		_, err := br.Discard(4 + size)
		return midFrame(err)
	}
	c.fromUpstream.sips = false
	frame, err := wire.ReadFrame(br, c.opts.MaxResponseBytes, nil)
	if err != nil {
		return fmt.Errorf("reading from the broker: %w", midFrame(err))
	}
	key, version := o.req.Key(), o.req.GetVersion()
	resp := o.req.ResponseKind()
	_, body, err := wire.ResponseBody(frame, key, version)
	if err == nil {
		err = resp.ReadFrom(body)
	}
	if err != nil {
		err = fmt.Errorf("%w: key %d version %d: %w", ErrAnswer, key, version, err)
	}
	o.answer <- result{resp, err}
	return nil
}

// opaque passes everything on. Nobody else writes by now: the last slot was the handshake's.
func (c *Conn) opaque(br *bufio.Reader) error {
	for {
		if _, err := br.Peek(1); err != nil {
			return err
		}
		if err := (stream{from: br, source: &c.fromUpstream, write: c.writeClient}).pass(br.Buffered()); err != nil {
			return err
		}
		c.taken()
	}
}
