package history

import (
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/batch"
)

// A broker cuts its answer anywhere. What is kept of it for a later fetch, since there was no room, is never given where it holds no whole batch: the Java consumer takes that for
// the end of all progress, and throws.
func TestNoAnswerIsAPieceOfABatch(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("live", 1).parts[0]
	const batches, records = 12, 30
	size := 0
	for i := range batches {
		raw := batchOf(0, int64(i*records), records, 1000)
		size = len(raw)
		b.append(p, raw)
	}
	for _, limit := range []int{2*size + 1, 2*size + batch.LogOverhead, 2*size + size/2, 3*size - 1, 3 * size, 3*size + 1, 4*size + size/2} {
		// Two batches are what an answer has room for.
		d := newDialer(t, dialOptions{DisableRemoteFetch: true, Change: func(o *Options) { o.AnswerBytes = 1 }})
		c := dialRaw(t, d, b)
		next := int64(0)
		for deadline := time.Now().Add(time.Minute); next < batches*records; {
			req := fetchOf(17, 10*time.Second, at(p, next))
			req.Topics[0].Partitions[0].PartitionMaxBytes = int32(limit)
			_, got, _ := c.ask(req)
			r := *got
			n := nextOf(t, r)
			if len(r.RecordBatches) > 0 && n <= next {
				t.Fatalf("limit %d, at %d: %d bytes without a whole batch", limit, next, len(r.RecordBatches))
			}
			if next = max(next, n); r.ErrorCode != 0 || time.Now().After(deadline) {
				t.Fatalf("limit %d, at %d: %s", limit, next, brief(t, r))
			}
		}
	}
}
