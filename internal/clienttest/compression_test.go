package clienttest

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// targets are the values of compression.type in the order of their codecs' numbers.
var targets = []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"}

// TestTopicsHaveCodecs: topics that keep what comes in a codec of their own. Producers of three libraries send every other codec, and every client reads back what
// they sent, from the store.
func TestTopicsHaveCodecs(t *testing.T) {
	lab.jvm.Get(t) // a peer that is missing is better known early
	w := newWorld(t, "")
	start := time.Now()
	var jobs []job
	var topics []topic
	for i, p := range producers {
		if !slices.Contains([]string{"kgo", "java", "kcat"}, p.name) {
			continue
		}
		t.Run("produce/"+p.name, func(t *testing.T) {
			for to, target := range targets {
				var mine []job
				for from, codec := range codecs {
					if from == to || p.name != "kgo" && from != (to+1+i%4)%len(codecs) {
						continue
					}
					j := job{topic: topic{p.name + "-" + codec + "-" + target, p.partitions}, codec: codec, records: p.generate(uint64(i*100+to*10+from), p.partitions, perPartition)}
					for n := range j.records {
						j.records[n].topic = j.name
					}
					configs := tiered("internal.segment.bytes", segmentBytes)
					configs["compression.type"] = &target
					w.create(t, []topic{j.topic}, configs)
					mine, topics = append(mine, j), append(topics, j.topic)
				}
				p.produce(t, w, mine)
				jobs = append(jobs, mine...)
			}
		})
	}
	if t.Failed() {
		t.FailNow()
	}
	w.sink(t, topics, segmentBytes-200)
	want := w.recompressed(t, jobs, topics, start)
	if t.Failed() {
		t.FailNow()
	}
	for _, c := range consumers {
		if c.suits != nil {
			continue
		}
		t.Run("consume/"+c.name, func(t *testing.T) {
			equal(t, topics, want, c.consume(t, w, topics, want), c.sees)
		})
	}
}

// recompressed reads everything once, all of it in its topic's codec, and checks it against what was sent.
func (w *world) recompressed(t *testing.T, jobs []job, topics []topic, start time.Time) reading {
	t.Helper()
	n := 0
	for _, tp := range topics {
		n += int(tp.partitions) // the last record of each
	}
	for _, j := range jobs {
		n += len(j.records)
	}
	var all []record
	used := make(map[string]map[uint8]bool)
	kgoRead(t, w.client(t, fromStart(topics)...), n, func(k *kgo.Record) {
		all = append(all, fromKgo(k))
		if used[k.Topic] == nil {
			used[k.Topic] = make(map[uint8]bool)
		}
		used[k.Topic][k.Attrs.CompressionType()] = true
		if k.ProducerID < 0 {
			t.Errorf("%s: offset %d has lost its producer", k.Topic, k.Offset)
		}
	})
	got := newReading(all)
	for _, j := range jobs {
		target := uint8(slices.IndexFunc(targets, func(name string) bool { return strings.HasSuffix(j.name, "-"+name) }))
		if !maps.Equal(used[j.name], map[uint8]bool{target: true}) {
			t.Errorf("%s: codecs %v", j.name, used[j.name])
		}
		var keeps func(record) record
		if strings.HasPrefix(j.name, "kcat-") {
			keeps = noTimestamp
			checkTimestamps(t, got[j.name], start)
		}
		equal(t, []topic{j.topic}, newReading(j.records), got.withoutLast(j.topic), keeps)
	}
	return got
}
