package clientconn

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Conn with both far ends in the test's hands.
type rig struct {
	t      *testing.T
	conn   *Conn
	client net.Conn      // what a client holds
	broker net.Conn      // what a broker holds
	fromUs *bufio.Reader // of broker
	toThem *bufio.Reader // of client
	done   chan error
}

type handlerFuncs struct {
	wants  func(key, version int16) bool
	answer func(ctx context.Context, h wire.RequestHeader) (Answer, error)
}

func (h handlerFuncs) Wants(k, v int16) bool {
	return h.wants != nil && h.wants(k, v)
}

func (h handlerFuncs) Answer(ctx context.Context, q wire.RequestHeader) (Answer, error) {
	return h.answer(ctx, q)
}

// tcpPair is two ends with buffers between them: net.Pipe would make the test's own writes wait for reads.
func tcpPair(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func newRig(t *testing.T, h Handler, o Options) *rig { return rigOver(t, tcpPair, h, o) }

// pipePair is two ends in memory, for virtual time.
func pipePair(testing.TB) (net.Conn, net.Conn) { return net.Pipe() }

func rigOver(t *testing.T, pair func(testing.TB) (net.Conn, net.Conn), h Handler, o Options) *rig {
	client, ours := pair(t)
	upstream, broker := pair(t)
	return runRig(t, client, ours, upstream, broker, h, o)
}

func runRig(t *testing.T, client, ours, upstream, broker net.Conn, h Handler, o Options) *rig {
	r := &rig{t: t, client: client, broker: broker, fromUs: bufio.NewReader(broker), toThem: bufio.NewReader(client), done: make(chan error, 1)}
	r.conn = New(Socket(ours), upstream, o)
	go func() { r.done <- r.conn.Run(h) }()
	t.Cleanup(func() {
		r.conn.Close()
		client.Close()
		broker.Close()
		<-r.conn.Done()
	})
	return r
}

func (r *rig) send(key, version int16, corr int32, body []byte) {
	r.t.Helper()
	id := "tester"
	f := binary.BigEndian.AppendUint16([]byte{0, 0, 0, 0}, uint16(key))
	f = binary.BigEndian.AppendUint16(f, uint16(version))
	f = binary.BigEndian.AppendUint32(f, uint32(corr))
	f = binary.BigEndian.AppendUint16(f, uint16(len(id)))
	f = append(append(f, id...), body...)
	r.raw(f)
}

// raw fills in the size and sends.
func (r *rig) raw(f []byte) {
	r.t.Helper()
	binary.BigEndian.PutUint32(f, uint32(len(f)-4))
	if _, err := r.client.Write(f); err != nil {
		r.t.Fatal(err)
	}
}

// arrived reads a request at the broker.
func (r *rig) arrived() wire.RequestHeader {
	r.t.Helper()
	f, err := wire.ReadFrame(r.fromUs, 1<<30, nil)
	if err != nil {
		r.t.Fatal("reading at the broker: ", err)
	}
	h, err := wire.ParseRequestHeader(f)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// answer sends a response from the broker.
func (r *rig) answer(corr int32, body []byte) {
	r.t.Helper()
	f := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 0}, uint32(corr))
	f = append(f, body...)
	binary.BigEndian.PutUint32(f, uint32(len(f)-4))
	if _, err := r.broker.Write(f); err != nil {
		r.t.Error("answering at the broker: ", err) // not Fatal: some call it on a goroutine
	}
}

// expect reads a response at the client.
func (r *rig) expect(corr int32, body string) {
	r.t.Helper()
	f, err := wire.ReadFrame(r.toThem, 1<<30, nil)
	if err != nil {
		r.t.Fatal("reading at the client: ", err)
	}
	if got := int32(binary.BigEndian.Uint32(f)); got != corr || string(f[4:]) != body {
		r.t.Fatalf("response %d with %d bytes %.40q, want %d with %.40q", got, len(f)-4, f[4:], corr, body)
	}
}

