package gatewaytest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/versionshim"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Old and new versions of gateway and library together: both as they are built today, with something between them that makes each look to the other like another version. What
// internal/history tries with every mistake there is, on a real cluster with what there will be.
func TestVersions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a real Apache Kafka")
	}
	c := clustertest.Start(t, clustertest.Options{})
	c.Load(t, "past", 2, "lz4", 200)
	c.LoadTransactions(t, "txn", 1)
	g := startGateway(t, c, clustertest.Login{Protocol: clustertest.Plaintext}, "remote.log.txn.index.empty.known=true")
	want := map[string][][]*kgo.Record{"past": c.Records(t, "past", true), "txn": c.Records(t, "txn", true)}
	for name, tt := range map[string]struct {
		change versionshim.Change
		direct bool // the library reads by itself
	}{
		"today":                     {versionshim.Change{}, true},
		"no question for locations": {versionshim.Without(wire.TagRemoteLogSegmentLocationRequested), false},
		"no list of formats":        {versionshim.Without(wire.TagSupportedStorageFormatVersions), false},
		"no locations":              {versionshim.Without(wire.TagRemoteLogSegment), false},
		"no limit for history":      {versionshim.Without(wire.TagRemotePartitionMaxBytes), true},
		"more fields everywhere":    {versionshim.Newer(), true},
		"another format only": {versionshim.Change{Request: func(r *kmsg.FetchRequest) {
			wire.SetSupportedStorageFormatVersions(r, []string{"ApacheKafkaV2"})
		}}, false},
		"a format that was not asked for": {versionshim.Change{Response: versionshim.Located(func(l *remotestorage.Location) { l.StorageFormatVersion = "ApacheKafkaV2" })}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := versionshim.Listen(g.addr, tt.change)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			d := clientdrivers.Dialer(t, rewind.Options{Fallback: 200 * time.Millisecond})
			had := g.history(t)
			for topic, want := range want {
				got := c.Read(t, []string{g.addr}, topic, true, kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
					return d.DialContext(ctx, network, s.Addr())
				}))
				if diff := clustertest.Difference(want, got); diff != "" {
					t.Errorf("%s: %s", topic, diff)
				}
			}
			if direct, through := d.Stats().DirectBytes, g.history(t)-had; tt.direct != (direct > 0) || !tt.direct && through == 0 {
				t.Errorf("%d bytes by location, %v through the gateway; %+v", direct, through, d.Stats())
			}
		})
	}
	g.check(t)
}
