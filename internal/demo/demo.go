// Package demo runs Rewind's main job before a newcomer's eyes: it loads a topic, lets it tier to an object store, and reads the history back
// four ways, through the broker and directly. Store, broker and client run as processes of their own, so that each one's CPU and bytes are its
// own. Imported by cmd/rewind only.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/backfill"
	"github.com/rewind-kafka/rewind/internal/control"
)

// Options of a demo. The zero value is completed by Validate.
type Options struct {
	Size         int64         // bytes of history; 512 MiB
	RecordBytes  int           // bytes of key and value; 1 KiB
	SegmentBytes int64         // segment.bytes of the topic; 64 MiB
	Store        string        // object store URL; "" is a directory of the demo's own behind Latency and StreamRate
	Latency      time.Duration // wait before the first byte of a GET
	StreamRate   int64         // bytes a second of one GET's body; 0 is unlimited
	Dir          string        // where data goes; "" is a temporary directory, removed at the end
	Progress     io.Writer     // what a person sees while it works; nil is nothing
	Logs         io.Writer     // the servers' logs; nil is nothing
}

// Validate completes o and names everything that cannot work.
func (o *Options) Validate() error {
	if o.Size == 0 {
		o.Size = 512 << 20
	}
	if o.RecordBytes == 0 {
		o.RecordBytes = 1 << 10
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	var errs []error
	if o.Size < 1<<20 {
		errs = append(errs, fmt.Errorf("--size: %d bytes are too few to tier, use at least 1MiB", o.Size))
	}
	if o.RecordBytes < 16 || o.RecordBytes > 512<<10 {
		errs = append(errs, fmt.Errorf("--record-bytes: %d is not between 16 and 524288", o.RecordBytes))
	}
	if o.SegmentBytes < 1<<20 || o.SegmentBytes > 1<<30 {
		errs = append(errs, fmt.Errorf("--segment-bytes: %d is not between 1 MiB and 1 GiB", o.SegmentBytes))
	}
	if o.Latency < 0 || o.StreamRate < 0 {
		errs = append(errs, errors.New("--store-latency and --store-stream-rate cannot be negative"))
	}
	return errors.Join(errs...)
}

const (
	topic    = "history"
	stopWait = 20 * time.Second
)

// demo is one run.
type demo struct {
	Options
	say     *progress
	dir     string
	store   *control.Child // the HTTP front of a directory store; nil on a real one
	broker  *control.Child
	created bool  // the topic may exist
	until   int64 // first offset that is not in the store
}

// Run loads, tiers and reads, and returns what the reads gave. It leaves nothing behind unless Dir was given.
func Run(ctx context.Context, o Options) (res Report, err error) {
	if err := o.Validate(); err != nil {
		return res, err
	}
	d := &demo{Options: o, say: newProgress(o.Progress)}
	defer d.say.end()
	if d.dir = o.Dir; d.dir == "" {
		if d.dir, err = os.MkdirTemp("", "rewind-demo-"); err != nil {
			return res, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	}
	defer func() { err = errors.Join(err, d.stopAll()) }()
	if err := d.startStore(ctx); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, d.deleteTopic()) }()
	if err := d.load(ctx); err != nil {
		return res, err
	}
	res.Options = o
	for _, p := range paths {
		r, err := d.read(ctx, p)
		if err != nil {
			return res, fmt.Errorf("reading back, path %s: %w", p.name, err)
		}
		res.Reads = append(res.Reads, r)
	}
	return res, res.check()
}

func (d *demo) startStore(ctx context.Context) (err error) {
	root := d.root()
	if root == "" {
		return nil
	}
	for _, dir := range []string{root, filepath.Dir(d.keyFile())} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	d.store, err = control.Start(ctx, d.Logs, "store", "--control", "--root", root, "--key-file", d.keyFile(), "--listen", "127.0.0.1:0",
		"--store-latency", d.Latency.String(), "--store-stream-rate", fmt.Sprint(d.StreamRate))
	return err
}

