package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/rewind-kafka/rewind/internal/backfill"
)

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// bareProxy copies bytes between its clients and one address and knows nothing of Kafka: the yardstick of what any process in between costs.
type bareProxy struct {
	l       net.Listener
	to      string
	running sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func startBareProxy(to string) (*bareProxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &bareProxy{l: l, to: to}
	p.running.Go(p.accept)
	return p, nil
}

func (p *bareProxy) addr() string { return p.l.Addr().String() }

func (p *bareProxy) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, p.addr())
}

func (p *bareProxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return // closed
		}
		up, err := net.Dial("tcp", p.to)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, c, up)
		p.mu.Unlock()
		for _, ends := range [][2]net.Conn{{c, up}, {up, c}} {
			p.running.Go(func() {
				_, _ = io.Copy(ends[0], ends[1]) // either end may close at any time
				c.Close()
				up.Close()
			})
		}
	}
}

func (p *bareProxy) close() {
	p.l.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// proxyRounds is how often both proxies are run at full speed. Single runs of the same bare proxy differ by far more than the bound allows.
const proxyRounds = 9

// measureProxy compares the gateway, where it only passes on, with a bare proxy and with no proxy at all.
func measureProxy(ctx context.Context, l *lab) (rows []Row, err error) {
	if err := l.createTail(ctx); err != nil {
		return nil, err
	}
	g, err := l.startGateway(ctx, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	bare, err := startBareProxy(l.peer.addr())
	if err != nil {
		return nil, err
	}
	defer bare.close()
	jobs := func(mode string, pace int64) []side {
		j := l.job(l.peer.addr(), topicLocal, l.peer.until)
		j.Mode, j.Pace, j.Write, j.RecordBytes = mode, pace, l.Size/2, l.RecordBytes
		if mode == backfill.ModeProducer {
			j.Topic = topicTail
		}
		gw, through := j, j
		gw.Broker, through.Via = g.addr(), bare.addr()
		what := map[string]string{backfill.ModeProducer: "produce", backfill.ModeConsumer: "tail read"}[mode]
		return []side{{what + ", gateway", l.run(gw)}, {what + ", bare proxy", l.run(through)}, {what + ", no proxy", l.run(j)}}
	}
	for _, mode := range []string{backfill.ModeProducer, backfill.ModeConsumer} {
		if _, err := l.rounds(ctx, 1, jobs(mode, 0)...); err != nil { // does not count: Kafka's virtual machine is cold
			return nil, err
		}
		res, err := l.rounds(ctx, max(l.Runs, proxyRounds), jobs(mode, 0)...)
		if err != nil {
			return nil, err
		}
		half := int64(median(res[2]) * (1 << 20) / 2)
		paced, err := l.alternate(ctx, jobs(mode, half)...)
		if err != nil {
			return nil, err
		}
		rows = append(rows,
			Row{mode + ", passed through: gateway / bare proxy", median(res[0]), median(res[1]), 0.95, "MiB/s"},
			Row{mode + ", at half of the maximum: gateway / no proxy", median(paced[0]), median(paced[2]), 0.99, "MiB/s"})
	}
	added, err := l.addedLatency(ctx, g, bare)
	return append(rows, added...), err
}

// maxAdded is the bound of what the gateway may add to the median time of a produce, in ms.
const maxAdded = 0.3

func (l *lab) addedLatency(ctx context.Context, g *gateway, bare *bareProxy) ([]Row, error) {
	var added, addedBare []float64
	for n := range l.Runs {
		direct, _, _, err := l.produceSteadily(ctx, l.peer.addr(), nil)
		if err != nil {
			return nil, err
		}
		through, _, _, err := l.produceSteadily(ctx, g.addr(), nil)
		if err != nil {
			return nil, err
		}
		copied, _, _, err := l.produceSteadily(ctx, l.peer.addr(), bare.dial)
		if err != nil {
			return nil, err
		}
		l.say("  run %d: p50 of a produce %.2f ms direct, %.2f bare proxy, %.2f gateway", n+1, direct, copied, through)
		added, addedBare = append(added, through-direct), append(addedBare, copied-direct)
	}
	slices.Sort(added)
	slices.Sort(addedBare)
	return []Row{
		{"what the gateway adds to the median produce / 0.3 ms", added[len(added)/2], maxAdded, -1, "ms"},
		{"what a bare proxy adds / 0.3 ms", addedBare[len(addedBare)/2], maxAdded, 0, "ms"},
	}, nil
}
