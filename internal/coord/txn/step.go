package txn

import (
	"fmt"
	"time"
)

// Step lets a command take effect.
func (t *Transaction) Step(now time.Time, c Command) Output {
	var o Output
	switch c := c.(type) {
	case *Init:
		t.init(now, c, &o)
	case *Add:
		t.add(now, c, &o)
	case *Verify:
		t.verify(c, &o)
	case *End:
		t.end(now, c, &o)
	case Complete:
		t.complete(now, c, &o)
	case Tick:
		t.tick(now, &o)
	case Expire:
		t.expire(now, &o)
	default:
		panic(fmt.Sprintf("txn: command %T", c))
	}
	return o
}

// Failed takes back what the step that gave o did, because its records could not be appended, and gives the replies to send instead.
func (t *Transaction) Failed(o Output, cause error) []Reply {
	if o.before != nil {
		t.metadata = *o.before
	}
	replies := make([]Reply, len(o.Replies))
	for i, r := range o.Replies {
		replies[i] = Reply{r.Token, r.Result.failed(cause)}
	}
	return replies
}

// become makes m the new metadata, and writes it.
func (t *Transaction) become(m metadata, now time.Time, o *Output) {
	before := t.metadata
	o.before = &before
	// The time of a record never goes backwards, whatever the clock does.
	if m.updated = now; m.updated.Before(before.updated) {
		m.updated = before.updated
	}
	if m.previousID = before.producer.ID; m.previousID == NoID {
		m.previousID = m.producer.ID
	}
	t.metadata = m
	o.Records = append(o.Records, t.record())
}

func (t *Transaction) init(now time.Time, c *Init, o *Output) {
	refuse := func(err error) { o.reply(c.Token, InitResult{err, Producer{NoID, NoEpoch}}) }
	switch {
	case c.Timeout <= 0 || c.Timeout > t.config().MaxTimeout:
		refuse(ErrTimeout)
	case t.producer.ID == NoID && c.NewID == NoID:
		o.NeedsID = true
	case !t.mayInit(c.Expected):
		refuse(ErrFenced)
	case t.state.prepared():
		refuse(ErrConcurrent)
	case t.state == Ongoing:
		t.fence(now, o)
		refuse(ErrConcurrent)
	default:
		t.nextEpoch(now, c, o)
	}
}

// mayInit tells whether someone who believes to be expected is not already replaced. Its epoch is judged later, except while a transaction is open: that
// one is not to be aborted for somebody whose time is over.
func (t *Transaction) mayInit(expected *Producer) bool {
	switch {
	case expected == nil || t.producer.Epoch == NoEpoch:
		return true
	case t.state == Ongoing:
		return *expected == t.producer
	}
	return expected.ID == t.producer.ID || expected.ID == t.previousID && expected.Epoch >= lastEpoch
}

// nextEpoch makes the client who asks the only one that may use the id.
func (t *Transaction) nextEpoch(now time.Time, c *Init, o *Output) {
	m := t.metadata
	if m.producer.ID == NoID {
		m.producer.ID = c.NewID
	}
	last := NoEpoch
	switch e := m.producer.Epoch; {
	// The epoch of a fence is nobody's: not that of whoever was fenced, either.
	case e >= lastEpoch && (c.Expected == nil || c.Expected.Epoch == e || e > lastEpoch && c.Expected.Epoch == m.lastEpoch):
		if c.NewID == NoID {
			o.NeedsID = true
			return
		}
		if c.Expected != nil {
			last = c.Expected.Epoch
		}
		m.producer = Producer{c.NewID, 0}
	case c.Expected == nil:
		m.producer.Epoch++
	case e == NoEpoch || c.Expected.Epoch == e:
		last = e
		m.producer.Epoch++
	case c.Expected.Epoch == m.lastEpoch:
		last = m.lastEpoch // a retry of what was done already
	default:
		o.reply(c.Token, InitResult{ErrFenced, Producer{NoID, NoEpoch}})
		return
	}
	m.state, m.lastEpoch, m.nextID, m.timeout, m.partitions, m.started = Empty, last, NoID, c.Timeout, nil, time.Time{}
	t.become(m, now, o)
	o.reply(c.Token, InitResult{Producer: m.producer})
}

// check finds out whether p is who may act for the id.
func (t *Transaction) check(p Producer) error {
	switch {
	case t.state == Dead || t.producer.ID == NoID || t.producer.ID != p.ID:
		return ErrUnknownMapping
	case t.producer.Epoch != p.Epoch, p.Epoch > lastEpoch:
		return ErrFenced
	case t.state.prepared():
		return ErrConcurrent
	}
	return nil
}

func (t *Transaction) add(now time.Time, c *Add, o *Output) {
	// A prepared transaction comes first: its producer may use the epoch that it becomes with the end, which it was told already.
	if t.state.prepared() {
		o.reply(c.Token, AddResult{ErrConcurrent})
		return
	}
	if err := t.check(c.Producer); err != nil {
		o.reply(c.Token, AddResult{err})
		return
	}
	if t.state != Ongoing || !t.hasAll(c.Partitions) {
		m := t.metadata
		if m.state != Ongoing {
			m.started, m.partitions = now, nil
		}
		m.state, m.partitions, m.version = Ongoing, m.with(c.Partitions), c.Version
		t.become(m, now, o)
	}
	o.reply(c.Token, AddResult{})
}

func (t *Transaction) verify(c *Verify, o *Output) {
	if err := t.check(c.Producer); err != nil {
		o.reply(c.Token, VerifyResult{Err: err})
		return
	}
	r := VerifyResult{Partitions: make([]error, len(c.Partitions))}
	for i, tp := range c.Partitions {
		if t.state != Ongoing || !t.has(tp) {
			r.Partitions[i] = ErrAbortable
		}
	}
	o.reply(c.Token, r)
}

// expire writes the tombstone of an id that nobody has used for long.
func (t *Transaction) expire(now time.Time, o *Output) {
	if !t.state.ended() || now.Sub(t.updated) < t.config().Expiration {
		return
	}
	before := t.metadata
	o.before = &before
	t.state = Dead
	o.Records = append(o.Records, Record{Key: key(t.id)})
}

// Refuse gives the replies to a command that cannot be taken.
func (t *Transaction) Refuse(c Command, cause error) []Reply {
	switch c := c.(type) {
	case *Init:
		return []Reply{{c.Token, InitResult{}.failed(cause)}}
	case *End:
		return []Reply{{c.Token, EndResult{}.failed(cause)}}
	}
	return nil
}

// Refused is the result to give in place of r when what it stands for could not be kept.
func Refused(r Result, cause error) Result { return r.failed(cause) }