// ownFrame is a response frame of a handler.
func ownFrame(corr int32, body string) net.Buffers {
	f := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 0}, uint32(corr))
	binary.BigEndian.PutUint32(f, uint32(4+len(body)))
	return net.Buffers{f, []byte(body)}
}

func wantsFetch(k, _ int16) bool { return k == 1 }

func TestForwardKeepsOrderAndCorrelation(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	big := bytes.Repeat([]byte("payload"), 100_000)
	r.send(3, 1, 77, []byte("first"))
	r.send(3, 1, 77, big) // a client may use an id twice
	a, b := r.arrived(), r.arrived()
	if string(a.Body) != "first" || !bytes.Equal(b.Body, big) || *a.ClientID != "tester" {
		t.Fatalf("%q, %d bytes", a.Body, len(b.Body))
	}
	if a.CorrelationID == b.CorrelationID {
		t.Error("two requests under one correlation id")
	}
	answered := make(chan struct{})
	go func() { // beside the reading: it is more than the sockets hold
		defer close(answered)
		r.answer(a.CorrelationID, big)
	}()
	r.expect(77, string(big))
	<-answered
	r.answer(b.CorrelationID, []byte("2"))
	r.expect(77, "2")
}

func TestProduceWithoutAcksGetsNoResponse(t *testing.T) {
	for _, version := range []int16{0, 3, 9} {
		r := newRig(t, handlerFuncs{}, Options{})
		body := kmsg.NewPtrProduceRequest()
		body.Version, body.Acks = version, 0
		id := "tester"
		r.raw(wire.AppendRequest(nil, body, 1, &id))
		r.send(3, 1, 2, nil)
		r.arrived()
		meta := r.arrived()
		r.answer(meta.CorrelationID, []byte("m"))
		r.expect(2, "m")
	}
}

// An answer of our own stands in its place among those of the broker, and requests behind it wait.
func TestAnswersStandInOrder(t *testing.T) {
	let := make(chan struct{})
	released := make(chan struct{})
	h := handlerFuncs{wants: wantsFetch, answer: func(ctx context.Context, q wire.RequestHeader) (Answer, error) {
		<-let
		return Answer{Frame: ownFrame(q.CorrelationID, "fetched"), Release: func() { close(released) }}, nil
	}}
	r := newRig(t, h, Options{})
	r.send(3, 1, 1, nil)
	r.send(1, 4, 2, nil)
	r.send(3, 1, 3, nil)
	one := r.arrived()
	close(let)
	r.answer(one.CorrelationID, []byte("a"))
	r.expect(1, "a")
	r.expect(2, "fetched")
	<-released
	three := r.arrived()
	r.answer(three.CorrelationID, []byte("c"))
	r.expect(3, "c")
}

func TestHandlerMayForward(t *testing.T) {
	h := handlerFuncs{wants: wantsFetch, answer: func(context.Context, wire.RequestHeader) (Answer, error) { return Answer{}, ErrForward }}
	r := newRig(t, h, Options{})
	r.send(1, 4, 5, []byte("whole"))
	q := r.arrived()
	if string(q.Body) != "whole" {
		t.Errorf("body %q", q.Body)
	}
	r.answer(q.CorrelationID, []byte("ok"))
	r.expect(5, "ok")
}

// Requests of our own go between those of the client, from within an answer too, and their responses do not reach it.
func TestOwnRequests(t *testing.T) {
	var r *rig
	ready := make(chan struct{})
	h := handlerFuncs{wants: wantsFetch, answer: func(ctx context.Context, q wire.RequestHeader) (Answer, error) {
		<-ready
		resp, err := r.conn.Request(ctx, kmsg.NewPtrApiVersionsRequest())
		if err != nil {
			return Answer{}, err
		}
		if n := len(resp.(*kmsg.ApiVersionsResponse).ApiKeys); n != 1 {
			t.Errorf("%d keys", n)
		}
		return Answer{Frame: ownFrame(q.CorrelationID, "f")}, nil
	}}
	r = newRig(t, h, Options{})
	close(ready)
	r.send(1, 4, 9, nil)
	q := r.arrived()
	if q.Key != 18 || *q.ClientID != "tester" {
		t.Fatalf("%+v", q)
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: 1})
	r.answer(q.CorrelationID, resp.AppendTo(nil))
	r.expect(9, "f")
}

