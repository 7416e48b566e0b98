package clienttest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker is killed while an idempotent producer writes, and comes back on the same files: the client's retries leave each record there once, in order.
func TestIdempotentProducersOutliveACrash(t *testing.T) {
	lab.jvm.Get(t)
	for _, p := range producers {
		switch p.name {
		case "kgo", "java", "kcat", "confluent":
		default:
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			w := newLastingWorld(t)
			const n = 4000
			j := job{topic: topic{"crash-" + p.name, 1}, codec: "lz4", records: p.generate(5, 1, n)}
			for i := range j.records {
				j.records[i].topic = j.name
			}
			w.create(t, []topic{j.topic}, tiered("internal.segment.bytes", 100_000))
			crashed := make(chan error, 1)
			go func() {
				at, err := w.crashAt(j.name, n/8)
				if err == nil && at >= n {
					err = fmt.Errorf("the crash came after the last record")
				}
				crashed <- err
			}()
			p.produce(t, w, []job{j})
			if err := <-crashed; err != nil {
				t.Fatal(err)
			}
			var all []record
			kgoRead(t, w.client(t, fromStart([]topic{j.topic})...), n, func(k *kgo.Record) { all = append(all, fromKgo(k)) })
			equal(t, []topic{j.topic}, newReading(j.records), newReading(all), p.keeps)
			if end := w.offsets(t, []topic{j.topic}, latest)[j.name][0]; end != n {
				t.Errorf("the log ends at %d, not at %d", end, n)
			}
		})
	}
}

// crashAt is crash once a topic has so many records. It says how many there were.
func (w *world) crashAt(topic string, records int64) (at int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	adm := kadm.NewClient(w.admin)
	for at < records {
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err != nil {
			return 0, err
		}
		if o, ok := ends.Lookup(topic, 0); ok {
			at = o.Offset
		}
	}
	return at, w.crash()
}
