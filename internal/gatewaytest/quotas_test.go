package gatewaytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// The brokers' quotas hold on every path for what passes through the brokers, by the client's own client id, and its client is told of the throttle times.
func TestQuotas(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a real Apache Kafka")
	}
	// The brokers count over a window of so many seconds, whose worth comes at once.
	c := clustertest.Start(t, clustertest.Options{Config: map[string]string{"quota.window.num": "2"}})
	c.Load(t, "past", 1, "lz4", 60) // the metadata topic comes with it
	c.CreateTiered(t, "live", 1, map[string]string{"remote.storage.enable": "false", "local.retention.bytes": ""})
	c.Produce(t, "live", "none", 190)
	want := c.Records(t, "live", false)
	ps := paths(t, c, clustertest.Login{Protocol: clustertest.Plaintext})
	limit := func(id, quota string) {
		t.Helper()
		q := kadm.ClientQuotaEntity{{Type: "client-id", Name: &id}}
		err := clustertest.Retried(t.Context(), func(ctx context.Context) error {
			resp, err := c.Admin().AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: q, Ops: []kadm.AlterClientQuotaOp{{Key: quota, Value: 10_000}}}})
			for _, one := range resp {
				err = errors.Join(err, one.Err)
			}
			return err
		})
		if err != nil {
			t.Fatalf("setting a quota: %v", err)
		}
	}
	for _, p := range ps {
		limit("reads-"+p.name, "consumer_byte_rate")
		limit("writes-"+p.name, "producer_byte_rate")
	}
	var wg sync.WaitGroup
	for _, p := range ps {
		wg.Go(func() {
			var told throttled
			opts := append(p.opts[:len(p.opts):len(p.opts)], kgo.ClientID("reads-"+p.name), kgo.WithHooks(&told), kgo.FetchMaxPartitionBytes(8000))
			if d := clustertest.Difference(want, c.Read(t, p.seeds, "live", false, opts...)); d != "" {
				t.Errorf("%s: %s", p.name, d)
			}
			if told.longest.Load() == 0 {
				t.Errorf("%s: the consumer was told of no throttle time", p.name)
			}
		})
		wg.Go(func() {
			var told throttled
			k := p.client(t, "live", nil, kgo.ClientID("writes-"+p.name), kgo.WithHooks(&told), kgo.DefaultProduceTopic("past"), kgo.ProducerBatchMaxBytes(8000), kgo.ProducerBatchCompression(kgo.NoCompression()))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			for i := 0; told.longest.Load() == 0; i++ {
				if err := k.ProduceSync(ctx, kgo.SliceRecord(make([]byte, 6000))).FirstErr(); err != nil {
					t.Error(fmt.Errorf("%s: record %d, with no throttle time yet: %w", p.name, i, err))
					return
				}
			}
		})
	}
	wg.Wait()
}

// throttled is told of throttle times.
type throttled struct{ longest atomic.Int64 }

func (h *throttled) OnBrokerThrottle(_ kgo.BrokerMetadata, d time.Duration, _ bool) {
	h.longest.Store(max(h.longest.Load(), int64(d)))
}
