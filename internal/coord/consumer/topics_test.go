package consumer

import (
	"encoding/hex"
	"maps"
	"slices"

	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// fakeTopics are topics that a test sets.
type fakeTopics struct {
	byName  map[string]members.Topic
	version int64
}

func newTopics() *fakeTopics { return &fakeTopics{byName: map[string]members.Topic{}} }

func (f *fakeTopics) set(name, id string, partitions int32) {
	t := members.Topic{Name: name, Partitions: partitions}
	if b, err := hex.DecodeString(id); err != nil || copy(t.ID[:], b) != 16 {
		panic(id)
	}
	f.byName[name] = t
	f.version++
}

func (f *fakeTopics) drop(name string) {
	delete(f.byName, name)
	f.version++
}

func (f *fakeTopics) Version() int64 { return f.version }

func (f *fakeTopics) ByName(name string) (members.Topic, bool) {
	t, ok := f.byName[name]
	return t, ok
}

func (f *fakeTopics) ByID(id TopicID) (members.Topic, bool) {
	for _, t := range f.byName {
		if t.ID == id {
			return t, true
		}
	}
	return members.Topic{}, false
}

func (f *fakeTopics) Names() []string { return slices.Sorted(maps.Keys(f.byName)) }
