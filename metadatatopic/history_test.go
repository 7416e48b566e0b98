package metadatatopic_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestHistory: the segments are listed that Resolve leads through, be they of a lineage with elections or cut by the log start.
func TestHistory(t *testing.T) {
	for _, s := range golden.KafkaSets(t) {
		t.Run(strings.TrimPrefix(s.Name, "kafka/"), func(t *testing.T) {
			c, partitions := recorded(t, s)
			r := open(t, c, metadatatopic.Options{Storage: golden.Store{Dir: s.ObjectsDir()}, Policy: metadatatopic.Tiered, TxnIndexEmptyKnown: true})
			ready(t, r)
			for _, p := range partitions {
				segments, err := r.History(t.Context(), p.TopicIDPartition)
				if err != nil {
					t.Fatal(err)
				}
				last := int64(-1)
				holder := make(map[int64]remotestorage.UUID)
				for _, m := range segments {
					if m.First <= last || m.First < p.LogStartOffset || m.Last < m.First {
						t.Errorf("%s: segment with offsets %d to %d after offset %d", p, m.First, m.Last, last)
					}
					for last = m.First; last < m.Last; last++ {
						holder[last] = m.ID
					}
					holder[last] = m.ID
				}
				for offset := p.LogStartOffset; offset < p.HighWatermark; offset++ {
					rng, err := r.Resolve(t.Context(), question(p.TopicIDPartition, offset, false))
					if id, ok := holder[offset]; err == nil && (!ok || id != rng.ID.ID) || err != nil && ok {
						t.Fatalf("%s offset %d: Resolve gives %v, %v; History has %v", p, offset, rng.ID, err, fmt.Sprint(id, ok))
					}
				}
			}
		})
	}
}

// TestHistoryOfNothing: a topic that was never tiered has none.
func TestHistoryOfNothing(t *testing.T) {
	c := newCluster(t, 3)
	topic := c.create("plain", 1)
	r := open(t, c, metadatatopic.Options{})
	ready(t, r)
	if segments, err := r.History(t.Context(), remotestorage.TopicIDPartition{TopicID: topic.id, Topic: "plain"}); err != nil || len(segments) != 0 {
		t.Errorf("%v, %v", segments, err)
	}
}
