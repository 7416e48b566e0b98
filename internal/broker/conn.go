package broker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/principal"
	"github.com/rewind-kafka/rewind/internal/wire"
)

const (
	// uncountedFrame: frames to this size are not counted in the budget of frames. So the small requests that keep clients alive never wait behind
	// large ones, and what such frames take is bounded by the number of connections.
	uncountedFrame = 64 << 10
	// frameGrace and frameRate: so long after its size a frame must have begun to come, and from then on come so fast. A frame that was counted holds up others.
	frameGrace = 30 * time.Second
	frameRate  = 64 << 10 // bytes a second
	// maxSpare is the largest frame whose memory a connection keeps.
	maxSpare = 1 << 20
)

// conn is one client's connection. Three goroutines: the reader takes frames in, so that it sees at once when the client has gone; the handler
// serves requests one after the other; the writer sends the answers in that order.
type conn struct {
	srv   *server
	id    uint64     // never used twice
	from  netip.Addr // as server.from counts it
	nc    net.Conn   // what is spoken over: TLS, once that is agreed
	under net.Conn   // the connection itself
	r     *bufio.Reader
	peer  string
	local net.Addr
	door  *door // where it came in

	// who is allowed and denied things, and sasl how it said who it is: set before the first request is served, and again by those that authenticate anew;
	// only the handler goroutine uses them then.
	who  acl.Client
	sasl saslState

	// clientID and software are the last that the client gave; only the handler goroutine uses them.
	clientID string

	// debt and idle are of the request that is being served; only the handler goroutine uses them. muted is until when nothing is read, after srv.began.
	debt  debt
	idle  time.Duration
	size  int // of its frame
	muted atomic.Int64
	// noMore is closed when a client that was muted has sent all that it will; ended tells the reader goroutine that it is.
	noMore chan struct{}
	ended  bool
	// serving is the request that is being served; only the handler goroutine uses it.
	serving *request

	pace  pace        // of the frame that is being read; the reader goroutine's
	spare chan []byte // frames whose memory may be used again
	// answering holds one token while a request is being answered, but for a Produce, which waits for the disk while those behind it are handled. So a client that
	// pipelines and does not read, or has closed its half of the connection, holds one answer's memory. The writer always gives it back.
	answering  chan struct{}
	unanswered *unanswered

	ctx      context.Context // ends when the client has gone or the server closes
	cancel   context.CancelFunc
	inFlight atomic.Int32 // requests read and not yet answered

	failMu sync.Mutex
	failed error // the first reason to close that is worth a log line
}

// request is one frame on its way from reader to handler.
type request struct {
	wire.RequestHeader
	api     api
	frame   []byte
	counted int64 // bytes of the frame budget that it holds
}

// answer is one response on its way to the writer.
type answer struct {
	reply
	version       int16
	correlationID int32
	token         bool // holds that of conn.answering
	last          bool // close the connection instead of writing
	final         bool // close the connection after writing
}

// errGone: the client went away, or the server closes, while a frame was waited for.
var errGone = errors.New("connection has gone")

