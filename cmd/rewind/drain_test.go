package main

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// largeBroker answers fetches with much and metadata of a topic with a long list; everything else with nothing.
type largeBroker struct {
	l       net.Listener
	records []byte
	topics  int

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	done  sync.WaitGroup
}

func startLargeBroker(t *testing.T, records, topics int) *largeBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &largeBroker{l: l, records: make([]byte, records), topics: topics, conns: make(map[net.Conn]struct{})}
	for i := 0; i+4 <= records; i += 4 { // so that a piece that is missing shows
		binary.BigEndian.PutUint32(b.records[i:], uint32(i))
	}
	b.done.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns[nc] = struct{}{}
			b.mu.Unlock()
			b.done.Go(func() { b.serve(nc) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		b.mu.Lock()
		for nc := range b.conns {
			nc.Close()
		}
		b.mu.Unlock()
		b.done.Wait()
	})
	return b
}

func (b *largeBroker) serve(nc net.Conn) {
	defer nc.Close()
	for {
		frame, err := wire.ReadFrame(nc, 100<<20, nil)
		if err != nil {
			return
		}
		h, err := wire.ParseRequestHeader(frame)
		if err != nil {
			return
		}
		if _, err := nc.Write(wire.AppendResponse(nil, b.response(h), h.CorrelationID)); err != nil {
			return
		}
	}
}

func (b *largeBroker) response(h wire.RequestHeader) kmsg.Response {
	resp := kmsg.ResponseForKey(h.Key)
	resp.SetVersion(h.Version)
	switch r := resp.(type) {
	case *kmsg.MetadataResponse:
		at := b.l.Addr().(*net.TCPAddr)
		node := kmsg.NewMetadataResponseBroker()
		node.NodeID, node.Host, node.Port = 1, "127.0.0.1", int32(at.Port)
		r.Brokers = append(r.Brokers, node)
		req := kmsg.MetadataRequest{Version: h.Version}
		if req.ReadFrom(h.Body) == nil && len(req.Topics) > 0 {
			for i := range b.topics {
				topic := kmsg.NewMetadataResponseTopic()
				topic.Topic = kmsg.StringPtr(fmt.Sprintf("topic-%0100d", i))
				r.Topics = append(r.Topics, topic)
			}
		}
	case *kmsg.FetchResponse:
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches = b.records
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.Partitions = "much", []kmsg.FetchResponseTopicPartition{p}
		r.Topics = append(r.Topics, topic)
	}
	return resp
}

// slowClient asks one thing and takes its time to read the answer.
type slowClient struct {
	name string
	nc   net.Conn
	req  kmsg.Request
	rest []byte // of the request, which is written after the signal
	asks bool   // goes on to ask
}

func (c *slowClient) begin(t *testing.T, half bool) {
	t.Helper()
	frame := wire.AppendRequest(nil, c.req, 4711, kmsg.StringPtr("slow"))
	if half {
		c.rest = frame[len(frame)/2:]
		frame = frame[:len(frame)/2]
	}
	if _, err := c.nc.Write(frame); err != nil {
		t.Fatal(err)
	}
}

// finish reads what is left of the answer, little by little, and tells whether it is whole and the connection ends in order behind it.
func (c *slowClient) finish(b *largeBroker, until time.Time, tail time.Duration) error {
	if err := c.nc.SetDeadline(until); err != nil {
		return err
	}
	if _, err := c.nc.Write(c.rest); err != nil {
		return err
	}
	var got bytes.Buffer
	size := -1
	for size < 0 || got.Len() < 4+size {
		if c.asks { // each time: whoever closes in between has bytes that nobody reads
			if _, err := c.nc.Write(wire.AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1, nil)); err != nil {
				return fmt.Errorf("after %d bytes of %d, asking on: %w", got.Len(), size, err)
			}
		}
		left := int64(512 << 10)
		if size >= 0 {
			left = min(left, int64(4+size-got.Len()))
		}
		if _, err := io.CopyN(&got, c.nc, left); err != nil && (size < 0 || got.Len() < 4+size) {
			return fmt.Errorf("after %d bytes of %d: %w", got.Len(), size, err)
		}
		if size < 0 {
			size = int(binary.BigEndian.Uint32(got.Bytes()))
		}
		time.Sleep(tail / 40)
	}
	if err := c.judge(b, got.Bytes()[4:4+size]); err != nil {
		return err
	}
	if n, err := io.Copy(io.Discard, c.nc); err != nil || n > 0 {
		return fmt.Errorf("behind the answer come %d bytes, then %v", n, err)
	}
	return nil
}

func (c *slowClient) judge(b *largeBroker, frame []byte) error {
	_, body, err := wire.ResponseBody(frame, c.req.Key(), c.req.GetVersion())
	if err != nil {
		return err
	}
	resp := c.req.ResponseKind()
	if err := resp.ReadFrom(body); err != nil {
		return err
	}
	switch r := resp.(type) {
	case *kmsg.FetchResponse:
		if !bytes.Equal(r.Topics[0].Partitions[0].RecordBatches, b.records) {
			return errors.New("other records")
		}
	case *kmsg.MetadataResponse:
		if len(r.Topics) != b.topics {
			return fmt.Errorf("%d topics", len(r.Topics))
		}
	}
	return nil
}

