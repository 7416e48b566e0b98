package clientconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rewind-kafka/rewind/internal/wire"
)

func TestDrainOfAnIdleConnection(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	r.send(3, 1, 1, nil)
	r.answer(r.arrived().CorrelationID, []byte("m"))
	r.expect(1, "m")
	r.conn.Drain()
	r.conn.Drain()
	if _, err := r.toThem.ReadByte(); err != io.EOF {
		t.Fatal(err)
	}
	r.client.Close() // as a client does
	if err := <-r.done; err != nil {
		t.Error(err)
	}
}

// awaitOwed waits until so many responses are promised.
func (r *rig) awaitOwed(n int) {
	owed := func() int {
		r.conn.life.mu.Lock()
		defer r.conn.life.mu.Unlock()
		return r.conn.life.owed
	}
	for owed() != n {
		time.Sleep(time.Millisecond)
	}
}

// What is owed is finished, in order; what comes later is not taken.
func TestDrainFinishesWhatIsOwed(t *testing.T) {
	let := make(chan struct{})
	h := handlerFuncs{wants: wantsFetch, answer: func(ctx context.Context, q wire.RequestHeader) (Answer, error) {
		<-let
		return Answer{Frame: ownFrame(q.CorrelationID, "held")}, nil
	}}
	r := newRig(t, h, Options{})
	r.send(3, 1, 1, nil)
	q := r.arrived()
	r.send(1, 4, 2, nil)
	r.awaitOwed(2)
	r.conn.Drain()
	r.send(3, 1, 3, []byte("too late"))
	r.answer(q.CorrelationID, []byte("m"))
	r.expect(1, "m")
	close(let)
	r.expect(2, "held")
	if _, err := r.toThem.ReadByte(); err != io.EOF {
		t.Fatal(err)
	}
	if _, err := r.fromUs.ReadByte(); err != nil && err != io.EOF {
		t.Fatal(err)
	} else if err == nil {
		t.Error("a request went upstream after Drain")
	}
	r.client.Close()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
}

// A request whose bytes are coming in, and a response that is being streamed, are finished.
func TestDrainInMidFrame(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	half := make([]byte, 500_000)
	f := append([]byte("\x00\x0f\x42\x40\x00\x03\x00\x01\x00\x00\x00\x07\x00\x00"), half...)[:4+500_000]
	if _, err := r.client.Write(f); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r.fromUs, make([]byte, 400_000)); err != nil {
		t.Fatal(err)
	}
	r.conn.Drain()
	if _, err := r.client.Write(half); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r.fromUs, make([]byte, 4+1_000_000-400_000)); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, 3<<20)
	go r.answer(1, body)
	r.expect(7, string(body))
	if _, err := r.toThem.ReadByte(); err != io.EOF {
		t.Error(err)
	}
}

func TestDrainBeforeRunAndWithoutSockets(t *testing.T) {
	client, far := tcpPair(t)
	defer far.Close()
	upstream, broker := tcpPair(t)
	defer broker.Close()
	c := New(struct{ Client }{Socket(client)}, upstream, Options{})
	c.Drain()
	if err := c.Run(handlerFuncs{}); err != nil {
		t.Error(err)
	}
}

// A connection on which a response is owed is not idle, however long that takes; once nothing is, it ends.
func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		h := handlerFuncs{wants: wantsFetch, answer: func(ctx context.Context, q wire.RequestHeader) (Answer, error) {
			<-let
			return Answer{Frame: ownFrame(q.CorrelationID, "held")}, nil
		}}
		r := rigOver(t, pipePair, h, Options{IdleTimeout: time.Minute})
		r.send(1, 4, 1, nil)
		time.Sleep(time.Hour)
		select {
		case err := <-r.done:
			t.Fatal("ended while a response is owed: ", err)
		default:
		}
		close(let)
		r.expect(1, "held")
		if err := <-r.done; err != nil {
			t.Error(err)
		}
		if _, err := r.toThem.ReadByte(); err == nil {
			t.Error("still open")
		}
	})
}

// A request whose rest does not come is no reason to stay; one that comes slowly is. Which side of the header the client stops at makes no difference.
func TestHalfARequestIsIdle(t *testing.T) {
	frame := []byte("\x00\x00\x00\x14\x00\x03\x00\x01\x00\x00\x00\x01\x00\x02meABCDEFGH")
	for _, sent := range []int{4, 5, 11, 16, len(frame) - 1} {
		synctest.Test(t, func(t *testing.T) {
			r := rigOver(t, pipePair, handlerFuncs{}, Options{IdleTimeout: time.Minute})
			go io.Copy(io.Discard, r.broker)
			for _, b := range frame[:sent] {
				time.Sleep(50 * time.Second)
				if _, err := r.client.Write([]byte{b}); err != nil {
					t.Fatal("closed while the client was sending: ", err)
				}
			}
			if err := <-r.done; err != nil {
				t.Error(err)
			}
		})
	}
}

// What the kernel moves is looked at too.
func TestHalfASplicedRequestIsSilent(t *testing.T) {
	client, src := tcpPair(t)
	dst, broker := tcpPair(t)
	defer func() {
		for _, c := range []net.Conn{client, src, dst, broker} {
			c.Close()
		}
	}()
	l := newLife()
	silent := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.silent.IsZero()
	}
	body := bytes.Repeat([]byte("body"), 3*heardEvery/4)
	got := make(chan []byte)
	go func() {
		b := make([]byte, len(body))
		io.ReadFull(broker, b)
		got <- b
	}()
	moved := make(chan error)
	go func() { moved <- stream{src: tcpOf(src), dst: tcpOf(dst), life: l}.splice(len(body)) }()
	if _, err := client.Write(body[:len(body)-1]); err != nil {
		t.Fatal(err)
	}
	for !silent() {
		time.Sleep(time.Millisecond)
	}
	if _, err := client.Write(body[len(body)-1:]); err != nil {
		t.Fatal(err)
	}
	if err := <-moved; err != nil || silent() {
		t.Error(err, silent())
	}
	if !bytes.Equal(<-got, body) {
		t.Error("other bytes")
	}
}

// The watch in virtual time: it ends a connection when it has been quiet for the whole time, and not before.
func TestIdleWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife()
		start := time.Now()
		ended := make(chan time.Duration, 1)
		stop := l.watch(time.Minute, func() { ended <- time.Since(start) })
		time.Sleep(50 * time.Second)
		l.begin()
		l.owe()
		l.end()
		time.Sleep(10 * time.Minute)
		l.paid()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		select {
		case d := <-ended:
			t.Fatal("ended after ", d)
		default:
		}
		if d := <-ended; d < 50*time.Second+11*time.Minute || d > 50*time.Second+12*time.Minute {
			t.Error(d)
		}
		stop()
		stop = l.watch(time.Second, func() { t.Error("stopped, and ended all the same") })
		stop()
		time.Sleep(time.Minute)
	})
}

func TestHeldRequestsHaveALimit(t *testing.T) {
	r := newRig(t, handlerFuncs{wants: wantsFetch}, Options{MaxHeldBytes: 1000})
	r.send(3, 1, 1, make([]byte, 5000)) // streamed: another limit
	r.arrived()
	r.send(1, 4, 1, make([]byte, 5000))
	if err := <-r.done; !errors.Is(err, wire.ErrFrameTooLarge) {
		t.Error(err)
	}
}