func newConn(s *server, nc net.Conn) *conn {
	c := &conn{srv: s, nc: nc, under: nc, door: plainDoor, who: acl.Client{Principal: principal.Anonymous, Host: hostOf(nc.RemoteAddr())}, r: bufio.NewReaderSize(nc, 16<<10), peer: nc.RemoteAddr().String(), local: nc.LocalAddr(), spare: make(chan []byte, 2), answering: make(chan struct{}, 1), unanswered: newUnanswered(), noMore: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	return c
}

// stop ends the connection from outside; run returns soon after.
func (c *conn) stop() {
	c.cancel()
	c.under.Close()
}

// fail notes why the connection is to be closed. Only the first reason is kept: the others follow from it.
func (c *conn) fail(err error) {
	c.failMu.Lock()
	if c.failed == nil && c.srv.ctx.Err() == nil {
		c.failed = err
	}
	c.failMu.Unlock()
}

func (c *conn) run() {
	if err := c.enter(); err != nil {
		if !errors.Is(err, errGone) {
			c.fail(err)
		}
		c.end()
		return
	}
	requests := make(chan request, c.srv.limits.queuedRequests)
	answers := make(chan answer, c.srv.limits.queuedRequests)
	var stages sync.WaitGroup
	stages.Go(func() { c.handleAll(requests, answers); close(answers) })
	stages.Go(func() { c.writeAll(answers) })

	err := c.readAll(requests)
	close(requests)
	if err != nil && !errors.Is(err, errGone) {
		c.fail(err)
	}
	// The client has gone: what waits for data on its behalf ends. What was read completely is still handled: a producer with acks=0 may send
	// and leave.
	c.cancel()
	stages.Wait()
	c.end()
}

func (c *conn) end() {
	c.cancel()
	c.nc.Close()
	if c.failed != nil {
		c.srv.warn("connection closed", "peer", c.peer, "listener", c.door.name, "client", c.clientID, "reason", c.failed)
	}
}

// readAll reads frames until the client goes (errGone) or does something that it must not (an error worth a line).
func (c *conn) readAll(to chan<- request) error {
	for {
		if err := c.awaitTurn(); err != nil {
			return err
		}
		size, err := c.awaitFrame()
		if err != nil {
			return err
		}
		req, err := c.readRequest(size)
		if err != nil {
			return err
		}
		c.inFlight.Add(1)
		if req.Key != keyProduce {
			c.unanswered.add()
		}
		select {
		case to <- req:
		case <-c.ctx.Done():
			c.done(&req)
			return errGone
		}
	}
}

// awaitFrame waits for the next frame's size, at most as long as a connection may be idle.
func (c *conn) awaitFrame() (int, error) {
	for {
		if c.ctx.Err() != nil {
			return 0, errGone
		}
		c.nc.SetReadDeadline(c.idleEnd())
		prefix, err := c.r.Peek(4)
		switch {
		case err == nil:
			return wire.FrameSize(prefix, c.srv.limits.requestBytes)
		case errors.Is(err, os.ErrDeadlineExceeded):
			if c.inFlight.Load() > 0 {
				continue // not idle: it waits for us
			}
			if len(prefix) > 0 {
				return 0, fmt.Errorf("frame cut off after %d bytes of its size", len(prefix))
			}
			c.srv.log.Debug("idle connection closed", "peer", c.peer)
			return 0, errGone
		case errors.Is(err, io.EOF) && len(prefix) > 0:
			return 0, fmt.Errorf("frame cut off after %d bytes of its size", len(prefix))
		default:
			return 0, errGone // EOF, reset, or closed by us: clients come and go
		}
	}
}

// idleEnd is when a connection that starts to wait now has waited too long; zero for never.
func (c *conn) idleEnd() time.Time {
	if c.srv.limits.idle <= 0 {
		return time.Time{}
	}
	return time.Now().Add(c.srv.limits.idle)
}

// readRequest reads the frame that awaitFrame found, and its header.
func (c *conn) readRequest(size int) (request, error) {
	var req request
	var buf []byte
	select {
	case buf = <-c.spare:
	default:
	}
	if size > uncountedFrame && int64(size) > c.srv.limits.queuedBytes {
		return req, fmt.Errorf("frame of %d bytes, queued.max.request.bytes is %d", size, c.srv.limits.queuedBytes)
	}
	if size > uncountedFrame {
		if err := c.unanswered.await(c.ctx, c.srv.limits.idle); err != nil {
			return req, err
		}
	}
	c.pace = pace{c: c, size: size, began: time.Now()}
	frame, err := wire.ReadFrame(&c.pace, c.srv.limits.requestBytes, buf)
	req.counted = c.pace.counted
	if err == nil {
		err = c.parse(&req, frame)
	}
	if err != nil {
		c.srv.frames.Release(req.counted)
		req.counted = 0
		if c.srv.ctx.Err() == nil {
			err = fmt.Errorf("reading a request of %d bytes: %w", size, err)
		}
	}
	return req, err
}

// pace reads one frame. Each read may take as long as the bytes that have come so far allow, so that a peer which claims a large frame and goes
// silent is found out after the grace, not after the time that the whole frame might have taken. A large frame is counted once its first uncountedFrame bytes have
// come: to claim costs nothing, and so must hold up nobody.
type pace struct {
	c       *conn
	size    int
	counted int64
	began   time.Time
	got     int
	until   time.Duration // after began: the deadline that is set
}

func (p *pace) Read(b []byte) (int, error) {
	if p.counted == 0 && p.got >= uncountedFrame {
		asked := time.Now()
		if err := p.c.srv.frames.Acquire(p.c.ctx, int64(p.size)); err != nil {
			return 0, errGone
		}
		p.counted = int64(p.size)
		p.began, p.until = p.began.Add(time.Since(asked)), 0 // the wait was not the peer's
	}
	if until := frameGrace + time.Duration(p.got/frameRate)*time.Second; until != p.until {
		p.until = until
		p.c.nc.SetReadDeadline(p.began.Add(until))
	}
	n, err := p.c.r.Read(b)
	p.got += n
	return n, err
}

func (c *conn) parse(req *request, frame []byte) error {
	h, err := wire.ParseRequestHeader(frame)
	if err != nil {
		return err
	}
	req.RequestHeader, req.frame = h, frame
	a, known := c.srv.apis[h.Key]
	if !known {
		return fmt.Errorf("unknown API key %d, version %d", h.Key, h.Version)
	}
	req.api = a
	if h.Key == keyApiVersions && h.Version > a.max {
		return nil // answered in version 0, so that the client learns what there is
	}
	if h.Version < a.min || h.Version > a.max {
		return fmt.Errorf("%s version %d, %d to %d are served", kmsg.NameForKey(h.Key), h.Version, a.min, a.max)
	}
	if limit := bodyLimit(h.Key); len(h.Body) > limit {
		return fmt.Errorf("%s request of %d bytes, limit %d", kmsg.NameForKey(h.Key), len(h.Body), limit)
	}
	return nil
}

// done gives back what a request held. A produce request's memory is used again: the log has copied what it needs. Other requests' byte slices may
// live on, in a session or a group.
func (c *conn) done(req *request) {
	c.srv.frames.Release(req.counted)
	req.counted = 0
	if req.Key != keyProduce || cap(req.frame) > maxSpare {
		return
	}
	select {
	case c.spare <- req.frame[:0]:
	default:
	}
}

// letGo gives back what the frame of the request that is being served counts in the budget, before the handler waits for other clients: their frames may be those that
// there is no room for. The handler has copied what it needs of the frame, which is memory no more then.
func (c *conn) letGo() {
	if r := c.serving; r != nil {
		c.srv.frames.Release(r.counted)
		r.counted, r.frame, r.Body = 0, nil, nil
	}
}

// largeWait is how long a request may wait for data whose frame counts in the budget. It is the default of fetch.max.wait.ms.
const largeWait = 500 * time.Millisecond

// mayWait is how long the request that is being served may wait for data. A large one holds others up meanwhile, so it is answered soon: its client comes again.
func (c *conn) mayWait(ms int32) time.Duration {
	d := millis(ms)
	if c.serving != nil && c.serving.counted > 0 {
		d = min(d, largeWait)
	}
	return d
}

func (c *conn) handleAll(from <-chan request, to chan<- answer) {
	broken := false
	for req := range from {
		if broken {
			c.done(&req)
			continue
		}
		token := req.Key != keyProduce
		if token {
			c.answering <- struct{}{}
		}
		began := time.Now()
		c.idle, c.size, c.serving = 0, len(req.frame), &req
		r, err := c.serveOne(&req)
		c.serving = nil
		c.done(&req)
		if err != nil {
			// A request that cannot be answered ends the connection; those behind it are dropped, as if they had come too late.
			c.fail(fmt.Errorf("%s request, version %d: %w", kmsg.NameForKey(req.Key), req.Version, err))
			to <- answer{last: true, token: token}
			broken = true
			continue
		}
		version := req.Version
		if req.Key == keyApiVersions && version > req.api.max {
			version = 0
		}
		// The writer takes answers until the channel is closed, whatever happens to it: this never blocks for good.
		var final lastWord
		if final, broken = r.(lastWord); broken {
			c.fail(final.reason)
		}
		wait := c.settle(&req, r, time.Since(began))
		to <- answer{reply: r, version: version, correlationID: req.CorrelationID, token: token, final: broken}
		if wait > 0 {
			c.mute(wait)
		}
	}
}

// handle decodes and serves one request. A panic in a handler costs that connection and nothing else.
func (c *conn) handle(req *request) (r reply, err error) {
	start := time.Now()
	defer func() {
		if p := recover(); p != nil {
			c.srv.log.Error("panic in a handler", "peer", c.peer, "api", kmsg.NameForKey(req.Key), "version", req.Version, "panic", p, "stack", string(debug.Stack()))
			r, err = nil, errors.New("internal error")
		}
		if c.srv.stats.handled != nil {
			c.srv.stats.handled(req.Key, time.Since(start))
		}
	}()
	if req.ClientID != nil {
		c.clientID = *req.ClientID
	}
	kreq := kmsg.RequestForKey(req.Key)
	kreq.SetVersion(req.Version)
	if req.Key == keyApiVersions && req.Version > req.api.max {
		return req.api.serve(c.ctx, c, kreq) // the body is of a version that nobody here can read
	}
	if err := checkBody(req.Key, req.Version, req.Body); err != nil {
		return nil, err
	}
	if err := kreq.ReadFrom(req.Body); err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	return req.api.serve(c.ctx, c, kreq)
}

// writeAll sends answers in order. After a failure it goes on taking them, to release what they hold.
func (c *conn) writeAll(from <-chan answer) {
	broken := false
	for a := range from {
		if a.last {
			c.stop()
			broken = true
		}
		if a.reply != nil {
			if !broken {
				broken = !c.write(&a)
			}
			a.release()
		}
		if a.final {
			c.stop()
			broken = true
		}
		if a.token {
			<-c.answering
			c.unanswered.done()
		}
		c.inFlight.Add(-1)
	}
}

// encode gives the frame of an answer. A panic in it costs that connection and nothing else, as in a handler.
func (c *conn) encode(a *answer) (bufs net.Buffers, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.srv.log.Error("panic in an answer", "peer", c.peer, "version", a.version, "panic", p, "stack", string(debug.Stack()))
			bufs, err = nil, errors.New("internal error")
		}
	}()
	return a.buffers(c.ctx, a.version, a.correlationID)
}

