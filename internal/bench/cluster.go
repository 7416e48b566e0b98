package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rewind-kafka/rewind/internal/backfill"
	"github.com/rewind-kafka/rewind/internal/control"
	"github.com/rewind-kafka/rewind/internal/freeport"
	"github.com/rewind-kafka/rewind/internal/usage"
)

// The figures of this file are about an Apache Kafka that stays as it is: the library resolves by itself, or a gateway stands before it.

// remoteDir is the store of the peer's plug-in.
func (p *peer) remoteDir() string { return filepath.Join(p.dir, "remote", "kafka-tiered-storage") }

// cpu is what the peer's process has used so far.
func (p *peer) cpu() (float64, error) {
	pid, err := pidOf(filepath.Join(p.dir, "broker.pid"))
	if err != nil {
		return 0, err
	}
	return usage.Process(pid)
}

// gateway is one `rewind gateway` before the peer.
type gateway struct {
	lab   *lab
	child *control.Child
}

func (g *gateway) addr() string { return g.child.Ready.Addr }

// gatewayMemory is the budget of the gateways that are measured; half of it is cache.
const gatewayMemory = 256 << 20

// startGateway starts one, with the distance of the lab before the store, or without.
func (l *lab) startGateway(ctx context.Context, distant bool, more ...string) (*gateway, error) {
	port, err := freeport.Find(3) // bootstrap, the broker, and one to spare
	if err != nil {
		return nil, err
	}
	latency, rate := l.Latency, l.StreamRate
	if !distant {
		latency, rate = 0, 0
	}
	dir := filepath.Join(l.dir, "gateway")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	args := []string{
		"gateway", "--control", "--upstream", l.peer.addr(), "--listen", freeport.Address(port), "--store", "file://" + l.peer.remoteDir(), "--layout", "kafka",
		"--set", fmt.Sprintf("store.latency.ms=%d", latency.Milliseconds()), "--set", fmt.Sprintf("store.stream.rate=%d", rate),
		"--set", fmt.Sprintf("remote.read.memory.bytes=%d", gatewayMemory), "--set", fmt.Sprintf("remote.read.cache.bytes=%d", gatewayMemory/2),
		"--set", fmt.Sprintf("remote.read.parallelism=%d", l.Parallelism),
	}
	for _, m := range more {
		args = append(args, "--set", m)
	}
	c, err := control.Start(ctx, l.Logs, args...)
	if err != nil {
		return nil, err
	}
	return &gateway{lab: l, child: c}, nil
}

func (g *gateway) stop() error { return g.child.Stop(stopWait) }

// through runs f with a gateway of its own: what one run has cached does not serve the next.
func (l *lab) through(job func(addr string) func(context.Context) (backfill.Result, error)) func(context.Context) (backfill.Result, error) {
	return func(ctx context.Context) (res backfill.Result, err error) {
		g, err := l.startGateway(ctx, true)
		if err != nil {
			return res, err
		}
		defer func() { err = errors.Join(err, g.stop()) }()
		return job(g.addr())(ctx)
	}
}

// bareJob reads with the library straight on the peer.
func (l *lab) bareJob(topic string, distant bool) backfill.Job {
	j := l.job(l.peer.addr(), topic, l.peer.until)
	j.Direct, j.Bare = true, &backfill.Bare{Dir: l.peer.remoteDir()}
	if distant {
		j.Bare.Latency, j.Bare.StreamRate = l.Latency, l.StreamRate
	}
	return j
}

func measureBare(ctx context.Context, l *lab) ([]Row, error) {
	local := l.job(l.peer.addr(), topicLocal, l.peer.until)
	res, err := l.alternate(ctx,
		side{"library on Apache Kafka", l.run(l.bareJob(topicOne, true))},
		side{"Apache Kafka, remote", l.run(l.peerJob(topicOne))},
		side{"Apache Kafka, local log", l.run(local)},
		side{"library on Apache Kafka, 8 partitions", l.run(l.bareJob(topicEight, true))},
		side{"Apache Kafka, remote, 8 partitions", l.run(l.peerJob(topicEight))},
	)
	if err != nil {
		return nil, err
	}
	one, remote, kafkaLocal := median(res[0]), median(res[1]), median(res[2])
	return []Row{
		{"library on Apache Kafka / its remote reads, 1 partition", one, remote, 20, "MiB/s"},
		{"library on Apache Kafka / its local log", one, kafkaLocal, 0.9, "MiB/s"},
		{"library on Apache Kafka / its remote reads, 8 partitions", median(res[3]), median(res[4]), 5, "MiB/s"},
		{"budget held by the library, largest sample / budget", float64(max(memoryPeak(res[0]), memoryPeak(res[3]))) / (1 << 20), float64(l.Memory) / (1 << 20), -1, "MiB"},
	}, nil
}

