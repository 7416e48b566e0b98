package gatewaytest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// big makes history of segments that are large enough to be granted, or read, in pieces, and gives the sizes of their objects.
func big(t *testing.T, c *clustertest.Cluster, topic string) (sizes []int64, total int64) {
	t.Helper()
	c.CreateTiered(t, topic, 1, map[string]string{"internal.segment.bytes": "500000"})
	k := c.Client(t, clustertest.Login{Protocol: clustertest.Plaintext}, kgo.ProducerBatchMaxBytes(6000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	r := rand.New(rand.NewPCG(3, 9))
	var records []*kgo.Record
	for i := range int64(4000) {
		records = append(records, &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: clustertest.Value(r, 0, i), Timestamp: time.UnixMilli(clustertest.FirstTimestamp + i)})
	}
	if err := k.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c.Sink(t, topic)
	for _, s := range c.Segments(t, topic, 0) {
		info, err := os.Stat(s.Path)
		if err != nil {
			t.Fatal(err)
		}
		sizes, total = append(sizes, info.Size()), total+info.Size()
	}
	if len(sizes) < 3 {
		t.Fatalf("%d segments of %d bytes", len(sizes), total)
	}
	return sizes, total
}

// A principal that may read so much a second is granted locations of parts of segments, and gets all of them by itself; who is not limited gets whole segments. Twenty consumers
// of one topic cost one GET for each chunk.
func TestSegmentsInPieces(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a real Apache Kafka")
	}
	c := clustertest.Start(t, clustertest.Options{})
	sizes, total := big(t, c, "big")
	want := c.Records(t, "big", true)

	t.Run("locations", func(t *testing.T) {
		const rate, known = 200_000, "remote.log.txn.index.empty.known=true"
		g := startGateway(t, c, clustertest.Login{Protocol: clustertest.Plaintext}, known, fmt.Sprintf("remote.read.principal.bytes.per.second=%d", rate))
		d, before := clientdrivers.Dialer(t, rewind.Options{}), c.Meters(t, "big")
		began := time.Now()
		if diff := clustertest.Difference(want, c.Read(t, []string{g.addr}, "big", true, kgo.Dialer(d.DialContext))); diff != "" {
			t.Error(diff)
		}
		took := time.Since(began)
		located, granted := g.metrics(t, "rewind_gateway_locations_total"), g.metrics(t, "rewind_gateway_located_bytes_total")
		if n := g.metrics(t, "rewind_gateway_limits_met_total", `limit="principal-grant"`); n == 0 || located <= float64(len(sizes)) {
			t.Errorf("%v locations were made shorter, %v were given for %d segments", n, located, len(sizes))
		}
		// What is granted is what is read, but for the batch in which one piece ends and the next begins.
		if s := d.Stats(); s.DirectBytes < total*9/10 || s.Fallbacks > 0 || granted < float64(s.DirectBytes) || granted > 1.2*float64(total) || g.history(t) > 0 {
			t.Errorf("of %d bytes %v were granted, %v read by the gateway; %+v", total, granted, g.history(t), d.Stats())
		}
		if n := c.Meters(t, "big").Since(before).RemoteBytes; n > 0 {
			t.Errorf("the brokers have read %d bytes of history", n)
		}
		// The first second's worth is free, and the last answer's throttling may still be to come.
		if least := time.Duration(float64(total)/rate*float64(time.Second)) - 3*time.Second; took < least {
			t.Errorf("%d bytes in %v at %d a second", total, took, rate)
		}
		audited(t, g, int(located), granted)
	})
	t.Run("twenty consumers", func(t *testing.T) {
		const chunk, consumers = 128 << 10, 20
		g := startGateway(t, c, clustertest.Login{Protocol: clustertest.Plaintext}, fmt.Sprintf("remote.read.chunk.bytes=%d", chunk))
		g.awaitHistory(t, c, "big")
		before := c.Meters(t, "big")
		var wg sync.WaitGroup
		for range consumers {
			wg.Go(func() {
				if diff := clustertest.Difference(want, c.Read(t, []string{g.addr}, "big", false)); diff != "" {
					t.Error(diff)
				}
			})
		}
		wg.Wait()
		chunks := 0
		for _, s := range sizes {
			chunks += int(s+chunk-1) / chunk
		}
		gets, again := g.metrics(t, "rewind_gateway_store_requests_total", `kind="segment"`), g.metrics(t, "rewind_gateway_store_events_total", `event="hedge"`)
		if brokers := c.Meters(t, "big").Since(before).RemoteBytes; gets-again > float64(chunks) || gets == 0 || brokers > 0 || g.history(t) < float64(consumers*total*9/10) {
			t.Errorf("%v GETs for %d chunks, %v of them for slow ones; of %d bytes %v came past the brokers, who read %d themselves", gets, chunks, again, consumers*total, g.history(t), brokers)
		}
		g.check(t)
	})
}

// awaitHistory waits until the gateway has given something of a topic: what it asks of the brokers about a partition it asks when somebody reads it.
func (g *gateway) awaitHistory(t *testing.T, c *clustertest.Cluster, topic string) {
	t.Helper()
	eventually(t, "history", func(ctx context.Context) error {
		k, err := kgo.NewClient(kgo.SeedBrokers(g.addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}), kgo.FetchMaxPartitionBytes(1000))
		if err != nil {
			return err
		}
		defer k.Close()
		if err := k.PollFetches(ctx).Err(); err != nil {
			return err
		}
		if g.history(t) == 0 {
			return fmt.Errorf("all of %s comes from the brokers", topic)
		}
		return nil
	})
}

// audited checks the line that each location leaves: for whom, of what, and how much.
func audited(t *testing.T, g *gateway, locations int, granted float64) {
	t.Helper()
	text, err := os.ReadFile(g.Logs.Path)
	if err != nil {
		t.Fatal(err)
	}
	field := regexp.MustCompile(`(\S+)=(\S+)`)
	lines, bytes := 0, 0.0
	for _, line := range regexp.MustCompile(`(?m)^.*audit=location.*$`).FindAllString(string(text), -1) {
		lines++
		has := make(map[string]string)
		for _, m := range field.FindAllStringSubmatch(line, -1) {
			has[m[1]] = m[2]
		}
		from, err1 := strconv.ParseInt(has["start"], 10, 64)
		to, err2 := strconv.ParseInt(has["end"], 10, 64)
		if err1 != nil || err2 != nil || has["topic"] != "big" || has["partition"] != "0" || has["principal"] == "" {
			t.Fatalf("an audit line: %s", line)
		}
		bytes += float64(to - from)
	}
	if lines != locations || bytes != granted {
		t.Errorf("%d lines of %v bytes for %d locations of %v", lines, bytes, locations, granted)
	}
}
