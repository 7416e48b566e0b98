package sharepart

import (
	"fmt"
	"time"
)

// AckType says what a member did with a record.
type AckType = int8

const (
	Gap     AckType = 0 // there is no such record
	Accept  AckType = 1
	Giveup  AckType = 2 // released: to be delivered again
	Reject  AckType = 3
	Renew   AckType = 4 // needs more time
	lastAck         = Renew
)

// Ack acknowledges a range: with one type for all, or one for each record.
type Ack struct {
	First, Last int64
	Types       []AckType
}

// Valid tells whether acknowledgements make sense, before anything is known of the records: a range each, with types that exist, in order.
func Valid(acks []Ack) error {
	last := int64(-1)
	for i := range acks {
		a := &acks[i]
		if a.First < 0 || a.First > a.Last {
			return fmt.Errorf("%w: from %d to %d", ErrInvalidRequest, a.First, a.Last)
		}
		if a.First < last {
			return fmt.Errorf("%w: from %d after %d", ErrInvalidRequest, a.First, last)
		}
		if n := int64(len(a.Types)); n == 0 || n > 1 && n-1 != a.Last-a.First {
			return fmt.Errorf("%w: %d types for %d to %d", ErrInvalidRequest, n, a.First, a.Last)
		}
		for _, t := range a.Types {
			if t < Gap || t > lastAck {
				return fmt.Errorf("%w: type %d", ErrInvalidRequest, t)
			}
		}
		last = a.Last
	}
	return nil
}

// Acknowledge takes acknowledgements that are Valid. Records below the start are done already, whatever is said of them.
func (p *Partition) Acknowledge(now time.Time, member string, acks []Ack) error {
	k := acknowledgement{p: p, member: member, config: p.config(), undo: map[int]*batch{}}
	k.until = now.Add(k.config.Lock)
	for i := range acks {
		if err := k.ack(&acks[i]); err != nil {
			for j, b := range k.undo {
				p.batches[j] = b
			}
			return err
		}
	}
	for i := range k.undo {
		p.batches[i].merge()
	}
	p.letters = append(p.letters, k.letters...)
	p.changed(k.states)
	return nil
}

// acknowledgement is an Acknowledge on its way. undo has the batches that it has changed, as they were.
type acknowledgement struct {
	p      *Partition
	member string
	config Config
	until  time.Time
	undo   map[int]*batch
	states []StateBatch
	// letters of what it lets go to the dead letter queue
	letters []Letter
}

func (k *acknowledgement) ack(a *Ack) error {
	p := k.p
	if a.Last < p.start {
		return nil
	}
	first := max(a.First, p.start)
	i := p.floor(first)
	if i < 0 {
		if a.First >= p.start || len(p.batches) == 0 || p.batches[0].first > a.Last {
			return fmt.Errorf("%w: %d to %d are not in flight", ErrInvalidRecordState, a.First, a.Last)
		}
		i = 0
	}
	end := p.floor(a.Last)
	if p.batches[end].last < first || p.batches[end].last < a.Last {
		return fmt.Errorf("%w: %d to %d, but only up to %d is in flight", ErrInvalidRequest, a.First, a.Last, p.batches[end].last)
	}
	for ; i <= end; i++ {
		if b := p.batches[i]; b.last >= first {
			if _, kept := k.undo[i]; !kept {
				k.undo[i] = b.clone()
			}
			if err := k.batch(b, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// batch acknowledges the part of a batch that lies in a's range. With a single type for all of it, it stays in one piece.
func (k *acknowledgement) batch(b *batch, a *Ack) error {
	if len(a.Types) > 1 || !b.within(a.First, a.Last) {
		b.split = true
	}
	from, to := b.span(max(a.First, b.first), min(a.Last, b.last))
	for i := from; i < to; i++ {
		r := &b.runs[i]
		switch {
		case r.state != Acquired:
			return fmt.Errorf("%w: %d to %d are not acquired", ErrInvalidRecordState, r.first, r.last)
		case r.member != k.member:
			return fmt.Errorf("%w: %d to %d belong to another", ErrInvalidRecordState, r.first, r.last)
		}
		if len(a.Types) > 1 { // the run has one type, or is cut where the next one begins
			t, same := a.typesFrom(r.first, r.last)
			if same < r.last {
				b.cut(same + 1)
				to++
				r = &b.runs[i]
			}
			if err := k.one(r, t); err != nil {
				return err
			}
		} else if err := k.one(r, a.Types[0]); err != nil {
			return err
		}
	}
	return nil
}

// typesFrom is the type of the record at first, and how far it goes on, up to last.
func (a *Ack) typesFrom(first, last int64) (t AckType, same int64) {
	t = a.Types[first-a.First]
	for same = first; same < last && a.Types[same+1-a.First] == t; {
		same++
	}
	return t, same
}

func (k *acknowledgement) one(r *run, t AckType) error {
	switch t {
	case Renew:
		if k.config.NoRenew {
			return fmt.Errorf("%w: locks are not renewed in this group", ErrInvalidRecordState)
		}
		r.until = k.until
		return nil
	case Accept:
		r.become(Acknowledged, &k.config)
	case Giveup:
		r.become(Available, &k.config)
	case Reject:
		r.become(k.config.undeliverable(), &k.config)
	default: // there is no such record
		r.become(Archived, &k.config)
	}
	k.states = append(k.states, r.kept())
	if r.state == Archiving {
		k.letters = append(k.letters, Letter{r.first, r.last, r.count, t == Reject})
	}
	return nil
}