func TestOwnRequestGivenUp(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 1)
	go func() {
		_, err := r.conn.Request(ctx, kmsg.NewPtrApiVersionsRequest())
		errs <- err
	}()
	q := r.arrived()
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.answer(q.CorrelationID, []byte("late and not even valid"))
	r.send(3, 1, 1, nil)
	m := r.arrived()
	r.answer(m.CorrelationID, []byte("m"))
	r.expect(1, "m")
}

// Between a handshake and the first request behind the authentication nothing of ours may go upstream.
func TestOwnRequestsWaitForAuthentication(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	r.send(17, 1, 1, []byte("\x00\x05PLAIN"))
	q := r.arrived()
	sent := make(chan error, 1)
	go func() {
		_, err := r.conn.Request(context.Background(), kmsg.NewPtrApiVersionsRequest())
		sent <- err
	}()
	r.answer(q.CorrelationID, []byte("handshake"))
	r.expect(1, "handshake")
	r.send(36, 0, 2, []byte("token"))
	if q = r.arrived(); q.Key != 36 {
		t.Fatalf("key %d went upstream during the authentication", q.Key)
	}
	r.answer(q.CorrelationID, []byte("welcome"))
	r.expect(2, "welcome")
	r.send(3, 1, 3, nil)
	keys := map[int16]int32{}
	for range 2 {
		q := r.arrived()
		keys[q.Key] = q.CorrelationID
		if q.Key == 18 {
			r.answer(q.CorrelationID, kmsg.NewPtrApiVersionsResponse().AppendTo(nil))
			continue
		}
		r.answer(q.CorrelationID, []byte("m"))
	}
	if len(keys) != 2 || <-sent != nil {
		t.Error(keys)
	}
	r.expect(3, "m")
}

func TestSaslHandshakeV0(t *testing.T) {
	for mechanism, tokens := range map[string]int{"PLAIN": 1, "OAUTHBEARER": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2} {
		t.Run(mechanism, func(t *testing.T) {
			r := newRig(t, handlerFuncs{}, Options{})
			body := append(binary.BigEndian.AppendUint16(nil, uint16(len(mechanism))), mechanism...)
			r.send(17, 0, 1, body)
			q := r.arrived()
			r.answer(q.CorrelationID, []byte("hs"))
			r.expect(1, "hs")
			for range tokens {
				r.raw([]byte("\x00\x00\x00\x00a token"))
				f, err := wire.ReadFrame(r.fromUs, 100, nil)
				if err != nil || string(f) != "a token" {
					t.Fatalf("%q %v", f, err)
				}
				if _, err := r.broker.Write([]byte("\x00\x00\x00\x02ok")); err != nil {
					t.Fatal(err)
				}
				if f, err = wire.ReadFrame(r.toThem, 100, nil); err != nil || string(f) != "ok" {
					t.Fatalf("%q %v", f, err)
				}
			}
			r.send(3, 1, 4, nil)
			q = r.arrived()
			r.answer(q.CorrelationID, []byte("m"))
			r.expect(4, "m")
		})
	}
}

func TestSaslHandshakeV0OfAnUnknownMechanism(t *testing.T) {
	r := newRig(t, handlerFuncs{wants: wantsFetch}, Options{})
	r.send(17, 0, 1, []byte("\x00\x06GSSAPI"))
	q := r.arrived()
	r.answer(q.CorrelationID, []byte("hs"))
	r.expect(1, "hs")
	for _, pair := range [][2]string{{"token one", "reply"}, {"anything", "at all"}} {
		if _, err := r.client.Write([]byte(pair[0])); err != nil {
			t.Fatal(err)
		}
		expectBytes(t, r.fromUs, pair[0])
		if _, err := r.broker.Write([]byte(pair[1])); err != nil {
			t.Fatal(err)
		}
		expectBytes(t, r.toThem, pair[1])
	}
}

