package broker

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// indexHook calls a function before an index is read from the store.
type indexHook struct {
	remotestorage.RemoteStorageManager
	hook atomic.Pointer[func()]
}

func (h *indexHook) FetchIndex(ctx context.Context, m remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) (io.ReadCloser, error) {
	if fn := h.hook.Swap(nil); fn != nil {
		(*fn)()
	}
	return h.RemoteStorageManager.FetchIndex(ctx, m, t)
}

// TestMaxTimestampWhileSegmentsMove: the record with the largest timestamp is found although its segment leaves the local log for the remote tier between the looks at the two.
func TestMaxTimestampWhileSegmentsMove(t *testing.T) {
	rsm, _ := directoryStore(t)
	h := &indexHook{RemoteStorageManager: rsm}
	b := startBroker(t, t.TempDir(), withRSM(h), tieredKeys())
	b.tieredTopic(t, "t", 1)
	b.produceTiered(t, "t", 1, 200)
	b.alterTopic(t, "t", "local.retention.bytes", "1000000", "remote.copy.lag.ms", "-1", "remote.copy.lag.bytes", "1000000")
	cl := b.client(t, kgo.ProducerBatchMaxBytes(5000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	produce := func(n int, at int64) {
		for range n {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: make([]byte, 3000), Timestamp: time.UnixMilli(at)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	const latest = 1_700_000_100_000
	produce(8, 1_700_000_000_000) // into the next segment
	produce(1, latest)
	produce(14, 1_700_000_000_000) // and out of it
	p := b.partition("t", 0)
	move := func() {
		b.alterTopic(t, "t", "local.retention.bytes", "1", "remote.copy.lag.ms", "0", "remote.copy.lag.bytes", "0")
		await(t, "the local segments to leave", func() bool { return p.log.Stats().Segments == 1 })
	}
	if n := p.log.Stats().Segments; n < 3 {
		t.Fatalf("%d segments are local", n)
	}
	h.hook.Store(&move)
	found, err := b.maxTimestamp(t.Context(), p)
	if err != nil || found.Timestamp != latest {
		t.Errorf("largest timestamp %+v, %v, want %d", found, err, latest)
	}
	if h.hook.Load() != nil {
		t.Error("no index was read")
	}
}

// TestOffsetsBesideAppends: a record that is there is found by its time, and the latest one by the largest, also while more are appended: those that come between the look at
// the log's bounds and the one at its records are no reason to answer that there is nothing.
func TestOffsetsBesideAppends(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 1)
	p := b.partition("t", 0)
	const begin = 1_700_000_000_000
	add := func(n int) {
		if _, err := p.log.Append(batch.AppendSimple(nil, begin+int64(n), []byte("k"), []byte("v")), partlog.Client); err != nil {
			t.Fatal(err)
		}
	}
	add(0)
	var done atomic.Bool
	missed := make(chan int)
	for _, committed := range []bool{false, true} {
		go func() {
			n := 0
			for !done.Load() {
				for _, ts := range []int64{offsetMaxTimestamp, begin + p.log.Offsets().LogEnd - 1} {
					if found, err := b.offsetFor(t.Context(), p, ts, committed); err != nil || found.Offset < 0 {
						n++
					}
				}
			}
			missed <- n
		}()
	}
	for n := range 20_000 {
		add(n + 1)
	}
	done.Store(true)
	if n := <-missed + <-missed; n > 0 {
		t.Errorf("%d times there was nothing", n)
	}
}
