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
)

// brokersLocked leaves the question that direct reading came to an end with to the broker. One for which there was only no memory is among those that fall back, of which the
// broker bears so many at once; without a Resolver that is not counted.
func (p *partition) brokersLocked(q question, err error) {
	if p.c.h.opts.Resolver == nil || !errors.Is(err, remote.ErrCrowded) {
		p.served = q
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
	if p.direct != d {
		return true // it has been given up
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

// share is how many partitions a connection may read at once for sure. tight: no more than that.
func (h *History) share() (n int64, tight bool) {
	now, most := h.opts.Reader.Readers()
	return max(int64(most)/max(h.watching.Load(), 1), 1), now >= most-most/8
}

func (c *Conn) hasItsShare() bool {
	n, tight := c.h.share()
	return tight && c.reading.Load() >= n
}

// makeRoom ends the reading of those partitions that have read for the longest, as far as the connection reads too many, and of one that has had its turn if another waits for it.
func (c *Conn) makeRoom(parts []*partition) {
	n, tight := c.h.share()
	over := c.reading.Load() - n
	if !tight || over <= 0 && !c.turnOwed.Load() {
		return
	}
	now := time.Now()
	var reading []*partition
	began := make(map[*partition]time.Time)
	for _, p := range parts {
		if at, had := p.reads(); !at.IsZero() && (over > 0 || had && now.Sub(at) > c.h.turn) {
			reading, began[p] = append(reading, p), at
		}
	}
	slices.SortFunc(reading, func(a, b *partition) int { return began[a].Compare(began[b]) })
	for _, p := range reading[:min(max(int(over), 1), len(reading))] {
		c.turnOwed.Store(false)
		p.makeRoom()
	}
}

// reads tells since when the partition has been read directly, zero if it is not, and whether anything has come of it.
func (p *partition) reads() (since time.Time, had bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.direct == nil {
		return time.Time{}, false
	}
	return p.direct.began, p.direct.had
}

func (p *partition) makeRoom() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.direct != nil {
		p.endLocked()
		p.c.hooks.Ended(ReasonCrowded, false)
		p.turn = time.Time{}
		p.waitTurnLocked()
	}
}

// waitTurnLocked has the partition wait. Once it has waited for long enough another one makes room.
func (p *partition) waitTurnLocked() {
	now := time.Now()
	switch {
	case p.turn.IsZero():
		p.turn = now
	case now.Sub(p.turn) > p.c.h.turn:
		p.c.turnOwed.Store(true)
	}
	p.toBrokerLocked()
	p.waits, p.crowded = true, now.Add(crowdedOut/2+rand.N(crowdedOut))
	p.c.watch()
}
