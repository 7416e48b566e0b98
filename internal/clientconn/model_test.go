package clientconn

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// The model: a broker that answers each request by an echo of its body, of a size that the request asks for, and a client that knows from the order of
// its requests what it must get. In between a Conn whose handler does, by the request's own word, one of all that a handler may do.

// deed is what becomes of a request.
type deed byte

const (
	deedForward  deed = iota // streamed through
	deedFilter               // its response is filtered
	deedProduce0             // a produce without acks: no response
	deedAnswer               // answered by the handler
	deedGiveBack             // seen by the handler and forwarded
	deedPull                 // answered by a pulled stream
	deedPullSeen             // the same, changed on its way
	deedDiscard              // pulled, thrown away, answered
	deedOwn                  // an own request within the answer
	deedGiveUp               // a pull that is given up, then answered
	deeds
)

const (
	keyEcho    = 2  // streamed
	keyFilter  = 3  // filtered
	keyHandled = 19 // wanted by the handler
)

// order is one request of the client: body is deed, size of the response, number.
type order struct {
	deed   deed
	size   int
	number int
}

func (o order) body() []byte {
	b := append([]byte{byte(o.deed)}, binary.BigEndian.AppendUint32(nil, uint32(o.size))...)
	return binary.BigEndian.AppendUint32(b, uint32(o.number))
}

func orderOf(b []byte) order {
	return order{deed(b[0]), int(binary.BigEndian.Uint32(b[1:])), int(binary.BigEndian.Uint32(b[5:]))}
}

// echo is the response's body: the number at both ends, so that a cut or a mix shows.
func (o order) echo() []byte {
	b := bytes.Repeat([]byte{byte(o.number)}, o.size)
	b = append(binary.BigEndian.AppendUint32(nil, uint32(o.number)), b...)
	return binary.BigEndian.AppendUint32(b, uint32(o.number))
}

// want is what the client must get.
func (o order) want() []byte {
	switch o.deed {
	case deedFilter:
		return append(o.echo(), "filtered"...)
	case deedAnswer, deedDiscard, deedOwn, deedGiveUp:
		return append([]byte("answered"), o.echo()...)
	case deedPullSeen:
		return inverted(o.echo())
	}
	return o.echo()
}

func inverted(b []byte) []byte {
	out := bytes.Clone(b)
	for i := range out {
		out[i] ^= 0xff
	}
	return out
}

func (o order) frame(corr int32) []byte {
	key, version := int16(keyHandled), int16(0)
	body := o.body()
	switch o.deed {
	case deedForward:
		key = keyEcho
	case deedFilter:
		key = keyFilter
	case deedProduce0:
		key, body = keyProduce, append([]byte{0, 0}, body...)
	}
	f := binary.BigEndian.AppendUint16([]byte{0, 0, 0, 0}, uint16(key))
	f = binary.BigEndian.AppendUint16(f, uint16(version))
	f = binary.BigEndian.AppendUint32(f, uint32(corr))
	f = append(f, 0xff, 0xff)
	f = append(f, body...)
	binary.BigEndian.PutUint32(f, uint32(len(f)-4))
	return f
}

// echoRequest carries an order as a request of our own, in a message that has bytes: SaslAuthenticate is one, but would be taken for an authentication only if
// the client sent it.
func echoRequest(o order) kmsg.Request {
	r := kmsg.NewPtrSASLAuthenticateRequest()
	r.SASLAuthBytes = o.body()
	return r
}

// modelHandler does what the request says.
type modelHandler struct {
	c     **Conn
	ready chan struct{}
	mu    sync.Mutex
	owed  int // releases
}

func (h *modelHandler) Wants(key, _ int16) bool         { return key == keyHandled }
func (h *modelHandler) WantsResponse(key, _ int16) bool { return key == keyFilter }
func (h *modelHandler) FilterResponse(_, _ int16, frame []byte) ([]byte, error) {
	frame = append(frame, "filtered"...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame, nil
}

func (h *modelHandler) release() func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owed++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.owed--
	}
}

func (h *modelHandler) Answer(ctx context.Context, q wire.RequestHeader) (Answer, error) {
	<-h.ready
	c, o := *h.c, orderOf(q.Body)
	own := Answer{Frame: ownFrame(q.CorrelationID, "answered"+string(o.echo())), Release: h.release()}
	switch o.deed {
	case deedGiveBack:
		own.Release()
		return Answer{}, ErrForward
	case deedPull, deedPullSeen, deedDiscard:
		in, err := c.Pull(ctx, echoRequest(o))
		if err != nil {
			own.release()
			return Answer{}, err
		}
		if o.deed == deedDiscard {
			return own, in.Discard()
		}
		a := Answer{Stream: in, Release: own.Release}
		if o.deed == deedPullSeen {
			at := 0
			a.Transform = func(b []byte) error {
				for i := range b {
					if at >= 8 { // behind size and correlation id
						b[i] ^= 0xff
					}
					at++
				}
				return nil
			}
		}
		return a, nil
	case deedOwn:
		resp, err := c.Request(ctx, kmsg.NewPtrApiVersionsRequest())
		if err == nil && len(resp.(*kmsg.ApiVersionsResponse).ApiKeys) != 1 {
			err = errors.New("another's response")
		}
		if err != nil {
			own.release()
		}
		return own, err
	case deedGiveUp:
		short, cancel := context.WithTimeout(ctx, time.Duration(o.number%3)*100*time.Microsecond)
		defer cancel()
		in, err := c.Pull(short, echoRequest(o))
		switch {
		case err == nil:
			return own, in.Discard()
		case !errors.Is(err, context.DeadlineExceeded):
			own.release()
			return Answer{}, err
		}
	}
	return own, nil
}

