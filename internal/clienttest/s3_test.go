package clienttest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/storetest"
)

// A plain Java consumer and a kgo consumer with the one-line dialer read the same tiered topic from a real S3 server at the same time and agree. The broker
// has its credentials from its environment; the readers have none, for what they open are presigned URLs.
func TestJavaAndDialerTogether(t *testing.T) {
	j := lab.jvm.Get(t)
	s3 := storetest.S3(t)
	w := newWorld(t, s3.URL(t, "history"))
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if err := os.Unsetenv(name); err != nil { // the clean-up of storetest.S3 brings back what was there before
			t.Fatal(err)
		}
	}
	const partitions, segment = 3, 1 << 20
	topics := []topic{{"together", partitions}}
	w.create(t, topics, tiered("segment.bytes", segment))
	n := w.fill(t, "together", partitions, 5*segment)
	w.sink(t, topics, segment-1000)

	d := w.dialer(t)
	direct := w.client(t, append(fromStart(topics), kgo.Dialer(d.DialContext))...)
	path := filepath.Join(t.TempDir(), "read")
	var all []record
	var first, last time.Time // of direct's records
	var wg sync.WaitGroup
	wg.Go(func() {
		kgoRead(t, direct, n+partitions, func(k *kgo.Record) {
			if all = append(all, fromKgo(k)); len(all) == 1 {
				first = time.Now()
			}
			last = time.Now()
		})
	})
	began := time.Now()
	j.Do(t, "consume", w.addr, "read_uncommitted", strconv.Itoa(1<<20), path, "together")
	ended := time.Now()
	wg.Wait()
	java := readLines(t, path)
	if len(java) != n+partitions {
		t.Errorf("the Java client read %d of %d records", len(java), n+partitions)
	}
	equal(t, topics, newReading(java), newReading(all), nil)
	if first.After(ended) || last.Before(began) {
		t.Errorf("not at the same time: java from %v to %v, direct from %v to %v", began, ended, first, last)
	}
	s := d.Stats()
	if s.DirectBytes < partitions*4*segment || s.BrokerBytes > partitions*segment || s.Fallbacks > 0 || s.Ranges == 0 {
		t.Errorf("not all history was read directly: %+v", s)
	}
	// Nothing signed is in the broker's log.
	if log := string(w.logs.End()); strings.Contains(log, "X-Amz-Signature") || strings.Contains(log, storetest.SecretKey) {
		t.Errorf("a signature or a secret in the log: %s", log)
	}
}

// fill produces about so many bytes to each partition and says how many records that were.
func (w *world) fill(t *testing.T, topic string, partitions int32, bytes int) (n int) {
	t.Helper()
	c := w.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(100_000), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	r := rand.New(rand.NewPCG(7, 7))
	var records []*kgo.Record
	for size := 0; size < bytes; {
		v := value(r, 0, 256)
		size += len(v) / 2 // the other half is one word, which lz4 makes small
		for p := range partitions {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Key: v[len(v)-8:], Value: v, Timestamp: time.UnixMilli(firstTimestamp + int64(len(records)))})
		}
	}
	if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return len(records)
}
