package gatewaytest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// address leads to a cluster: its own, or a gateway's, for a way to come in.
type address func(clustertest.Login) (addr, caFile string)

// straight is the cluster itself.
func straight(c *clustertest.Cluster) address {
	return func(l clustertest.Login) (string, string) {
		return c.Bootstrap(l.Protocol), c.Authority().CertFile
	}
}

// logins of the matrix. MutualTLS is not among them: no gateway can pass it on.
func logins() []clustertest.Login {
	all := slices.DeleteFunc(clustertest.Logins(), func(l clustertest.Login) bool { return l.Protocol == clustertest.MutualTLS })
	if full {
		return all
	}
	return []clustertest.Login{{Protocol: clustertest.Plaintext}, {Protocol: clustertest.SASLTLS, Mechanism: clustertest.ScramSHA512}, {Protocol: clustertest.SASLTLS, Mechanism: clustertest.OAuthBearer}}
}

const history = "history" // a topic of one partition, in the store but for its end

func secureCluster(t *testing.T) *clustertest.Cluster {
	t.Helper()
	c := clustertest.Start(t, clustertest.Options{Secure: true, IDs: []int32{7}})
	c.CreateTiered(t, history, 1, nil)
	c.ProduceText(t, history, "gzip", 60)
	c.Sink(t, history)
	return c
}

// asDrivers is what clients must see.
func asDrivers(records []*kgo.Record) (all []clientdrivers.Record) {
	for _, r := range records {
		all = append(all, clientdrivers.NewRecord(r.Offset, r.Key, r.Value))
	}
	return all
}

func differ(want, got []clientdrivers.Record) string {
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			return fmt.Sprintf("record %d is %.200v instead of %.200v", i, got[i], want[i])
		}
	}
	if len(want) != len(got) {
		return fmt.Sprintf("%d records instead of %d", len(got), len(want))
	}
	return ""
}

// clients runs every client in every way to come in: each must read the history in two sessions of one group, and write what then is in the cluster.
func clients(t *testing.T, c *clustertest.Cluster, to address, records [][]*kgo.Record) {
	want := asDrivers(records[0])
	for _, d := range clientdrivers.Drivers(lab.jvm.Get) {
		for _, l := range logins() {
			s := clientdrivers.Session{Login: l, Read: history, First: 23, N: len(want), Committed: true}
			if !d.Can(s) {
				continue
			}
			t.Run(d.Name+"/"+l.String(), func(t *testing.T) {
				s.Addr, s.CAFile = to(l)
				s.Produce = "written-" + strings.ReplaceAll(t.Name(), "/", "-")
				s.Group = s.Produce
				for i := range 20 {
					s.Values = append(s.Values, fmt.Sprintf("%s %d", t.Name(), i))
				}
				c.CreateTiered(t, s.Produce, 1, nil)
				r := d.Run(t, s)
				if len(r.First) != s.First {
					t.Errorf("%d records before it went away, instead of %d", len(r.First), s.First)
				}
				if d := differ(want, r.All()); d != "" {
					t.Error(d)
				}
				wrote(t, c, s)
				if at := c.Committed(t, s.Group, history, 0); at != want[len(want)-1].Offset+1 {
					t.Errorf("%d is committed, after record %d", at, want[len(want)-1].Offset)
				}
			})
		}
	}
}

// wrote checks that the cluster has what a session was to write, once and in order.
func wrote(t *testing.T, c *clustertest.Cluster, s clientdrivers.Session) {
	t.Helper()
	var got []string
	for _, r := range c.Records(t, s.Produce, true)[0] {
		got = append(got, string(r.Key)+" "+string(r.Value))
	}
	var want []string
	for i, v := range s.Values {
		want = append(want, fmt.Sprintf("k%d %s", i, v))
	}
	if !slices.Equal(want, got) {
		t.Errorf("it wrote %.300q instead of %.300q", got, want)
	}
}

// The clients straight on the cluster: what they cannot do there, no gateway need give them.
func TestClientsStraight(t *testing.T) {
	if !full {
		t.Skip("make test-gateway-clients has it")
	}
	lab.jvm.Get(t)
	c := secureCluster(t)
	clients(t, c, straight(c), c.Records(t, history, true))
}

// The clients through a gateway for each of the cluster's listeners, which has TLS where the listener has it. What they read comes out of the store, not from the broker.
func TestClientsThroughGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	lab.jvm.Get(t)
	c := secureCluster(t)
	gateways := make(map[clustertest.Protocol]*gateway)
	for _, p := range []clustertest.Protocol{clustertest.Plaintext, clustertest.TLS, clustertest.SASL, clustertest.SASLTLS} {
		if slices.ContainsFunc(logins(), func(l clustertest.Login) bool { return l.Protocol == p }) {
			gateways[p] = startGateway(t, c, clustertest.Login{Protocol: p})
		}
	}
	watchAddresses(t, c, slices.Collect(maps.Values(gateways))...)
	want := c.Records(t, history, true) // the last time that the broker reads remotely
	before := c.Meters(t, history)
	clients(t, c, func(l clustertest.Login) (string, string) {
		return gateways[l.Protocol].addr, c.Authority().CertFile
	}, want)
	if m := c.Meters(t, history).Since(before); m.RemoteBytes > 0 || m.RemoteFetches > 0 {
		t.Errorf("the broker has read history from the store: %+v", m)
	}
	for p, g := range gateways {
		g.check(t)
		if n := g.history(t); n < 40_000 {
			t.Errorf("the gateway for %s gave %.0f bytes out of the store", p, n)
		}
	}
}
