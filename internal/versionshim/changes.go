package versionshim

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Requested calls f with each partition that is asked for.
func Requested(f func(*kmsg.FetchRequestTopicPartition)) func(*kmsg.FetchRequest) {
	return func(r *kmsg.FetchRequest) {
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				f(&r.Topics[i].Partitions[j])
			}
		}
	}
}

// Answered calls f with each partition that is answered.
func Answered(f func(*kmsg.FetchResponseTopicPartition)) func(*kmsg.FetchResponse) {
	return func(r *kmsg.FetchResponse) {
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				f(&r.Topics[i].Partitions[j])
			}
		}
	}
}

// Located calls f with the location of each partition that is answered with one, and puts what f leaves in its place.
func Located(f func(*remotestorage.Location)) func(*kmsg.FetchResponse) {
	return Answered(func(p *kmsg.FetchResponseTopicPartition) {
		if l, err := wire.PartitionLocation(p); err == nil && l != nil {
			f(l)
			p.UnknownTags.Set(wire.TagRemoteLogSegment, wire.AppendLocation(nil, l))
		}
	})
}

// Without is the change by a peer that does not know one of our tags: it reads over it, and does not send it. It is undone in both directions.
func Without(tag uint32) Change {
	return Change{
		Request: func(r *kmsg.FetchRequest) {
			drop(&r.UnknownTags, tag)
			Requested(func(p *kmsg.FetchRequestTopicPartition) { drop(&p.UnknownTags, tag) })(r)
		},
		Response: Answered(func(p *kmsg.FetchResponseTopicPartition) { drop(&p.UnknownTags, tag) }),
	}
}

func drop(t *kmsg.Tags, tag uint32) {
	var kept kmsg.Tags
	t.Each(func(k uint32, v []byte) {
		if k != tag {
			kept.Set(k, v)
		}
	})
	*t = kept
}

// unknownTags are numbers that nobody has assigned, of one byte, of two and of five.
var unknownTags = []uint32{63, 900, 1 << 31}

func add(t *kmsg.Tags) {
	for _, k := range unknownTags {
		t.Set(k, []byte("of a later version"))
	}
	t.Set(unknownTags[0]+1, nil) // and an empty one
}

// Newer is the change by peers that know more than today's: fields that today's do not know at every level of both messages, and within the location.
func Newer() Change {
	return Change{
		Request: func(r *kmsg.FetchRequest) {
			add(&r.UnknownTags)
			for i := range r.Topics {
				add(&r.Topics[i].UnknownTags)
			}
			for i := range r.ForgottenTopics {
				add(&r.ForgottenTopics[i].UnknownTags)
			}
			Requested(func(p *kmsg.FetchRequestTopicPartition) { add(&p.UnknownTags) })(r)
		},
		Response: func(r *kmsg.FetchResponse) {
			add(&r.UnknownTags)
			for i := range r.Topics {
				add(&r.Topics[i].UnknownTags)
			}
			for i := range r.Brokers {
				add(&r.Brokers[i].UnknownTags)
			}
			Answered(func(p *kmsg.FetchResponseTopicPartition) {
				p.UnknownTags.Each(func(k uint32, v []byte) {
					if k == wire.TagRemoteLogSegment {
						p.UnknownTags.Set(k, grown(v))
					}
				})
				add(&p.UnknownTags)
				for i := range p.AbortedTransactions {
					add(&p.AbortedTransactions[i].UnknownTags)
				}
			})(r)
		},
	}
}

// grown is a location with fields of a later version: its own tag section, which comes last and is empty today, has two of them.
func grown(location []byte) []byte {
	out := append([]byte{}, location[:len(location)-1]...)
	return append(out, 2, 0, 3, 'n', 'e', 'w', 0x84, 0x07, 0)
}
