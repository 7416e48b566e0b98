package clientconn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// frameOf is a whole response frame.
func frameOf(corr int32, body []byte) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	return append(binary.BigEndian.AppendUint32(f, uint32(corr)), body...)
}

// puller answers each fetch by what the broker answers to a fetch of its own.
func puller(c **Conn, with func(in *Incoming, a *Answer) error) handlerFuncs {
	return handlerFuncs{wants: wantsFetch, answer: func(ctx context.Context, q wire.RequestHeader) (Answer, error) {
		req := kmsg.NewPtrFetchRequest()
		req.Version = 12
		in, err := (*c).Pull(ctx, req)
		if err != nil {
			return Answer{}, err
		}
		a := Answer{Stream: in}
		if with != nil {
			if err := with(in, &a); err != nil {
				return Answer{}, err
			}
		}
		return a, nil
	}}
}

// newPullRig is a rig whose handler needs its Conn.
func newPullRig(t *testing.T, o Options, with func(in *Incoming, a *Answer) error) *rig {
	var c *Conn
	ready := make(chan struct{})
	h := puller(&c, with)
	inner := h.answer
	h.answer = func(ctx context.Context, q wire.RequestHeader) (Answer, error) {
		<-ready
		return inner(ctx, q)
	}
	r := newRig(t, h, o)
	c = r.conn
	close(ready)
	return r
}

// A pulled response takes its place in the order, with the client's correlation id.
func TestPulledStreamStandsInOrder(t *testing.T) {
	var released atomic.Int32
	var peeked []byte
	r := newPullRig(t, Options{}, func(in *Incoming, a *Answer) error {
		b, err := in.Peek(12)
		peeked = bytes.Clone(b)
		if in.Size() != 4+4+500_000 {
			t.Errorf("size %d", in.Size())
		}
		a.Release = func() { released.Add(1) }
		return err
	})
	body := bytes.Repeat([]byte("records "), 500_000/8)
	r.send(3, 1, 1, nil)
	r.send(1, 11, 2, nil)
	r.send(3, 1, 3, nil)
	one, two := r.arrived(), r.arrived()
	if one.Key != 3 || two.Key != 1 {
		t.Fatal(one.Key, two.Key)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		r.answer(one.CorrelationID, []byte("a"))
		r.answer(two.CorrelationID, body)
	}()
	r.expect(1, "a")
	r.expect(2, string(body))
	<-sent
	three := r.arrived()
	r.answer(three.CorrelationID, []byte("c"))
	r.expect(3, "c")
	if want := frameOf(two.CorrelationID, body)[:12]; !bytes.Equal(peeked, want) {
		t.Errorf("peeked %x, want %x", peeked, want)
	}
	if released.Load() != 1 {
		t.Errorf("released %d times", released.Load())
	}
}

// The whole frame is seen, in order, with the client's id; what is changed goes out changed.
func TestTransformSeesAndChanges(t *testing.T) {
	var seen []byte
	written := make(chan struct{})
	r := newPullRig(t, Options{}, func(_ *Incoming, a *Answer) error {
		a.Release = func() { close(written) }
		a.Transform = func(b []byte) error {
			seen = append(seen, b...)
			for i := range b {
				if b[i] == 'x' {
					b[i] = 'y'
				}
			}
			return nil
		}
		return nil
	})
	body := []byte(strings.Repeat("x", 300_000))
	r.send(1, 11, 0x01020304, nil)
	q := r.arrived()
	go r.answer(q.CorrelationID, body)
	r.expect(0x01020304, strings.Repeat("y", 300_000))
	<-written
	if !bytes.Equal(seen, frameOf(0x01020304, body)) {
		t.Errorf("%d bytes seen", len(seen))
	}
}

// skipAll never needs a byte behind the first few.
type skipAll struct{ seen, left int }

func (s *skipAll) Ahead() int { return s.left }
func (s *skipAll) Skip(n int) int {
	s.left -= n
	return n
}

