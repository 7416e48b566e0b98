package clientconn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"
)

// ErrNotTaken: the client has taken nothing of a response for Options.IdleTimeout.
var ErrNotTaken = errors.New("client does not take its response")

// lendFor is how long a client may take over an answer in lent memory. A client that has stalled must not stall those who wait for that memory.
const lendFor = time.Second

// takenAtOnce is how much is written to a connection whose writes cannot be resumed before the client is granted time anew.
const takenAtOnce = 256 << 10

// writeFrame writes an answer that is in memory.
func (c *Conn) writeFrame(a *Answer) error {
	s, ok := c.client.(socket)
	if !ok {
		return c.client.WriteBuffers(a.Frame)
	}
	plain := tcpOf(s.Conn) != nil
	if a.GiveBack != nil {
		if plain {
			if done, err := lend(s.Conn, &a.Frame); done {
				return err
			}
		}
		// Without resuming, as under TLS, a write that was given up is the end of the connection: nothing is lent.
		a.Frame = net.Buffers{slices.Concat(a.Frame...)}
		a.giveBack()
	}
	if plain {
		return c.writeAll(s.Conn, &a.Frame)
	}
	for _, b := range a.Frame {
		for piece := range slices.Chunk(b, takenAtOnce) {
			c.awaitTaking()
			if _, err := s.Write(piece); err != nil {
				return c.notTaken(err)
			}
		}
	}
	return nil
}

// lend writes what the client takes within lendFor, and leaves the rest in the frame. done: that is all, or an error.
func lend(conn net.Conn, frame *net.Buffers) (done bool, err error) {
	if err := conn.SetWriteDeadline(time.Now().Add(lendFor)); err != nil {
		return true, err
	}
	_, err = frame.WriteTo(conn)
	late := errors.Is(err, os.ErrDeadlineExceeded)
	if late {
		err = nil
	}
	err = errors.Join(err, conn.SetWriteDeadline(time.Time{}))
	return !late || err != nil, err
}

// writeAll goes on as long as the client takes some of it.
func (c *Conn) writeAll(conn net.Conn, frame *net.Buffers) error {
	for {
		c.awaitTaking()
		n, err := frame.WriteTo(conn)
		if n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return c.notTaken(err)
		}
	}
}

// awaitTaking grants the client time to take what is written next. An error of it is the next write's too.
func (c *Conn) awaitTaking() {
	if c.opts.IdleTimeout > 0 {
		c.writeBy(time.Now().Add(c.opts.IdleTimeout))
	}
}

// taken ends what awaitTaking has granted: TLS writes by itself, while it reads, and must not find a time that is over.
func (c *Conn) taken() {
	if c.opts.IdleTimeout > 0 {
		c.writeBy(time.Time{})
	}
}

func (c *Conn) writeBy(t time.Time) {
	if s, ok := c.client.(socket); ok {
		_ = s.SetWriteDeadline(t)
	}
}

func (c *Conn) notTaken(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w for %v", ErrNotTaken, c.opts.IdleTimeout)
	}
	return err
}

func (c *Conn) writeClient(b []byte) error {
	c.awaitTaking()
	if w, ok := c.client.(io.Writer); ok {
		_, err := w.Write(b)
		return c.notTaken(err)
	}
	return c.client.WriteBuffers(net.Buffers{b})
}
