package clientconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// beginning is a handler that begins its answers.
type beginning struct {
	handlerFuncs
	begin func(wire.RequestHeader) (Answer, bool, error)
}

func (h beginning) Begin(q wire.RequestHeader) (Answer, bool, error) { return h.begin(q) }

// inAllWays has a handler give the same answer as it may: at once, later, or out of Answer.
func inAllWays(t *testing.T, test func(t *testing.T, handler func(ans func(wire.RequestHeader) (Answer, error)) Handler)) {
	type answer = func(wire.RequestHeader) (Answer, error)
	inAnswer := func(ans answer) handlerFuncs {
		return handlerFuncs{wants: wantsFetch, answer: func(_ context.Context, q wire.RequestHeader) (Answer, error) { return ans(q) }}
	}
	for name, handler := range map[string]func(answer) Handler{
		"begun": func(ans answer) Handler {
			return beginning{inAnswer(ans), func(q wire.RequestHeader) (Answer, bool, error) {
				a, err := ans(q)
				return a, true, err
			}}
		},
		"begun, later": func(ans answer) Handler {
			return beginning{inAnswer(ans), func(q wire.RequestHeader) (Answer, bool, error) {
				return Answer{Later: func(context.Context) (Answer, error) { return ans(q) }}, true, nil
			}}
		},
		"not begun": func(ans answer) Handler {
			return beginning{inAnswer(ans), func(wire.RequestHeader) (Answer, bool, error) { return Answer{}, false, nil }}
		},
		"no beginner": func(ans answer) Handler { return inAnswer(ans) },
	} {
		t.Run(name, func(t *testing.T) { test(t, handler) })
	}
}

// What a handler makes of the response to a question of its own takes its place in the order, whatever it is.
func TestAnswersThatAsk(t *testing.T) {
	ask := func(then func(*Incoming) (Answer, error)) (Answer, error) {
		return Answer{Ask: kmsg.NewPtrMetadataRequest(), Then: func(in *Incoming, err error) (Answer, error) {
			if err != nil {
				return Answer{}, err
			}
			return then(in)
		}}, nil
	}
	for name, c := range map[string]struct {
		asks int // how often the broker is asked
		want string
		ans  func(wire.RequestHeader) (Answer, error)
	}{
		"the stream": {1, "broker's 1", func(wire.RequestHeader) (Answer, error) {
			return ask(func(in *Incoming) (Answer, error) { return Answer{Stream: in}, nil })
		}},
		"a frame, the response left": {1, "ours", func(q wire.RequestHeader) (Answer, error) {
			return ask(func(*Incoming) (Answer, error) { return Answer{Frame: ownFrame(q.CorrelationID, "ours")}, nil })
		}},
		"a frame, the response discarded": {1, "ours", func(q wire.RequestHeader) (Answer, error) {
			return ask(func(in *Incoming) (Answer, error) {
				return Answer{Frame: ownFrame(q.CorrelationID, "ours")}, in.Discard()
			})
		}},
		"later": {1, "ours", func(q wire.RequestHeader) (Answer, error) {
			return ask(func(*Incoming) (Answer, error) {
				return Answer{Later: func(context.Context) (Answer, error) {
					return Answer{Frame: ownFrame(q.CorrelationID, "ours")}, nil
				}}, nil
			})
		}},
		"another question": {2, "broker's 2", func(wire.RequestHeader) (Answer, error) {
			return ask(func(*Incoming) (Answer, error) {
				return ask(func(in *Incoming) (Answer, error) { return Answer{Stream: in}, nil })
			})
		}},
		"forwarded after all": {0, "forwarded", func(wire.RequestHeader) (Answer, error) { return Answer{}, ErrForward }},
	} {
		t.Run(name, func(t *testing.T) {
			inAllWays(t, func(t *testing.T, handler func(func(wire.RequestHeader) (Answer, error)) Handler) {
				r := newRig(t, handler(c.ans), Options{Held: NewHeld(1<<20, nil)})
				r.send(3, 1, 1, nil)
				r.send(1, 11, 2, bytes.Repeat([]byte("long"), heldFree))
				r.send(3, 1, 3, nil)
				one := r.arrived()
				if c.asks == 0 {
					two := r.arrived()
					r.answer(one.CorrelationID, []byte("a"))
					r.answer(two.CorrelationID, []byte("forwarded"))
				} else {
					r.answer(one.CorrelationID, []byte("a"))
				}
				for n := range c.asks {
					r.answer(r.arrived().CorrelationID, fmt.Appendf(nil, "broker's %d", n+1))
				}
				r.expect(1, "a")
				r.expect(2, c.want)
				r.answer(r.arrived().CorrelationID, []byte("c"))
				r.expect(3, "c")
				r.heldNothing()
			})
		})
	}
}

// heldNothing ends the connection and checks that the memory of its requests was given back.
func (r *rig) heldNothing() {
	r.t.Helper()
	r.client.Close()
	<-r.done
	held := r.conn.opts.Held
	if !held.requests.TryAcquire(held.half) {
		r.t.Error("memory of a request was not given back")
	}
}

