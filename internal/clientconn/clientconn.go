// Package clientconn carries one client's Kafka connection to an upstream broker and lets a Handler answer some of its requests in the broker's
// stead. It keeps what the protocol promises: responses in the order of the requests, none for a produce with acks=0, nothing of ours between
// the steps of an authentication. What the handler does not want is streamed through, of requests the header alone is looked at.
//
// Gateway and dialer use it. Policy (which requests, from where the answers) is the handler's. A Conn owns a goroutine beside that of
// Run, one more while it drains, and one for each answer in the making; Run waits for them all.
//
// Responses leave in the order of the requests: whoever has one, the reader of upstream or an answer's goroutine, waits for the one before and writes it itself, since each
// hand-over to another goroutine would cost as much as a small response. So whatever is behind a response that its client is slow to take waits, and so does
// upstream: what the broker sends is read only as fast as it can be passed on. Requests are written on meanwhile, up to Options.MaxInFlight.
package clientconn

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

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

// breakable is a Client that can tell its reader what a socket would: that the connection broke, and not only that it ended. It is closed all the same.
type breakable interface {
	// Break is called before Close.
	Break(syscall.Errno)
}

// Socket makes a Client of a network connection.
func Socket(c net.Conn) Client { return socket{c} }

type socket struct{ net.Conn }

func (s socket) WriteBuffers(b net.Buffers) error {
	_, err := b.WriteTo(s.Conn)
	return err
}

// CloseWrite tells the client that nothing follows, where the connection can say so: TCP and TLS can.
func (s socket) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Answer is a response: a whole frame with the client's correlation id, or, if Stream is set, the frame that is coming in, whose correlation id the
// Conn puts in.
type Answer struct {
	Frame net.Buffers
	// Release, if set, is called once, when the response was written or dropped.
	Release func()
	// GiveBack, if set, says that memory of Frame is lent, and that others wait for it. It is called once, before Release: when the client has taken the frame, or, if it
	// is slow to, when what is left of the frame was copied.
	GiveBack func()

	Stream *Incoming
	// Transform sees every chunk of a stream in order, from the frame's size on and with the client's correlation id, and may change bytes in place, never their number. Its
	// error ends the connection: the client has had a part of the frame. nil: the frame is passed on as it is.
	Transform func(chunk []byte) error
	// Skip lets Transform leave out bytes that it need not see; they may then pass without being copied. nil: it sees all.
	Skip Skipper

	// Ask, if set, is a request of our own: what Then makes of the response is the answer, in this one's place. Then is called once, when the first bytes of the response are
	// there, on the goroutine that reads them, which is to block for nothing but more of them; or with an error and without a response, when the connection has ended.
	// It may give an Answer with the response as its Stream, or leave the response, which is then thrown away, and give another Answer.
	Ask  kmsg.Request
	Then func(in *Incoming, err error) (Answer, error)
	// Later, if set, gives the answer in this one's place, and may block. Begin and Then return one that has more to do.
	Later func(ctx context.Context) (Answer, error)
}

// Skipper knows that some of a stream's next bytes need not be looked at (wire.FetchWalker is one).
type Skipper interface {
	// Ahead is how many bytes from here on Transform need not see.
	Ahead() int
	// Skip takes up to n of them as seen, and says how many.
	Skip(n int) int
}

func (a *Answer) release() {
	a.giveBack()
	if a.Release != nil {
		a.Release()
	}
}

