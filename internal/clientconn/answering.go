package clientconn

import (
	"bufio"
	"errors"
	"fmt"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// answering is an answer in the making. Wherever it is made, errors end the connection.
type answering struct {
	c     *Conn
	req   wire.RequestHeader
	frame []byte // nil once upstream was asked
	slot  *slot
	done  func() // to be called when nothing of the request is needed any more; may be called again
	began func() // to be called when the answer is about to be written. The requests behind wait for it, also while upstream is asked.
}

// begin has the handler answer the request. What may block goes on in a goroutine; what is asked of upstream, or sent there, leaves from here.
func (a *answering) begin(h Handler) error {
	if a.c.beginner != nil {
		ans, ok, err := a.c.beginner.Begin(a.req)
		switch {
		case !ok && err == nil:
		case err != nil || ans.Ask != nil:
			if err = a.give(ans, err); err != nil {
				a.began()
			}
			return err
		default:
			a.inGoroutine(func() (Answer, error) { return ans, nil })
			return nil
		}
	}
	a.inGoroutine(func() (Answer, error) { return h.Answer(a.c.ctx, a.req) })
	return nil
}

func (a *answering) inGoroutine(answer func() (Answer, error)) {
	a.c.running.Go(func() {
		if err := a.give(answer()); err != nil {
			a.began()
			a.c.end(err)
		}
	})
}

// give does what the handler says.
func (a *answering) give(ans Answer, err error) error {
	for err == nil && ans.Later != nil {
		ans, err = ans.Later(a.c.ctx)
	}
	switch {
	case errors.Is(err, ErrForward) && a.frame != nil:
		defer a.began()
		return a.c.forwardFrame(a.req, a.frame, a.slot)
	case err != nil:
		return err
	case ans.Ask != nil:
		return a.ask(ans)
	}
	return a.c.respondOwn(a.slot, ans, a.began)
}

// ask sends a request of the answer's. The client does not authenticate now: its requests behind this one wait. Of the client's request nothing is kept meanwhile: upstream may take as
// long as the client lets it.
func (a *answering) ask(ans Answer) error {
	c := a.c
	o := &own{then: ans.Then, whose: a}
	c.mu.Lock()
	c.asking = o
	clientID := c.clientID
	c.mu.Unlock()
	frame := wire.AppendRequest(nil, ans.Ask, 0, clientID)
	a.frame, a.req.Body = nil, nil
	defer a.done()
	return c.inTurn(&pending{own: o}, func(correlationID int32) error {
		putRequestCorrelationID(frame, correlationID)
		return c.writeUpstream(frame)
	})
}

// goOn makes an answer of a response that has begun to arrive, and passes it on if that is the answer.
func (c *Conn) goOn(br *bufio.Reader, size int, p *pending) error {
	o := p.own
	c.mu.Lock()
	c.asking = nil
	c.mu.Unlock()
	in := &Incoming{c: c, br: br, size: 4 + size, sent: p.sent}
	ans, err := o.then(in, nil)
	switch {
	case err != nil:
		o.whose.began()
		return err
	case ans.Stream != nil:
		defer o.whose.began()
		return c.respondOwn(o.whose.slot, ans, o.whose.began)
	}
	if !in.gone {
		if err := in.Discard(); err != nil {
			ans.abandon()
			o.whose.began()
			return fmt.Errorf("reading from the broker: %w", err)
		}
	}
	// Not from here: while this waits for room upstream, nobody would read what upstream sends.
	o.whose.inGoroutine(func() (Answer, error) { return ans, nil })
	return nil
}

// abandon tells who still waits for a response that none will come.
func (c *Conn) abandon() {
	c.mu.Lock()
	o := c.asking
	c.asking = nil
	c.mu.Unlock()
	if o != nil {
		asked := Answer{Then: o.then}
		asked.abandon()
		o.whose.began()
	}
}

// abandon drops an answer of which nothing comes. Who would ask hears of it.
func (a *Answer) abandon() {
	if a.Then != nil {
		ans, _ := a.Then(nil, ErrClosed) // what it says of it nobody wants to know
		ans.release()
	}
	a.release()
}
