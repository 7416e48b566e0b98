package clientconn

import (
	"bufio"
	"fmt"
)

// slot is one response owed to the client.
type slot struct {
	correlationID int32
	after         int64 // how many requests had been written upstream when it was promised
	// ready is not buffered: whoever gives an answer knows whether the writer took it, and with it the duty to release it.
	ready chan delivery
}

// delivery is either an answer of ours or a frame that is to be passed on from upstream.
type delivery struct {
	answer   Answer
	from     *bufio.Reader // nil: answer
	size     int           // bytes of the frame in from, its size included
	raw      bool          // no correlation id in it
	streamed chan error
}

func (c *Conn) deliver(s *slot, d delivery) error {
	select {
	case s.ready <- d:
		return nil
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// deliverAnswer is deliver for what a handler gives.
func (c *Conn) deliverAnswer(s *slot, a Answer) error {
	d := delivery{answer: a}
	if in := a.Stream; in != nil {
		if in.c != c || in.sent <= s.after {
			a.release()
			return ErrStale
		}
		d.from, d.size, d.streamed = in.br, in.size, in.done
	}
	err := c.deliver(s, d)
	if err != nil {
		a.release()
	}
	return err
}

// writeResponses is the only writer to the client, apart from an opaque connection's reader (see opaque).
func (c *Conn) writeResponses(Handler) error {
	for {
		var s *slot
		select {
		case s = <-c.slots:
		case <-c.life.drained:
			return c.sayGoodbye()
		case <-c.ctx.Done():
			return ErrClosed
		}
		select {
		case d := <-s.ready:
			if err := c.write(s, d); err != nil {
				return fmt.Errorf("answering the client: %w", err)
			}
			c.life.paid()
		case <-c.ctx.Done():
			return ErrClosed
		}
	}
}

func (c *Conn) write(s *slot, d delivery) error {
	defer d.answer.release()
	defer c.taken()
	if d.from == nil {
		return c.writeFrame(&d.answer)
	}
	err := c.streamResponse(s, d)
	d.streamed <- err
	return err
}

// streamResponse passes a frame on out of the reader's own buffer, with the client's correlation id.
func (c *Conn) streamResponse(s *slot, d delivery) error {
	if !d.raw {
		b, err := d.from.Peek(8)
		if err != nil {
			return midFrame(err)
		}
		putCorrelationID(b, s.correlationID)
	}
	err := stream{from: d.from, src: c.upstreamTCP, dst: c.clientTCP, write: c.writeClient, see: d.answer.Transform, skip: d.answer.Skip, renew: c.awaitTaking}.pass(d.size)
	return c.notTaken(err)
}
