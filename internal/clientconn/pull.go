package clientconn

import (
	"bufio"
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrStale: an Incoming was given to the answer of a request that came after it was pulled. The broker may owe responses behind it that the client must get
// first, so it would wait for itself.
var ErrStale = errors.New("stream was pulled before the request that it answers")

// Incoming is a response to a request of our own that has begun to arrive. It stands at the head of what upstream sends: until it is given to an Answer or
// discarded, nothing behind it is read. One goroutine at a time may use it.
type Incoming struct {
	c    *Conn
	br   *bufio.Reader
	size int        // with the size prefix
	sent int64      // the pending's
	done chan error // has room for one: what became of it; nil if nobody waits for that
	gone bool       // discarded
}

// Size is the number of bytes of the frame, the four of its size included.
func (in *Incoming) Size() int { return in.size }

// Peek gives the first n bytes of the frame, from its size on, and leaves them there; fewer if the frame is shorter. n may be up to 64 KiB. The bytes are good until
// the Incoming is given to an Answer or discarded. It waits for bytes that have not come; the end of the connection ends it.
func (in *Incoming) Peek(n int) ([]byte, error) {
	b, err := in.br.Peek(min(n, in.size))
	if err != nil {
		return b, midFrame(err)
	}
	return b, nil
}

// Discard reads the rest of the response and throws it away.
func (in *Incoming) Discard() error {
	_, err := in.br.Discard(in.size)
	err = midFrame(err)
	in.gone = true
	in.passed(err)
	return err
}

func (in *Incoming) passed(err error) {
	if in.done != nil {
		in.done <- err
	}
}

// Pull sends a request of our own as Request does, and returns when the first bytes of its response are there. The response must be given to an Answer (Stream), of the
// request that Handler.Answer was asked while it called Pull, or discarded. If ctx ends before, the response is thrown away when it comes; once
// Pull has returned, ctx means nothing any more.
func (c *Conn) Pull(ctx context.Context, req kmsg.Request) (*Incoming, error) {
	o := &own{req: req, gone: ctx, pulled: make(chan *Incoming)}
	if err := c.send(ctx, o); err != nil {
		return nil, err
	}
	select {
	case in := <-o.pulled:
		return in, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ctx.Done():
		return nil, ErrClosed
	}
}

// hold offers a response to who pulled it, and waits until it is consumed.
func (c *Conn) hold(br *bufio.Reader, size int, p *pending) error {
	in := &Incoming{c: c, br: br, size: 4 + size, sent: p.sent, done: make(chan error, 1)}
	select {
	case p.own.pulled <- in:
	case <-p.own.gone.Done():
		return in.Discard()
	case <-c.ctx.Done():
		return ErrClosed
	}
	select {
	case err := <-in.done:
		return err
	case <-c.ctx.Done():
		return ErrClosed
	}
}