// modelBroker serves until the connection ends.
func modelBroker(br *bufio.Reader, write func([]byte) error) {
	for {
		f, err := wire.ReadFrame(br, 1<<20, nil)
		if err != nil {
			return
		}
		h, err := wire.ParseRequestHeader(f)
		if err != nil {
			panic(err)
		}
		var body []byte
		switch h.Key {
		case keyProduce:
			continue
		case keySaslAuthenticate:
			body = orderOf(h.Body[4:]).echo()
		case 18:
			r := kmsg.NewPtrApiVersionsResponse()
			r.ApiKeys = make([]kmsg.ApiVersionsResponseApiKey, 1)
			body = r.AppendTo(nil)
		default:
			body = orderOf(h.Body).echo()
		}
		if err := write(frameOf(h.CorrelationID, body)); err != nil {
			return
		}
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		orders := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) order {
			return order{
				deed: deed(rapid.IntRange(0, int(deeds)-1).Draw(rt, "deed")),
				size: rapid.SampledFrom([]int{0, 10, 5000, 70_000, 700_000}).Draw(rt, "size"),
			}
		}), 1, 25).Draw(rt, "orders")
		o := Options{MaxInFlight: rapid.IntRange(1, 8).Draw(rt, "in flight")}
		drainAt := rapid.IntRange(-1, len(orders)-1).Draw(rt, "drain at")
		aside := rapid.IntRange(0, 3).Draw(rt, "requests aside")
		if err := playModel(t, orders, o, drainAt, aside); err != nil {
			rt.Fatal(err)
		}
	})
}

// playModel runs one client through all its orders. drainAt is the response after which the connection is told to drain, -1 for none.
func playModel(t *testing.T, orders []order, o Options, drainAt, aside int) error {
	for i := range orders {
		orders[i].number = i
	}
	client, ours := tcpPair(t)
	upstream, broker := tcpPair(t)
	var c *Conn
	h := &modelHandler{c: &c, ready: make(chan struct{})}
	c = New(Socket(ours), upstream, o)
	close(h.ready)
	done := make(chan error, 1)
	go func() { done <- c.Run(h) }()
	var running sync.WaitGroup
	running.Go(func() {
		modelBroker(bufio.NewReader(broker), func(b []byte) error {
			_, err := broker.Write(b)
			return err
		})
	})
	running.Go(func() {
		for i, o := range orders {
			if _, err := client.Write(o.frame(int32(i % 3))); err != nil {
				return // drained
			}
		}
	})
	for range aside { // beside the client's own, as a refresh is
		running.Go(func() {
			if _, err := c.Request(context.Background(), kmsg.NewPtrApiVersionsRequest()); err != nil && !errors.Is(err, ErrClosed) {
				panic(err)
			}
		})
	}
	err := checkResponses(bufio.NewReader(client), c, orders, drainAt)
	client.Close()
	if ended := <-done; err == nil && ended != nil {
		err = ended
	}
	broker.Close()
	running.Wait()
	if err == nil && h.owed != 0 {
		err = fmt.Errorf("%d answers not released", h.owed)
	}
	return err
}

func checkResponses(br *bufio.Reader, c *Conn, orders []order, drainAt int) error {
	drained, since := false, time.Now()
	for i, o := range orders {
		if o.deed != deedProduce0 {
			f, err := wire.ReadFrame(br, 1<<20, nil)
			if drained && err == io.EOF {
				return nil // between two frames
			}
			if err != nil {
				return fmt.Errorf("response %d (%d), drained for %v: %w", i, o.deed, time.Since(since), err)
			}
			if corr := binary.BigEndian.Uint32(f); corr != uint32(i%3) || !bytes.Equal(f[4:], o.want()) {
				return fmt.Errorf("response %d (deed %d, size %d): id %d, %d bytes %.30q, want %.30q", i, o.deed, o.size, corr, len(f)-4, f[4:], o.want())
			}
		}
		if i == drainAt {
			c.Drain()
			drained, since = true, time.Now()
		}
	}
	return nil
}
