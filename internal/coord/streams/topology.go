package streams

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// Topology is what an application is made of, as its members say when they join.
type Topology struct {
	Epoch         int32
	Subtopologies []Subtopology
}

// Subtopology is a part of an application whose tasks each work on one partition of its topics.
type Subtopology struct {
	ID            string
	Sources       []string
	SourceRegexes []string
	Changelogs    []TopicInfo
	Sinks         []string // repartition topics that it writes
	Repartitions  []TopicInfo
	Copartitions  []Copartition
}

// Copartition are topics that must have as many partitions each. They are indexes into the lists of the subtopology.
type Copartition struct{ Sources, SourceRegexes, Repartitions []int16 }

// TopicInfo is a topic that belongs to the application.
type TopicInfo struct {
	Name        string
	Partitions  int32 // 0: as the topology needs
	Replication int16 // 0: the default
	Configs     []Pair
}

// Pair is a key with its value.
type Pair struct{ Key, Value string }

func (t *Topology) equal(o *Topology) bool {
	if t.Epoch != o.Epoch {
		return false
	}
	return bytes.Equal(appendTopology(nil, t.sorted()), appendTopology(nil, o.sorted()))
}

func (t *Topology) sorted() *Topology {
	return &Topology{t.Epoch, slices.SortedFunc(slices.Values(t.Subtopologies), func(a, b Subtopology) int { return cmp.Compare(a.ID, b.ID) })}
}

// required are the topics that must be there, sorted.
func (t *Topology) required() []string {
	names := map[string]struct{}{}
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		for _, n := range s.inputs() {
			names[n] = struct{}{}
		}
		for _, info := range s.Changelogs {
			names[info.Name] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// inputs are the topics that a subtopology reads.
func (s *Subtopology) inputs() []string {
	out := slices.Clone(s.Sources)
	for _, info := range s.Repartitions {
		out = append(out, info.Name)
	}
	return out
}

// reader is the subtopology that reads a topic, nil if none does.
func (t *Topology) reader(topic string) *Subtopology {
	if t == nil {
		return nil
	}
	for i := range t.Subtopologies {
		if slices.Contains(t.Subtopologies[i].inputs(), topic) {
			return &t.Subtopologies[i]
		}
	}
	return nil
}

// check refuses what no topology can be.
func (t *Topology) check() error {
	if t.Epoch < 0 {
		return refuseBroken("the epoch of the topology is negative")
	}
	seen := map[string]bool{}
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		if seen[s.ID] {
			return refuseBroken("subtopology %s is there twice", s.ID)
		}
		seen[s.ID] = true
	}
	return nil
}
