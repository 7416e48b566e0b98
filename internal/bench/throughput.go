package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rewind-kafka/rewind/internal/backfill"
)

// atLeast is the bound of throughputs: as much as Apache Kafka.
const atLeast = 1.0

// tool runs one of Apache Kafka's perf tools and gives its standard output.
func (l *lab) tool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.PeerScript, args...)
	cmd.Env = append(os.Environ(), "KAFKA_PEER_HOME="+l.PeerHome)
	var out, logs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &logs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", args[0], err, &out, &logs)
	}
	return out.String(), nil
}

// writeJava is Apache Kafka's own ProducerPerformance, with its defaults but for acks.
func (l *lab) writeJava(addr, topic, acks string) func(context.Context) (backfill.Result, error) {
	return func(ctx context.Context) (res backfill.Result, err error) {
		out, err := l.tool(ctx, "produce-perf", "--bootstrap-server", addr, "--topic", topic, "--num-records", fmt.Sprint(l.Size/int64(l.RecordBytes)), "--record-size", fmt.Sprint(l.RecordBytes),
			"--throughput", "-1", "--command-property", "acks="+acks)
		if err != nil {
			return res, err
		}
		return parseProducerPerformance(out, l.RecordBytes)
	}
}

// parseProducerPerformance takes the records and their rate out of the last line.
func parseProducerPerformance(out string, recordBytes int) (res backfill.Result, err error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	var rate float64
	if _, err := fmt.Sscanf(last, "%d records sent, %f records/sec", &res.Records, &rate); err != nil || rate <= 0 {
		return res, fmt.Errorf("the Java producer said %q: %w", last, errors.Join(err, strconv.ErrSyntax))
	}
	res.Bytes = res.Records * int64(recordBytes)
	res.Seconds = float64(res.Records) / rate
	return res, nil
}

func (l *lab) writeKgo(addr, topic string, all bool) func(context.Context) (backfill.Result, error) {
	return l.run(backfill.Job{Mode: backfill.ModeProducer, Broker: addr, Topic: topic, Write: l.Size, RecordBytes: l.RecordBytes, AcksAll: all})
}

// measureProduce: every run writes to a topic of its own, which is made anew for it.
func measureProduce(ctx context.Context, l *lab) ([]Row, error) {
	return l.with(ctx, "produce", func(p *pair) (rows []Row, err error) {
		synced, err := l.newOurs(filepath.Join(l.dir, "produce", "synced"), filepath.Join(l.dir, "produce", "keystore.pem"))
		if err != nil {
			return nil, err
		}
		if err := synced.start(ctx); err != nil {
			return nil, errors.Join(err, synced.stop())
		}
		defer func() { err = errors.Join(err, synced.stop()) }()
		n := 0
		fresh := func(c *contender, write func(addr, topic string) func(context.Context) (backfill.Result, error)) func(context.Context) (backfill.Result, error) {
			return func(ctx context.Context) (res backfill.Result, err error) {
				n++
				topic := fmt.Sprintf("w%d", n)
				if err := c.create(ctx, topic, 1); err != nil {
					return res, err
				}
				return write(c.addr, topic)(ctx)
			}
		}
		for _, w := range []struct {
			name  string
			all   bool
			write func(addr, topic string) func(context.Context) (backfill.Result, error)
		}{
			{"Java, acks=1", false, func(a, t string) func(context.Context) (backfill.Result, error) { return l.writeJava(a, t, "1") }},
			{"Java, acks=all", true, func(a, t string) func(context.Context) (backfill.Result, error) { return l.writeJava(a, t, "all") }},
			{"kgo, acks=1", false, func(a, t string) func(context.Context) (backfill.Result, error) { return l.writeKgo(a, t, false) }},
			{"kgo, acks=all", true, func(a, t string) func(context.Context) (backfill.Result, error) { return l.writeKgo(a, t, true) }},
		} {
			sides := []side{{w.name + ", our broker", fresh(p.ours, w.write)}, {w.name + ", Apache Kafka", fresh(p.kafka, w.write)}}
			if w.all {
				sides = append(sides, side{w.name + ", our broker, synced", fresh(synced, w.write)})
			}
			res, err := l.alternate(ctx, sides...)
			if err != nil {
				return nil, err
			}
			rows = append(rows, Row{"produce, " + w.name + ": ours / Apache Kafka", median(res[0]), median(res[1]), atLeast, "MiB/s"})
			if w.all {
				rows = append(rows, Row{"produce, " + w.name + ", every record synced first: ours / Apache Kafka, which does not", median(res[2]), median(res[1]), 0, "MiB/s"})
			}
		}
		return rows, nil
	})
}

