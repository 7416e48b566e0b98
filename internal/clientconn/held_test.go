package clientconn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// waits counts who has to wait.
func waits() (met func(string), heard chan string) {
	heard = make(chan string, 100)
	return func(what string) { heard <- what }, heard
}

// A request that is kept whole waits while those of other connections take the room; a small one does not, nor one that passes through.
func TestHeldRequests(t *testing.T) {
	met, heard := waits()
	held := NewHeld(64<<10, met)
	began, let := make(chan int32, 10), make(chan struct{})
	h := handlerFuncs{
		wants: func(k, _ int16) bool { return k == 3 },
		answer: func(_ context.Context, q wire.RequestHeader) (Answer, error) {
			began <- q.CorrelationID
			if len(q.Body) > heldFree {
				<-let
			}
			return Answer{}, ErrForward
		},
	}
	one, two := newRig(t, h, Options{Held: held}), newRig(t, h, Options{Held: held})
	large := make([]byte, 30<<10)
	one.send(3, 1, 1, large)
	if id := <-began; id != 1 {
		t.Fatal(id)
	}
	two.send(2, 1, 2, large) // passes
	q := two.arrived()
	two.answer(q.CorrelationID, nil)
	two.expect(2, "")
	two.send(3, 1, 3, nil) // small
	if id := <-began; id != 3 {
		t.Fatal(id)
	}
	q = two.arrived()
	two.answer(q.CorrelationID, nil)
	two.expect(3, "")
	two.send(3, 1, 4, large)
	if what := <-heard; what != "requests" {
		t.Error(what)
	}
	select {
	case id := <-began:
		t.Fatalf("request %d was taken beyond the bound", id)
	default:
	}
	close(let)
	if id := <-began; id != 4 {
		t.Fatal(id)
	}
	for id, r := range map[int32]*rig{1: one, 4: two} {
		r.answer(r.arrived().CorrelationID, nil)
		r.expect(id, "")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // it is given back behind the answer
	defer cancel()
	if err := held.requests.Acquire(ctx, held.half); err != nil {
		t.Error("room was not given back")
	}
}

// A response that a filter wants waits for those that other clients have not taken; that requests have taken all of theirs does not hold it up. A connection that ends
// gives its room back.
func TestHeldResponses(t *testing.T) {
	met, heard := waits()
	held := NewHeld(2*500_000, met)
	one, two := rigOver(t, pipePair, longer, Options{Held: held}), newRig(t, longer, Options{Held: held})
	if !held.requests.TryAcquire(held.half) {
		t.Fatal("not all is free")
	}
	body := bytes.Repeat([]byte("meta"), 100_000)
	one.send(3, 1, 1, nil)
	q := one.arrived()
	one.answer(q.CorrelationID, body) // nothing lies between the connection and its client: it stays until the client reads
	two.send(3, 1, 2, nil)
	q = two.arrived()
	go two.answer(q.CorrelationID, body)
	if what := <-heard; what != "responses" {
		t.Error(what)
	}
	one.conn.Close()
	two.expect(2, string(body)+string(body))
}

// Who waits in vain is told so.
func TestHeldForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := NewHeld(200<<10, nil)
		give, err := held.response(t.Context(), 1<<30) // more than there is takes all
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := held.response(t.Context(), 50<<10); !errors.Is(err, ErrHeld) || time.Since(began) != heldPatience {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := held.response(ctx, 50<<10); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		give()
		give, err = held.response(t.Context(), 50<<10)
		if err != nil {
			t.Fatal(err)
		}
		give()
		if give, err = (*Held)(nil).request(t.Context(), 1<<30); err != nil {
			t.Fatal(err)
		}
		give()
	})
}

