package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/backfill"
	"github.com/rewind-kafka/rewind/internal/control"
	"github.com/rewind-kafka/rewind/internal/freeport"
)

const stopWait = 20 * time.Second

// rewind is our broker with a directory store behind an HTTP front.
type rewind struct {
	lab    *lab
	dir    string
	store  *control.Child
	broker *control.Child
	until  map[string]map[int32]int64 // by topic and partition, the first offset that is not in the store
}

func (r *rewind) addr() string { return r.broker.Ready.Addr }

// start starts both anew, with the distance or without, and with more lines of broker configuration.
func (r *rewind) start(ctx context.Context, distant bool, more string) error {
	if err := r.stop(); err != nil {
		return err
	}
	if r.until == nil {
		r.until = make(map[string]map[int32]int64)
	}
	root, key := filepath.Join(r.dir, "store"), filepath.Join(r.dir, "data", "location.key")
	for _, dir := range []string{root, filepath.Dir(key)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	latency, rate := r.lab.Latency, r.lab.StreamRate
	if !distant {
		latency, rate = 0, 0
	}
	var err error
	r.store, err = control.Start(ctx, r.lab.Logs, "store", "--control", "--root", root, "--key-file", key, "--listen", "127.0.0.1:0",
		"--store-latency", latency.String(), "--store-stream-rate", fmt.Sprint(rate))
	if err != nil {
		return err
	}
	cfg := filepath.Join(r.dir, "broker.yaml")
	lines := []string{
		"log.dirs: " + filepath.Join(r.dir, "data"), "listeners: 127.0.0.1:0",
		"remote.log.manager.task.interval.ms: 200", "log.retention.check.interval.ms: 200", "log.segment.delete.delay.ms: 0",
		"remote.log.metadata.topic.num.partitions: 1",
		fmt.Sprintf("store.latency.ms: %d", latency.Milliseconds()), fmt.Sprintf("store.stream.rate: %d", rate),
		"store: file://" + root, "http.advertised.listener: " + r.store.Ready.HTTP, more,
	}
	if err := os.WriteFile(cfg, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	r.broker, err = control.Start(ctx, r.lab.Logs, "broker", "--control", "--config", cfg)
	return err
}

func (r *rewind) stop() error {
	var errs []error
	for _, c := range []**control.Child{&r.broker, &r.store} {
		if *c != nil {
			errs = append(errs, (*c).Stop(stopWait))
			*c = nil
		}
	}
	return errors.Join(errs...)
}

// peer is a real Apache Kafka with tiered storage, run by the script that the tests use as well.
type peer struct {
	lab   *lab
	dir   string
	port  int
	up    bool
	until map[string]map[int32]int64
}

func (p *peer) addr() string { return freeport.Address(p.port) }

func (p *peer) script(ctx context.Context, distant bool, args ...string) error {
	cmd := exec.CommandContext(ctx, p.lab.PeerScript, args...)
	cmd.Env = append(os.Environ(), "KAFKA_PEER_HOME="+p.lab.PeerHome)
	if distant {
		cmd.Env = append(cmd.Env, fmt.Sprintf("KAFKA_PEER_REMOTE_LATENCY_MS=%d", p.lab.Latency.Milliseconds()),
			fmt.Sprintf("KAFKA_PEER_REMOTE_STREAM_BYTES_PER_SECOND=%d", p.lab.StreamRate))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(p.lab.PeerScript), args[0], err, out)
	}
	return nil
}

// start starts it anew, with the distance or without.
func (p *peer) start(ctx context.Context, distant bool) error {
	if err := p.stop(); err != nil {
		return err
	}
	if p.until == nil {
		p.until = make(map[string]map[int32]int64)
	}
	if p.port != 0 {
		return p.launch(ctx, distant)
	}
	var err error
	for range startTries { // broker and controller, at the port after it; a port that was free may be taken by the time that the broker wants it
		if p.port, err = freeport.Find(2); err != nil {
			return err
		}
		if err = p.launch(ctx, distant); err == nil {
			return nil
		}
		if e := os.RemoveAll(p.dir); e != nil { // it knows the port
			return errors.Join(err, e)
		}
	}
	return err
}

const startTries = 3

func (p *peer) launch(ctx context.Context, distant bool) error {
	if err := p.script(ctx, distant, "start", strconv.Itoa(p.port), p.dir); err != nil {
		return err
	}
	p.up = true
	return nil
}

func (p *peer) stop() error {
	if !p.up {
		return nil
	}
	p.up = false
	return p.script(context.Background(), false, "stop", p.dir) // also after Ctrl-C
}

// topicSpec is one topic of the lab.
type topicSpec struct {
	name       string
	partitions int
	tiered     bool
	text       bool // compressible
}

const tierWait = 5 * time.Minute

// fill makes a topic, loads it and, if it is tiered, waits until all but the active segments are in the store only.
func (l *lab) fill(ctx context.Context, addr string, t topicSpec, until map[string]map[int32]int64) error {
	l.say("loading topic %s, %d MiB", t.name, l.Size>>20)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	segment := max(min(l.SegmentBytes, l.Size/int64(t.partitions)/4), 1<<20) // the least that a topic may have
	set := func(v any) *string { s := fmt.Sprint(v); return &s }
	configs := map[string]*string{"segment.bytes": set(segment), "retention.ms": set(-1)}
	if t.tiered {
		configs["remote.storage.enable"], configs["local.retention.bytes"] = set(true), set(1)
	}
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, int32(t.partitions), 1, configs, t.name); err != nil {
		return fmt.Errorf("creating topic %s: %w", t.name, err)
	}
	total := l.Size
	if t.tiered {
		total += segment * int64(t.partitions)
	}
	if t.text {
		err = backfill.LoadText(ctx, []string{addr}, t.name, t.partitions, total, l.RecordBytes)
	} else {
		err = backfill.Load(ctx, []string{addr}, t.name, t.partitions, total, l.RecordBytes, nil)
	}
	if err != nil {
		return err
	}
	perPartition := total / int64(l.RecordBytes) / int64(t.partitions)
	if !t.tiered {
		until[t.name] = map[int32]int64{0: perPartition}
		return nil
	}
	return l.waitTiered(ctx, cl, t, perPartition, segment, until)
}

func (l *lab) waitTiered(ctx context.Context, cl *kgo.Client, t topicSpec, end, segment int64, until map[string]map[int32]int64) error {
	deadline := time.Now().Add(tierWait)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		start, err := backfill.LocalStart(ctx, cl, t.name, t.partitions)
		if err != nil {
			return err
		}
		done := true
		for _, s := range start {
			done = done && (end-s)*int64(l.RecordBytes) <= segment
		}
		if done {
			until[t.name] = start
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("topic %s: after %v the local log still begins at %v, of %d records each", t.name, tierWait, start, end)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
