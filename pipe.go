package rewind

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// writeAhead is what a client may write before somebody has read it, as into a socket's buffer.
const writeAhead = 64 << 10

// errClientTLS is for a client that was given a TLS configuration of its own. Without it the client would be told of a connection that ended, and nobody why.
var errClientTLS = errors.New("rewind: the client speaks TLS itself, but it is the dialer that has to: give the TLS configuration to rewind.Options.TLS, and none to the client")

// pipe is a connection in memory: the client holds it as a net.Conn, the carrier through carrierEnd. What the carrier writes is copied once, from the memory
// that it lies in straight into the client's buffer.
type pipe struct {
	local, remote net.Addr

	mu       sync.Mutex
	toRead   sync.Cond   // the client's Read waits for out
	toWrite  sync.Cond   // the client's Write waits for room in in
	consumed sync.Cond   // the carrier waits for out to be empty, or for bytes in in
	in       []byte      // written by the client, not read yet
	out      net.Buffers // written by the carrier, not read yet; the carrier waits until it is empty
	began    bool        // the client has written something
	client   bool        // closed by the client
	carrier  bool        // closed by the carrier
	broke    error       // what the client is told instead of the end, as a socket would tell it: clients try again for it, at once and without a word

	readBy, writeBy deadline
}

// deadline wakes those who wait when it passes.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func newPipe(local, remote net.Addr) *pipe {
	p := &pipe{local: local, remote: remote}
	p.toRead.L, p.toWrite.L, p.consumed.L = &p.mu, &p.mu, &p.mu
	return p
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (p *pipe) setLocked(d *deadline, cond *sync.Cond, at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			cond.Broadcast()
		})
	}
	cond.Broadcast() // a deadline in the past ends what waits now
}

// Read gives the client what the carrier wrote.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.client:
			return 0, net.ErrClosed
		case p.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case len(p.out) > 0:
			n, _ := p.out.Read(b)
			if len(p.out) == 0 {
				p.consumed.Broadcast()
			}
			return n, nil
		case p.carrier && p.broke != nil:
			return 0, p.broke
		case p.carrier:
			return 0, io.EOF
		}
		p.toRead.Wait()
	}
}

// Write takes the client's bytes, all of them unless it fails.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.began && len(b) >= 4 && wire.OtherProtocol(b[:4]) == "TLS" {
		return 0, errClientTLS
	}
	p.began = true
	done := 0
	for {
		switch {
		case p.client:
			return done, net.ErrClosed
		case p.writeBy.passed():
			return done, os.ErrDeadlineExceeded
		case p.carrier:
			// What a socket says whose other end has gone: clients try again for a system call's error, and only for that.
			return done, &net.OpError{Op: "write", Net: "tcp", Source: p.LocalAddr(), Addr: p.RemoteAddr(), Err: os.NewSyscallError("write", syscall.EPIPE)}
		}
		if n := min(len(b), writeAhead-len(p.in)); n > 0 {
			p.in = append(p.in, b[:n]...)
			b = b[n:]
			done += n
			p.consumed.Broadcast()
		}
		if len(b) == 0 {
			return done, nil
		}
		p.toWrite.Wait()
	}
}

// Close is the client's. It does not wait for the carrier: Dialer.Close does.
func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client {
		return net.ErrClosed
	}
	p.client = true
	p.endLocked()
	return nil
}

// endLocked forgets what nobody will read, and wakes everybody. What the client wrote before it closed is still for the carrier, as it would be on a
// socket: it may be a produce with acks=0.
func (p *pipe) endLocked() {
	if p.client {
		p.out = nil
	}
	if p.carrier {
		p.in = nil
	}
	p.setLocked(&p.readBy, &p.toRead, time.Time{})
	p.setLocked(&p.writeBy, &p.toWrite, time.Time{})
	p.consumed.Broadcast()
}

func (p *pipe) LocalAddr() net.Addr  { return p.local }
func (p *pipe) RemoteAddr() net.Addr { return p.remote }

func (p *pipe) SetDeadline(t time.Time) error {
	if err := p.SetReadDeadline(t); err != nil {
		return err
	}
	return p.SetWriteDeadline(t)
}

func (p *pipe) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client {
		return net.ErrClosed
	}
	p.setLocked(&p.readBy, &p.toRead, t)
	return nil
}

func (p *pipe) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client {
		return net.ErrClosed
	}
	p.setLocked(&p.writeBy, &p.toWrite, t)
	return nil
}

// carrierEnd is the other end, a clientconn.Client.
type carrierEnd struct{ p *pipe }

func (e carrierEnd) Read(b []byte) (int, error) {
	p := e.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case len(p.in) > 0:
			n := copy(b, p.in)
			p.in = p.in[:copy(p.in, p.in[n:])]
			p.toWrite.Broadcast()
			return n, nil
		case p.client:
			return 0, io.EOF
		case p.carrier:
			return 0, net.ErrClosed
		}
		p.consumed.Wait()
	}
}

func (e carrierEnd) WriteBuffers(b net.Buffers) error {
	p := e.p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = b
	p.toRead.Broadcast()
	for len(p.out) > 0 && !p.client && !p.carrier {
		p.consumed.Wait()
	}
	if len(p.out) > 0 || p.client {
		p.out = nil
		return net.ErrClosed
	}
	return nil
}

// Break has the client told that the connection to the broker broke.
func (e carrierEnd) Break(why syscall.Errno) {
	p := e.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broke == nil && !p.carrier {
		p.broke = &net.OpError{Op: "read", Net: "tcp", Source: p.local, Addr: p.remote, Err: os.NewSyscallError("read", why)}
	}
}

func (e carrierEnd) Close() error {
	p := e.p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.carrier = true
	p.endLocked()
	return nil
}
