package bench

import (
	"context"
	"fmt"

	"github.com/rewind-kafka/rewind/internal/backfill"
	"github.com/rewind-kafka/rewind/internal/usage"
)

// rawRounds is how often each side is read where nothing but the broker's way to the reader is measured. A read takes a fraction of a second, and single ones differ
// by more than the sides do.
const rawRounds = 25

// rawWarmUp is how much each side is read before it counts: it takes Kafka's virtual machine so much to have compiled what it runs.
const rawWarmUp = 12 << 30

// measureRaw: a reader that drops records undecoded, so that the brokers' part counts, and not a client's.
func measureRaw(ctx context.Context, l *lab) ([]Row, error) {
	return l.with(ctx, "consume-raw", func(p *pair) ([]Row, error) {
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
		job := func(c *contender) func(context.Context) (backfill.Result, error) {
			return l.run(backfill.Job{Mode: backfill.ModeRaw, Broker: c.addr, Topic: topic, Until: map[int32]int64{0: records}})
		}
		var ours, theirs spending
		sides := []side{{"records dropped undecoded, our broker", ours.of(l, p.ours, job(p.ours))}, {"records dropped undecoded, Apache Kafka", theirs.of(l, p.kafka, job(p.kafka))}}
		if _, err := l.rounds(ctx, int(max(1, rawWarmUp/l.Size)), sides...); err != nil {
			return nil, err
		}
		ours, theirs = spending{}, spending{}
		res, err := l.rounds(ctx, max(l.Runs, rawRounds), sides...)
		if err != nil {
			return nil, err
		}
		return []Row{
			{fmt.Sprintf("catch-up, records dropped undecoded, %d rounds: ours / Apache Kafka", len(res[0])), median(res[0]), median(res[1]), atLeast, "MiB/s"},
			{"the broker's CPU for a GiB of it: ours / Apache Kafka", ours.perGiB(), theirs.perGiB(), 0, "s"},
		}, nil
	})
}

// spending is what a broker used for reads, all together: one alone is near the kernel's clock tick.
type spending struct{ seconds, bytes float64 }

// of is run, with what c uses meanwhile counted.
func (s *spending) of(l *lab, c *contender, run func(context.Context) (backfill.Result, error)) func(context.Context) (backfill.Result, error) {
	return func(ctx context.Context) (res backfill.Result, err error) {
		pid, err := c.pid()
		if err != nil {
			return res, err
		}
		before, err := usage.Process(pid)
		if err != nil {
			return res, err
		}
		if res, err = run(ctx); err != nil {
			return res, err
		}
		after, err := usage.Process(pid)
		l.say("  %s: %.2f CPU s", c.name, after-before)
		s.seconds += after - before
		s.bytes += float64(res.Bytes)
		return res, err
	}
}

func (s *spending) perGiB() float64 { return s.seconds / (s.bytes / (1 << 30)) }