func (a *Answer) giveBack() {
	if a.GiveBack != nil {
		a.GiveBack()
		a.GiveBack = nil
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

// Beginner is an optional part of a Handler: what can be begun at once needs no goroutine, and each one that is woken on the way of a fetch delays it.
type Beginner interface {
	// Begin is asked before Answer, for the same requests and in the same order, and does its work if it can do so without blocking: the answer is then as Answer's. false:
	// nothing was done, and Answer is to be called.
	Begin(req wire.RequestHeader) (ans Answer, ok bool, err error)
}

// Options bound a connection's memory. The zero value is useful.
type Options struct {
	MaxRequestBytes  int32 // of one request; 100 MiB, Kafka's socket.request.max.bytes
	MaxHeldBytes     int32 // of one request that the handler wants, and that is kept whole therefore; 16 MiB
	MaxResponseBytes int32 // of one response to a request of our own; 256 MiB. Memory follows what arrives, not this.
	MaxFilteredBytes int32 // of one response that a Filter wants; 64 MiB. Up to two are in memory.
	Held             *Held // what all connections share of both; nil: no bound
	MaxInFlight      int   // requests whose responses have not been written; 128
	// IdleTimeout closes a connection on which nothing is owed and nothing was received for so long, or whose client does not go on with a request that it has
	// begun, or takes nothing of a response; 0: never.
	IdleTimeout time.Duration
}

func (o *Options) setDefaults() {
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = 100 << 20
	}
	if o.MaxResponseBytes == 0 {
		o.MaxResponseBytes = 256 << 20
	}
	if o.MaxHeldBytes == 0 {
		o.MaxHeldBytes = 16 << 20
	}
	o.MaxHeldBytes = min(o.MaxHeldBytes, o.MaxRequestBytes)
	if o.MaxFilteredBytes == 0 {
		o.MaxFilteredBytes = 64 << 20
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
	room     chan struct{} // has a token for each response that is owed to the client
	life     *life
	running  sync.WaitGroup
	filter   Filter   // nil: the handler has none; set by Run, as is:
	beginner Beginner // likewise

	fromClient, fromUpstream source // each its reader's

	// Both nil unless both ends are TCP: then large bodies pass without being copied.
	clientTCP, upstreamTCP *net.TCPConn

	refused atomic.Int64 // bytes of the client that came when nothing was taken any more

	// turn is held by who writes upstream. A pending entry is added under it, so that the order of entries is that of the bytes.
	turn chan struct{}

	mu             sync.Mutex
	pending        []*pending // what upstream owes, in order
	sent           int64      // requests written upstream; the correlation id is made of it
	clientID       *string
	draining       bool // somebody waits for the end of what is owed
	ending         bool
	authenticating bool
	authDone       chan struct{} // closed when authenticating ends
	login          lifetime
	cause          error // the first that was no orderly end
	asking         *own  // whose Then has not been called yet; there is one at a time
}

// New makes a Conn over both ends; it owns them from now on.
func New(client Client, upstream net.Conn, o Options) *Conn {
	o.setDefaults()
	c := &Conn{opts: o, client: client, upstream: upstream, room: make(chan struct{}, o.MaxInFlight), turn: make(chan struct{}, 1)}
	c.life = newLife()
	c.fromClient.Reader, c.fromUpstream.Reader = clientReader{c}, upstream
	if s, ok := client.(socket); ok {
		if from, to := tcpOf(s.Conn), tcpOf(upstream); from != nil && to != nil {
			c.clientTCP, c.upstreamTCP = from, to
		}
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// tcpOf is the TCP connection whose bytes are the connection's own; nil if there is none, as under TLS. A type that wraps a TCP connection and leaves its bytes
// alone says so by a method TCPConn, which may give nil.
func tcpOf(c net.Conn) *net.TCPConn {
	switch c := c.(type) {
	case *net.TCPConn:
		return c
	case interface{ TCPConn() *net.TCPConn }:
		return c.TCPConn()
	}
	return nil
}

// Run carries the connection until either end closes, Close is called or something goes wrong. It returns nil for an orderly end. Both ends are
// closed and all goroutines gone when it returns.
func (c *Conn) Run(h Handler) error {
	c.filter, _ = h.(Filter)
	c.beginner, _ = h.(Beginner)
	if c.opts.IdleTimeout > 0 {
		defer c.life.watch(c.opts.IdleTimeout, c.Close)()
	}
	c.running.Go(func() { c.end(c.readUpstream()) })
	c.end(c.readRequests(h))
	c.mu.Lock()
	c.ending = true // Drain adds nothing any more to what is waited for
	c.mu.Unlock()
	c.running.Wait()
	c.abandon()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// end closes the connection. The first that ended says why; the others say that they were told to.
func (c *Conn) end(err error) {
	if err = c.named(err); !orderly(err) {
		c.mu.Lock()
		if c.cause == nil {
			c.cause = err
		}
		c.mu.Unlock()
	}
	var broke syscall.Errno
	if client, ok := c.client.(breakable); ok && errors.As(err, &broke) {
		client.Break(broke)
	}
	c.Close()
}

// orderly: either side hung up between messages, or Close was called. Ends in memory (net.Pipe) call that a closed pipe.
func orderly(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled)
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