// A client that announces a large request and is slow to send it does not keep others from theirs for long; where nobody waits it may take its time.
func TestSlowToSendWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := NewHeld(200<<10, nil)
		h := handlerFuncs{wants: wantsFetch, answer: func(_ context.Context, q wire.RequestHeader) (Answer, error) {
			return Answer{Frame: ownFrame(q.CorrelationID, "done")}, nil
		}}
		slow, quick := rigOver(t, pipePair, h, Options{Held: held}), rigOver(t, pipePair, h, Options{Held: held})
		body := make([]byte, 90<<10)
		frame := wire.AppendRequest(nil, &kmsg.FetchRequest{Version: 11}, 1, nil)
		frame = append(frame, body...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		write := func(b []byte) {
			t.Helper()
			if _, err := slow.client.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		// A byte now and then: it never has been idle for long.
		write(frame[:5000])
		for i := range 100 {
			time.Sleep(5 * time.Second)
			write(frame[5000+i : 5001+i])
		}
		began := time.Now()
		quick.send(1, 11, 2, body)
		quick.expect(2, "done")
		if waited := time.Since(began); waited > 2*time.Second {
			t.Errorf("the other has waited for %v", waited)
		}
		if err := <-slow.done; !errors.Is(err, ErrHeld) {
			t.Errorf("the slow one ends with %v", err)
		}
		// Alone, it is let.
		slow = rigOver(t, pipePair, h, Options{Held: held})
		write(frame[:5000])
		time.Sleep(time.Hour)
		write(frame[5000:])
		slow.expect(1, "done")
		slow.conn.Close()
		quick.conn.Close()
		<-slow.done
		<-quick.done
	})
}

// A request of which upstream was asked holds no room while that takes its time, however often it is asked. It is not to be forwarded any more.
func TestNothingIsHeldWhileUpstreamIsAsked(t *testing.T) {
	inAllWays(t, func(t *testing.T, handler func(func(wire.RequestHeader) (Answer, error)) Handler) {
		held := NewHeld(200<<10, nil)
		r := newRig(t, handler(func(wire.RequestHeader) (Answer, error) {
			again := func(*Incoming, error) (Answer, error) {
				return Answer{Ask: kmsg.NewPtrMetadataRequest(), Then: func(*Incoming, error) (Answer, error) {
					return Answer{Later: func(context.Context) (Answer, error) { return Answer{}, ErrForward }}, nil
				}}, nil
			}
			return Answer{Ask: kmsg.NewPtrMetadataRequest(), Then: again}, nil
		}), Options{Held: held})
		r.send(1, 11, 1, make([]byte, 90<<10))
		for range 2 {
			q := r.arrived()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := held.requests.Acquire(ctx, held.half); err != nil {
				t.Fatal("room is held while upstream is asked")
			}
			cancel()
			held.requests.Release(held.half)
			r.answer(q.CorrelationID, nil)
		}
		if err := <-r.done; !errors.Is(err, ErrForward) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// A client that does not take a response that is kept whole does not keep others from theirs for long; where nobody waits it may take its time.
func TestSlowToTakeWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := NewHeld(2*500_000, nil)
		slow, quick := rigOver(t, pipePair, longer, Options{Held: held}), rigOver(t, pipePair, longer, Options{Held: held})
		body := bytes.Repeat([]byte("meta"), 100_000)
		ask := func(r *rig) {
			r.send(3, 1, 1, nil)
			q := r.arrived()
			go r.answer(q.CorrelationID, body)
		}
		ask(slow)
		time.Sleep(time.Hour)
		slow.expect(1, string(body)+string(body))
		ask(slow)
		time.Sleep(time.Minute)
		began := time.Now()
		ask(quick)
		quick.expect(1, string(body)+string(body))
		if waited := time.Since(began); waited > 2*time.Second {
			t.Errorf("the other has waited for %v", waited)
		}
		if err := <-slow.done; !errors.Is(err, ErrHeld) {
			t.Errorf("the slow one ends with %v", err)
		}
		quick.conn.Close()
		<-quick.done
	})
}

// Nor does one that does not take the answer before it: until that is taken there is no room for what comes behind.
func TestSlowToTakeWhatIsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := NewHeld(2*500_000, nil)
		h := longer
		h.wants = wantsFetch
		h.answer = func(_ context.Context, q wire.RequestHeader) (Answer, error) {
			return Answer{Frame: ownFrame(q.CorrelationID, "records")}, nil
		}
		slow, quick := rigOver(t, pipePair, h, Options{Held: held}), rigOver(t, pipePair, h, Options{Held: held})
		body := bytes.Repeat([]byte("meta"), 100_000)
		ask := func(r *rig) {
			r.send(3, 1, 2, nil)
			q := r.arrived()
			go r.answer(q.CorrelationID, body)
		}
		slow.send(1, 11, 1, nil) // answered, and not taken
		ask(slow)
		time.Sleep(time.Minute)
		began := time.Now()
		ask(quick)
		quick.expect(2, string(body)+string(body))
		if waited := time.Since(began); waited > 2*time.Second {
			t.Errorf("the other has waited for %v", waited)
		}
		slow.expect(1, "records")
		slow.expect(2, string(body)+string(body))
		for _, r := range []*rig{slow, quick} {
			r.conn.Close()
			<-r.done
		}
	})
}