// readTLS is a file of properties with which Java reads over TLS.
func readTLS(dir, caFile string) (string, error) {
	path := filepath.Join(dir, "tls.properties")
	return path, os.WriteFile(path, []byte("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location="+caFile+"\n"), 0o600)
}

// measureConsume: both have the same records, in the page cache.
func measureConsume(ctx context.Context, l *lab) ([]Row, error) {
	return l.with(ctx, "consume", func(p *pair) (rows []Row, err error) {
		const topic = "read"
		records := l.Size / int64(l.RecordBytes)
		if err := p.each(func(c *contender) error {
			if err := c.create(ctx, topic, 1); err != nil {
				return err
			}
			return backfill.Load(ctx, []string{c.addr}, topic, 1, l.Size, l.RecordBytes, nil)
		}); err != nil {
			return nil, err
		}
		properties, err := readTLS(l.dir, p.caFile)
		if err != nil {
			return nil, err
		}
		java := func(addr string, more ...string) func(context.Context) (backfill.Result, error) {
			return func(ctx context.Context) (res backfill.Result, err error) {
				args := append([]string{"consume-perf", "--bootstrap-server", addr, "--topic", topic, "--num-records", fmt.Sprint(records), "--timeout", "60000", "--hide-header"}, more...)
				out, err := l.tool(ctx, args...)
				if err != nil {
					return res, err
				}
				return parseConsumerPerformance(out)
			}
		}
		job := func(mode, addr, caFile string) func(context.Context) (backfill.Result, error) {
			return l.run(backfill.Job{Mode: mode, Broker: addr, Topic: topic, Until: map[int32]int64{0: records}, CAFile: caFile})
		}
		for _, r := range []struct {
			name string
			read func(c *contender) func(context.Context) (backfill.Result, error)
		}{
			{"Java", func(c *contender) func(context.Context) (backfill.Result, error) { return java(c.addr) }},
			{"kgo", func(c *contender) func(context.Context) (backfill.Result, error) {
				return job(backfill.ModeConsumer, c.addr, "")
			}},
			{"librdkafka (kcat)", func(c *contender) func(context.Context) (backfill.Result, error) {
				return readKcat(l, c.addr, topic, records)
			}},
			{"Java, TLS", func(c *contender) func(context.Context) (backfill.Result, error) {
				return java(c.tlsAddr, "--command-config", properties)
			}},
			{"kgo, TLS", func(c *contender) func(context.Context) (backfill.Result, error) {
				return job(backfill.ModeConsumer, c.tlsAddr, p.caFile)
			}},
		} {
			res, err := l.alternate(ctx, side{r.name + ", our broker", r.read(p.ours)}, side{r.name + ", Apache Kafka", r.read(p.kafka)})
			if err != nil {
				return nil, err
			}
			rows = append(rows, Row{"catch-up, " + r.name + ": ours / Apache Kafka", median(res[0]), median(res[1]), atLeast, "MiB/s"})
		}
		return rows, nil
	})
}

// measureTail: a consumer reads what a producer writes meanwhile, both as fast as they can; its pace counts.
func measureTail(ctx context.Context, l *lab) ([]Row, error) {
	return l.with(ctx, "tail", func(p *pair) ([]Row, error) {
		n := 0
		both := func(c *contender) func(context.Context) (backfill.Result, error) {
			return func(ctx context.Context) (backfill.Result, error) {
				n++
				topic := fmt.Sprintf("t%d", n)
				if err := c.create(ctx, topic, 1); err != nil {
					return backfill.Result{}, err
				}
				written := make(chan error, 1)
				go func() {
					_, err := l.writeKgo(c.addr, topic, false)(ctx)
					written <- err
				}()
				res, err := l.run(backfill.Job{Mode: backfill.ModeConsumer, Broker: c.addr, Topic: topic, Until: map[int32]int64{0: l.Size / int64(l.RecordBytes)}})(ctx)
				return res, errors.Join(err, <-written)
			}
		}
		res, err := l.alternate(ctx, side{"tail, our broker", both(p.ours)}, side{"tail, Apache Kafka", both(p.kafka)})
		if err != nil {
			return nil, err
		}
		return []Row{{"tail, kgo reads what kgo writes: ours / Apache Kafka", median(res[0]), median(res[1]), atLeast, "MiB/s"}}, nil
	})
}
