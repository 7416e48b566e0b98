package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// cutBroker answers the first request of each connection with the first bytes of a response, and ends it then. What it got of requests that were cut off themselves it does not answer.
type cutBroker struct {
	l     net.Listener
	reset bool
	cut   atomic.Int64

	mu   sync.Mutex
	resp kmsg.Response
	done sync.WaitGroup
}

func startCutBroker(t *testing.T) *cutBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &cutBroker{l: l}
	b.done.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			b.done.Go(func() { b.serve(nc.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() { l.Close(); b.done.Wait() })
	return b
}

func (b *cutBroker) serve(nc *net.TCPConn) {
	defer nc.Close()
	frame, err := wire.ReadFrame(nc, 1<<20, nil)
	if err != nil {
		return
	}
	h, err := wire.ParseRequestHeader(frame)
	if err != nil {
		return
	}
	b.mu.Lock()
	resp, reset := b.resp, b.reset
	b.mu.Unlock()
	out := wire.AppendResponse(nil, resp, h.CorrelationID)
	cut := int(b.cut.Load())
	if _, err := nc.Write(out[:min(cut, len(out))]); err != nil {
		return
	}
	if cut > len(out) { // whole, and the connection stays
		_, _ = io.Copy(io.Discard, nc)
		return
	}
	if reset {
		_ = nc.SetLinger(0)
	}
}

// partly reads what comes until the end, and fails if none comes.
func partly(t *testing.T, nc net.Conn) []byte {
	t.Helper()
	got, err := io.ReadAll(nc)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		t.Fatalf("the connection does not end; %d bytes have come", len(got))
	}
	return got
}

// requestsOfEveryWay are requests that go each of the ways through a gateway.
func requestsOfEveryWay() (all []kmsg.Request) {
	for _, c := range []struct{ key, version int16 }{
		{keyMetadata, 12}, {keyMetadata, 1}, {keyFindCoordinator, 4}, {keyApiVersions, 3}, {keyProduce, 10}, {keyFetch, 4}, {keyFetch, 12}, {keyFetch, 17}, {keyShareFetch, 1},
		{keyShareAcknowledge, 1}, {keyDescribeCluster, 1}, {9, 8}, {keySaslHandshake, 1}, {keySaslAuthenticate, 2},
	} {
		r := kmsg.RequestForKey(c.key)
		r.SetVersion(c.version)
		switch r := r.(type) {
		case *kmsg.ProduceRequest:
			r.Acks = -1
		case *kmsg.FetchRequest:
			topic, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
			p.PartitionMaxBytes = 1 << 20
			topic.Topic, topic.TopicID, topic.Partitions = "past", idOfAll, append(topic.Partitions, p)
			r.MaxBytes, r.Topics = 1<<20, append(r.Topics, topic)
		}
		all = append(all, r)
	}
	return all
}

// answerTo is an answer with as much in it as there may be; that to a fetch is about what was asked.
func answerTo(req kmsg.Request) kmsg.Response {
	resp := filled(req.Key(), req.GetVersion())
	if f, ok := resp.(*kmsg.FetchResponse); ok {
		topic, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.LastStableOffset, p.RecordBatches = 10, 10, bytes.Repeat([]byte("record"), 100)
		topic.Topic, topic.TopicID, topic.Partitions = "past", idOfAll, append(topic.Partitions, p)
		f.ErrorCode, f.SessionID, f.ThrottleMillis, f.Topics = 0, 0, 0, []kmsg.FetchResponseTopic{topic}
	}
	return resp
}

// A broker may go at any byte of a response. The client gets what was sent up to there at most, the connection ends, and the gateway serves the next one.
func TestBrokerEndsAtAnyByte(t *testing.T) {
	b := startCutBroker(t)
	passing := startGateway(t, Options{Upstream: []string{b.l.Addr().String()}, PollInterval: -1, Brokers: noBrokers, Logger: quiet()})
	reading := startGateway(t, Options{Upstream: []string{b.l.Addr().String()}, PollInterval: -1, Brokers: noBrokers, Logger: quiet(), History: &History{
		Resolver: &allLocal{learnt: make(map[remotestorage.TopicIDPartition]resolve.Learnt)}, Read: remote.Options{Budget: remote.NewBudget(64 << 20)}}})
	for name, g := range map[string]*Gateway{"passing": passing, "reading": reading} {
		for _, req := range requestsOfEveryWay() {
			t.Run(fmt.Sprintf("%s/%s/%d", name, kmsg.NameForKey(req.Key()), req.GetVersion()), func(t *testing.T) { endsAtAnyByte(t, b, g, req) })
		}
		eventually(t, "all connections to have ended", func() bool { return g.Connections() == 0 })
	}
}

func endsAtAnyByte(t *testing.T, b *cutBroker, g *Gateway, req kmsg.Request) {
	resp := answerTo(req)
	size := len(wire.AppendResponse(nil, resp, 1))
	ask := func(cut int, reset bool) net.Conn {
		t.Helper()
		b.mu.Lock()
		b.resp, b.reset = resp, reset
		b.mu.Unlock()
		b.cut.Store(int64(cut))
		nc, err := net.Dial("tcp", g.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write(wire.AppendRequest(nil, req, 4711, kmsg.StringPtr("test"))); err != nil {
			t.Fatal(err)
		}
		return nc
	}
	nc := ask(size+1, false)
	frame, err := wire.ReadFrame(nc, 1<<20, nil)
	nc.Close()
	if err != nil {
		t.Fatal("whole: ", err)
	}
	whole := append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	for cut := 0; cut <= size; cut += 1 + size/150 {
		for _, reset := range []bool{false, true} {
			nc := ask(cut, reset)
			got := partly(t, nc)
			nc.Close()
			complete := len(got) >= 4 && len(got) >= 4+int(binary.BigEndian.Uint32(got))
			// Where fetches are answered here, the answer may be put together one time and streamed another.
			if cut < size && complete || g.opts.History == nil && !bytes.HasPrefix(whole, got) {
				t.Fatalf("cut after %d of %d bytes, the client gets %d of %d: %x", cut, size, len(got), len(whole), got)
			}
		}
	}
}

// A client may go at any byte of a request: both connections end, whichever way the request would have gone.
func TestClientEndsAtAnyByte(t *testing.T) {
	b := startCutBroker(t)
	b.cut.Store(1 << 30)
	g := startGateway(t, Options{Upstream: []string{b.l.Addr().String()}, PollInterval: -1, Brokers: noBrokers, Logger: quiet()})
	for _, req := range requestsOfEveryWay() {
		b.mu.Lock()
		b.resp = answerTo(req)
		b.mu.Unlock()
		frame := wire.AppendRequest(nil, req, 4711, kmsg.StringPtr("test"))
		for cut := range len(frame) {
			for _, end := range []func(*net.TCPConn) error{(*net.TCPConn).CloseWrite, func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) }} {
				nc, err := net.DialTCP("tcp", nil, g.Addr().(*net.TCPAddr))
				if err != nil {
					t.Fatal(err)
				}
				if err := nc.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
					t.Fatal(err)
				}
				if _, err := nc.Write(frame[:cut]); err != nil {
					t.Fatal(err)
				}
				if err := end(nc); err != nil {
					t.Fatal(err)
				}
				if _, err := nc.Write(nil); err == nil {
					if got := partly(t, nc); len(got) > 0 {
						t.Fatalf("%s, %d bytes of %d are answered: %x", kmsg.NameForKey(req.Key()), cut, len(frame), got)
					}
				}
				nc.Close()
			}
		}
	}
	eventually(t, "all connections to have ended", func() bool { return g.Connections() == 0 })
}