func (c *conn) write(a *answer) bool {
	bufs, err := c.encode(a)
	if err != nil {
		if c.ctx.Err() == nil {
			c.fail(err)
		}
		c.stop()
		return false
	}
	if c.srv.stats.sent != nil {
		c.srv.stats.sent(frameLen(bufs))
	}
	if err := c.writeBuffers(bufs, a.reply); err != nil {
		c.stop()
		return false
	}
	return true
}

// writeBuffers writes an answer. What a client does not take for a while is copied, so that memory that others wait for (the remote readers' budget) is
// given back: a client that has stalled must not stall them.
func (c *conn) writeBuffers(bufs net.Buffers, r reply) error {
	lent, ok := r.(lender)
	if ok && c.door.tls != nil {
		// A write that was given up in the middle is the end of a TLS connection, and each buffer would be a record of its own.
		bufs = net.Buffers{slices.Concat(bufs...)}
		lent.giveBack()
	} else if ok {
		c.nc.SetWriteDeadline(time.Now().Add(lendFor))
		if _, err := bufs.WriteTo(c.nc); err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		bufs = net.Buffers{slices.Concat(bufs...)}
		lent.giveBack()
	}
	// A client that does not read its answers is as idle as one that does not ask.
	c.nc.SetWriteDeadline(c.idleEnd())
	_, err := bufs.WriteTo(c.nc)
	return err
}

// lender is a reply whose buffers belong to somebody who waits for them. After giveBack they are not looked at any more; release still follows.
type lender interface{ giveBack() }

// lendFor is how long a client may take over an answer in lent memory.
const lendFor = time.Second

func frameLen(bufs net.Buffers) int64 {
	if len(bufs) == 0 || len(bufs[0]) < 4 {
		return 0
	}
	return int64(binary.BigEndian.Uint32(bufs[0])) + 4
}
