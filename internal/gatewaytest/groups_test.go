package gatewaytest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// Three brokers behind a gateway: coordinators and leaders of every kind are found through it. The group protocol of KIP-848, share groups, and reading from the nearest replica (KIP-392).
func TestGroupsThroughGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three brokers")
	}
	lab.jvm.Get(t)
	c := clustertest.Start(t, clustertest.Options{IDs: []int32{1, 7, 400}, Config: map[string]string{"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}})
	c.CreateTiered(t, history, 1, nil)
	c.ProduceText(t, history, "zstd", 60)
	c.Sink(t, history)
	g := startGateway(t, c, clustertest.Login{Protocol: clustertest.Plaintext})
	watchAddresses(t, c, g)
	want := asDrivers(c.Records(t, history, true)[0])
	for _, d := range clientdrivers.Drivers(lab.jvm.Get) {
		s := clientdrivers.Session{Addr: g.addr, Login: clustertest.Login{Protocol: clustertest.Plaintext}, Read: history, Group: "next-" + d.Name, First: 23, N: len(want), NewGroups: true}
		if !d.Can(s) {
			continue
		}
		t.Run("next/"+d.Name, func(t *testing.T) {
			if d := differ(want, d.Run(t, s).All()); d != "" {
				t.Error(d)
			}
		})
	}
	t.Run("share", func(t *testing.T) {
		c.ConfigureGroup(t, "shared", map[string]string{"share.auto.offset.reset": "earliest"})
		r := lab.jvm.Get(t).Share(t, clientdrivers.Session{Addr: g.addr, Login: clustertest.Login{Protocol: clustertest.Plaintext}, Read: history, Group: "shared", N: len(want)})
		got := r.All()
		slices.SortFunc(got, func(a, b clientdrivers.Record) int { return cmp.Compare(a.Offset, b.Offset) })
		if d := differ(want, got); d != "" {
			t.Error(d)
		}
	})
	t.Run("nearest", func(t *testing.T) {
		c.CreateTiered(t, "near", 1, map[string]string{"remote.storage.enable": "false", "local.retention.bytes": ""})
		c.Produce(t, "near", "none", 200)
		leader, want := c.Leader(t, "near", 0), c.Records(t, "near", false)
		for _, id := range c.IDs() {
			if id == leader {
				continue
			}
			before := c.MetersOf(t, id, "near")
			got := c.Read(t, []string{g.addr}, "near", false, kgo.Rack(fmt.Sprintf("rack-%d", id)))
			if d := clustertest.Difference(want, got); d != "" {
				t.Errorf("from broker %d: %s", id, d)
			}
			if m := c.MetersOf(t, id, "near").Since(before); m.BytesOut < 50_000 {
				t.Errorf("only %d bytes came from broker %d, the nearest", m.BytesOut, id)
			}
		}
	})
	g.check(t)
}
