// Package epoch keeps a partition's leader epoch history: which epoch began at which offset. The log, the remote side and the resolvers share it.
// It imports only the nouns of remotestorage, does no I/O and has no goroutines.
package epoch

import (
	"slices"
	"sort"
	"sync"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Undefined is what Kafka answers for an epoch or an end offset that it does not know.
const Undefined = -1

// Cache is one partition's history, ascending in epoch and in start offset. The zero value and New(nil) are empty. Safe for concurrent use.
type Cache struct {
	mu      sync.RWMutex
	entries []remotestorage.EpochStart
}

// New builds a history from entries in the order in which they were written; an entry that contradicts earlier ones removes them, as Assign does.
func New(entries []remotestorage.EpochStart) *Cache {
	c := &Cache{entries: make([]remotestorage.EpochStart, 0, len(entries))}
	for _, e := range entries {
		c.assignLocked(e.LeaderEpoch, e.StartOffset)
	}
	return c
}

// Assign says that epoch begins at start, and reports whether that changed the history. Entries with a later epoch, or with a start at or after
// this one, are of a leader whose records have gone and are removed. A later start for the latest epoch is no news: its first record counts.
func (c *Cache) Assign(epoch int32, start int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.assignLocked(epoch, start)
}

func (c *Cache) assignLocked(epoch int32, start int64) bool {
	if epoch < 0 || start < 0 {
		return false
	}
	n := len(c.entries)
	if n > 0 && c.entries[n-1].LeaderEpoch == epoch && start >= c.entries[n-1].StartOffset {
		return false
	}
	for n > 0 && (c.entries[n-1].LeaderEpoch >= epoch || c.entries[n-1].StartOffset >= start) {
		n--
	}
	c.entries = append(c.entries[:n], remotestorage.EpochStart{LeaderEpoch: epoch, StartOffset: start})
	return true
}

// EpochFor gives the epoch that the record at offset was written in; false below the first entry.
func (c *Cache) EpochFor(offset int64) (int32, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset > offset })
	if i == 0 {
		return Undefined, false
	}
	return c.entries[i-1].LeaderEpoch, true
}

// EndOffsetFor answers OffsetForLeaderEpoch: the largest known epoch at or below the one asked, and where it ends. The latest epoch ends at logEnd.
// Below the earliest: the epoch asked and the earliest start. Above the latest, or -1: Undefined twice.
func (c *Cache) EndOffsetFor(epoch int32, logEnd int64) (foundEpoch int32, end int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := len(c.entries)
	if epoch == Undefined || n == 0 {
		return Undefined, Undefined
	}
	if c.entries[n-1].LeaderEpoch == epoch {
		return epoch, logEnd
	}
	higher := sort.Search(n, func(i int) bool { return c.entries[i].LeaderEpoch > epoch })
	switch {
	case higher == n:
		return Undefined, Undefined
	case higher == 0:
		return epoch, c.entries[0].StartOffset
	}
	return c.entries[higher-1].LeaderEpoch, c.entries[higher].StartOffset
}

// TruncateFromEnd forgets the epochs that begin at or after end, and reports whether there were any.
func (c *Cache) TruncateFromEnd(end int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.entries)
	for n > 0 && c.entries[n-1].StartOffset >= end {
		n--
	}
	changed := n != len(c.entries)
	c.entries = c.entries[:n]
	return changed
}

// TruncateFromStart makes the history begin at start: the epoch in force there is kept and begins there. It reports whether that changed anything.
func (c *Cache) TruncateFromStart(start int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset > start })
	if i == 0 || i == 1 && c.entries[0].StartOffset == start {
		return false
	}
	c.entries = slices.Clone(c.entries[i-1:])
	c.entries[0].StartOffset = start
	return true
}

// Entries is a copy of the history, ascending.
func (c *Cache) Entries() []remotestorage.EpochStart {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.entries)
}

// EntriesUpTo is a copy of what a checkpoint holds for a log that ends at end (exclusive): the epochs that begin below it.
func (c *Cache) EntriesUpTo(end int64) []remotestorage.EpochStart {
	c.mu.RLock()
	defer c.mu.RUnlock()
	i := sort.Search(len(c.entries), func(i int) bool { return c.entries[i].StartOffset >= end })
	return slices.Clone(c.entries[:i])
}

// Range is the history of the offsets [from, end): the epoch in force at from, beginning there, and those that begin inside.
func (c *Cache) Range(from, end int64) []remotestorage.EpochStart {
	r := New(c.EntriesUpTo(end))
	r.TruncateFromStart(from)
	return r.entries
}

// Latest is the last entry; false if the history is empty.
func (c *Cache) Latest() (remotestorage.EpochStart, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.entries) == 0 {
		return remotestorage.EpochStart{LeaderEpoch: Undefined, StartOffset: Undefined}, false
	}
	return c.entries[len(c.entries)-1], true
}
