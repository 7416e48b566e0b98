package gateway

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/metadatatopic"
)

// authentications counts a client's connections, and the steps of authentications on them.
type authentications struct{ connections, cut, steps atomic.Int64 }

func (a *authentications) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		a.connections.Add(1)
	}
}

func (a *authentications) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { a.cut.Add(1) }

func (a *authentications) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	if key == keySaslAuthenticate && e.Err() == nil {
		a.steps.Add(1)
	}
}

// A cluster that has its clients authenticate again every few seconds (KIP-368): they do so through the gateway in the middle of a backfill, without losing their connections, and get what
// the brokers have. A client that takes its time between two fetches is not behind with it because of what the gateway asks on its connection.
func TestKafkaReauthentication(t *testing.T) {
	c := startKafka(t, clustertest.Options{Secure: true, ACLs: true, Config: map[string]string{"connections.max.reauth.ms": "2000"}})
	c.Load(t, "past", 1, "none", 300)
	want := c.Records(t, "past", false)
	total := 0
	for _, p := range want {
		total += len(p)
	}
	const long = 8 * time.Second // of a backfill
	for name, how := range map[string]struct {
		mechanism clustertest.Mechanism
		pause     time.Duration
	}{"steadily": {clustertest.ScramSHA256, 200 * time.Millisecond}, "with rests": {clustertest.Plain, 3 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			mechanism, pause := how.mechanism, how.pause
			login := clustertest.Login{Protocol: clustertest.SASL, Mechanism: mechanism, User: clustertest.Admin}
			g := before(t, c, login, func(o *Options) {
				o.History, o.Registerer = past(t, c, metadatatopic.NotLocal), prometheus.NewRegistry()
			})
			var count authentications
			k := through(t, c, g, login, kgo.WithHooks(&count), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"past": {0: kgo.NewOffset().At(0)}}),
				kgo.FetchMaxPartitionBytes(16<<10), kgo.FetchMaxBytes(16<<10), kgo.MetadataMinAge(time.Second))
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			var got []*kgo.Record
			for began, each := time.Now(), max(total*int(pause)/int(long), 1); len(got) < total; {
				f := k.PollRecords(ctx, each)
				if err := f.Err(); err != nil {
					t.Fatalf("after %d records and %v: %v", len(got), time.Since(began), err)
				}
				got = append(got, f.Records()...)
				if time.Since(began) < long {
					time.Sleep(pause)
				}
			}
			if d := clustertest.Difference(want, [][]*kgo.Record{got}); d != "" {
				t.Error(d)
			}
			steps := int64(1) // of one authentication
			if mechanism != clustertest.Plain {
				steps = 2
			}
			t.Logf("%d connections, %d of them ended, %d steps; %v bytes from the store", count.connections.Load(), count.cut.Load(), count.steps.Load(), storeBytes(g))
			if count.steps.Load() < (count.connections.Load()+1)*steps {
				t.Error("no client has authenticated again")
			}
			if count.cut.Load() > 0 {
				t.Error("connections were ended")
			}
			if storeBytes(g) == 0 {
				t.Error("nothing came from the store")
			}
		})
	}
}
