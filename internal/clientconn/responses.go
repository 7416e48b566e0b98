package clientconn

import (
	"bufio"
	"fmt"
)

// slot is one response owed to the client.
type slot struct {
	correlationID int32
	after         int64         // how many requests had been written upstream when it was promised
	before        chan struct{} // closed when the response before it has been written; nil: it is the first
	left          chan struct{} // closed when it has been written itself
}

// awaitTurn waits until the response may be written. The client's end is then the caller's, until finish.
func (c *Conn) awaitTurn(s *slot) error {
	if s.before != nil {
		select {
		case <-s.before:
		case <-c.ctx.Done():
			return ErrClosed
		}
	}
	// Of a connection that has ended nothing more is written, also while the client's end is not closed yet: an answer may have been made of the end itself, as one without records.
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}

// finish says that the response was written, or that it could not be: then nothing is written any more.
func (c *Conn) finish(s *slot, err error) error {
	c.taken()
	if err != nil {
		return fmt.Errorf("answering the client: %w", err)
	}
	close(s.left)
	<-c.room
	c.life.paid()
	return nil
}

// respond writes an answer that is in memory.
func (c *Conn) respond(s *slot, a Answer) error {
	defer a.release()
	if err := c.awaitTurn(s); err != nil {
		return err
	}
	return c.finish(s, c.writeFrame(&a))
}

// respondOwn writes what a handler gives. begun is called when it is about to.
func (c *Conn) respondOwn(s *slot, a Answer, begun func()) error {
	defer a.release()
	in := a.Stream
	if in != nil && (in.c != c || in.sent <= s.after) {
		return ErrStale
	}
	if err := c.awaitTurn(s); err != nil {
		return err
	}
	begun()
	if in == nil {
		return c.finish(s, c.writeFrame(&a))
	}
	err := c.passResponse(s, in.br, in.size, false, &a)
	in.passed(err)
	return c.finish(s, err)
}

// respondFrom passes a response of the broker's on.
func (c *Conn) respondFrom(s *slot, br *bufio.Reader, size int, raw bool) error {
	if err := c.awaitTurn(s); err != nil {
		return err
	}
	return c.finish(s, c.passResponse(s, br, size, raw, &Answer{}))
}

// passResponse passes a frame on out of the reader's own buffer, with the client's correlation id. size is that of the whole frame.
func (c *Conn) passResponse(s *slot, br *bufio.Reader, size int, raw bool, a *Answer) error {
	if !raw {
		b, err := br.Peek(8)
		if err != nil {
			return midFrame(err)
		}
		putCorrelationID(b, s.correlationID)
	}
	err := stream{from: br, source: &c.fromUpstream, src: c.upstreamTCP, dst: c.clientTCP, write: c.writeClient, see: a.Transform, skip: a.Skip, renew: c.awaitTaking}.pass(size)
	return c.notTaken(err)
}
