package txn

import "time"

// end is EndTxn. What it is to find depends on the client: one of the second version has got a new epoch with each end, so that a repeated request names the
// epoch before; one of the first keeps its epoch, and repeating an end changes nothing.
func (t *Transaction) end(now time.Time, c *End, o *Output) {
	refuse := func(err error) { o.reply(c.Token, EndResult{err, Producer{NoID, NoEpoch}}) }
	retry := c.Version.bumps() && t.isRetry(c.Producer)
	switch {
	case t.state == Dead || t.producer.ID == NoID || t.producer.ID != c.Producer.ID && !retry:
		refuse(ErrUnknownMapping)
	case !retry && (c.Producer.Epoch != t.producer.Epoch || c.Producer.Epoch > lastEpoch):
		refuse(ErrFenced)
	case t.state == Ongoing:
		t.prepare(now, c, o)
	case t.state == prepared(c.Commit):
		refuse(ErrConcurrent)
	case t.state.prepared():
		refuse(ErrState)
	case c.Version.bumps() && !retry:
		t.endNothing(now, c, o)
	case t.state == completed(c.Commit) && t.producer.Epoch > lastEpoch:
		t.renew(now, c, o)
	case t.state == completed(c.Commit):
		o.reply(c.Token, EndResult{Producer: t.producer})
	default:
		refuse(ErrState)
	}
}

func prepared(commit bool) State {
	if commit {
		return PrepareCommit
	}
	return PrepareAbort
}

func completed(commit bool) State {
	if commit {
		return CompleteCommit
	}
	return CompleteAbort
}

// isRetry: the request was answered before, with the producer's next epoch, or next id where its epochs are used up.
func (t *Transaction) isRetry(p Producer) bool {
	if !t.version.bumps() || t.state == Ongoing {
		return false
	}
	return t.producer.ID == p.ID && p.Epoch <= lastEpoch && t.producer.Epoch == p.Epoch+1 ||
		t.previousID == p.ID && p.Epoch == lastEpoch && t.producer.Epoch == 0
}

// endNothing: a client of the second version names no partitions, so it may abort what it never began. To commit that would hide that something got lost.
func (t *Transaction) endNothing(now time.Time, c *End, o *Output) {
	if c.Commit {
		o.reply(c.Token, EndResult{ErrState, Producer{NoID, NoEpoch}})
		return
	}
	t.prepare(now, c, o)
}

// renew gives a new id to a client that ends what was aborted under the epoch of a fence, which is nobody's.
func (t *Transaction) renew(now time.Time, c *End, o *Output) {
	if c.NewID == NoID {
		o.NeedsID = true
		return
	}
	m := t.metadata
	m.lastEpoch, m.producer = c.Producer.Epoch, Producer{c.NewID, 0}
	t.become(m, now, o)
	o.reply(c.Token, EndResult{Producer: t.producer})
}

// prepare decides the transaction. From its record on there is no way back.
func (t *Transaction) prepare(now time.Time, c *End, o *Output) {
	m := t.metadata
	if c.Version.bumps() && m.producer.Epoch >= lastEpoch {
		if c.NewID == NoID {
			o.NeedsID = true
			return
		}
		m.nextID = c.NewID
	}
	if m.state != Ongoing {
		m.started, m.partitions = now, nil
	}
	m.state, m.version = prepared(c.Commit), c.Version
	if c.Version.bumps() {
		m.lastEpoch = m.producer.Epoch
		m.producer.Epoch++
	}
	t.become(m, now, o)
	o.Markers = t.markers()
	o.reply(c.Token, EndResult{Producer: t.after()})
}

// after is who the producer is once the prepared transaction is complete.
func (t *Transaction) after() Producer {
	if t.nextID != NoID {
		return Producer{t.nextID, 0}
	}
	return t.producer
}

// fence aborts the open transaction under an epoch that no client ever gets.
func (t *Transaction) fence(now time.Time, o *Output) {
	m := t.metadata
	m.state, m.version, m.lastEpoch, m.nextID = PrepareAbort, V2, m.producer.Epoch, NoID
	if m.producer.Epoch <= lastEpoch { // or there is no other any more: who wrote the log has given it to a client
		m.producer.Epoch++
	}
	t.become(m, now, o)
	o.Markers = t.markers()
}

func (t *Transaction) markers() *Markers {
	return &Markers{Producer: t.producer, Commit: t.state == PrepareCommit, Version: t.version, Partitions: t.partitions}
}

// complete ends a prepared transaction whose markers are written.
func (t *Transaction) complete(now time.Time, c Complete, o *Output) {
	if !t.state.prepared() || t.producer != c.Producer {
		return
	}
	m := t.metadata
	m.state, m.producer, m.nextID, m.partitions = completed(t.state == PrepareCommit), t.after(), NoID, nil
	t.become(m, now, o)
}

func (t *Transaction) tick(now time.Time, o *Output) {
	if at, ok := t.Deadline(); ok && !at.After(now) {
		t.fence(now, o)
	}
}