// TestGatewayDrains: a gateway that is told to stop in the middle of large answers to slow clients finishes them, whatever way they take through it, and those of requests that had begun;
// then it closes the connections in order, and ends with status 0 within its time. Meanwhile nobody new is let in, and /healthz says that it is stopping.
func TestGatewayDrains(t *testing.T) {
	authority := clustertest.NewAuthority(t, t.TempDir())
	_, certificate, key, _ := authority.Issue(t, "gateway", "127.0.0.1")
	for name, args := range map[string][]string{"plain": nil, "TLS": {"--set", "ssl.certificate.location=" + certificate, "--set", "ssl.key.location=" + key}} {
		t.Run(name, func(t *testing.T) {
			const drain = 90 * time.Second
			b := startLargeBroker(t, 24<<20, 40_000)
			g := startGatewayProcess(t, append(args, "--upstream", b.l.Addr().String(), "--set", fmt.Sprintf("drain.timeout.ms=%d", drain.Milliseconds()))...)
			dial := func() (net.Conn, error) {
				if args == nil {
					return net.Dial("tcp", g.bootstrap)
				}
				return tls.Dial("tcp", g.bootstrap, authority.ClientConfig())
			}
			fetch := func(version int16) kmsg.Request {
				r := kmsg.NewPtrFetchRequest()
				r.Version, r.ReplicaID = version, -1
				return r
			}
			metadata := kmsg.NewPtrMetadataRequest()
			metadata.Version, metadata.Topics = 9, []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("any")}}
			var clients []*slowClient
			for _, c := range []*slowClient{
				{name: "streamed", req: fetch(4)}, {name: "walked", req: fetch(12)}, {name: "taken whole", req: metadata},
				{name: "streamed, asking on", req: fetch(4), asks: true}, {name: "walked, asking on", req: fetch(12), asks: true}, {name: "taken whole, asking on", req: metadata, asks: true},
				{name: "half a request, streamed", req: fetch(4)}, {name: "half a request, walked", req: fetch(12)},
			} {
				var err error
				if c.nc, err = dial(); err != nil {
					t.Fatal(err)
				}
				defer c.nc.Close()
				c.begin(t, strings.HasPrefix(c.name, "half"))
				clients = append(clients, c)
			}
			idle, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			defer idle.Close()
			for _, c := range clients { // its answer has begun to come
				if c.rest == nil {
					if err := c.nc.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
						t.Fatal(err)
					}
					first := make([]byte, 1)
					if _, err := io.ReadFull(c.nc, first); err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
					c.nc = &begunConn{c.nc, first}
				}
			}
			g.await(t, "all to be there", func() bool { return g.metric(`rewind_gateway_connections{broker="any"}`) == float64(len(clients)+1) })
			told := time.Now()
			if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			g.await(t, "nobody to be let in", func() bool {
				nc, err := dial()
				if err == nil {
					nc.Close()
				}
				return err != nil
			})
			if health := g.get("/healthz"); !strings.Contains(health, "closed") {
				t.Errorf("health: %q", health)
			}
			var reading sync.WaitGroup
			for _, c := range clients {
				reading.Go(func() {
					if err := c.finish(b, told.Add(drain), 4*time.Second); err != nil {
						t.Errorf("%s: %v", c.name, err)
					}
					c.nc.Close()
				})
			}
			if err := idle.SetReadDeadline(told.Add(drain)); err != nil {
				t.Fatal(err)
			}
			if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("a client that is owed nothing: %v", err)
			}
			reading.Wait()
			if err := g.cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
			if took := time.Since(told); took >= drain || strings.Contains(g.lines.String(), "are cut") {
				t.Errorf("after %v", took)
			}
		})
	}
}

// begunConn is a connection of which some bytes have been read.
type begunConn struct {
	net.Conn
	first []byte
}

func (b *begunConn) Read(p []byte) (int, error) {
	if n := copy(p, b.first); n > 0 {
		b.first = b.first[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

// TestGatewayDrainsForSoLong: a client that takes nothing does not keep the process.
func TestGatewayDrainsForSoLong(t *testing.T) {
	b := startLargeBroker(t, 24<<20, 0)
	g := startGatewayProcess(t, "--upstream", b.l.Addr().String(), "--set", "drain.timeout.ms=500")
	nc, err := net.Dial("tcp", g.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID = 4, -1
	c := slowClient{nc: nc, req: req}
	c.begin(t, false)
	if _, err := io.ReadFull(nc, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Wait(); err != nil || !strings.Contains(g.lines.String(), "connections that did not drain in time are cut") {
		t.Errorf("it ended with %v", err)
	}
}
