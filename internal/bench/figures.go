package bench

import (
	"context"
	"time"

	"github.com/rewind-kafka/rewind/internal/backfill"
)

// figure is one thing to measure. Each measure func says in its rows what was compared with what.
type figure struct {
	name, title string
	peer        bool // needs an Apache Kafka
	clusterOnly bool // needs no broker of ours
	measure     func(ctx context.Context, l *lab) ([]Row, error)
}

// figures in the order in which they run: with the distance first, then without, so that servers restart once.
var figures = []figure{
	{"direct", "direct, 1 partition, against Apache Kafka's remote reads and against the limits", true, false, measureDirect},
	{"direct-8", "direct, 8 partitions, against Apache Kafka's remote reads", true, false, measureDirectEight},
	{"broker", "our broker serving a plain client remotely, against Apache Kafka", true, false, measureBroker},
	{"ranges", "direct, 1 partition, against plain ranged GETs", false, false, measureRanges},
	{"broker-cpu", "broker CPU of a direct backfill against one through the broker", false, false, measureBrokerCPU},
	{"library", "the library straight on Apache Kafka", true, true, measureBare},
	{"gateway", "clients that know nothing of us, through the gateway", true, true, measureGateway},
	{"gateway-proxy", "the gateway where it only passes on", true, true, measureProxy},
	{"gateway-memory", "the gateway's memory under a crowd", true, true, measureGatewayMemory},
	{"aiven", "segments as Aiven's plug-in writes them", true, true, measureAiven},
	{"producer", "a steady producer beside eight backfills", true, true, measureProducer},
	{"peer-cpu", "Apache Kafka's CPU for backfills that pass it by", true, true, measurePeerCPU},
	{"no-distance", "no distance, records dropped undecoded, through the dialer, against Apache Kafka's remote reads", true, false, measureNoDistance},
}

// part is the share of the history that the slow sides read: their pace is steady, and a run would take minutes.
func part(until map[int32]int64, n int64) map[int32]int64 {
	out := make(map[int32]int64, len(until))
	for p, u := range until {
		out[p] = max(u/n, 1)
	}
	return out
}

const slowPart = 4

func (l *lab) run(job backfill.Job) func(ctx context.Context) (backfill.Result, error) {
	return func(ctx context.Context) (backfill.Result, error) { return backfill.RunJob(ctx, job, nil, l.Logs) }
}

// peerJob reads remotely from Apache Kafka at a consumer's defaults.
func (l *lab) peerJob(topic string) backfill.Job {
	j := l.job(l.peer.addr(), topic, l.peer.until)
	j.Until = part(j.Until, slowPart)
	return j
}

func (l *lab) directJob(topic string) backfill.Job {
	j := l.job(l.rewind.addr(), topic, l.rewind.until)
	j.Direct = true
	return j
}

func (l *lab) rangesJob(topic string) backfill.Job {
	j := l.directJob(topic)
	j.Mode = backfill.ModeRanges
	return j
}

func measureDirect(ctx context.Context, l *lab) ([]Row, error) {
	local := l.job(l.peer.addr(), topicLocal, l.peer.until)
	res, err := l.alternate(ctx,
		side{"direct", l.run(l.directJob(topicOne))},
		side{"Apache Kafka, remote", l.run(l.peerJob(topicOne))},
		side{"plain ranged GETs", l.run(l.rangesJob(topicOne))},
		side{"Apache Kafka, local log", l.run(local)},
	)
	if err != nil {
		return nil, err
	}
	direct, remote, ranges, kafkaLocal := median(res[0]), median(res[1]), median(res[2]), median(res[3])
	return []Row{
		{"direct / Apache Kafka remote, 1 partition", direct, remote, 20, "MiB/s"},
		{"direct / min(plain ranged GETs, Apache Kafka local log)", direct, min(ranges, kafkaLocal), 0.9, "MiB/s"},
		{"budget held by the direct reader, largest sample / budget", float64(memoryPeak(res[0])) / (1 << 20), float64(l.Memory) / (1 << 20), -1, "MiB"},
	}, nil
}

func memoryPeak(rs []backfill.Result) (most int64) {
	for _, r := range rs {
		most = max(most, r.MemoryPeak)
	}
	return most
}

func measureDirectEight(ctx context.Context, l *lab) ([]Row, error) {
	res, err := l.alternate(ctx,
		side{"direct, 8 partitions", l.run(l.directJob(topicEight))},
		side{"Apache Kafka, remote, 8 partitions", l.run(l.peerJob(topicEight))},
	)
	if err != nil {
		return nil, err
	}
	return []Row{
		{"direct / Apache Kafka remote, 8 partitions", median(res[0]), median(res[1]), 5, "MiB/s"},
		{"budget held by the direct reader of 8 partitions, largest sample / budget", float64(memoryPeak(res[0])) / (1 << 20), float64(l.Memory) / (1 << 20), -1, "MiB"},
	}, nil
}

