// Package clientconn carries one client's Kafka connection to an upstream broker and lets a Handler answer some of its requests in the broker's
// stead. It keeps what the protocol promises: responses in the order of the requests, none for a produce with acks=0, nothing of ours between
// the steps of an authentication. What the handler does not want is streamed through, of requests the header alone is looked at.
//
// The library's dialer uses it; it is made for a gateway too. Policy (which requests, from where the answers) is the handler's. A Conn owns three goroutines and one
// for each answer in the making; Run waits for them all.
package clientconn

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// ErrForward is a handler's way to say: not mine after all, send it upstream as it came.
var ErrForward = errors.New("forward the request")

// ErrClosed: the connection has ended; requests of our own get no answer any more.
var ErrClosed = errors.New("connection is closed")

// ErrAnswer: a response to a request of our own cannot be decoded.
var ErrAnswer = errors.New("broker's answer cannot be read")

// Client is the client's end: a socket (see Socket) or something in memory.
type Client interface {
	io.Reader
	// WriteBuffers returns when all bytes are written or copied: the buffers are then the caller's again.
	WriteBuffers(net.Buffers) error
	Close() error
}

// Socket makes a Client of a network connection.
func Socket(c net.Conn) Client { return socket{c} }

type socket struct{ net.Conn }

func (s socket) WriteBuffers(b net.Buffers) error {
	_, err := b.WriteTo(s.Conn)
	return err
}

// Answer is a whole response frame with the client's correlation id. Release, if set, is called once, when the frame was written or dropped.
type Answer struct {
	Frame   net.Buffers
	Release func()
}

func (a *Answer) release() {
	if a.Release != nil {
		a.Release()
	}
}

// Handler decides about a connection's requests.
type Handler interface {
	// Wants tells whether Answer is to see requests of this kind. It is called for each request, in order, and must not block.
	Wants(key, version int16) bool
	// Answer answers one request, given whole, or returns ErrForward; any other error ends the connection. One call at a time, in order, each in
	// a goroutine of the Conn; requests behind it wait, as they do on a broker. ctx ends with the connection. The header's body is Answer's to keep.
	Answer(ctx context.Context, req wire.RequestHeader) (Answer, error)
}

// Options bound a connection's memory. The zero value is useful.
type Options struct {
	MaxRequestBytes  int32 // of one request that is kept whole; 100 MiB, Kafka's socket.request.max.bytes
	MaxResponseBytes int32 // of one response to a request of our own; 256 MiB. Memory follows what arrives, not this.
	MaxInFlight      int   // requests whose responses have not been written; 128
}

func (o *Options) setDefaults() {
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = 100 << 20
	}
	if o.MaxResponseBytes == 0 {
		o.MaxResponseBytes = 256 << 20
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = 128
	}
}

// Conn is one client connection. Make it with New, then call Run.
type Conn struct {
	opts     Options
	client   Client
	upstream net.Conn
	ctx      context.Context
	cancel   context.CancelFunc
	slots    chan *slot // responses owed to the client, in the order of its requests

	// turn is held by who writes upstream. A pending entry is added under it, so that the order of entries is that of the bytes.
	turn chan struct{}

	mu             sync.Mutex
	pending        []*pending // what upstream owes, in order
	nextCorr       int32
	clientID       *string
	authenticating bool
	authDone       chan struct{} // closed when authenticating ends
}

// New makes a Conn over both ends; it owns them from now on.
func New(client Client, upstream net.Conn, o Options) *Conn {
	o.setDefaults()
	c := &Conn{opts: o, client: client, upstream: upstream, slots: make(chan *slot, o.MaxInFlight), turn: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Run carries the connection until either end closes, Close is called or something goes wrong. It returns nil for an orderly end. Both ends are
// closed and all goroutines gone when it returns.
func (c *Conn) Run(h Handler) error {
	errs := make(chan error, 3)
	var running sync.WaitGroup
	for _, f := range []func(Handler) error{c.readRequests, c.writeResponses, c.readUpstream} {
		running.Add(1)
		go func() {
			defer running.Done()
			errs <- f(h)
			c.Close()
		}()
	}
	running.Wait()
	for range 3 {
		// The first that ended says why; the others say that they were told to.
		if err := <-errs; !orderly(err) {
			return err
		}
	}
	return nil
}

// orderly: either side hung up between messages, or Close was called.
func orderly(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled)
}

// Close ends the connection. Run waits for what is still going on.
func (c *Conn) Close() {
	c.cancel()
	// Errors of closing tell nothing: nobody waits for bytes any more.
	_ = c.upstream.Close()
	_ = c.client.Close()
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// slot is one response owed to the client.
type slot struct {
	correlationID int32
	// ready is not buffered: whoever gives an answer knows whether the writer took it, and with it the duty to release it.
	ready chan delivery
}

// delivery is either a frame of our own or one that is to be streamed from upstream.
type delivery struct {
	answer   Answer
	from     *bufio.Reader // nil: answer
	size     int           // bytes of the frame in from
	raw      bool          // no correlation id in it
	streamed chan error
}

func (c *Conn) deliver(s *slot, d delivery) error {
	select {
	case s.ready <- d:
		return nil
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// writeResponses is the only writer to the client, apart from an opaque connection's reader (see opaque).
func (c *Conn) writeResponses(Handler) error {
	for {
		var s *slot
		select {
		case s = <-c.slots:
		case <-c.ctx.Done():
			return ErrClosed
		}
		select {
		case d := <-s.ready:
			if err := c.write(s, d); err != nil {
				return fmt.Errorf("answering the client: %w", err)
			}
		case <-c.ctx.Done():
			return ErrClosed
		}
	}
}

func (c *Conn) write(s *slot, d delivery) error {
	if d.from == nil {
		err := c.client.WriteBuffers(d.answer.Frame)
		d.answer.release()
		return err
	}
	err := c.streamResponse(s, d)
	d.streamed <- err
	return err
}

// streamResponse passes a frame on out of the reader's own buffer, with the client's correlation id.
func (c *Conn) streamResponse(s *slot, d delivery) error {
	head := 4
	if !d.raw {
		head = 8
	}
	b, err := d.from.Peek(head)
	if err != nil {
		return err
	}
	prefix := append([]byte(nil), b...)
	if !d.raw {
		putCorrelationID(prefix, s.correlationID)
	}
	if _, err := d.from.Discard(head); err != nil {
		return err
	}
	if err := c.client.WriteBuffers(net.Buffers{prefix}); err != nil {
		return err
	}
	return stream(d.from, 4+d.size-head, func(b []byte) error { return c.client.WriteBuffers(net.Buffers{b}) })
}

// stream passes n bytes on without a buffer of its own.
func stream(from *bufio.Reader, n int, to func([]byte) error) error {
	for n > 0 {
		if _, err := from.Peek(1); err != nil {
			return midFrame(err)
		}
		b, err := from.Peek(min(n, from.Buffered()))
		if err != nil {
			return err
		}
		if err := to(b); err != nil {
			return err
		}
		if _, err := from.Discard(len(b)); err != nil {
			return err
		}
		n -= len(b)
	}
	return nil
}

func midFrame(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
