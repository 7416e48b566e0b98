package streams

import (
	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/rewind-kafka/rewind/internal/coord/members"
)

func appendTopology(b []byte, t *Topology) []byte {
	b = kbin.AppendInt32(b, t.Epoch)
	b = kbin.AppendCompactArrayLen(b, len(t.Subtopologies))
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		b = kbin.AppendCompactString(b, s.ID)
		b = members.AppendStrings(b, s.Sources)
		b = members.AppendStrings(b, s.SourceRegexes)
		b = appendInfos(b, s.Changelogs)
		b = members.AppendStrings(b, s.Sinks)
		b = appendInfos(b, s.Repartitions)
		b = kbin.AppendCompactArrayLen(b, len(s.Copartitions))
		for _, c := range s.Copartitions {
			for _, list := range [][]int16{c.Sources, c.SourceRegexes, c.Repartitions} {
				b = kbin.AppendCompactArrayLen(b, len(list))
				for _, n := range list {
					b = kbin.AppendInt16(b, n)
				}
			}
			b = members.AppendTags(b)
		}
		b = members.AppendTags(b)
	}
	return members.AppendTags(b)
}

func readTopology(r *members.Reader) *Topology {
	t := &Topology{Epoch: r.Int32()}
	for range r.Count(8) {
		s := Subtopology{ID: r.CompactString(), Sources: r.Strings(), SourceRegexes: r.Strings(), Changelogs: readInfos(r), Sinks: r.Strings(), Repartitions: readInfos(r)}
		for range r.Count(4) {
			s.Copartitions = append(s.Copartitions, Copartition{readShorts(r), readShorts(r), readShorts(r)})
			r.Tags()
		}
		r.Tags()
		t.Subtopologies = append(t.Subtopologies, s)
	}
	r.Tags()
	return t
}

func readShorts(r *members.Reader) []int16 {
	n := r.Count(2)
	out := make([]int16, 0, n)
	for range n {
		out = append(out, r.Int16())
	}
	return out
}

func appendInfos(b []byte, all []TopicInfo) []byte {
	b = kbin.AppendCompactArrayLen(b, len(all))
	for _, t := range all {
		b = kbin.AppendCompactString(b, t.Name)
		b = kbin.AppendInt32(b, t.Partitions)
		b = kbin.AppendInt16(b, t.Replication)
		b = members.AppendTags(appendPairs(b, t.Configs))
	}
	return b
}

func readInfos(r *members.Reader) (out []TopicInfo) {
	for range r.Count(9) {
		out = append(out, TopicInfo{Name: r.CompactString(), Partitions: r.Int32(), Replication: r.Int16(), Configs: readPairs(r)})
		r.Tags()
	}
	return out
}
