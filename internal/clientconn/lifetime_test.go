package clientconn

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// login is an authentication of one step, which is good for so many milliseconds.
func (r *rig) login(version int16, millis int64, code int16) {
	r.t.Helper()
	r.send(17, 1, 1, []byte("\x00\x05PLAIN"))
	r.answer(r.arrived().CorrelationID, []byte("handshake"))
	r.expect(1, "handshake")
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.Version, req.SASLAuthBytes = version, []byte("token")
	id := "tester"
	if _, err := r.client.Write(wire.AppendRequest(nil, req, 2, &id)); err != nil {
		r.t.Fatal(err)
	}
	q := r.arrived()
	resp := kmsg.NewPtrSASLAuthenticateResponse()
	resp.Version, resp.SessionLifetimeMillis, resp.ErrorCode = version, millis, code
	if _, err := r.broker.Write(wire.AppendResponse(nil, resp, q.CorrelationID)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := wire.ReadFrame(r.toThem, 1000, nil); err != nil {
		r.t.Fatal(err)
	}
}

// metadata is a request of the client's with its response.
func (r *rig) metadata() {
	r.t.Helper()
	r.send(3, 1, 3, nil)
	r.answer(r.arrived().CorrelationID, []byte("m"))
	r.expect(3, "m")
}

// asked is a request of our own that is under way; what arrives of it is answered.
func (r *rig) asked(ctx context.Context) (sent <-chan error) {
	done := make(chan error, 1)
	go func() {
		_, err := r.conn.Request(ctx, kmsg.NewPtrApiVersionsRequest())
		done <- err
	}()
	return done
}

func (r *rig) answerOwn() {
	r.t.Helper()
	q := r.arrived()
	if q.Key != 18 {
		r.t.Fatalf("key %d", q.Key)
	}
	r.answer(q.CorrelationID, kmsg.NewPtrApiVersionsResponse().AppendTo(nil))
}

// lifetimes runs a test in virtual time, with a handler that holds fetches.
func lifetimes(t *testing.T, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := rigOver(t, pipePair, handlerFuncs{wants: wantsFetch, answer: func(ctx context.Context, q wire.RequestHeader) (Answer, error) {
			<-ctx.Done()
			return Answer{}, ctx.Err()
		}}, Options{})
		test(t, r)
	})
}

// The broker ends a connection on which something comes after the lifetime of its authentication. What is asked of our own waits then, until the client has authenticated again.
func TestOwnRequestsWaitForReauthentication(t *testing.T) {
	for _, version := range []int16{1, 2} {
		lifetimes(t, func(t *testing.T, r *rig) {
			r.login(version, 60_000, 0)
			r.metadata()
			time.Sleep(50 * time.Second)
			sent := r.asked(t.Context())
			r.answerOwn()
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			time.Sleep(8 * time.Second) // a little before its end
			given, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := <-r.asked(given); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal("asked in vain: ", err)
			}
			sent = r.asked(t.Context())
			synctest.Wait()
			r.login(version, 60_000, 0)
			r.metadata()
			r.answerOwn()
			if err := <-sent; err != nil {
				t.Error(err)
			}
		})
	}
}

// The end of a short lifetime is not cut finer than a machine with much to do keeps time.
func TestOwnRequestsLeaveRoomBeforeTheEndOfAShortLifetime(t *testing.T) {
	lifetimes(t, func(t *testing.T, r *rig) {
		r.login(2, 2000, 0)
		r.metadata()
		time.Sleep(1600 * time.Millisecond)
		given, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := <-r.asked(given); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("asked in vain: ", err)
		}
		r.login(2, 2000, 0)
		r.metadata()
		time.Sleep(1400 * time.Millisecond)
		sent := r.asked(t.Context())
		r.answerOwn()
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// A lifetime is none where the broker says 0, refuses, or speaks a version that does not have it; the longest ends never.
func TestLifetimesThatDoNotEnd(t *testing.T) {
	for name, c := range map[string]struct {
		version int16
		millis  int64
		code    int16
	}{"none": {2, 0, 0}, "refused": {2, 1000, 58}, "old": {0, 1000, 0}, "negative": {1, -1, 0}, "longest": {2, math.MaxInt64, 0}} {
		t.Run(name, func(t *testing.T) {
			lifetimes(t, func(t *testing.T, r *rig) {
				r.login(c.version, c.millis, c.code)
				r.metadata()
				time.Sleep(1000 * time.Hour)
				sent := r.asked(t.Context())
				r.answerOwn()
				if err := <-sent; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A client that is owed something does not authenticate before it has got that, which may wait for the request: it is sent after a while. The end of the connection ends the waiting.
func TestOwnRequestsDoNotWaitForOnesThatWaitForThem(t *testing.T) {
	lifetimes(t, func(t *testing.T, r *rig) {
		r.login(2, 60_000, 0)
		r.send(1, 4, 4, nil) // held by the handler
		r.awaitOwed(1)
		time.Sleep(time.Minute)
		began := time.Now()
		sent := r.asked(t.Context())
		r.answerOwn()
		if err := <-sent; err != nil || time.Since(began) > 2*expiredPatience {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	lifetimes(t, func(t *testing.T, r *rig) {
		r.login(2, 60_000, 0)
		r.metadata()
		time.Sleep(time.Minute)
		sent := r.asked(t.Context())
		synctest.Wait()
		r.conn.Close()
		if err := <-sent; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}
