package gateway

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/httpfetcher"
	"github.com/rewind-kafka/rewind/internal/history"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// followed is what a sidecar reads history with.
func followed(t *testing.T) *History {
	t.Helper()
	http, err := httpfetcher.New(httpfetcher.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = http.Close() })
	return &History{Locations: &history.Locations{Formats: []string{remotestorage.StorageFormatApacheKafkaV1}, HTTP: http}, Read: remote.Options{Budget: remote.NewBudget(1 << 20)}}
}

// givingBroker is a broker that says that it answers with locations, to whoever asks as a gateway.
func givingBroker(t *testing.T) *fakeBroker {
	return startFake(t, nil, func(h wire.RequestHeader) kmsg.Response {
		resp := kmsg.ResponseForKey(h.Key)
		resp.SetVersion(h.Version)
		if v, ok := resp.(*kmsg.ApiVersionsResponse); ok {
			wire.SetGivesLocations(&v.UnknownTags)
		}
		return resp
	})
}

// A sidecar whose upstream gives no locations would be silent for ever: nothing fails, and nothing is read from the store.
func TestSidecarWithoutLocations(t *testing.T) {
	plain, giving := oneBroker(t, nil, 1), givingBroker(t)
	resolving := startGateway(t, Options{Upstream: []string{plain.addr()}, History: &History{Resolver: &allLocal{}, Offer: true, Read: remote.Options{Budget: remote.NewBudget(1 << 20)}}})
	silent := startGateway(t, Options{Upstream: []string{plain.addr()}, History: &History{Resolver: &allLocal{}, Read: remote.Options{Budget: remote.NewBudget(1 << 20)}}})
	passing := func(up string) string { return startGateway(t, Options{Upstream: []string{up}}).Addr().String() }
	for _, c := range []struct {
		what, upstream string
		gives          bool
	}{
		{"an Apache Kafka", plain.addr(), false},
		{"a Rewind broker", giving.addr(), true},
		{"a gateway that offers them", resolving.Addr().String(), true},
		{"a gateway that keeps history to itself", silent.Addr().String(), false},
		{"a gateway that passes everything to an Apache Kafka", passing(plain.addr()), false},
		{"a gateway that passes everything to one that offers them", passing(resolving.Addr().String()), true},
	} {
		t.Run(c.what, func(t *testing.T) {
			said, reg := new(logged), prometheus.NewRegistry()
			g := startGateway(t, Options{Upstream: []string{c.upstream}, History: followed(t), PollInterval: 20 * time.Millisecond, Logger: said.logger(), Registerer: reg})
			for end := time.Now().Add(time.Minute); !c.gives && g.Locations() == nil && time.Now().Before(end); {
				time.Sleep(time.Millisecond) // until the upstream was asked
			}
			time.Sleep(100 * time.Millisecond) // some polls: one line, not one for each
			want := 1
			if c.gives {
				want = 0
			}
			err := g.Locations()
			if (err == nil) != c.gives || !c.gives && !errors.Is(err, errNoLocations) {
				t.Errorf("%v", err)
			}
			if n := strings.Count(said.String(), "history is not read from the store"); n != want {
				t.Errorf("%d lines, want %d", n, want)
			}
			gauge := map[bool]string{true: "1", false: "0"}[c.gives]
			if err := testutil.GatherAndCompare(reg, strings.NewReader("# HELP rewind_gateway_upstream_locations 1 while the upstream answers with locations, or may; 0 if it does not say so and none has come: "+
				"history is read through it.\n# TYPE rewind_gateway_upstream_locations gauge\nrewind_gateway_upstream_locations "+gauge+"\n"), "rewind_gateway_upstream_locations"); err != nil {
				t.Error(err)
			}
			if err := g.Healthy(); err != nil {
				t.Errorf("it serves all the same: %v", err)
			}
			if !c.gives { // one of another version, that did not say so
				hooks{&conn{g: g}}.Asked(history.LocationFound)
				if err := g.Locations(); err != nil {
					t.Errorf("after a location has come: %v", err)
				}
			}
		})
	}
}

// Nothing is said of an upstream that has not answered.
func TestSidecarWithoutUpstream(t *testing.T) {
	said := new(logged)
	var asked atomic.Int64
	silent := startFake(t, nil, func(wire.RequestHeader) kmsg.Response { asked.Add(1); return nil })
	g := startGateway(t, Options{Upstream: []string{silent.addr()}, History: followed(t), PollInterval: 20 * time.Millisecond, Logger: said.logger()})
	eventually(t, "the upstream to be asked some times", func() bool { return asked.Load() >= 5 })
	if err := g.Locations(); err != nil || strings.Contains(said.String(), "not read from the store") {
		t.Errorf("%v, said: %s", err, said)
	}
}
