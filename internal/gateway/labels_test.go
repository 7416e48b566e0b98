package gateway

import (
	"crypto/tls"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// Whatever names clients give in their handshakes, and whatever keys, versions and client ids in their requests: there are no more metrics for it than brokers and APIs.
func TestClientsMakeNoLabels(t *testing.T) {
	authority := clustertest.NewAuthority(t, t.TempDir())
	cert, _, _, _ := authority.Issue(t, "gateway", "gw.example", "*.gw.example")
	broker := oneBroker(t, nil, 7)
	reg := prometheus.NewRegistry()
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, SNIDomain: "gw.example", AdvertisedHost: "gw.example", Registerer: reg})
	series := func() int {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	visit := func(name string) {
		t.Helper()
		config := authority.ClientConfig()
		config.ServerName = name
		nc, err := tls.Dial("tcp", g.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		exchangeOn(t, nc, kmsg.NewPtrOffsetFetchRequest())
		req := kmsg.NewPtrFetchRequest()
		req.Version = 12
		exchangeOn(t, nc, req)
	}
	for _, name := range []string{"gw.example", "broker-7.gw.example"} {
		visit(name)
	}
	before := series()
	for id := range 30 {
		visit(fmt.Sprintf("broker-%d.gw.example", 1000+id))
	}
	if now := series(); now != before {
		t.Errorf("%d series before clients gave names of their own, %d after", before, now)
	}
	eventually(t, "no connection to be counted", func() bool {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "rewind_gateway_connections" && m.GetGauge().GetValue() != 0 {
					return false
				}
			}
		}
		return true
	})
}