func measureBroker(ctx context.Context, l *lab) ([]Row, error) {
	plain := l.job(l.rewind.addr(), topicOne, l.rewind.until)
	cold := func(ctx context.Context) (backfill.Result, error) { // a broker whose cache holds nothing
		if err := l.rewind.start(ctx, true, ""); err != nil {
			return backfill.Result{}, err
		}
		plain.Broker = l.rewind.addr()
		return backfill.RunJob(ctx, plain, nil, l.Logs)
	}
	kafkaLike := func(ctx context.Context) (backfill.Result, error) {
		if err := l.rewind.start(ctx, true, "remote.read.ahead.enable: false\nremote.read.cache.bytes: 0"); err != nil {
			return backfill.Result{}, err
		}
		j := plain
		j.Broker, j.Until = l.rewind.addr(), part(plain.Until, slowPart)
		return backfill.RunJob(ctx, j, nil, l.Logs)
	}
	res, err := l.alternate(ctx, side{"our broker, read-ahead", cold}, side{"Apache Kafka, remote", l.run(l.peerJob(topicOne))},
		side{"our broker, as Apache Kafka does it", kafkaLike})
	if err != nil {
		return nil, err
	}
	if err := l.rewind.start(ctx, true, ""); err != nil {
		return nil, err
	}
	return []Row{
		{"our broker with read-ahead / Apache Kafka remote, 1 partition", median(res[0]), median(res[1]), 10, "MiB/s"},
		{"our broker without / Apache Kafka remote (0.8 to 1.2: the demo's first row is true)", median(res[2]), median(res[1]), 0.8, "MiB/s"},
	}, nil
}

func measureRanges(ctx context.Context, l *lab) ([]Row, error) {
	res, err := l.alternate(ctx, side{"direct", l.run(l.directJob(topicOne))}, side{"plain ranged GETs", l.run(l.rangesJob(topicOne))})
	if err != nil {
		return nil, err
	}
	return []Row{{"direct / plain ranged GETs", median(res[0]), median(res[1]), 0, "MiB/s"}}, nil
}

const (
	cpuBytes = 4 << 30 // less has too few microseconds in it
	idleWait = 5 * time.Second
)

func measureBrokerCPU(ctx context.Context, l *lab) ([]Row, error) {
	repeats := int(max(1, (cpuBytes+l.Size-1)/l.Size))
	idle, _, err := l.brokerCPU(func() error { time.Sleep(idleWait); return nil })
	if err != nil {
		return nil, err
	}
	perSecond := idle / idleWait.Seconds()
	cost := func(job backfill.Job) (cpu float64, fetches int64, err error) {
		start := time.Now()
		cpu, fetches, err = l.brokerCPU(func() error {
			for range repeats {
				if _, err := backfill.RunJob(ctx, job, nil, l.Logs); err != nil {
					return err
				}
			}
			return nil
		})
		return max(0, cpu-perSecond*time.Since(start).Seconds()), fetches, err
	}
	direct, fetches, err := cost(l.directJob(topicOne))
	if err != nil {
		return nil, err
	}
	through, _, err := cost(l.job(l.rewind.addr(), topicOne, l.rewind.until))
	if err != nil {
		return nil, err
	}
	segments := float64(l.Size) / float64(l.SegmentBytes) * float64(repeats)
	return []Row{
		{"broker CPU: direct / through it (at most 0.02)", direct, through, -0.02, "s"},
		{"all Fetch requests of the direct reads / segments read (each read ends with two that bring no location)", float64(fetches), segments, 0, ""},
	}, nil
}

// brokerCPU is what our broker uses while f runs.
func (l *lab) brokerCPU(f func() error) (cpu float64, fetches int64, err error) {
	before, err := l.rewind.broker.Usage()
	if err != nil {
		return 0, 0, err
	}
	if err := f(); err != nil {
		return 0, 0, err
	}
	after, err := l.rewind.broker.Usage()
	return after.CPUSeconds - before.CPUSeconds, after.Fetches - before.Fetches, err
}

func measureNoDistance(ctx context.Context, l *lab) ([]Row, error) {
	if err := l.rewind.start(ctx, false, ""); err != nil {
		return nil, err
	}
	if err := l.peer.start(ctx, false); err != nil {
		return nil, err
	}
	direct := l.directJob(topicOne)
	direct.Mode = backfill.ModeRaw
	kafka := l.job(l.peer.addr(), topicOne, l.peer.until)
	kafka.Mode = backfill.ModeRaw
	warm := kafka
	warm.Until = map[int32]int64{0: 1}
	if _, err := backfill.RunJob(ctx, warm, nil, l.Logs); err != nil { // right after a start it cannot serve remote reads yet
		return nil, err
	}
	res, err := l.alternate(ctx, side{"direct, raw reader", l.run(direct)}, side{"Apache Kafka remote, raw reader", l.run(kafka)})
	if err != nil {
		return nil, err
	}
	return []Row{{"no distance, undecoded: direct / Apache Kafka remote", median(res[0]), median(res[1]), 3, "MiB/s"}}, nil
}
