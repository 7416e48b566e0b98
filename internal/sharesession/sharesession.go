// Package sharesession keeps the sessions in which members of share groups read (KIP-932): which partitions each wants, and the epoch that its next request
// must have. A session ends with its connection, as it does in Apache Kafka. Used by the broker. It has no goroutines and no clock.
package sharesession

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// Errors of requests.
var (
	ErrNotFound     = errors.New("share session not found")
	ErrInvalidEpoch = errors.New("share session epoch is not the expected one")
	ErrLimit        = errors.New("as many share sessions as there may be")
)

// Epochs with a meaning of their own.
const (
	Initial int32 = 0
	Final   int32 = -1
)

// maxPartitionsPerSlot bounds what all sessions may remember together, for each of them.
const maxPartitionsPerSlot = 2000

// maxGroups bounds the groups that are remembered of a connection: one has one consumer, as a rule.
const maxGroups = 1000

// Key says whose a session is.
type Key struct{ Group, Member string }

// Part is one partition of a session.
type Part struct {
	TopicID   [16]byte
	Partition int32
}

// Cache holds the sessions of a server. It is safe for concurrent use.
type Cache struct {
	slots func() int

	mu         sync.Mutex
	sessions   map[Key]*session
	conns      map[uint64]map[Key]struct{}
	groups     map[uint64]map[string]struct{} // that had a session on a connection
	partitions int
}

type session struct {
	conn  uint64
	epoch int32 // expected with the next request
	parts []Part
	// told are partitions of which something is to be said even if nothing was read: they are new, or were answered with an error.
	told map[Part]bool
}

// New makes a cache that holds at most so many sessions.
func New(slots func() int) *Cache {
	return &Cache{slots: slots, sessions: map[Key]*session{}, conns: map[uint64]map[Key]struct{}{}, groups: map[uint64]map[string]struct{}{}}
}

// Open begins a session, in place of one that the member has.
func (c *Cache) Open(k Key, conn uint64, parts []Part) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(k)
	if len(c.sessions) >= c.slots() || c.partitions+len(parts) > c.slots()*maxPartitionsPerSlot {
		return ErrLimit
	}
	s := &session{conn: conn, epoch: 1, parts: unique(nil, parts), told: map[Part]bool{}}
	c.sessions[k] = s
	c.partitions += len(s.parts)
	if c.conns[conn] == nil {
		c.conns[conn] = map[Key]struct{}{}
	}
	c.conns[conn][k] = struct{}{}
	if c.groups[conn] == nil {
		c.groups[conn] = map[string]struct{}{}
	}
	if len(c.groups[conn]) >= maxGroups {
		clear(c.groups[conn])
	}
	c.groups[conn][k.Group] = struct{}{}
	return nil
}

func unique(to, add []Part) []Part {
	known := make(map[Part]struct{}, len(to)+len(add))
	for _, p := range to {
		known[p] = struct{}{}
	}
	for _, p := range add {
		if _, twice := known[p]; !twice {
			known[p] = struct{}{}
			to = append(to, p)
		}
	}
	return to
}

// Next takes a request of a session in, and gives all partitions that are wanted, rotated so that each comes first in its turn.
func (c *Cache) Next(k Key, epoch int32, add, forget []Part) ([]Part, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.expectedLocked(k, epoch)
	if err != nil {
		return nil, err
	}
	before := len(s.parts)
	next := unique(slices.Clone(s.parts), add)
	added := next[before:]
	next, gone := without(next, forget)
	if c.partitions+len(next)-before > c.slots()*maxPartitionsPerSlot {
		return nil, ErrLimit
	}
	for _, p := range added {
		s.told[p] = true
	}
	for p := range gone {
		delete(s.told, p)
	}
	c.partitions += len(next) - before
	s.parts, s.epoch = next, after(epoch)
	return rotated(next, int(epoch)), nil
}

// without gives the parts that are not to be forgotten, and what is, as a set.
func without(parts, forget []Part) (left []Part, gone map[Part]struct{}) {
	if len(forget) == 0 {
		return parts, nil
	}
	gone = make(map[Part]struct{}, len(forget))
	for _, p := range forget {
		gone[p] = struct{}{}
	}
	for _, p := range parts {
		if _, out := gone[p]; !out {
			left = append(left, p)
		}
	}
	return left, gone
}

func rotated(parts []Part, by int) []Part {
	if len(parts) == 0 {
		return nil
	}
	by %= len(parts)
	return slices.Concat(parts[by:], parts[:by])
}

func after(epoch int32) int32 {
	if epoch == 1<<31-1 {
		return 1
	}
	return epoch + 1
}

func (c *Cache) expectedLocked(k Key, epoch int32) (*session, error) {
	s := c.sessions[k]
	switch {
	case s == nil:
		return nil, ErrNotFound
	case s.epoch != epoch:
		return nil, ErrInvalidEpoch
	}
	return s, nil
}

// Acknowledge takes a request in that only acknowledges. The final one ends nothing here; Close follows.
func (c *Cache) Acknowledge(k Key, epoch int32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case epoch == Initial:
		return ErrInvalidEpoch
	case c.sessions[k] == nil:
		return ErrNotFound
	case epoch == Final:
		return nil
	}
	s, err := c.expectedLocked(k, epoch)
	if err == nil {
		s.epoch = after(epoch)
	}
	return err
}

// Has tells whether there is such a session.
func (c *Cache) Has(k Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions[k] != nil
}

// News tells whether an answer is to mention a partition: with records or an error always, else if something of it was promised. In the first answer of a
// session all are mentioned.
func (c *Cache) News(k Key, p Part, records, failed bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[k]
	if s == nil {
		return true
	}
	news := records || failed || s.told[p]
	delete(s.told, p)
	if failed {
		s.told[p] = true
	}
	return news
}

// Close ends a session, and gives its partitions.
func (c *Cache) Close(k Key) (parts []Part, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[k]
	if s == nil {
		return nil, false
	}
	c.removeLocked(k)
	return s.parts, true
}

// Ended is a session that went with its connection.
type Ended struct {
	Key
	Parts []Part
}

// Gone ends the sessions of a connection, and names the groups that had any there.
func (c *Cache) Gone(conn uint64) (ended []Ended, groups []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.conns[conn] {
		if s := c.sessions[k]; s != nil && s.conn == conn {
			ended = append(ended, Ended{k, s.parts})
			c.removeLocked(k)
		}
	}
	delete(c.conns, conn)
	groups = slices.Collect(maps.Keys(c.groups[conn]))
	delete(c.groups, conn)
	return ended, groups
}

// InUse tells whether a group has a session.
func (c *Cache) InUse(group string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.sessions {
		if k.Group == group {
			return true
		}
	}
	return false
}

func (c *Cache) removeLocked(k Key) {
	s := c.sessions[k]
	if s == nil {
		return
	}
	delete(c.sessions, k)
	c.partitions -= len(s.parts)
	if delete(c.conns[s.conn], k); len(c.conns[s.conn]) == 0 {
		delete(c.conns, s.conn)
	}
}