// gatewayClient is a client that knows nothing of us.
type gatewayClient struct {
	name  string
	floor float64 // against its own speed on remote reads
	read  func(l *lab, addr, topic string, records int64) func(context.Context) (backfill.Result, error)
}

var gatewayClients = []gatewayClient{{"kgo", 10, readKgo}, {"Java", 6, readJava}, {"librdkafka", 10, readKcat}}

// localShare: a client that reads its history at so much of the speed at which it reads a local log is held back by itself.
const localShare = 0.8

func measureGateway(ctx context.Context, l *lab) (rows []Row, err error) {
	records := min(l.peer.until[topicOne][0], l.peer.until[topicLocal][0])
	for _, c := range gatewayClients {
		res, err := l.alternate(ctx,
			side{c.name + " through the gateway", l.through(func(addr string) func(context.Context) (backfill.Result, error) {
				return c.read(l, addr, topicOne, records)
			})},
			side{c.name + " on Apache Kafka, remote", c.read(l, l.peer.addr(), topicOne, records/slowPart)},
			side{c.name + " on Apache Kafka, local log", c.read(l, l.peer.addr(), topicLocal, records)},
		)
		if err != nil {
			return nil, err
		}
		through, remote, local := median(res[0]), median(res[1]), median(res[2])
		floor, share := c.floor, localShare
		if through >= localShare*local { // one of the two is enough
			floor = 0
		} else {
			share = 0
		}
		rows = append(rows,
			Row{c.name + " through the gateway / on Apache Kafka's remote reads, 1 partition (or the next)", through, remote, floor, "MiB/s"},
			Row{c.name + " through the gateway / on Apache Kafka's local log", through, local, share, "MiB/s"})
	}
	return rows, nil
}

// peerCPUBytes are read for one figure of Apache Kafka's CPU.
const peerCPUBytes = 8 << 30

// measurePeerCPU compares what Apache Kafka spends on a backfill that it serves with one that it does not.
func measurePeerCPU(ctx context.Context, l *lab) (rows []Row, err error) {
	repeats := int(max(1, (peerCPUBytes+l.Size-1)/l.Size))
	idle, err := l.peerCPU(func() error { return sleep(ctx, 2*idleWait) })
	if err != nil {
		return nil, err
	}
	perSecond := idle / (2 * idleWait).Seconds()
	cost := func(run func(context.Context) (backfill.Result, error), repeats int) (float64, error) {
		start := time.Now()
		cpu, err := l.peerCPU(func() error {
			for range repeats {
				if _, err := run(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		return max(0, cpu-perSecond*time.Since(start).Seconds()) / float64(repeats), err
	}
	g, err := l.startGateway(ctx, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	records := l.peer.until[topicOne][0]
	through, err := cost(readKgo(l, g.addr(), topicOne, records), repeats)
	if err != nil {
		return nil, err
	}
	bare, err := cost(l.run(l.bareJob(topicOne, true)), repeats)
	if err != nil {
		return nil, err
	}
	serving, err := cost(l.run(l.job(l.peer.addr(), topicOne, l.peer.until)), 1)
	if err != nil {
		return nil, err
	}
	per := fmt.Sprintf("CPU s for %d MiB", l.Size>>20)
	return []Row{
		{"Apache Kafka's CPU above idle: a backfill through the gateway / one that it serves", through, serving, -0.02, per},
		{"Apache Kafka's CPU above idle: a backfill by the library / one that it serves", bare, serving, -0.02, per},
	}, nil
}

func (l *lab) peerCPU(f func() error) (float64, error) {
	before, err := l.peer.cpu()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := l.peer.cpu()
	return after - before, err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	crowdMemory     = 64 << 20
	gatewayOverhead = 100 << 20
)

// measureGatewayMemory lets a crowd read through one gateway.
func measureGatewayMemory(ctx context.Context, l *lab) (rows []Row, err error) {
	g, err := l.startGateway(ctx, true, fmt.Sprintf("remote.read.cache.bytes=%d", crowdMemory/2), fmt.Sprintf("remote.read.memory.bytes=%d", crowdMemory))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	readers, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, l.Readers)
	job := l.job(g.addr(), topicEight, l.peer.until)
	job.Until = part(job.Until, slowPart)
	for range l.Readers {
		go func() {
			_, err := backfill.Read(readers, backfill.Options{Brokers: []string{g.addr()}, Topic: job.Topic, Until: job.Until})
			errs <- err
		}()
	}
	var all []error
	for range l.Readers {
		if err := <-errs; err != nil {
			all = append(all, err)
			cancel()
		}
	}
	if len(all) > 0 {
		return nil, all[0]
	}
	u, err := g.child.Usage()
	if err != nil {
		return nil, err
	}
	return []Row{{fmt.Sprintf("gateway, %d readers of 8 partitions: resident / its budget and 100 MiB", l.Readers),
		float64(u.MaxRSS) / (1 << 10), float64(crowdMemory+gatewayOverhead) / (1 << 20), -1, "MiB"}}, nil
}
