package storetest

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

// Leaks is for goleak: toxiproxy leaves the goroutines of connections behind that were cut while a toxic held data.
func Leaks() []goleak.Option {
	const tree = "github.com/Shopify/toxiproxy/v2"
	return []goleak.Option{
		goleak.IgnoreAnyFunction(tree + "/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction(tree + ".(*ToxicLink).read"),
		goleak.IgnoreAnyFunction(tree + ".(*ToxicLink).write"),
	}
}

// Faults is a proxy before a server, whose connections can be made to misbehave.
type Faults struct {
	Addr  string
	proxy *toxiproxy.Proxy
}

// NewFaults starts a proxy before addr until the test ends. Never measure throughput through it.
func NewFaults(t testing.TB, addr string) *Faults {
	t.Helper()
	zerolog.SetGlobalLevel(zerolog.Disabled) // some toxics write a line for each chunk to a global logger
	p := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), t.Name(), "127.0.0.1:0", addr)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &Faults{Addr: p.Listen, proxy: p}
}

// Add puts a toxic on what the server sends (stream "downstream") or receives ("upstream"): latency, bandwidth, slow_close, timeout, reset_peer, slicer, limit_data,
// with toxiproxy's attributes.
func (f *Faults) Add(t testing.TB, name, kind, stream string, attributes map[string]any) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"name": name, "type": kind, "stream": stream, "toxicity": 1, "attributes": attributes})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// Remove takes a toxic off.
func (f *Faults) Remove(t testing.TB, name string) {
	t.Helper()
	if err := f.proxy.Toxics.RemoveToxic(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}
