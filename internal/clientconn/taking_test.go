package clientconn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// lender answers fetches by a frame of size bytes in lent memory, which others write into as soon as it is given back.
type lender struct {
	size      int
	givenBack chan struct{} // closed the first time

	mu     sync.Mutex
	events []string
}

func (l *lender) note(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
	if len(l.events) == 1 {
		close(l.givenBack)
	}
}

func (l *lender) seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

func (l *lender) body() []byte { return bytes.Repeat([]byte("history "), l.size/8) }

func (l *lender) handler() handlerFuncs {
	return handlerFuncs{wants: wantsFetch, answer: func(_ context.Context, q wire.RequestHeader) (Answer, error) {
		lent := l.body()
		head := slices.Concat(ownFrame(q.CorrelationID, string(lent))...)[:8]
		return Answer{
			Frame:    net.Buffers{head, lent[:l.size/2], lent[l.size/2:]},
			GiveBack: func() { clear(lent); l.note("given back") },
			Release:  func() { l.note("released") },
		}, nil
	}}
}

func newLender(size int) *lender { return &lender{size: size, givenBack: make(chan struct{})} }

// A client that does not take its answer does not keep the memory that others wait for, and gets the answer all the same when it goes on.
func TestStalledClientGivesBack(t *testing.T) {
	server := &tls.Config{Certificates: []tls.Certificate{testCertificate(t)}}
	for name, pair := range map[string]func(testing.TB) (net.Conn, net.Conn){"plain": tcpPair, "TLS": func(t testing.TB) (net.Conn, net.Conn) {
		a, b := tcpPair(t)
		return tls.Client(a, &tls.Config{InsecureSkipVerify: true}), tls.Server(b, server)
	}} {
		for _, idle := range []time.Duration{0, time.Hour} {
			l := newLender(16 << 20)
			client, ours := pair(t)
			upstream, broker := tcpPair(t)
			r := runRig(t, client, ours, upstream, broker, l.handler(), Options{IdleTimeout: idle})
			r.send(1, 4, 1, nil)
			<-l.givenBack
			if seen := l.seen(); !slices.Equal(seen, []string{"given back"}) {
				t.Errorf("%s: %v before the client has read", name, seen)
			}
			r.expect(1, string(l.body()))
			r.send(1, 4, 2, nil)
			r.expect(2, string(l.body()))
			r.conn.Close()
			<-r.done
			if seen := l.seen(); !slices.Equal(seen, []string{"given back", "released", "given back", "released"}) {
				t.Errorf("%s: %v", name, seen)
			}
		}
	}
}

// An answer that is dropped gives back too.
func TestDroppedAnswerGivesBack(t *testing.T) {
	l := newLender(8)
	h := l.handler()
	inner, entered := h.answer, make(chan struct{})
	h.answer = func(ctx context.Context, q wire.RequestHeader) (Answer, error) {
		close(entered)
		<-ctx.Done()
		return inner(ctx, q)
	}
	r := newRig(t, h, Options{})
	r.send(3, 1, 1, nil)
	r.arrived() // never answered: the fetch's answer must wait
	r.send(1, 4, 2, nil)
	<-entered
	r.conn.Close()
	<-r.done
	if seen := l.seen(); !slices.Equal(seen, []string{"given back", "released"}) {
		t.Error(seen)
	}
}

// Who takes nothing of a response for the idle time is gone; who takes it slowly is not. It is so for answers of ours and for the broker's.
func TestResponseThatIsNotTaken(t *testing.T) {
	for name, key := range map[string]int16{"ours": 1, "the broker's": 3} {
		for _, slowly := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				l := newLender(3 * takenAtOnce)
				r := rigOver(t, pipePair, l.handler(), Options{IdleTimeout: time.Minute})
				go r.send(key, 4, 1, nil)
				if key == 3 {
					q := r.arrived()
					go r.broker.Write(frameOf(q.CorrelationID, l.body())) // cut off where the client is gone
				}
				if !slowly {
					if err := <-r.done; !errors.Is(err, ErrNotTaken) {
						t.Errorf("%s: %v", name, err)
					}
					return
				}
				for left := 8 + l.size; left > 0; left -= min(left, takenAtOnce/4) { // all of it takes longer than the idle time, none of its pieces does
					time.Sleep(10 * time.Second)
					if _, err := io.ReadFull(r.toThem, make([]byte, min(left, takenAtOnce/4))); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
				if err := <-r.done; err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
}
