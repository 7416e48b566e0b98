package streams

import (
	"github.com/twmb/franz-go/pkg/kbin"
)

// reader reads values. What is read after an error is empty; whoever is done asks Complete.
type reader struct{ kbin.Reader }

func (r *reader) record(version uint16, member string) record {
	switch version {
	case keyMetadata:
		return &metadataRecord{r.metadata()}
	case keyMember:
		return &memberRecord{member, r.member(member)}
	case keyTargetEpoch:
		v := &targetEpochValue{epoch: r.Int32()}
		r.tags(func(tag uint32, f *reader) {
			if tag == tagMade {
				v.made = f.Int64()
			}
		})
		return &targetEpochRecord{v}
	case keyTarget:
		v := &Tasks{}
		for _, to := range []*Set{&v.Active, &v.Standby, &v.Warmup} {
			*to = r.tasks(0).set()
		}
		r.tags(nil)
		return &targetRecord{member, v}
	case keyCurrent:
		return &currentRecord{member, r.current(member)}
	default:
		return &topologyRecord{r.topology()}
	}
}

func (r *reader) metadata() *metadata {
	m := newMetadata()
	m.epoch, m.hash = r.Int32(), r.Int64()
	r.tags(func(tag uint32, f *reader) {
		switch tag {
		case tagValidated:
			m.validated = f.Int32()
		case tagConfigs:
			m.configs = f.pairs()
		case tagStored:
			m.stored = f.Int32()
		case tagFailed:
			m.failed = f.Int32()
		}
	})
	return &m
}

// pairs are never nil, unless there is null.
func (r *reader) pairs() map[string]string {
	n := r.count(3)
	out := make(map[string]string, n)
	for range n {
		k := r.CompactString()
		out[k] = r.CompactString()
		r.tags(nil)
	}
	return out
}

// count is the length of an array, of which each element takes at least size bytes.
func (r *reader) count(size int) int32 {
	n := r.CompactArrayLen()
	if n < 0 {
		return 0
	}
	if int(n) > len(r.Src)/size {
		r.fail()
		return 0
	}
	return n
}

func (r *reader) fail() { r.Span(len(r.Src) + 1) }

func (r *reader) ints() []int32 {
	n := r.count(4)
	out := make([]int32, 0, n)
	for range n {
		out = append(out, r.Int32())
	}
	return out
}

func (r *reader) shorts() []int16 {
	n := r.count(2)
	out := make([]int16, 0, n)
	for range n {
		out = append(out, r.Int16())
	}
	return out
}

func (r *reader) strings() []string {
	var out []string
	for range r.count(1) {
		out = append(out, r.CompactString())
	}
	return out
}

// tags reads the tagged fields that end a struct; each reads one of those it knows, and leaves others.
func (r *reader) tags(each func(tag uint32, f *reader)) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag, size := r.Uvarint(), r.Uvarint()
		field := reader{kbin.Reader{Src: r.Span(int(size))}}
		if each == nil || !r.Ok() {
			continue
		}
		if each(tag, &field); !field.Ok() {
			r.fail()
		}
	}
}

func (r *reader) optional() string {
	if s := r.CompactNullableString(); s != nil {
		return *s
	}
	return ""
}

func (r *reader) member(id string) *Member {
	m := newMember(id)
	m.InstanceID, m.RackID = r.optional(), r.optional()
	m.ClientID, m.ClientHost = r.CompactString(), r.CompactString()
	m.Rebalance, m.TopologyEpoch, m.ProcessID = r.Int32(), r.Int32(), r.CompactString()
	if r.Int8() >= 0 {
		m.Endpoint = &Endpoint{Host: r.CompactString(), Port: r.Uint16()}
		r.tags(nil)
	}
	if m.Tags = r.pairs(); len(m.Tags) == 0 {
		m.Tags = nil
	}
	r.tags(nil)
	return m
}

// tasks are those of a member that stands in an epoch: a record may not say since when it has had them.
func (r *reader) tasks(epoch int32) Epochs {
	out := Epochs{}
	for range r.count(3) {
		id := r.CompactString()
		parts := r.ints()
		var epochs []int32
		r.tags(func(tag uint32, f *reader) {
			if tag == tagEpochs {
				epochs = f.ints()
			}
		})
		for i, p := range parts {
			since := epoch
			if len(epochs) == len(parts) {
				since = epochs[i]
			}
			out[Task{id, p}] = since
		}
	}
	return out
}

func (r *reader) current(id string) *Member {
	m := newMember(id)
	m.Epoch, m.Previous, m.State = r.Int32(), r.Int32(), MemberState(r.Int8())
	if m.State != Stable && m.State != Unrevoked && m.State != Unreleased {
		m.State = Unknown
	}
	for _, h := range []*Held{&m.Assigned, &m.Revoking} {
		h.Active, h.Standby, h.Warmup = r.tasks(m.Epoch), r.tasks(0).set(), r.tasks(0).set()
	}
	r.tags(nil)
	return m
}

func (r *reader) topology() *Topology {
	t := &Topology{Epoch: r.Int32()}
	for range r.count(8) {
		s := Subtopology{ID: r.CompactString(), Sources: r.strings(), SourceRegexes: r.strings(), Changelogs: r.infos(), Sinks: r.strings(), Repartitions: r.infos()}
		for range r.count(4) {
			s.Copartitions = append(s.Copartitions, Copartition{r.shorts(), r.shorts(), r.shorts()})
			r.tags(nil)
		}
		r.tags(nil)
		t.Subtopologies = append(t.Subtopologies, s)
	}
	r.tags(nil)
	return t
}

func (r *reader) infos() []TopicInfo {
	var out []TopicInfo
	for range r.count(9) {
		t := TopicInfo{Name: r.CompactString(), Partitions: r.Int32(), Replication: r.Int16()}
		for range r.count(3) {
			p := Pair{Key: r.CompactString()}
			p.Value = r.CompactString()
			r.tags(nil)
			t.Configs = append(t.Configs, p)
		}
		r.tags(nil)
		out = append(out, t)
	}
	return out
}
