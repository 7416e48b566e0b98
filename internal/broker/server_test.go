package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logLines collects what is logged.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(l.buf.String())
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

type testServer struct {
	*server
	logs *logLines
	addr string
}

// serveTable serves a table of handlers on loopback.
func serveTable(t *testing.T, l limits, apis ...api) *testServer {
	t.Helper()
	table := make(map[int16]api)
	for _, a := range apis {
		table[a.key] = a
	}
	logs := new(logLines)
	s := newServer(table, l, slog.New(slog.NewTextHandler(logs, nil)))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.serve(ln, plainDoor)
	t.Cleanup(s.close)
	return &testServer{s, logs, ln.Addr().String()}
}

func (s *testServer) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// answerMetadata is a handler that a test can ask something of.
func answerMetadata(context.Context, *conn, *kmsg.MetadataRequest) (kmsg.Response, error) {
	return kmsg.NewPtrMetadataResponse(), nil
}

func metadataFrame(correlation int32, topics ...string) []byte {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(9)
	for _, name := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &name
		req.Topics = append(req.Topics, rt)
	}
	return wire.AppendRequest(nil, req, correlation, kmsg.StringPtr("a test"))
}

func readCorrelation(t *testing.T, c net.Conn) int32 {
	t.Helper()
	frame, err := wire.ReadFrame(c, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	return int32(binary.BigEndian.Uint32(frame))
}

func frameOf(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// brokenAnswer is an answer with a bug.
type brokenAnswer struct{ message }

func (brokenAnswer) buffers(context.Context, int16, int32) (net.Buffers, error) { panic("a bug") }

// TestHostileFrames: whatever comes, the connection is closed, one line names the peer and the reason, and the next client is served.
func TestHostileFrames(t *testing.T) {
	panics := on(0, 9, func(context.Context, *conn, *kmsg.ListGroupsRequest) (kmsg.Response, error) { panic("a bug") })
	good := metadataFrame(1)
	badVersion := bytes.Clone(good)
	binary.BigEndian.PutUint16(badVersion[6:], 77)
	unknown := bytes.Clone(good)
	binary.BigEndian.PutUint16(unknown[4:], 999)
	claims := bytes.Clone(metadataFrame(1, "a-topic"))
	claims[len(claims)-22] = 0x7f // the array's length
	manyTopics := make([]string, 300_000)
	for _, tc := range []struct {
		name  string
		send  []byte
		hang  bool // close our side after sending
		want  string
		lines int
	}{
		{"too large", []byte{0x7f, 0, 0, 0}, false, "frame is too large", 1},
		{"negative", []byte{0xff, 0xff, 0xff, 0xff}, false, "frame size -1", 1},
		{"TLS", []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc}, false, "TLS", 1},
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), false, "HTTP", 1},
		{"empty frame", []byte{0, 0, 0, 0}, false, "request header of 0 bytes", 1},
		{"unknown key", unknown, false, "unknown API key 999", 1},
		{"unsupported version", badVersion, false, "version 77", 1},
		{"garbage header", frameOf([]byte{0, 3, 0, 9, 0, 0, 0, 1, 0x7f, 0xff, 1, 2}), false, "malformed", 1},
		{"garbage body", frameOf([]byte{0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0, 0xff, 0xff, 0xff}), false, "malformed", 1},
		{"array longer than the frame", frameOf(append([]byte{0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff}, 0x7f, 0xff, 0xff, 0xff)), false, "malformed", 1},
		{"too many elements", metadataFrame(1, manyTopics...), false, "elements", 1},
		{"cut size", []byte{0, 0}, true, "cut off", 1},
		{"cut frame", good[:len(good)-3], true, "unexpected EOF", 1},
		{"panic", wire.AppendRequest(nil, kmsg.NewPtrListGroupsRequest(), 1, nil), false, "internal error", 2},
		{"panic in an answer", wire.AppendRequest(nil, kmsg.NewPtrHeartbeatRequest(), 1, nil), false, "internal error", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serveTable(t, defaultLimits(), on(0, 9, answerMetadata), panics, later(0, 4, func(context.Context, *conn, *kmsg.HeartbeatRequest) (reply, error) { return brokenAnswer{}, nil }))
			c := s.dial(t)
			if _, err := c.Write(tc.send); err != nil {
				t.Fatal(err)
			}
			if tc.hang {
				c.(*net.TCPConn).CloseWrite()
			}
			if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
				t.Fatalf("read %d bytes, %v; want a closed connection", len(rest), err)
			}
			s.awaitConnections(t, 0)
			lines := s.logs.lines()
			if len(lines) != tc.lines {
				t.Fatalf("%d log lines, want %d: %q", len(lines), tc.lines, lines)
			}
			last := lines[len(lines)-1]
			if !strings.Contains(last, tc.want) || !strings.Contains(last, c.LocalAddr().String()) {
				t.Errorf("log line %q, want the peer %s and %q", last, c.LocalAddr(), tc.want)
			}
			next := s.dial(t)
			next.Write(good)
			if id := readCorrelation(t, next); id != 1 {
				t.Errorf("the next client got correlation id %d", id)
			}
		})
	}
}

