package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	rewind "github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// past is what a gateway needs to read a cluster's history.
func past(t *testing.T, c *clustertest.Cluster, policy metadatatopic.Policy) *History {
	t.Helper()
	return pastOf(t, c, policy, func(m remotestorage.RemoteStorageManager) remotestorage.RemoteStorageManager { return m })
}

func pastOf(t *testing.T, c *clustertest.Cluster, policy metadatatopic.Policy, wrap func(remotestorage.RemoteStorageManager) remotestorage.RemoteStorageManager) *History {
	t.Helper()
	store, err := file.Open(c.Store(), file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	m, err := bucket.NewManager(bucket.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	r, err := metadatatopic.New(t.Context(), metadatatopic.Options{Seeds: c.Seeds(clustertest.Plaintext), Storage: wrap(Timed(m, NewStoreMetrics(nil))), Policy: policy, TxnIndexEmptyKnown: true, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	eventually(t, "the metadata topic to be read", r.Ready)
	budget := remote.NewBudget(64 << 20)
	cache := remote.NewCache(budget, 32<<20)
	t.Cleanup(cache.Close)
	return &History{Resolver: r, Offer: true, MaxFallbacks: 4, Read: remote.Options{Budget: budget, Cache: cache, ReadAhead: true, Hedge: true, Deadline: 20 * time.Second},
		Status: func() Status {
			s := r.Status()
			return Status{Ready: s.Unread == 0, Segments: s.Segments, Lag: s.Lag, Err: s.Err}
		}}
}

// storeBytes came past the brokers, out of the store or the cache of what was read from it.
func storeBytes(g *Gateway) float64 { return fetched(g, "store") + fetched(g, "cache") }

func fetched(g *Gateway, path string) float64 {
	return testutil.ToFloat64(g.metrics.fetchedBytes.WithLabelValues(path))
}

func TestKafkaHistory(t *testing.T) {
	c := startKafka(t, clustertest.Options{})
	topics := c.LoadAll(t, "history", 2, 100)
	c.LoadTransactions(t, "txn", 2)
	g := before(t, c, clustertest.Login{Protocol: clustertest.Plaintext}, func(o *Options) {
		o.History, o.Registerer = past(t, c, metadatatopic.NotLocal), prometheus.NewRegistry()
	})
	seeds := []string{g.Addr().String()}
	t.Run("plain", func(t *testing.T) {
		for _, topic := range append(topics, "txn") {
			for _, committed := range []bool{false, true} {
				want := c.Records(t, topic, committed)
				m, had := c.Meters(t, topic), storeBytes(g)
				if d := clustertest.Difference(want, c.Read(t, seeds, topic, committed, kgo.WithHooks(onlyGateway{t, g}))); d != "" {
					t.Errorf("%s, committed %t: %s", topic, committed, d)
				}
				// A transaction whose end is in the brokers' own log is theirs to judge.
				if after := c.Meters(t, topic).Since(m); after.RemoteBytes > 0 && !(topic == "txn" && committed) {
					t.Errorf("%s, committed %t: the broker has read %d bytes from the store", topic, committed, after.RemoteBytes)
				}
				if storeBytes(g) == had {
					t.Errorf("%s, committed %t: nothing came from the store", topic, committed)
				}
			}
		}
	})
	// Each topic was read twice.
	if cached := fetched(g, "cache"); cached < storeBytes(g)/4 {
		t.Errorf("%v bytes of %v came out of the cache", cached, storeBytes(g))
	}
	t.Run("kill switch", func(t *testing.T) {
		g.SetPolicy(Policy{Off: true})
		defer g.SetPolicy(Policy{})
		had := storeBytes(g)
		want := c.Records(t, topics[0], false)
		if d := clustertest.Difference(want, c.Read(t, seeds, topics[0], false)); d != "" {
			t.Error(d)
		}
		if storeBytes(g) != had {
			t.Error("something came from the store")
		}
	})
	t.Run("capable", func(t *testing.T) {
		d, err := rewind.NewDialer(rewind.Options{AllowedRoots: []string{c.Store()}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, topic := range []string{topics[1], "txn"} {
			want, had, located := c.Records(t, topic, true), storeBytes(g), testutil.ToFloat64(g.metrics.located)
			got := c.Read(t, seeds, topic, true, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
				return d.DialContext(ctx, network, addr)
			}))
			if diff := clustertest.Difference(want, got); diff != "" {
				t.Errorf("%s: %s", topic, diff)
			}
			if storeBytes(g) != had || testutil.ToFloat64(g.metrics.located) == located {
				t.Errorf("%s: the gateway read %v bytes itself, and gave %v locations", topic, storeBytes(g)-had, testutil.ToFloat64(g.metrics.located)-located)
			}
		}
	})
}

func TestKafkaHistoryForWhom(t *testing.T) {
	c := startKafka(t, clustertest.Options{Secure: true, ACLs: true})
	c.Load(t, "past", 1, "lz4", 200)
	login := clustertest.Login{Protocol: clustertest.SASL, Mechanism: clustertest.ScramSHA256, User: clustertest.Admin}
	g := before(t, c, login, func(o *Options) {
		o.History, o.Registerer = past(t, c, metadatatopic.NotLocal), prometheus.NewRegistry()
	})
	want := c.Records(t, "past", false)
	// read gives what a user sees, and how many bytes of it came from the store.
	read := func(t *testing.T, l clustertest.Login, opts ...kgo.Opt) float64 {
		t.Helper()
		had := storeBytes(g)
		if d := clustertest.Difference(want, c.Read(t, []string{g.Addr().String()}, "past", false, append(c.KgoOptions(l), opts...)...)); d != "" {
			t.Error(d)
		}
		return storeBytes(g) - had
	}
	t.Run("by principal", func(t *testing.T) {
		defer g.SetPolicy(Policy{})
		for _, m := range clustertest.Mechanisms {
			l := clustertest.Login{Protocol: clustertest.SASL, Mechanism: m, User: clustertest.Admin}
			g.SetPolicy(Policy{Principals: []string{"User:" + clustertest.Admin}})
			if read(t, l) == 0 {
				t.Errorf("%s: nothing from the store for who is named", m)
			}
			g.SetPolicy(Policy{Principals: []string{"User:somebody", "User:else*"}})
			if read(t, l) > 0 {
				t.Errorf("%s: something from the store for who is not named", m)
			}
		}
	})
	t.Run("by client id and topic", func(t *testing.T) {
		defer g.SetPolicy(Policy{})
		g.SetPolicy(Policy{ClientIDs: []string{"back*"}, Topics: []string{"p*"}})
		if read(t, login, kgo.ClientID("backfill-7")) == 0 || read(t, login, kgo.ClientID("other")) > 0 {
			t.Error("not by client id")
		}
		g.SetPolicy(Policy{TopicsExcluded: []string{"past"}})
		if read(t, login) > 0 {
			t.Error("something from the store of a topic that is left out")
		}
	})
	t.Run("not allowed", func(t *testing.T) {
		k := through(t, c, g, clustertest.Login{Protocol: clustertest.SASL, Mechanism: clustertest.Plain, User: clustertest.Alice},
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"past": {0: kgo.NewOffset().At(0)}}))
		had := storeBytes(g)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		f := k.PollFetches(ctx)
		if err := f.Err(); !errors.Is(err, kerr.TopicAuthorizationFailed) || f.NumRecords() > 0 {
			t.Errorf("%d records, %v", f.NumRecords(), err)
		}
		if storeBytes(g) != had {
			t.Error("records of the store went to who may not read them")
		}
	})
	t.Run("shadow", func(t *testing.T) {
		defer g.SetPolicy(Policy{})
		g.SetPolicy(Policy{ShadowPerMillion: 1_000_000})
		count := func(result string) float64 { return testutil.ToFloat64(g.metrics.shadowed.WithLabelValues(result)) }
		// A client that goes takes the comparison under way with it.
		eventually(t, "a comparison", func() bool {
			if read(t, login) == 0 {
				t.Fatal("nothing from the store")
			}
			return count("same") > 0
		})
		if count("different") > 0 || count("not-compared") > 0 {
			t.Errorf("%v differ, %v were not compared", count("different"), count("not-compared"))
		}
	})
	t.Run("bytes a second", func(t *testing.T) {
		defer g.SetPolicy(Policy{})
		g.SetPolicy(Policy{BytesPerSecond: 10_000})
		began := time.Now()
		n := read(t, login)
		// The first second's worth is free; the last answer's throttling may still be to come when all is read.
		if took := time.Since(began); n < 20_000 || took < time.Second || testutil.ToFloat64(g.metrics.limits.WithLabelValues("principal-bytes")) == 0 {
			t.Errorf("%v bytes in %v at 10000 a second", n, took)
		}
	})
	t.Run("connections", func(t *testing.T) {
		defer g.SetPolicy(Policy{})
		g.SetPolicy(Policy{Connections: 1})
		eventually(t, "the last reader to go", func() bool { return g.principals.begin("User:"+clustertest.Admin, 1) })
		defer g.principals.end("User:" + clustertest.Admin)
		read(t, login)
		if testutil.ToFloat64(g.metrics.limits.WithLabelValues("principal-connections")) == 0 {
			t.Error("the limit was not met")
		}
	})
}

// moody is a store that fails when it is told to.
type moody struct {
	remotestorage.RemoteStorageManager
	down *atomic.Bool
}

var errDown = errors.New("the store is down")

func (m moody) FetchLogSegment(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	if m.down.Load() {
		return nil, errDown
	}
	return m.RemoteStorageManager.FetchLogSegment(ctx, md, start, end)
}

// When the store is down the brokers serve, a few partitions at a time, and everything comes all the same.
func TestKafkaStoreDown(t *testing.T) {
	c := startKafka(t, clustertest.Options{})
	c.Load(t, "past", 6, "none", 60)
	var down atomic.Bool
	g := before(t, c, clustertest.Login{Protocol: clustertest.Plaintext}, func(o *Options) {
		o.History = pastOf(t, c, metadatatopic.NotLocal, func(m remotestorage.RemoteStorageManager) remotestorage.RemoteStorageManager { return moody{m, &down} })
		o.History.MaxFallbacks, o.History.Read.Deadline, o.History.Read.Cache, o.Registerer = 2, 200*time.Millisecond, nil, prometheus.NewRegistry()
	})
	want, seeds := c.Records(t, "past", false), []string{g.Addr().String()}
	down.Store(true)
	m := c.Meters(t, "past")
	if d := clustertest.Difference(want, c.Read(t, seeds, "past", false)); d != "" {
		t.Error(d)
	}
	if storeBytes(g) > 0 || testutil.CollectAndCount(g.metrics.fallbacks) == 0 {
		t.Errorf("%v bytes came from a store that is down; fall backs: %d reasons", storeBytes(g), testutil.CollectAndCount(g.metrics.fallbacks))
	}
	if after := c.Meters(t, "past").Since(m); after.RemoteBytes == 0 {
		t.Error("the broker has read nothing from the store")
	}
	down.Store(false)
	// What has fallen back stays so for some ten seconds; a partition that has not is read from the store at once.
	eventually(t, "the store to be used again", func() bool {
		if d := clustertest.Difference(want, c.Read(t, seeds, "past", false)); d != "" {
			t.Error(d)
			return true
		}
		return storeBytes(g) > 0
	})
}
