// Package bench measures Rewind's figures, each as a ratio within one run, against a real Apache Kafka before the same store distance. Readers and
// servers are processes of their own; runs of the sides that are compared alternate, and medians are compared. Imported by cmd/rewind only.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	rewindlib "github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/internal/backfill"
)

// Options of a bench. Validate completes the zero value.
type Options struct {
	PeerScript   string // the script that runs an Apache Kafka; "" leaves Apache Kafka out
	PeerHome     string // where its jars are
	Size         int64  // bytes of history per topic; 1 GiB
	RecordBytes  int    // 1 KiB
	SegmentBytes int64  // 64 MiB
	Runs         int    // interleaved runs of which the median counts; 3
	Readers      int    // at once, where the gateway's memory is measured; 100
	Latency      time.Duration
	StreamRate   int64
	Memory       int64    // the direct reader's budget; 64 MiB
	Parallelism  int      // its GETs in flight; 16
	Figures      []string // names of figures to measure; empty is all
	Dir          string   // "" is a temporary directory
	Progress     io.Writer
	Logs         io.Writer
}

// Validate completes o.
func (o *Options) Validate() error {
	set := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.Size, 1<<30)
	set(&o.SegmentBytes, 64<<20)
	set(&o.Memory, 64<<20)
	if o.RecordBytes == 0 {
		o.RecordBytes = 1 << 10
	}
	if o.Readers == 0 {
		o.Readers = 100
	}
	if o.Runs == 0 {
		o.Runs = 3
	}
	if o.Parallelism == 0 {
		o.Parallelism = 16
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	var errs []error
	if o.Size < o.SegmentBytes {
		errs = append(errs, fmt.Errorf("--size %d is less than one segment (%d)", o.Size, o.SegmentBytes))
	}
	if o.Readers < 1 || o.Readers > 2000 {
		errs = append(errs, fmt.Errorf("--readers %d is not between 1 and 2000", o.Readers))
	}
	if o.Runs < 1 || o.Runs > 99 {
		errs = append(errs, fmt.Errorf("--runs %d is not between 1 and 99", o.Runs))
	}
	for _, f := range o.Figures {
		if !slices.ContainsFunc(allFigures(), func(g figure) bool { return g.name == f }) {
			errs = append(errs, fmt.Errorf("--figure %q is not one of %v", f, FigureNames()))
		}
	}
	direct := rewindlib.Options{MemoryBudget: o.Memory, Parallelism: o.Parallelism}
	if err := direct.Validate(); err != nil { // before gigabytes are loaded
		errs = append(errs, fmt.Errorf("--memory or --parallelism: %w", err))
	}
	if o.PeerScript == "" && len(o.Figures) > 0 && !slices.ContainsFunc(allFigures(), o.measured) {
		errs = append(errs, fmt.Errorf("--figure %v compares with an Apache Kafka: give --peer too", o.Figures))
	}
	return errors.Join(errs...)
}

// measured tells whether a figure was asked for and can be had.
func (o *Options) measured(f figure) bool {
	return (len(o.Figures) == 0 || slices.Contains(o.Figures, f.name)) && (!f.peer || o.PeerScript != "")
}

// FigureNames lists what can be measured.
func FigureNames() []string {
	var names []string
	for _, f := range allFigures() {
		names = append(names, f.name)
	}
	return names
}

// lab is the two servers, their topics, and what was read from them.
type lab struct {
	Options
	dir    string
	peer   *peer // nil without Apache Kafka
	rewind *rewind
}

// Topics of the lab.
const (
	topicOne   = "one"   // 1 partition, tiered
	topicEight = "eight" // 8 partitions, tiered
	topicLocal = "local" // 1 partition, not tiered, on Apache Kafka alone
)

