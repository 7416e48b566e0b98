package gateway

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// FuzzConversation: whatever a client sends, and whatever a broker answers, the gateway lives, and the client's connection ends when both have hung up. When the client alone has, a fetch may be
// held for as long as it said.
func FuzzConversation(f *testing.F) {
	for _, req := range requestsOfEveryWay() {
		request := wire.AppendRequest(nil, req, 4711, kmsg.StringPtr("test"))
		f.Add(request, wire.AppendResponse(nil, answerTo(req), 0)[8:])
		f.Add(append(request, request...), wire.AppendResponse(nil, answerTo(req), 0)[8:])
	}
	f.Add([]byte("\x16\x03\x01\x00\x05hello"), []byte{})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), []byte{})
	f.Add(wire.AppendRequest(nil, &kmsg.SASLHandshakeRequest{Mechanism: "GSSAPI"}, 1, nil), []byte("\x00\x00"))
	f.Add(append(wire.AppendRequest(nil, &kmsg.SASLHandshakeRequest{Mechanism: "PLAIN"}, 1, nil), "\x00\x00\x00\x05\x00a\x00bcand on"...), []byte("\x00\x00"))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	var gateways []*Gateway
	for _, h := range []*History{nil, {Resolver: &allLocal{learnt: make(map[remotestorage.TopicIDPartition]resolve.Learnt)}, Read: remote.Options{Budget: remote.NewBudget(64 << 20)}}} {
		gateways = append(gateways, startGateway(f, Options{Upstream: []string{l.Addr().String()}, PollInterval: -1, Brokers: noBrokers, Logger: quiet(), History: h, MaxRequestBytes: 1 << 20}))
	}
	f.Fuzz(func(t *testing.T, request, response []byte) {
		for _, g := range gateways {
			converse(t, g, l, request, response)
		}
	})
}

// converse is one connection, whose broker answers each request that arrives by the same bytes behind a right correlation id.
func converse(t *testing.T, g *Gateway, l net.Listener, request, response []byte) {
	client, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	broker, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	over := time.Now().Add(time.Minute)
	for _, nc := range []net.Conn{client, broker} {
		if err := nc.SetDeadline(over); err != nil {
			t.Fatal(err)
		}
	}
	answering := make(chan struct{})
	go func() {
		defer close(answering)
		defer broker.Close()
		for {
			frame, err := wire.ReadFrame(broker, 1<<21, nil)
			if err != nil || len(frame) < 8 {
				return
			}
			out := binary.BigEndian.AppendUint32(nil, uint32(4+len(response)))
			if _, err := broker.Write(append(append(out, frame[4:8]...), response...)); err != nil {
				return
			}
		}
	}()
	_, _ = client.Write(request)
	_ = client.(*net.TCPConn).CloseWrite()
	select {
	case <-answering: // the client's end was passed on
	case <-time.After(20 * time.Millisecond):
		broker.Close()
	}
	if _, err := io.Copy(io.Discard, client); err != nil && time.Now().After(over) {
		t.Fatal("the client's connection does not end")
	}
	<-answering
	if time.Now().After(over) {
		t.Fatal("the broker's connection does not end")
	}
}
