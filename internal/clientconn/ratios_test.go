package clientconn

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// The ratios are measured when REWIND_BENCH_PROXY is set (make bench-proxy), and bound to be met when it says "check".
const benchProxy = "REWIND_BENCH_PROXY"

// carry is one way to stand between two sockets; it returns when both have closed.
type carry struct {
	name string
	run  func(client, upstream net.Conn)
}

func bare(client, upstream net.Conn) {
	both(client, upstream, func(to, from net.Conn) { _, _ = io.Copy(to, from) })
}

func bareCopy(client, upstream net.Conn) {
	both(client, upstream, func(to, from net.Conn) {
		// Hidden behind interfaces without ReaderFrom: through memory.
		_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 64<<10))
	})
}

func both(client, upstream net.Conn, copies func(to, from net.Conn)) {
	var w sync.WaitGroup
	for _, p := range [][2]net.Conn{{client, upstream}, {upstream, client}} {
		w.Go(func() {
			copies(p[0], p[1])
			client.Close()
			upstream.Close()
		})
	}
	w.Wait()
}

func forwarding(client, upstream net.Conn) {
	_ = New(Socket(client), upstream, Options{}).Run(handlerFuncs{})
}

// pulling answers each fetch by a stream that a walker sees, as history does.
func pulling(client, upstream net.Conn) {
	var c *Conn
	c = New(Socket(client), upstream, Options{})
	_ = c.Run(puller(&c, func(_ *Incoming, a *Answer) error {
		w, err := wire.NewFetchWalker(12)
		if err != nil {
			return err
		}
		w.HideNodes, w.SetSession, w.Session = true, true, 7
		a.Transform, a.Skip = w.Walk, w
		return nil
	}))
}

// model is a broker: it answers every request by the same body.
func model(conn net.Conn, body []byte) {
	br := newDrainer(conn)
	for {
		corr, ok := br.frame(8)
		if !ok {
			return
		}
		f := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
		f = binary.BigEndian.AppendUint32(f, corr)
		b := net.Buffers{f, body}
		if _, err := b.WriteTo(conn); err != nil {
			return
		}
	}
}

// drainer reads frames and throws them away.
type drainer struct {
	r   io.Reader
	buf []byte
}

func newDrainer(r io.Reader) *drainer { return &drainer{r, make([]byte, 256<<10)} }

// frame reads one; at is where its correlation id is.
func (d *drainer) frame(at int) (corr uint32, ok bool) {
	if _, err := io.ReadFull(d.r, d.buf[:at+4]); err != nil {
		return 0, false
	}
	corr = binary.BigEndian.Uint32(d.buf[at:])
	left := int(binary.BigEndian.Uint32(d.buf)) - at
	for left > 0 {
		n, err := d.r.Read(d.buf[:min(left, len(d.buf))])
		if err != nil {
			return 0, false
		}
		left -= n
	}
	return corr, true
}

// workload is what a client does: requests of one kind, some in flight at once.
type workload struct {
	name     string
	request  []byte
	response []byte
	inFlight int
	n        int
	ways     []carry
	latency  bool
}

func fetchBody(size int) []byte {
	r := wire.FetchResponse{Topics: []wire.FetchTopic{{Topic: "t", Partitions: []wire.FetchPartition{{Records: wire.Records{Bufs: [][]byte{make([]byte, size)}}}}}}}
	var all []byte
	for _, b := range r.Buffers(12, 1, nil) {
		all = append(all, b...)
	}
	return all[8:]
}

func workloads() []workload {
	id := "bench"
	produce := kmsg.NewPtrProduceRequest()
	produce.Version, produce.Acks = 9, 1
	t := kmsg.NewProduceRequestTopic()
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = make([]byte, 1<<20)
	t.Partitions = append(t.Partitions, p)
	produce.Topics = append(produce.Topics, t)
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version = 12
	req := wire.AppendRequest(nil, fetch, 1, &id)
	small := kmsg.NewPtrMetadataRequest()
	small.Version = 9
	refs, forward, pull := []carry{{"bare", bare}, {"copy", bareCopy}}, carry{"forwarded", forwarding}, carry{"pulled", pulling}
	all := append(slices.Clone(refs), forward, pull)
	return []workload{
		{name: "produce 1 MiB", request: wire.AppendRequest(nil, produce, 1, &id), response: make([]byte, 60), inFlight: 4, n: 300, ways: append(slices.Clone(refs), forward)},
		{name: "fetch 1 MiB", request: req, response: fetchBody(1 << 20), inFlight: 1, n: 300, ways: all},
		{name: "fetch 8 MiB", request: req, response: fetchBody(8 << 20), inFlight: 1, n: 50, ways: all},
		{name: "request 1 KiB, p50", request: wire.AppendRequest(nil, small, 1, &id), response: make([]byte, 1024), inFlight: 1, n: 1500, ways: append(slices.Clone(refs), forward), latency: true},
	}
}