// root is the directory that the demo's own front serves; "" for a store that is served elsewhere.
func (d *demo) root() string {
	if d.Store == "" {
		return filepath.Join(d.dir, "store")
	}
	root, ok := strings.CutPrefix(d.Store, "file://")
	if !ok {
		return ""
	}
	return root
}

func (d *demo) keyFile() string { return filepath.Join(d.dir, "data", "location.key") }

// startBroker starts the broker anew, so that every read begins with cold caches and counters of its own.
func (d *demo) startBroker(ctx context.Context, more string) error {
	if err := d.stopBroker(); err != nil {
		return err
	}
	cfg := filepath.Join(d.dir, "broker.yaml")
	if err := os.WriteFile(cfg, []byte(d.brokerConfig(more)), 0o644); err != nil {
		return err
	}
	var err error
	d.broker, err = control.Start(ctx, d.Logs, "broker", "--control", "--config", cfg)
	return err
}

func (d *demo) brokerConfig(more string) string {
	var b strings.Builder
	line := func(k string, v any) { fmt.Fprintf(&b, "%s: %v\n", k, v) }
	line("log.dirs", filepath.Join(d.dir, "data"))
	line("listeners", "127.0.0.1:0")
	line("remote.log.manager.task.interval.ms", 200)
	line("log.retention.check.interval.ms", 200)
	line("log.segment.delete.delay.ms", 0)
	line("remote.log.metadata.topic.num.partitions", 1)
	line("offsets.topic.num.partitions", 1)
	line("store.latency.ms", d.Latency.Milliseconds())
	line("store.stream.rate", d.StreamRate)
	if root := d.root(); root != "" {
		line("store", "file://"+root)
		line("http.advertised.listener", d.store.Ready.HTTP)
	} else {
		line("store", d.Store)
	}
	b.WriteString(more)
	return b.String()
}

func (d *demo) stopBroker() error {
	if d.broker == nil {
		return nil
	}
	b := d.broker
	d.broker = nil
	return b.Stop(stopWait)
}

func (d *demo) stopAll() error {
	err := d.stopBroker()
	if d.store != nil {
		err = errors.Join(err, d.store.Stop(stopWait))
	}
	return err
}

func (d *demo) client() (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(d.broker.Ready.Addr))
}

// load fills the topic and waits until all but the active segment is in the store only.
func (d *demo) load(ctx context.Context) error {
	if err := d.startBroker(ctx, ""); err != nil {
		return err
	}
	cl, err := d.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	set := func(s string) *string { return &s }
	configs := map[string]*string{
		"remote.storage.enable": set("true"),
		"segment.bytes":         set(fmt.Sprint(d.SegmentBytes)),
		"local.retention.bytes": set("1"),
		"retention.ms":          set("-1"),
	}
	d.created = true
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, configs, topic); err != nil {
		return fmt.Errorf("creating topic %s: %w", topic, err)
	}
	total := d.Size + d.SegmentBytes // the active segment stays local: load one more than is read back
	d.say.step("loading", total)
	if err := backfill.Load(ctx, []string{d.broker.Ready.Addr}, topic, 1, total, d.RecordBytes, d.say.at); err != nil {
		return err
	}
	return d.waitTiered(ctx, cl, total/int64(d.RecordBytes))
}

const tierWait = 2 * time.Minute

func (d *demo) waitTiered(ctx context.Context, cl *kgo.Client, end int64) error {
	want := d.Size / int64(d.RecordBytes)
	d.say.step("tiering", want*int64(d.RecordBytes))
	deadline := time.Now().Add(tierWait)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		start, err := backfill.LocalStart(ctx, cl, topic, 1)
		if err != nil {
			return err
		}
		d.say.at(start[0] * int64(d.RecordBytes))
		if (end-start[0])*int64(d.RecordBytes) <= d.SegmentBytes {
			d.until = start[0]
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v only offsets below %d of %d have left the local log", tierWait, start[0], want)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
