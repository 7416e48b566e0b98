// Package topics is the node's durable registry of topics: which exist, their ids, partition counts and configured overrides. Only the broker
// uses it. It has no goroutines.
//
// Each topic is one JSON file, <dir>/<name>.json, replaced atomically (written aside, synced, renamed, directory synced). A deletion first marks the
// file, then the caller removes the logs and the remote objects, then the file goes: a deletion cut off at any point is seen at the next start.
package topics

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Errors that callers branch on.
var (
	ErrExists  = errors.New("topic already exists")
	ErrUnknown = errors.New("no such topic")
	ErrName    = errors.New("invalid topic name")
	// ErrCollision: another topic's name differs only in `.` and `_`, which Kafka's metric names cannot tell apart.
	ErrCollision = errors.New("topic name collides with an existing topic")
)

// Topic is one topic. Callers get copies.
type Topic struct {
	Name       string
	ID         remotestorage.UUID
	Partitions int32
	Configs    map[string]string // overrides only
	Internal   bool
}

// TopicIDPartition names one of the topic's partitions.
func (t *Topic) TopicIDPartition(partition int32) remotestorage.TopicIDPartition {
	return remotestorage.TopicIDPartition{TopicID: t.ID, Topic: t.Name, Partition: partition}
}

// Registry holds the topics of a node. It is safe for concurrent use. Changes are made one at a time; reads never wait for the disk.
type Registry struct {
	fs  vfs.FS
	dir string

	write sync.Mutex // held over a change and its file

	mu       sync.RWMutex
	byName   map[string]*Topic
	folded   map[string]int // how many of byName look like this with `_` for `.`: more than one only where they were adopted
	byID     map[remotestorage.UUID]*Topic
	deleting map[remotestorage.UUID]*Topic
	left     map[remotestorage.UUID]bool // of those in deleting: the topic's own file could not be removed yet
	version  int64                       // of byName, but for configurations
}

// CheckName applies Kafka's rules for topic names.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrName)
	case name == "." || name == "..":
		return fmt.Errorf("%w: it cannot be %q", ErrName, name)
	case len(name) > 249:
		return fmt.Errorf("%w: it is %d characters long, 249 are allowed", ErrName, len(name))
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return fmt.Errorf("%w: %q contains a character other than ASCII alphanumerics, '.', '_' and '-'", ErrName, name)
		}
	}
	return nil
}

// Get returns the topic of this name.
func (r *Registry) Get(name string) (Topic, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return lookup(r.byName, name)
}

// Version grows whenever a topic comes, goes, or gets more partitions.
func (r *Registry) Version() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.version
}

// ByID returns the topic of this id.
func (r *Registry) ByID(id remotestorage.UUID) (Topic, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return lookup(r.byID, id)
}

func lookup[K comparable](m map[K]*Topic, k K) (Topic, bool) {
	if t := m[k]; t != nil {
		return t.clone(), true
	}
	return Topic{}, false
}

// List returns all topics by name.
func (r *Registry) List() []Topic {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return sorted(r.byName)
}

// Deleting returns the topics whose deletion has begun and not ended.
func (r *Registry) Deleting() []Topic {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return sorted(r.deleting)
}

func sorted[K comparable](m map[K]*Topic) []Topic {
	out := make([]Topic, 0, len(m))
	for _, t := range m {
		out = append(out, t.clone())
	}
	slices.SortFunc(out, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (t *Topic) clone() Topic {
	c := *t
	c.Configs = maps.Clone(t.Configs)
	return c
}

// Check tells whether a topic of this name could be created now.
func (r *Registry) Check(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.byName[name] != nil {
		return fmt.Errorf("%w: %s", ErrExists, name)
	}
	folded := fold(name)
	if r.folded[folded] == 0 {
		return nil
	}
	for other := range r.byName {
		if fold(other) == folded {
			return fmt.Errorf("%w: %s and %s", ErrCollision, name, other)
		}
	}
	return nil
}

// inLocked and outLocked put a topic in the maps, and take it out of them. Those of a registry that is being opened need no lock.
func (r *Registry) inLocked(t *Topic) {
	r.byName[t.Name], r.byID[t.ID] = t, t
	r.folded[fold(t.Name)]++
}

func (r *Registry) outLocked(t *Topic) {
	delete(r.byName, t.Name)
	delete(r.byID, t.ID)
	folded := fold(t.Name)
	if r.folded[folded]--; r.folded[folded] == 0 {
		delete(r.folded, folded)
	}
}

func fold(name string) string { return strings.ReplaceAll(name, ".", "_") }
