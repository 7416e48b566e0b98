package history

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A partition with nothing new does not hold up one that has, nor is anything fetched from the broker twice.
func TestIdleBesideBusy(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("live", 2)
	busy := topic.parts[0]
	end := int64(0)
	for range 200 {
		b.append(busy, batchOf(0, end, 10, 1000))
		end += 10
	}
	size := 0
	for _, l := range busy.local {
		size += len(l.raw)
	}
	d := newDialer(t, dialOptions{})
	client := newClient(t, b, d, kgo.ConsumeTopics("live"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(50_000), kgo.FetchMaxWait(5*time.Second))
	start := time.Now()
	newConsumed(t, 1000).until(client, map[int32]int64{0: end})
	t.Logf("%v, %d fetches, %d of %d bytes", time.Since(start), b.now(&b.fetches), b.now(&b.served), size)
	if n := b.now(&b.served); n > size+size/10 {
		t.Errorf("%d bytes served for %d", n, size)
	}
}