func expectBytes(t *testing.T, from io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != want {
		t.Fatalf("%q %v, want %q", got, err, want)
	}
}

// A client id of many KiB is legal.
func TestLongClientID(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	id := strings.Repeat("i", 20_000)
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	r.raw(wire.AppendRequest(nil, req, 1, &id))
	q := r.arrived()
	if q.Key != 3 || *q.ClientID != id {
		t.Errorf("%+v", q)
	}
	r.answer(q.CorrelationID, []byte("m"))
	r.expect(1, "m")
}

func TestGarbageEndsTheConnection(t *testing.T) {
	tests := map[string]struct {
		client, broker string
		text           string
	}{
		"a huge frame":         {client: "\x7f\xff\xff\xff", text: "limit"},
		"a short header":       {client: "\x00\x00\x00\x02ab", text: "malformed"},
		"TLS at a plain port":  {client: "\x16\x03\x01\x02\x00\x01", text: "TLS"},
		"cut":                  {client: "\x00\x00", text: "unexpected EOF"},
		"an unasked response":  {broker: "\x00\x00\x00\x04abcd", text: "response to nothing"},
		"a TLS alert upstream": {broker: "\x15\x03\x03\x00\x02\x02", text: "TLS"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, handlerFuncs{}, Options{MaxRequestBytes: 1000})
			if _, err := r.client.Write([]byte(tt.client)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.broker.Write([]byte(tt.broker)); err != nil {
				t.Fatal(err)
			}
			if name == "cut" {
				r.client.Close()
			}
			if err := <-r.done; err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v, want %q", err, tt.text)
			}
		})
	}
}

func TestWrongCorrelationID(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	r.send(3, 1, 1, nil)
	q := r.arrived()
	r.answer(q.CorrelationID+1, nil)
	if err := <-r.done; !errors.Is(err, wire.ErrMalformed) {
		t.Error(err)
	}
}

// A client that goes away in the middle of a held fetch is noticed, and what it would have got is released.
func TestVanishingClient(t *testing.T) {
	var released sync.WaitGroup
	released.Add(1)
	entered := make(chan struct{})
	h := handlerFuncs{wants: wantsFetch, answer: func(ctx context.Context, q wire.RequestHeader) (Answer, error) {
		close(entered)
		<-ctx.Done()
		return Answer{Frame: ownFrame(q.CorrelationID, "f"), Release: released.Done}, nil
	}}
	r := newRig(t, h, Options{})
	r.send(1, 4, 1, nil)
	<-entered
	r.client.Close()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	released.Wait()
}

func TestBrokerGone(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	r.send(3, 1, 1, nil)
	r.arrived()
	r.broker.Close()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if _, err := r.conn.Request(context.Background(), kmsg.NewPtrApiVersionsRequest()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := r.toThem.ReadByte(); err == nil {
		t.Error("the client's end is still open")
	}
}

func FuzzParseHead(f *testing.F) {
	req := kmsg.NewPtrProduceRequest()
	for _, v := range []int16{0, 3, 9, 13} {
		req.Version = v
		f.Add(wire.AppendRequest(nil, req, 1, nil)[4:])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := parseHead(in)
		if err == nil && h.unanswered && h.Key != keyProduce {
			t.Error("a request other than produce without a response")
		}
	})
}

// A response that is too short for a correlation id is an error at once: the bytes that are missing would be waited for in vain.
func TestResponseWithoutCorrelationID(t *testing.T) {
	for size := range 4 {
		r := newRig(t, handlerFuncs{}, Options{})
		r.send(3, 1, 1, nil)
		r.arrived()
		if _, err := r.broker.Write(append([]byte{0, 0, 0, byte(size)}, make([]byte, size)...)); err != nil {
			t.Fatal(err)
		}
		if err := <-r.done; !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
