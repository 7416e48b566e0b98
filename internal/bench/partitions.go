package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	manyTopics     = 10
	manyPartitions = 1000 // of each
	manyMemory     = 1 << 30
)

// measurePartitions makes 10,000 partitions, writes to each, and starts again on them. One of Apache Kafka with as many is not run beside it: the bound is one GiB.
func measurePartitions(ctx context.Context, l *lab) (rows []Row, err error) {
	dir := filepath.Join(l.dir, "partitions")
	c, err := l.newOurs(dir, "", "acks.all.sync: false")
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	most, limit := 0.0, float64(manyMemory)/(1<<20)
	step := func(what string, f func() error) error {
		began := time.Now()
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		took := time.Since(began).Seconds()
		mib, _, err := c.resident()
		if err != nil {
			return err
		}
		most = max(most, mib)
		l.say("  %s: %.2f s, %.0f MiB resident", what, took, mib)
		rows = append(rows, Row{"10,000 partitions: " + what + " / a minute", took, 60, 0, "s"})
		return nil
	}
	for _, s := range []struct {
		what string
		f    func() error
	}{
		{"making them", func() error {
			for i := range manyTopics {
				if err := c.create(ctx, fmt.Sprintf("many-%d", i), manyPartitions); err != nil {
					return err
				}
			}
			return nil
		}},
		{"a record to each", func() error { return writeEach(ctx, c.addr) }},
		{"listing them and their ends", func() error { return listEach(ctx, c.addr) }},
		{"stopping in order", c.stop},
	} {
		if s.what == "stopping in order" { // there is no process to ask afterwards
			began := time.Now()
			if err := s.f(); err != nil {
				return nil, err
			}
			rows = append(rows, Row{"10,000 partitions: stopping in order / a minute", time.Since(began).Seconds(), 60, 0, "s"})
			continue
		}
		if err := step(s.what, s.f); err != nil {
			return nil, err
		}
	}
	if err := step("starting again", func() error { return c.start(ctx) }); err != nil {
		return nil, err
	}
	if err := step("listing them again", func() error { return listEach(ctx, c.addr) }); err != nil {
		return nil, err
	}
	return append(rows, Row{"10,000 partitions, a record in each: most that was resident / 1 GiB", most, limit, -1, "MiB"}), nil
}

func writeEach(ctx context.Context, addr string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(manyTopics*manyPartitions))
	if err != nil {
		return err
	}
	defer cl.Close()
	var rs []*kgo.Record
	for i := range manyTopics {
		for p := range manyPartitions {
			rs = append(rs, &kgo.Record{Topic: fmt.Sprintf("many-%d", i), Partition: int32(p), Value: make([]byte, 100)})
		}
	}
	return cl.ProduceSync(ctx, rs...).FirstErr()
}

func listEach(ctx context.Context, addr string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx)
	if err != nil {
		return err
	}
	n := 0
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil && o.Offset == 1 {
			n++
		}
	})
	if n != manyTopics*manyPartitions {
		return fmt.Errorf("%d partitions have their record, want %d", n, manyTopics*manyPartitions)
	}
	return nil
}