// awaitConnections waits until so many connections are left.
func (s *testServer) awaitConnections(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n := len(s.conns)
		s.mu.Unlock()
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are left, want %d", n, want)
		}
	}
}

// TestNewerApiVersions: a client from the future is told, in version 0, what there is.
func TestNewerApiVersions(t *testing.T) {
	b := &Broker{apis: map[int16]api{}}
	var err error
	if b.features, err = openFeatures(vfs.NewMem(), "/"); err != nil {
		t.Fatal(err)
	}
	a := on(0, maxApiVersions, b.handleApiVersions)
	b.apis[a.key] = a
	b.apis[keyProduce] = api{key: keyProduce, min: 3, max: 13}
	s := serveTable(t, defaultLimits(), a)
	c := s.dial(t)
	c.Write(frameOf([]byte{0, 18, 0, 99, 0, 0, 0, 7, 0, 1, 'x', 0, 9, 9, 9, 9}))
	frame, err := wire.ReadFrame(c, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(frame[4:]); err != nil {
		t.Fatal(err)
	}
	if resp.ErrorCode != errUnsupportedVersion || len(resp.ApiKeys) != 2 {
		t.Errorf("error %d, %d keys; want 35 and 2 keys", resp.ErrorCode, len(resp.ApiKeys))
	}
	if k := resp.ApiKeys[0]; k.ApiKey != keyProduce || k.MinVersion != 0 {
		t.Errorf("the first key is %d from version %d, want Produce from 0", k.ApiKey, k.MinVersion)
	}
}

// deferred is a reply that comes when it is let go.
type deferred struct {
	message
	wait chan struct{}
}

func (d deferred) buffers(ctx context.Context, version int16, id int32) (net.Buffers, error) {
	select {
	case <-d.wait:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return d.message.buffers(ctx, version, id)
}

// TestPipelining: requests behind a Produce that waits for its answer are handled, and the answers keep the order of the requests.
func TestPipelining(t *testing.T) {
	letGo := make(chan struct{})
	handled := make(chan int32, 10)
	s := serveTable(t, defaultLimits(),
		later(0, 9, func(context.Context, *conn, *kmsg.ProduceRequest) (reply, error) {
			handled <- 1
			return deferred{message{kmsg.NewPtrProduceResponse()}, letGo}, nil
		}))
	c := s.dial(t)
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	for i := range int32(5) {
		c.Write(wire.AppendRequest(nil, req, i, nil))
	}
	for range 5 {
		<-handled
	}
	close(letGo)
	for i := range int32(5) {
		if id := readCorrelation(t, c); id != i {
			t.Fatalf("answer %d has correlation id %d", i, id)
		}
	}
}

// TestSlowHandlerBlocksNobodyElse, and a client that vanishes ends what waits on its behalf.
func TestSlowHandlerBlocksNobodyElse(t *testing.T) {
	started, ended := make(chan struct{}), make(chan error, 1)
	s := serveTable(t, defaultLimits(), on(0, 9, answerMetadata),
		on(0, 9, func(ctx context.Context, _ *conn, _ *kmsg.ListGroupsRequest) (kmsg.Response, error) {
			close(started)
			<-ctx.Done()
			ended <- ctx.Err()
			return kmsg.NewPtrListGroupsResponse(), nil
		}))
	slow := s.dial(t)
	slow.Write(wire.AppendRequest(nil, kmsg.NewPtrListGroupsRequest(), 1, nil))
	<-started
	other := s.dial(t)
	other.Write(metadataFrame(3))
	if id := readCorrelation(t, other); id != 3 {
		t.Fatalf("correlation id %d", id)
	}
	slow.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context ended with %v", err)
	}
}

// TestRequestsSentBeforeLeaving: a client may send and go at once, as producers with acks=0 do.
func TestRequestsSentBeforeLeaving(t *testing.T) {
	handled := make(chan struct{}, 100)
	s := serveTable(t, defaultLimits(), on(0, 9, func(context.Context, *conn, *kmsg.MetadataRequest) (kmsg.Response, error) {
		handled <- struct{}{}
		return nil, nil
	}))
	c := s.dial(t)
	var all []byte
	for i := range int32(20) {
		all = append(all, metadataFrame(i)...)
	}
	c.Write(all)
	c.(*net.TCPConn).CloseWrite()
	for range 20 {
		<-handled
	}
	s.awaitConnections(t, 0)
	if lines := s.logs.lines(); len(lines) != 0 {
		t.Errorf("logged %q", lines)
	}
}

// TestFrameBudget: large frames wait for each other, small ones pass.
func TestFrameBudget(t *testing.T) {
	l := defaultLimits()
	l.queuedBytes = 1 << 20
	letGo, started := make(chan struct{}), make(chan struct{}, 10)
	s := serveTable(t, l, on(0, 9, answerMetadata), on(0, 13, func(ctx context.Context, _ *conn, _ *kmsg.ProduceRequest) (kmsg.Response, error) {
		started <- struct{}{}
		<-letGo
		return kmsg.NewPtrProduceResponse(), nil
	}))
	big := kmsg.NewPtrProduceRequest()
	big.SetVersion(9)
	rt := kmsg.NewProduceRequestTopic()
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = make([]byte, 700<<10)
	rt.Partitions = append(rt.Partitions, rp)
	big.Topics = append(big.Topics, rt)
	frame := wire.AppendRequest(nil, big, 1, nil)
	first, second, small := s.dial(t), s.dial(t), s.dial(t)
	first.Write(frame)
	<-started
	sent := make(chan struct{})
	go func() { second.Write(frame); close(sent) }()
	small.Write(metadataFrame(5))
	if id := readCorrelation(t, small); id != 5 {
		t.Fatalf("correlation id %d", id)
	}
	select {
	case <-started:
		t.Fatal("both large frames were let in, above the budget")
	default:
	}
	close(letGo)
	readCorrelation(t, first)
	readCorrelation(t, second)
	<-sent
}

// lentReply is a large answer in memory that somebody waits for.
type lentReply struct {
	memory []byte
	back   chan struct{}
}

func (l lentReply) buffers(context.Context, int16, int32) (net.Buffers, error) {
	return net.Buffers{binary.BigEndian.AppendUint32(nil, uint32(len(l.memory))), l.memory}, nil
}
func (lentReply) release() {}
func (l lentReply) giveBack() {
	clear(l.memory) // it is somebody else's now
	close(l.back)
}

// TestStalledClientGivesMemoryBack: a client that does not take its answer holds a copy and nothing that others wait for, and gets every byte in the end.
func TestStalledClientGivesMemoryBack(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	l := lentReply{bytes.Clone(want), make(chan struct{})}
	s := serveTable(t, defaultLimits(), later(0, 9, func(context.Context, *conn, *kmsg.MetadataRequest) (reply, error) { return l, nil }))
	c := s.dial(t)
	c.Write(metadataFrame(1))
	select {
	case <-l.back:
	case <-time.After(10 * time.Second):
		t.Fatal("the memory was not given back")
	}
	got, err := wire.ReadFrame(c, 128<<20, nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; want the %d that were sent", len(got), err, len(want))
	}
}

// FuzzConnection: bytes from a client never crash the server, nor leave a goroutine behind.
func FuzzConnection(f *testing.F) {
	f.Add(metadataFrame(1, "a", "b"))
	f.Add(append(metadataFrame(1), metadataFrame(2)...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{0, 0, 0, 4, 1, 2, 3, 4})
	b := &Broker{}
	f.Fuzz(func(t *testing.T, sent []byte) {
		s := newServer(map[int16]api{keyMetadata: on(0, 9, answerMetadata), keyApiVersions: on(0, 4, b.handleApiVersions)},
			limits{requestBytes: 1 << 20, queuedBytes: 1 << 20, connections: 1, queuedRequests: 4}, slog.New(slog.DiscardHandler))
		client, server := net.Pipe()
		s.admit(server, plainDoor)
		go io.Copy(io.Discard, client)
		client.Write(sent)
		client.Close()
		s.close()
	})
}

// TestConnectionLinesAreBounded: whoever makes thousands of connections that are refused, or closed for what they send, gets a few lines of the log; how many are left out is
// said.
func TestConnectionLinesAreBounded(t *testing.T) {
	l := defaultLimits()
	l.connections = 1
	s := serveTable(t, l, on(0, 9, answerMetadata))
	first := s.dial(t)
	first.Write(metadataFrame(1))
	readCorrelation(t, first)
	const n = 600
	for range n {
		c := s.dial(t)
		c.Read(make([]byte, 1))
		c.Close()
	}
	lines := len(s.logs.lines())
	if lines < connLinesAtOnce || lines > n/2 {
		t.Errorf("%d lines for %d connections", lines, n)
	}
	var bounded connLines
	now := time.Unix(1_800_000_000, 0)
	for range connLinesAtOnce + 70 {
		bounded.take(now)
	}
	if left, ok := bounded.take(now.Add(time.Second)); !ok || left != 70 {
		t.Errorf("a second later: %v, %d left out", ok, left)
	}
	if left, ok := bounded.take(now.Add(-time.Hour)); !ok || left != 0 {
		t.Errorf("after the clock was put back: %v, %d left out", ok, left)
	}
}
