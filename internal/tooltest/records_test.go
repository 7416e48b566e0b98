package tooltest

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/coord/consumer"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/share"
	"github.com/rewind-kafka/rewind/internal/coord/sharestate"
	"github.com/rewind-kafka/rewind/internal/coord/streams"
)

// parsers of the coordinators' topics: one of them must know each record.
var parsers = map[string]map[string]func(key, value []byte) error{
	"__consumer_offsets": {
		"group":    func(k, v []byte) error { _, err := group.ParseRecord(k, v); return err },
		"consumer": func(k, v []byte) error { _, _, err := consumer.Parse(k, v); return err },
		"share":    func(k, v []byte) error { _, _, err := share.Parse(k, v); return err },
		"streams":  func(k, v []byte) error { _, _, err := streams.Parse(k, v); return err },
	},
	"__share_group_state": {
		"state": func(k, v []byte) error { _, err := sharestate.ParseRecord(k, v); return err },
	},
}

// readRecords: what an Apache Kafka has written of groups of every kind is read by the packages that write it here.
func readRecords(t *testing.T, kafka *side) {
	for topic, of := range parsers {
		c := kafka.client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
		left := unread(t, kadm.NewClient(c), topic)
		kinds := map[uint16]int{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for len(left) > 0 {
			f := c.PollFetches(ctx)
			if err := f.Err(); err != nil {
				t.Fatalf("%s: the partitions %v have more: %v", topic, left, err)
			}
			f.EachRecord(func(r *kgo.Record) {
				if r.Offset+1 >= left[r.Partition] {
					delete(left, r.Partition)
				}
				if r.Attrs.IsControl() {
					return // a marker behind offsets that a transaction has committed
				}
				kinds[binary.BigEndian.Uint16(r.Key)]++
				known := ""
				var errs []error
				for name, parse := range of {
					if err := parse(r.Key, r.Value); err == nil {
						known = name
					} else {
						errs = append(errs, err)
					}
				}
				if known == "" {
					t.Errorf("%s: nobody can read key %x, value %x: %v", topic, r.Key, r.Value, errs)
				}
			})
		}
		cancel()
		t.Logf("%s: records of each kind of key: %v", topic, kinds)
		if topic == "__consumer_offsets" {
			for _, kind := range []uint16{1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 17, 19, 20, 21, 22, 23} {
				if kinds[kind] == 0 {
					t.Errorf("there is no record of the kind %d", kind)
				}
			}
		}
	}
}

// unread are the ends of the partitions that have records. They need not begin with offset 0: an Apache Kafka deletes states that were written anew.
func unread(t *testing.T, c *kadm.Client, topic string) map[int32]int64 {
	t.Helper()
	ends, err := c.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	starts, err := c.ListStartOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if start, ok := starts.Lookup(topic, o.Partition); ok && start.Offset < o.Offset {
			left[o.Partition] = o.Offset
		}
	})
	return left
}