// Run measures.
func Run(ctx context.Context, o Options) (rep Report, err error) {
	if err := o.Validate(); err != nil {
		return rep, err
	}
	l := &lab{Options: o, dir: o.Dir}
	if l.dir == "" {
		if l.dir, err = os.MkdirTemp("", "rewind-bench-"); err != nil {
			return rep, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	if err := l.setUp(ctx); err != nil {
		return rep, err
	}
	rep.Options = o
	for _, f := range allFigures() {
		if !o.measured(f) {
			continue
		}
		l.say("measuring %s", f.title)
		rows, err := f.measure(ctx, l)
		if err != nil {
			return rep, fmt.Errorf("figure %s: %w", f.name, err)
		}
		rep.Rows = append(rep.Rows, rows...)
	}
	return rep, nil
}

func (l *lab) say(format string, a ...any) { fmt.Fprintf(l.Progress, format+"\n", a...) }

func (l *lab) setUp(ctx context.Context) error {
	if slices.ContainsFunc(figures, func(f figure) bool { return l.measured(f) && !f.clusterOnly }) {
		if err := l.setUpRewind(ctx); err != nil {
			return err
		}
	}
	if l.PeerScript == "" || !slices.ContainsFunc(figures, l.measured) {
		return nil
	}
	l.peer = &peer{lab: l, dir: filepath.Join(l.dir, "kafka")}
	if err := l.peer.start(ctx, true); err != nil {
		return err
	}
	for _, t := range []topicSpec{{topicOne, 1, true, false}, {topicEight, 8, true, false}, {topicLocal, 1, false, false}} {
		if err := l.fill(ctx, l.peer.addr(), t, l.peer.until); err != nil {
			return fmt.Errorf("Apache Kafka: %w", err)
		}
	}
	return nil
}

func (l *lab) setUpRewind(ctx context.Context) error {
	l.rewind = &rewind{lab: l, dir: filepath.Join(l.dir, "rewind")}
	if err := l.rewind.start(ctx, true, ""); err != nil {
		return err
	}
	for _, t := range []topicSpec{{topicOne, 1, true, false}, {topicEight, 8, true, false}} {
		if err := l.fill(ctx, l.rewind.addr(), t, l.rewind.until); err != nil {
			return fmt.Errorf("rewind broker: %w", err)
		}
	}
	return nil
}

func (l *lab) stop() error {
	var errs []error
	if l.rewind != nil {
		errs = append(errs, l.rewind.stop())
	}
	if l.peer != nil {
		errs = append(errs, l.peer.stop())
	}
	return errors.Join(errs...)
}

// job is a reader with the lab's sizes.
func (l *lab) job(addr, topic string, until map[string]map[int32]int64) backfill.Job {
	return backfill.Job{Mode: backfill.ModeConsumer, Broker: addr, Topic: topic, Until: until[topic],
		MemoryBudget: l.Memory, Parallelism: l.Parallelism}
}

// side is one of the things that a figure compares.
type side struct {
	name string
	run  func(ctx context.Context) (backfill.Result, error)
}

// alternate runs the sides in turn, and gives each side's results in order.
func (l *lab) alternate(ctx context.Context, sides ...side) ([][]backfill.Result, error) {
	return l.rounds(ctx, l.Runs, sides...)
}

// rounds is alternate of so many rounds. Each begins with another side, so that none always comes first or after the same one.
func (l *lab) rounds(ctx context.Context, rounds int, sides ...side) ([][]backfill.Result, error) {
	out := make([][]backfill.Result, len(sides))
	for n := range rounds {
		for k := range sides {
			i := (n + k) % len(sides)
			s := sides[i]
			res, err := s.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			l.say("  run %d, %s: %.0f MiB/s, reader %.2f CPU s, %d MiB resident", n+1, s.name, res.MiBPerSecond(),
				res.Client.CPUSeconds, res.Client.MaxRSS>>10)
			out[i] = append(out[i], res)
		}
	}
	return out, nil
}

// median of the paces.
func median(rs []backfill.Result) float64 {
	v := make([]float64, len(rs))
	for i, r := range rs {
		v[i] = r.MiBPerSecond()
	}
	slices.Sort(v)
	return v[len(v)/2]
}
