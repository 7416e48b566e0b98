package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/remote"
)

const (
	// crowdedFor is how long a partition for which there was no memory is read through the broker: its next reader would wait as the last one did.
	crowdedFor = 10 * time.Second
	// crowdedOut is how long one waits that the broker is not asked for either.
	crowdedOut = time.Second
	// goneFor is how long after a client's last answer no place is taken for it any more.
	goneFor = 2 * time.Second
)

// brokersLocked leaves the question that direct reading came to an end with to the broker. One for which there was only no memory is among those that fall back, of which the
// broker bears so many at once; without a Resolver that is not counted.
func (p *partition) brokersLocked(q question, err error) {
	if p.c.h.opts.Resolver == nil || !errors.Is(err, remote.ErrCrowded) {
		p.brokerServesLocked(q)
	}
}

// crowdedLocked leaves the partition to the broker until there may be memory again, or has it wait if the broker has enough of such. Who found none at the same moment comes
// back at another.
func (p *partition) crowdedLocked() {
	p.turn = time.Time{}
	last := crowdedFor
	if p.c.h.opts.Resolver != nil {
		if p.queueLocked(); p.waits {
			last = crowdedOut
		}
	}
	until := time.Now().Add(last/2 + rand.N(last))
	if p.c.h.opts.Resolver == nil {
		p.tryAgain = until
		return
	}
	p.crowded = until
}

// leave tells a reader that waits for memory whether it is to give up: if the broker can be asked instead. The place there is taken at once, so that for one place not all give up.
func (p *partition) leave(d *direct) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.direct != d || p.absentLocked(time.Now()) > goneFor {
		return true // it has been given up, or its client does not come: it takes nobody's place
	}
	p.place = p.place || p.c.h.fallbacks.take()
	return p.place
}

// Readers take memory whatever they read, and with more of them than there is memory for, the first connections would have it all. So as soon as they are many each connection
// has an equal share of those that there may be. Its partitions take turns; until theirs comes they get empty answers and are not asked of the broker, since their client gets on.

// turnOf is how long a partition reads when others of its connection wait.
const turnOf = 10 * time.Second

// errTurn: other partitions of the connection are read first.
var errTurn = fmt.Errorf("it is the turn of other partitions: %w", remote.ErrCrowded)

// share is how many partitions a connection may read at once for sure. tight: seven eighths of all readers are taken, so that it may read no more.
func (h *History) share() (n int64, tight bool) {
	now, most := h.opts.Reader.Readers()
	return max(int64(most)/max(h.watching.Load(), 1), 1), now >= most-most/8
}

func (c *Conn) hasItsShare() bool {
	n, tight := c.h.share()
	return tight && c.reading.Load() >= n
}

// makeRoom ends the reading of partitions as far as the connection reads too many, and of one more if another has waited for its turn: first of those that the client does not
// ask for now, then of those that have read for the longest.
func (c *Conn) makeRoom(d *demand) {
	n, tight := c.h.share()
	over, owed := max(c.reading.Load()-n, 0), c.turnOwed.Load()
	if !tight || over == 0 && !owed {
		return
	}
	c.mu.Lock()
	var reading []turn
	for _, p := range c.parts {
		if t, ok := p.turnNow(d); ok && (over > 0 || t.over) {
			reading = append(reading, t)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(reading, func(a, b turn) int {
		if a.asked != b.asked {
			return map[bool]int{false: -1, true: 1}[a.asked]
		}
		return a.began.Compare(b.began)
	})
	if owed {
		over++
	}
	for _, t := range reading[:min(int(over), len(reading))] {
		c.turnOwed.Store(false)
		t.p.giveUpTurn()
	}
}

// turn is that of a partition which is being read.
type turn struct {
	p     *partition
	began time.Time
	asked bool // for, by the demand that is being answered
	over  bool // it has read for long enough, and something has come of it; or it is not asked for
}

func (p *partition) turnNow(d *demand) (t turn, reads bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.direct == nil {
		return turn{}, false
	}
	asked := p.demand == d
	return turn{p, p.direct.began, asked, !asked || p.direct.had && time.Since(p.direct.began) > p.c.h.turn}, true
}

func (p *partition) giveUpTurn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.direct != nil {
		p.endLocked()
		p.c.hooks.Ended(ReasonCrowded, false)
		p.turn = time.Time{}
		p.waitTurnLocked(2 * crowdedOut) // behind those that wait already
	}
}

// waitTurnLocked has the partition wait for about so long before it tries again. Once it has waited for a turn another one makes room.
func (p *partition) waitTurnLocked(wait time.Duration) {
	now := time.Now()
	switch {
	case p.turn.IsZero():
		p.turn = now
	case now.Sub(p.turn) > p.c.h.turn:
		p.c.turnOwed.Store(true)
	}
	p.toBrokerLocked()
	p.waits, p.crowded = true, now.Add(wait-crowdedOut/2+rand.N(crowdedOut))
	p.c.watch()
}
