package gatewaytest

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/metadatatopic"
)

// path is one way by which a client in Go reads history past the brokers.
type path struct {
	name  string
	seeds []string
	opts  []kgo.Opt
	// read are the bytes of history that came past the brokers so far.
	read func(*testing.T) int64
}

// paths are the gateway for a plain client, the gateway for a client with the library, which it gives locations, and the library on the bare cluster.
func paths(t *testing.T, c *clustertest.Cluster, l clustertest.Login) []path {
	t.Helper()
	g := startGateway(t, c, clustertest.Login{Protocol: l.Protocol})
	through := clientdrivers.Dialer(t, rewind.Options{})
	bare := clientdrivers.Dialer(t, rewind.Options{Resolver: resolver(t, c)})
	login := c.KgoOptions(l) // without TLS, which the dialer would have to speak
	return []path{
		{"gateway", []string{g.addr}, login, func(t *testing.T) int64 {
			return int64(g.history(t))
		}},
		{"gateway-library", []string{g.addr}, append(login[:len(login):len(login)], kgo.Dialer(through.DialContext)), func(*testing.T) int64 { return through.Stats().DirectBytes }},
		{"library", c.Seeds(l.Protocol), append(login[:len(login):len(login)], kgo.Dialer(bare.DialContext)), func(*testing.T) int64 { return bare.Stats().DirectBytes }},
	}
}

// resolver is one with all rights, as the platform team would run it; the clients come with their own.
func resolver(t *testing.T, c *clustertest.Cluster) *metadatatopic.Resolver {
	t.Helper()
	store, err := file.Open(c.Store(), file.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	m, err := bucket.NewManager(bucket.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	r, err := metadatatopic.New(t.Context(), metadatatopic.Options{Seeds: c.Seeds(clustertest.Plaintext), Storage: m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// client of a path, for partitions from positions.
func (p path) client(t *testing.T, topic string, at []int64, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	positions := make(map[int32]kgo.Offset)
	for i, o := range at {
		positions[int32(i)] = kgo.NewOffset().At(o)
	}
	all := []kgo.Opt{kgo.SeedBrokers(p.seeds...), kgo.FetchMaxWait(200 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: positions}), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond })}
	k, err := kgo.NewClient(append(append(all, p.opts...), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}