func TestSkippedBytesPassUnseen(t *testing.T) {
	const size = 4 << 20
	skip := &skipAll{}
	written := make(chan struct{})
	r := newPullRig(t, Options{}, func(in *Incoming, a *Answer) error {
		a.Release = func() { close(written) }
		skip.left = in.Size() // no need to see anything: only what came with the head is
		a.Transform = func(b []byte) error {
			skip.seen += len(b)
			skip.left -= len(b)
			return nil
		}
		a.Skip = skip
		return nil
	})
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i * 7 >> 3)
	}
	r.send(1, 11, 5, nil)
	q := r.arrived()
	go r.answer(q.CorrelationID, body)
	r.expect(5, string(body))
	<-written
	if skip.left != 0 || skip.seen == 0 || skip.seen > size/2 {
		t.Errorf("%d seen, %d left", skip.seen, skip.left)
	}
}

func TestTransformFails(t *testing.T) {
	mine := errors.New("mine")
	var released atomic.Int32
	r := newPullRig(t, Options{}, func(_ *Incoming, a *Answer) error {
		a.Transform = func([]byte) error { return mine }
		a.Release = func() { released.Add(1) }
		return nil
	})
	r.send(1, 11, 5, nil)
	r.answer(r.arrived().CorrelationID, []byte("f"))
	if err := <-r.done; !errors.Is(err, mine) {
		t.Error(err)
	}
	if released.Load() != 1 {
		t.Error("not released")
	}
}

func TestDiscardGivesWayToWhatIsBehind(t *testing.T) {
	r := newPullRig(t, Options{}, func(in *Incoming, a *Answer) error {
		if err := in.Discard(); err != nil {
			return err
		}
		*a = Answer{Frame: ownFrame(8, "own")}
		return nil
	})
	r.send(1, 11, 8, nil)
	r.send(3, 1, 9, nil)
	q := r.arrived()
	go r.answer(q.CorrelationID, make([]byte, 1<<20))
	r.expect(8, "own")
	r.answer(r.arrived().CorrelationID, []byte("m"))
	r.expect(9, "m")
}

// While a pulled response is held, requests still go upstream; their responses wait behind it.
func TestHeldPullDoesNotStopWriting(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	type pulled struct {
		in  *Incoming
		err error
	}
	got := make(chan pulled)
	go func() {
		in, err := r.conn.Pull(context.Background(), kmsg.NewPtrFetchRequest())
		got <- pulled{in, err}
	}()
	q := r.arrived()
	go r.answer(q.CorrelationID, make([]byte, 1<<20))
	p := <-got
	if p.err != nil {
		t.Fatal(p.err)
	}
	r.send(3, 1, 1, []byte("while held"))
	second := r.arrived()
	if string(second.Body) != "while held" {
		t.Fatalf("%q", second.Body)
	}
	if err := p.in.Discard(); err != nil {
		t.Fatal(err)
	}
	r.answer(second.CorrelationID, []byte("m"))
	r.expect(1, "m")
}

// A stream that was pulled before its request could wait for itself: it is refused, and nothing hangs.
func TestStalePullIsRefused(t *testing.T) {
	var in *Incoming
	var released atomic.Int32
	h := handlerFuncs{wants: wantsFetch, answer: func(context.Context, wire.RequestHeader) (Answer, error) {
		return Answer{Stream: in, Release: func() { released.Add(1) }}, nil
	}}
	r := newRig(t, h, Options{})
	pulled := make(chan error)
	go func() {
		var err error
		in, err = r.conn.Pull(context.Background(), kmsg.NewPtrFetchRequest())
		pulled <- err
	}()
	r.answer(r.arrived().CorrelationID, []byte("early"))
	if err := <-pulled; err != nil {
		t.Fatal(err)
	}
	r.send(3, 1, 1, nil) // its response is behind the one held
	r.arrived()
	r.send(1, 11, 2, nil)
	if err := <-r.done; !errors.Is(err, ErrStale) {
		t.Error(err)
	}
	if released.Load() != 1 {
		t.Error("not released")
	}
}

