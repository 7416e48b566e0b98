package clientconn

import (
	"context"
	"errors"
	"io"
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
	for len(r.conn.slots) == 0 { // the fetch is promised; the first slot is the writer's already
		time.Sleep(time.Millisecond)
	}
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
