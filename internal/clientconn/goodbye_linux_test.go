package clientconn

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// narrowPair is two ends of which the first takes next to nothing by itself: what the second has written waits with the second.
func narrowPair(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	a, b := tcpPair(t)
	if err := a.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if err := b.(*net.TCPConn).SetWriteBuffer(8 << 20); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// A response that has been written may still lie in our own socket, with a client that is slow to take it. A connection that is closed then, of a client that goes on to ask, is reset, and
// the response is lost. So a drained connection waits until the client has it, or has gone.
func TestDrainWaitsForASlowClient(t *testing.T) {
	server := &tls.Config{Certificates: []tls.Certificate{testCertificate(t)}}
	for name, pair := range map[string]func(testing.TB) (net.Conn, net.Conn){"plain": narrowPair, "TLS": func(t testing.TB) (net.Conn, net.Conn) {
		a, b := narrowPair(t)
		return tls.Client(a, &tls.Config{InsecureSkipVerify: true}), tls.Server(b, server)
	}} {
		t.Run(name, func(t *testing.T) {
			client, ours := pair(t)
			upstream, broker := tcpPair(t)
			r := runRig(t, client, ours, upstream, broker, handlerFuncs{}, Options{})
			r.send(3, 1, 1, nil)
			q := r.arrived()
			const size = 40_000
			body := bytes.Repeat([]byte("response"), size/8)
			go r.answer(q.CorrelationID, body)
			r.awaitOwed(0) // all of it is written
			r.conn.Drain()
			select {
			case err := <-r.done:
				t.Fatalf("the connection has ended, and the client has nothing: %v", err)
			case <-time.After(3 * farewell):
			}
			r.send(3, 1, 2, []byte("as clients do that do not wait"))
			if err := socketUnder(client).SetReadBuffer(size); err != nil { // or it takes its time
				t.Fatal(err)
			}
			r.expect(1, string(body))
			if _, err := r.toThem.ReadByte(); err != io.EOF {
				t.Errorf("the end is %v", err)
			}
			if err := <-r.done; err != nil { // soon: everything was taken
				t.Error(err)
			}
		})
	}
}

// A client that takes nothing does not keep the connection for ever: Close ends it at once, and the idle time by itself.
func TestDrainOfAClientThatTakesNothing(t *testing.T) {
	for name, o := range map[string]Options{"closed": {}, "idle": {IdleTimeout: time.Second}} {
		t.Run(name, func(t *testing.T) {
			client, ours := narrowPair(t)
			upstream, broker := tcpPair(t)
			r := runRig(t, client, ours, upstream, broker, handlerFuncs{}, o)
			r.send(3, 1, 1, nil)
			q := r.arrived()
			go r.answer(q.CorrelationID, make([]byte, 40_000))
			r.awaitOwed(0)
			r.conn.Drain()
			if name == "closed" {
				r.conn.Close()
			}
			if err := <-r.done; err != nil {
				t.Error(err)
			}
		})
	}
}

// What has left our socket may lie in the client's. One that goes on to ask has not come to the end of it.
func TestDrainWaitsForAClientThatGoesOnToAsk(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	r.send(3, 1, 1, nil)
	q := r.arrived()
	body := make([]byte, 10_000) // fits into the client's socket
	go r.answer(q.CorrelationID, body)
	r.awaitOwed(0)
	r.conn.Drain()
	for range 40 {
		time.Sleep(farewell / 10) // much less: a machine with much to do takes longer
		r.send(3, 1, 2, []byte("as clients do that do not wait"))
	}
	r.expect(1, string(body))
	if _, err := r.toThem.ReadByte(); err != io.EOF {
		t.Errorf("the end is %v", err)
	}
	if err := <-r.done; err != nil {
		t.Error(err)
	}
}
