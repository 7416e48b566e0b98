package gateway

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/peers"
	"github.com/rewind-kafka/rewind/metadatatopic"
)

// tool runs one of Apache Kafka's own tools.
func tool(t *testing.T, limit time.Duration, class string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	conf := filepath.Join(peers.Root(), "peers", "kafka", "log4j2-tools.properties")
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=" + conf, "-cp", peers.KafkaJars(t), class}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", class, err, out, &stderr)
	}
	return string(out)
}

func fromStart(topic string, partitions int) kgo.Opt {
	at := make(map[int32]kgo.Offset)
	for p := range partitions {
		at[int32(p)] = kgo.NewOffset().At(0)
	}
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at})
}

// backfill reads what there is to read, whatever happens to the brokers. It asks nobody but the client.
func backfill(ctx context.Context, t *testing.T, k *kgo.Client, want [][]*kgo.Record) [][]*kgo.Record {
	defer k.Close()
	got := make([][]*kgo.Record, len(want))
	for {
		left := 0
		for p := range want {
			left += max(len(want[p])-len(got[p]), 0)
		}
		if left == 0 {
			return got
		}
		f := k.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Errorf("%d records are missing: %v", left, f.Err())
			return got
		}
		f.EachRecord(func(r *kgo.Record) { got[r.Partition] = append(got[r.Partition], r) })
	}
}

func values(records [][]*kgo.Record) (all []string) {
	for _, p := range records {
		for _, r := range p {
			all = append(all, fmt.Sprintf("%d:%d", r.Partition, r.Offset))
		}
	}
	return all
}

// Three brokers whose ids are far apart take three ports. Leaders move, a broker dies and comes back, under consumers and producers that know nothing but the gateway.
func TestKafkaCluster(t *testing.T) {
	c := startKafka(t, clustertest.Options{IDs: []int32{400, 1, 7}})
	c.CreateOn(t, "moving", [][]int32{{1, 7, 400}, {7, 400, 1}, {400, 1, 7}}, nil)
	c.Produce(t, "moving", "zstd", 300)
	c.Sink(t, "moving")
	g := before(t, c, clustertest.Login{Protocol: clustertest.Plaintext}, func(o *Options) {
		o.History, o.Registerer = past(t, c, metadatatopic.NotLocal), prometheus.NewRegistry()
	})
	seeds := []string{g.Addr().String()}
	plain := clustertest.Login{Protocol: clustertest.Plaintext}

	t.Run("ports", func(t *testing.T) {
		m, err := kadm.NewClient(through(t, c, g, plain)).BrokerMetadata(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, b := range m.Brokers {
			told = append(told, fmt.Sprintf("%s:%d", b.Host, b.Port))
			if want := g.BrokerAddr(b.NodeID); want == nil || want.String() != told[len(told)-1] {
				t.Errorf("broker %d is told to be at %s, want %v", b.NodeID, told[len(told)-1], want)
			}
		}
		slices.Sort(told)
		if len(slices.Compact(told)) != 3 {
			t.Errorf("brokers at %v", told)
		}
	})
	t.Run("java console consumer", func(t *testing.T) {
		want := c.Records(t, "moving", false)
		m := c.Meters(t, "moving")
		for _, protocol := range []string{"classic", "consumer"} { // the latter is KIP-848's
			out := tool(t, 2*time.Minute, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", seeds[0], "--topic", "moving", "--from-beginning",
				"--formatter-property", "print.partition=true", "--formatter-property", "print.offset=true", "--formatter-property", "print.value=false",
				"--command-property", "group.protocol="+protocol, "--max-messages", fmt.Sprint(len(values(want))), "--timeout-ms", "60000")
			if n := strings.Count(out, "Partition:"); n != len(values(want)) {
				t.Errorf("group.protocol=%s: %d records instead of %d:\n%.2000s", protocol, n, len(values(want)), out)
			}
		}
		if after := c.Meters(t, "moving").Since(m); after.RemoteBytes > 0 {
			t.Errorf("the brokers have read %d bytes from the store", after.RemoteBytes)
		}
	})
	t.Run("kcat", func(t *testing.T) {
		kcat, err := exec.LookPath("kcat")
		if err != nil {
			peers.Missing(t, "kcat is not installed")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, kcat, "-b", seeds[0], "-C", "-t", "moving", "-o", "beginning", "-e", "-q", "-f", "%p:%o\n").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got, want := strings.Fields(string(out)), values(c.Records(t, "moving", false))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%d records instead of %d", len(got), len(want))
		}
	})
	t.Run("leaders move under a producer and backfills", func(t *testing.T) {
		want := c.Records(t, "moving", false)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		stop := make(chan struct{})
		var work sync.WaitGroup
		c.CreateOn(t, "live", [][]int32{{1, 7, 400}}, nil)
		produced := 0
		work.Go(func() {
			k := through(t, c, g, plain, kgo.ProducerBatchMaxBytes(2000), kgo.DefaultProduceTopic("live"))
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := k.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(produced))).FirstErr(); err != nil {
					t.Errorf("producing record %d: %v", produced, err)
					return
				}
				produced++
			}
		})
		for range 2 {
			work.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if d := clustertest.Difference(want, backfill(ctx, t, through(t, c, g, plain, fromStart("moving", len(want))), want)); d != "" {
						t.Error(d)
						return
					}
				}
			})
		}
		for _, to := range []int32{7, 400, 1} {
			c.MoveLeader(t, "live", 0, to)
			c.MoveLeader(t, "moving", 0, to)
		}
		c.Kill(t, 7)
		c.Restart(t, 7)
		c.AwaitISR(t, "moving", 1, 7, 400)
		close(stop)
		work.Wait()
		live := c.Records(t, "live", false)
		if n := len(live[0]); n < produced {
			t.Errorf("%d records were acknowledged, %d are there", produced, n)
		}
	})
	t.Run("share group", func(t *testing.T) {
		c.CreateOn(t, "shared", [][]int32{{1, 7, 400}}, map[string]string{"remote.storage.enable": "false"})
		tool(t, 2*time.Minute, "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", seeds[0], "--alter", "--entity-type", "groups", "--entity-name", "sharers", "--add-config", "share.auto.offset.reset=earliest")
		c.Produce(t, "shared", "none", 50)
		out := tool(t, 2*time.Minute, "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", seeds[0], "--topic", "shared", "--group", "sharers", "--max-messages", "50", "--timeout-ms", "60000",
			"--formatter-property", "print.offset=true")
		if n := strings.Count(out, "Offset:"); n != 50 {
			t.Errorf("%d records of 50:\n%.1000s", n, out)
		}
	})
	t.Run("quorum", func(t *testing.T) {
		out := tool(t, 2*time.Minute, "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", seeds[0], "describe", "--status")
		if !strings.Contains(out, "LeaderId") {
			t.Errorf("%s", out)
		}
	})
}