// figure is one run: bytes a second, or the median time of a request in seconds; and the process's CPU seconds, both ends included, which other work on
// the machine moves less.
type figure struct{ value, cpu float64 }

func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// measure runs a workload once.
func measure(t *testing.T, w workload, way carry) figure {
	t.Helper()
	client, ours := tcpPair(t)
	upstream, broker := tcpPair(t)
	var running sync.WaitGroup
	running.Go(func() { way.run(ours, upstream) })
	running.Go(func() { model(broker, w.response) })
	defer running.Wait()
	defer broker.Close()
	defer client.Close()

	room := make(chan struct{}, w.inFlight)
	running.Go(func() {
		for range w.n {
			room <- struct{}{}
			if _, err := client.Write(w.request); err != nil {
				return
			}
		}
	})
	d := newDrainer(client)
	start, last, cpu := time.Now(), time.Now(), cpuSeconds()
	took := make([]time.Duration, 0, w.n)
	for range w.n {
		if _, ok := d.frame(4); !ok {
			t.Fatal("cut off")
		}
		now := time.Now()
		took = append(took, now.Sub(last))
		last = now
		<-room
	}
	cpu = cpuSeconds() - cpu
	if w.latency {
		slices.Sort(took)
		return figure{took[len(took)/2].Seconds(), cpu}
	}
	return figure{float64(w.n*(len(w.request)+len(w.response))) / time.Since(start).Seconds(), cpu}
}

// TestProxyRatios compares a Conn with io.Copy both ways, interleaved in one run. "bare" lets the kernel splice, "copy" goes through memory.
func TestProxyRatios(t *testing.T) {
	mode := os.Getenv(benchProxy)
	if mode == "" {
		t.Skip("measures only when asked: make bench-proxy")
	}
	const rounds = 9
	for _, w := range workloads() {
		t.Run(w.name, func(t *testing.T) {
			got := make(map[string][]figure)
			for round := range rounds + 1 {
				for i := range w.ways {
					way := w.ways[(i+round)%len(w.ways)]
					v := measure(t, w, way)
					if round > 0 { // the first warms up
						got[way.name] = append(got[way.name], v)
					}
				}
			}
			for _, way := range w.ways {
				report(t, w, way.name, got, mode == "check")
			}
		})
	}
}

// report prints one way's figures against the references', as medians over rounds with the least and the most.
func report(t *testing.T, w workload, name string, got map[string][]figure, check bool) {
	line := fmt.Sprintf("%-20s %-10s", w.name, name)
	if w.latency {
		line += fmt.Sprintf(" %8.1f us", 1e6*median(got[name], value))
	} else {
		line += fmt.Sprintf(" %8.0f MB/s", median(got[name], value)/1e6)
	}
	for _, ref := range []string{"bare", "copy"} {
		if name == "bare" || name == "copy" {
			break
		}
		var each, work []float64
		for i, v := range got[name] {
			r := got[ref][i]
			work = append(work, v.cpu/r.cpu)
			if w.latency {
				each = append(each, 1e6*(v.value-r.value))
			} else {
				each = append(each, v.value/r.value)
			}
		}
		m := median(each, same)
		line += fmt.Sprintf("   to %s %.2f (%.2f to %.2f), CPU %.2f (%.2f to %.2f)", ref, m, slices.Min(each), slices.Max(each), median(work, same), slices.Min(work), slices.Max(work))
		switch {
		case !check:
		case w.latency && m > 200:
			t.Errorf("%s %s: %.0f us more than %s, at most 200 wanted", w.name, name, m, ref)
		case !w.latency && m < 0.95:
			t.Errorf("%s %s: %.2f of %s, 0.95 wanted", w.name, name, m, ref)
		}
	}
	fmt.Println(line)
}

func value(f figure) float64 { return f.value }
func same(f float64) float64 { return f }

func median[T any](all []T, of func(T) float64) float64 {
	v := make([]float64, len(all))
	for i := range all {
		v[i] = of(all[i])
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkForward shows allocations: they do not grow with the frame.
func BenchmarkForward(b *testing.B) {
	for _, size := range []int{1 << 20, 16 << 20} {
		for _, way := range []carry{{"forwarded", forwarding}, {"pulled", pulling}} {
			b.Run(fmt.Sprintf("%s/%dMiB", way.name, size>>20), func(b *testing.B) {
				client, ours := tcpPair(b)
				upstream, broker := tcpPair(b)
				var running sync.WaitGroup
				running.Go(func() { way.run(ours, upstream) })
				body := fetchBody(size)
				running.Go(func() { model(broker, body) })
				defer running.Wait()
				defer broker.Close()
				defer client.Close()
				fetch := kmsg.NewPtrFetchRequest()
				fetch.Version = 12
				req, d := wire.AppendRequest(nil, fetch, 1, nil), newDrainer(client)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := client.Write(req); err != nil {
						b.Fatal(err)
					}
					if _, ok := d.frame(4); !ok {
						b.Fatal("cut off")
					}
				}
			})
		}
	}
}
