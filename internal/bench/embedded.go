package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// embedded are the figures of our broker as a broker, against an Apache Kafka of one node without tiered storage. Each brings its own pair of servers.
var embedded = []figure{
	{"produce", "producing: Java's perf tool and kgo, acks=1 and acks=all", true, true, measureProduce},
	{"consume", "consuming from the page cache, plaintext and TLS", true, true, measureConsume},
	{"consume-raw", "our broker as a broker: reading, without a client's own work", true, true, measureRaw},
	{"tail", "consuming at the tail while a producer writes", true, true, measureTail},
	{"latency", "from producer to consumer, at a fixed rate", true, true, measureLatency},
	{"start", "start-up and memory of an idle broker", true, true, measureStart},
	{"partitions", "10,000 partitions", false, true, measurePartitions},
	{"groups", "a group of 200 consumers of 1,000 partitions", true, true, measureGroups},
}

func allFigures() []figure { return slices.Concat(figures, embedded) }

// pair is both brokers, side by side.
type pair struct {
	ours, kafka *contender
	caFile      string
}

// each runs f for both, ours first.
func (p *pair) each(f func(c *contender) error) error {
	for _, c := range []*contender{p.ours, p.kafka} {
		if err := f(c); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (p *pair) stop() error { return errors.Join(p.ours.stop(), p.kafka.stop()) }

// startPair starts both anew. Ours answers acks=all as Apache Kafka does, after the write.
func (l *lab) startPair(ctx context.Context, figure string) (*pair, error) {
	dir := filepath.Join(l.dir, figure)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	keyStore, caFile, err := writeKeys(dir)
	if err != nil {
		return nil, fmt.Errorf("making keys: %w", err)
	}
	p := &pair{caFile: caFile}
	if p.ours, err = l.newOurs(filepath.Join(dir, "rewind"), keyStore, "acks.all.sync: false"); err != nil {
		return nil, err
	}
	if p.kafka, err = l.newKafka(filepath.Join(dir, "kafka"), keyStore); err != nil {
		return nil, err
	}
	if err := p.each(func(c *contender) error { return c.start(ctx) }); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// with runs f with a pair that is stopped afterwards.
func (l *lab) with(ctx context.Context, figure string, f func(p *pair) ([]Row, error)) (rows []Row, err error) {
	p, err := l.startPair(ctx, figure)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	return f(p)
}

func measureStart(ctx context.Context, l *lab) ([]Row, error) {
	return l.with(ctx, "start", func(p *pair) ([]Row, error) {
		const topics = 10
		times, memory, own := make(map[*contender][]float64), make(map[*contender]float64), make(map[*contender]float64)
		if err := p.each(func(c *contender) error {
			for i := range topics {
				if err := c.create(ctx, fmt.Sprintf("t%d", i), topics); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
		for n := range l.Runs {
			if err := p.each(func(c *contender) error {
				if err := c.stop(); err != nil {
					return err
				}
				began := time.Now()
				if err := c.start(ctx); err != nil {
					return err
				}
				took := time.Since(began).Seconds()
				l.say("  run %d, %s: up after %.3f s", n+1, c.name, took)
				times[c] = append(times[c], took)
				return nil
			}); err != nil {
				return nil, err
			}
		}
		if err := sleep(ctx, 2*idleWait); err != nil {
			return nil, err
		}
		if err := p.each(func(c *contender) (err error) {
			memory[c], own[c], err = c.resident()
			return err
		}); err != nil {
			return nil, err
		}
		return []Row{
			{"start-up until metadata is answered, 100 partitions: ours / Apache Kafka", middle(times[p.ours]), middle(times[p.kafka]), -0.1, "s"},
			{"resident memory when idle, 100 partitions: ours / Apache Kafka", memory[p.ours], memory[p.kafka], -0.1, "MiB"},
			{"of it their own, without pages of the program's files, which the kernel can drop", own[p.ours], own[p.kafka], 0, "MiB"},
		}, nil
	})
}

// middle is the median.
func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// resident is a process's resident memory in MiB, and how much of it is in no file.
func resident(pid int) (all, own float64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	found := make(map[string]float64)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "kB" {
			kib, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return 0, 0, fmt.Errorf("process %d: %q: %w", pid, line, err)
			}
			found[f[0]] = kib / 1024
		}
	}
	if found["VmRSS:"] == 0 {
		return 0, 0, fmt.Errorf("process %d does not say what it has resident", pid)
	}
	return found["VmRSS:"], found["RssAnon:"], nil
}