// Nobody waits any more: the response is thrown away, whether it comes before or after.
func TestPullGivenUp(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	for range 2 {
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error)
		go func() {
			_, err := r.conn.Pull(ctx, kmsg.NewPtrFetchRequest())
			failed <- err
		}()
		q := r.arrived()
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		r.answer(q.CorrelationID, make([]byte, 200_000))
		r.send(3, 1, 1, nil)
		r.answer(r.arrived().CorrelationID, []byte("m"))
		r.expect(1, "m")
	}
}

func TestPullOnAClosedConn(t *testing.T) {
	r := newRig(t, handlerFuncs{}, Options{})
	failed := make(chan error)
	go func() {
		_, err := r.conn.Pull(context.Background(), kmsg.NewPtrFetchRequest())
		failed <- err
	}()
	r.arrived()
	r.broker.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	<-r.done
	if _, err := r.conn.Pull(context.Background(), kmsg.NewPtrFetchRequest()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// The client goes while a stream is on its way to it: all ends, and the answer is released.
func TestClientGoneDuringAStream(t *testing.T) {
	var released atomic.Int32
	r := newPullRig(t, Options{}, func(_ *Incoming, a *Answer) error {
		a.Release = func() { released.Add(1) }
		return nil
	})
	r.send(1, 11, 1, nil)
	q := r.arrived()
	written := make(chan struct{})
	go func() {
		defer close(written)
		// Ends by an error when the Conn gives up.
		_, _ = r.broker.Write(frameOf(q.CorrelationID, make([]byte, 64<<20)))
	}()
	if _, err := io.ReadFull(r.toThem, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	r.client.Close()
	<-r.done
	<-written
	if released.Load() != 1 {
		t.Errorf("released %d times", released.Load())
	}
}

// The broker goes in the middle of a frame: the client's connection ends, with a reason.
func TestUpstreamGoneMidFrame(t *testing.T) {
	for name, size := range map[string]int{"small": 1000, "large": 4 << 20} {
		for _, pull := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				var r *rig
				if pull {
					r = newPullRig(t, Options{}, nil)
				} else {
					r = newRig(t, handlerFuncs{}, Options{})
				}
				r.send(1, 11, 1, nil)
				q := r.arrived()
				go func() {
					_, _ = r.broker.Write(frameOf(q.CorrelationID, make([]byte, size))[:8+size/2])
					r.broker.Close()
				}()
				if _, err := wire.ReadFrame(r.toThem, 1<<30, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Error("at the client: ", err)
				}
				if err := <-r.done; !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Error(err)
				}
			})
		}
	}
}

// An authentication is not disturbed by a Pull, and its tokens pass beside streams.
func TestPullWaitsForAuthentication(t *testing.T) {
	r := newPullRig(t, Options{}, nil)
	r.send(1, 11, 1, nil)
	body := bytes.Repeat([]byte("f"), 1<<20)
	q := r.arrived()
	go r.answer(q.CorrelationID, body)
	r.expect(1, string(body))

	r.send(17, 1, 2, []byte("handshake")) // re-authentication, KIP-368
	q = r.arrived()
	got := make(chan error)
	go func() {
		in, err := r.conn.Pull(context.Background(), kmsg.NewPtrFetchRequest())
		if err == nil {
			err = in.Discard()
		}
		got <- err
	}()
	r.answer(q.CorrelationID, []byte("h"))
	r.expect(2, "h")
	r.send(36, 1, 3, []byte("token"))
	if q = r.arrived(); q.Key != 36 {
		t.Fatalf("key %d in the middle of an authentication", q.Key)
	}
	r.answer(q.CorrelationID, []byte("ok"))
	r.expect(3, "ok")
	r.send(3, 1, 4, nil)
	for range 2 {
		switch q = r.arrived(); q.Key {
		case 1:
			r.answer(q.CorrelationID, make([]byte, 100_000))
		default:
			r.answer(q.CorrelationID, []byte("m"))
		}
	}
	r.expect(4, "m")
	if err := <-got; err != nil {
		t.Error(err)
	}
}