// Whoever has asked hears of the end, once, and nothing of the request is kept, wherever the connection ends.
func TestAskersHearOfTheEnd(t *testing.T) {
	for name, end := range map[string]func(r *rig, q wire.RequestHeader){
		"the client hangs up":      func(r *rig, _ wire.RequestHeader) { r.client.Close() },
		"the broker hangs up":      func(r *rig, _ wire.RequestHeader) { r.broker.Close() },
		"closed":                   func(r *rig, _ wire.RequestHeader) { r.conn.Close() },
		"another's response":       func(r *rig, q wire.RequestHeader) { r.answer(q.CorrelationID+1, nil) },
		"a response of no size":    func(r *rig, _ wire.RequestHeader) { r.broker.Write([]byte{0, 0, 0, 0}) },
		"a response, and an error": func(r *rig, q wire.RequestHeader) { r.answer(q.CorrelationID, []byte("broker's")) },
		"a response, cut": func(r *rig, q wire.RequestHeader) {
			r.broker.Write(frameOf(q.CorrelationID, make([]byte, 99))[:20])
			r.broker.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inAllWays(t, func(t *testing.T, handler func(func(wire.RequestHeader) (Answer, error)) Handler) {
				var heard atomic.Int32
				r := newRig(t, handler(func(wire.RequestHeader) (Answer, error) {
					return Answer{Ask: kmsg.NewPtrMetadataRequest(), Then: func(in *Incoming, err error) (Answer, error) {
						heard.Add(1)
						if (in == nil) == (err == nil) {
							t.Error("neither a response nor an error, or both")
						}
						if err == nil {
							err = errors.New("not to be had")
						}
						return Answer{}, err
					}}, nil
				}), Options{Held: NewHeld(1<<20, nil)})
				r.send(1, 11, 2, bytes.Repeat([]byte("long"), heldFree))
				end(r, r.arrived())
				r.heldNothing()
				if n := heard.Load(); n != 1 {
					t.Errorf("called %d times", n)
				}
			})
		})
	}
}

// An answer that cannot be begun ends the connection and keeps nothing.
func TestBeginFails(t *testing.T) {
	wrong := errors.New("wrong")
	r := newRig(t, beginning{handlerFuncs{wants: wantsFetch}, func(wire.RequestHeader) (Answer, bool, error) { return Answer{}, true, wrong }}, Options{Held: NewHeld(1<<20, nil)})
	r.send(1, 11, 2, bytes.Repeat([]byte("long"), heldFree))
	if err := <-r.done; !errors.Is(err, wrong) {
		t.Errorf("ended with %v", err)
	}
	r.done <- nil
	r.heldNothing()
}

// Frames of all sizes follow each other, those that the kernel moves and those that are copied, both ways.
func TestSizesMixed(t *testing.T) {
	sizes := []int{1 << 20, 10, 200 << 10, spliceFrom, spliceFrom - 1, 5 << 20, sip, sip - 12, sip + 1, 3 << 20, 0, 600 << 10, 40 << 10, spliceFrom + 1}
	bodies := make([][]byte, len(sizes))
	for i, n := range sizes {
		bodies[i] = bytes.Repeat([]byte{byte('a' + i), byte(i), 'z'}, n/3+1)[:n]
	}
	// What the kernel moves is unseen; what is seen must be all the rest.
	skipping := func(in *Incoming, a *Answer) error {
		s := &skipAll{}
		a.Transform, a.Skip = func(b []byte) error {
			if s.left == 0 && in.Size() > spliceFrom+100 {
				s.left = in.Size() - len(b) - 3
			}
			return nil
		}, s
		return nil
	}
	for name, key := range map[string]int16{"forwarded": 3, "pulled": 1} {
		t.Run(name, func(t *testing.T) {
			r := newPullRig(t, Options{}, skipping)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for i := range sizes {
					if key == 1 {
						r.send(key, 11, int32(i), nil)
						continue
					}
					r.send(key, 1, int32(i), bodies[i])
				}
			}()
			go func() {
				for i := range sizes {
					q := r.arrived()
					if key == 3 && !bytes.Equal(q.Body, bodies[i]) {
						t.Errorf("request %d arrived otherwise than it was sent", i)
					}
					r.answer(q.CorrelationID, bodies[i])
				}
			}()
			for i := range sizes {
				r.expect(int32(i), string(bodies[i]))
			}
			<-sent
		})
	}
}

// Whoever asks another question instead of what the first brought hears of the end as well, where it comes before that question could be sent.
func TestAskersOfAnotherQuestionHearOfTheEnd(t *testing.T) {
	inAllWays(t, func(t *testing.T, handler func(func(wire.RequestHeader) (Answer, error)) Handler) {
		var first, second atomic.Int32
		r := newRig(t, handler(func(wire.RequestHeader) (Answer, error) {
			return Answer{Ask: kmsg.NewPtrMetadataRequest(), Then: func(_ *Incoming, err error) (Answer, error) {
				first.Add(1)
				return Answer{Ask: kmsg.NewPtrMetadataRequest(), Then: func(in *Incoming, err error) (Answer, error) {
					if second.Add(1); in != nil || err == nil {
						t.Error("a response that never came")
					}
					return Answer{}, err
				}}, err
			}}, nil
		}), Options{Held: NewHeld(1<<20, nil)})
		r.send(1, 11, 2, bytes.Repeat([]byte("long"), heldFree))
		q := r.arrived()
		r.broker.Write(frameOf(q.CorrelationID, make([]byte, 99))[:20])
		r.broker.Close()
		r.heldNothing()
		if first.Load() != 1 || second.Load() != 1 {
			t.Errorf("called %d and %d times", first.Load(), second.Load())
		}
	})
}
