package clienttest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/internal/storetest"
)

// On every cloud's store the same history is read through the broker, directly by signed locations, and directly with the reader's own credentials,
// by the locations' plain URIs (KIP-1254's fetcher over a bucket).
func TestEveryStore(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(testing.TB) *storetest.Server
	}{
		{"s3", storetest.S3}, {"azure", storetest.Azure}, {"gcs", storetest.GCS},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := c.start(t)
			url := server.URL(t, "every-store")
			w := newWorld(t, url)
			const partitions, segment = 2, 1 << 20
			topics := []topic{{"every-store", partitions}}
			w.create(t, topics, tiered("segment.bytes", segment))
			n := w.fill(t, "every-store", partitions, 4*segment) + partitions
			w.sink(t, topics, segment-1000)
			want := w.readKgo(t, topics, n)

			signed := w.dialer(t)
			equal(t, topics, want, w.readKgo(t, topics, n, kgo.Dialer(signed.DialContext)), nil)
			directly(t, signed, "signed locations")

			store := server.OpenURL(t, url)
			own := w.dialerWith(t, rewind.Options{Fetchers: []rewind.StoreFetcher{
				{Prefix: store.URL, Fetcher: bucket.NewFetcher(bucket.FetcherOptions{Stores: []*bucket.Store{store}})},
			}})
			equal(t, topics, want, w.readKgo(t, topics, n, kgo.Dialer(own.DialContext)), nil)
			directly(t, own, "credentials of its own")
		})
	}
}

// directly fails unless the dialer read more directly than the records that lie in the local logs.
func directly(t *testing.T, d *rewind.Dialer, how string) {
	t.Helper()
	if s := d.Stats(); s.DirectBytes < 2*s.BrokerBytes || s.Fallbacks > 0 {
		t.Errorf("with %s: %+v", how, s)
	}
}
