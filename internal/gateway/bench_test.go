package gateway

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// bareProxy copies bytes both ways, which is the least that anything in between costs.
func bareProxy(b *testing.B, to string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var running sync.WaitGroup
	b.Cleanup(func() { l.Close(); running.Wait() })
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				return
			}
			running.Go(func() { io.Copy(in, out); in.Close() })
			running.Go(func() { io.Copy(out, in); out.Close() })
		}
	})
	return l.Addr().String()
}

// echoBroker answers each request with the same frame and puts the correlation id in.
func echoBroker(b *testing.B, frame []byte) *fakeBroker {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	f := &fakeBroker{l: l, conns: make(map[net.Conn]struct{})}
	f.done.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns[nc] = struct{}{}
			f.mu.Unlock()
			f.done.Go(func() {
				out, in := append([]byte(nil), frame...), []byte(nil)
				for {
					in, err := wire.ReadFrame(nc, 1<<30, in)
					if err != nil {
						return
					}
					copy(out[4:8], in[4:8])
					if _, err := nc.Write(out); err != nil {
						return
					}
				}
			})
		}
	})
	b.Cleanup(f.stop)
	return f
}

func benchThrough(b *testing.B, req kmsg.Request, resp kmsg.Response, bytes int64) {
	broker := echoBroker(b, wire.AppendResponse(nil, resp, 0))
	g := startGateway(b, Options{Upstream: []string{broker.addr()}, PollInterval: -1, Brokers: noBrokers})
	id := "bench"
	frame := wire.AppendRequest(nil, req, 1, &id)
	for _, way := range []struct{ name, addr string }{{"direct", broker.addr()}, {"bare", bareProxy(b, broker.addr())}, {"gateway", g.Addr().String()}} {
		b.Run(way.name, func(b *testing.B) {
			nc, err := net.Dial("tcp", way.addr)
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			b.SetBytes(bytes)
			b.ReportAllocs()
			var in []byte
			for b.Loop() {
				if _, err := nc.Write(frame); err != nil {
					b.Fatal(err)
				}
				if in, err = wire.ReadFrame(nc, 1<<30, in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchProduce(b *testing.B, size int) {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 12, 1
	t, p := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	t.Topic, p.Records = "topic", make([]byte, size)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = 12
	rt, rp := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
	rt.Topic, rt.Partitions = "topic", append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	benchThrough(b, req, resp, int64(size))
}

func benchFetch(b *testing.B, size int) {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 17
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 17
	t, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
	p.RecordBatches = make([]byte, size)
	t.Partitions = append(t.Partitions, p)
	resp.Topics = append(resp.Topics, t)
	benchThrough(b, req, resp, int64(size))
}

// One request at a time: what a way through costs in waiting.
func BenchmarkProduce1KiB(b *testing.B) { benchProduce(b, 1<<10) }
func BenchmarkProduce1MiB(b *testing.B) { benchProduce(b, 1<<20) }
func BenchmarkFetch1KiB(b *testing.B)   { benchFetch(b, 1<<10) }
func BenchmarkFetch1MiB(b *testing.B)   { benchFetch(b, 1<<20) }
func BenchmarkFetch8MiB(b *testing.B)   { benchFetch(b, 8<<20) }
