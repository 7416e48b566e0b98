package rewind

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

// joined makes two pipes whose carriers copy to each other, so that the standard suite for net.Conn can judge the clients' ends.
func joined() (c1, c2 net.Conn, stop func(), err error) {
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	a, b := newPipe(addr, addr), newPipe(addr, addr)
	var wg sync.WaitGroup
	for _, way := range [][2]*pipe{{a, b}, {b, a}} {
		wg.Go(func() {
			buf := make([]byte, 1<<10)
			for {
				n, err := carrierEnd{way[0]}.Read(buf)
				if err == nil {
					err = carrierEnd{way[1]}.WriteBuffers(net.Buffers{buf[:n]})
				}
				if err != nil {
					_ = carrierEnd{way[0]}.Close()
					_ = carrierEnd{way[1]}.Close()
					return
				}
			}
		})
	}
	return a, b, func() {
		_ = a.Close() // may be closed already
		_ = b.Close()
		wg.Wait()
	}, nil
}

func TestPipeIsANetConn(t *testing.T) {
	nettest.TestConn(t, joined)
}

func TestPipeReadsAcrossBuffers(t *testing.T) {
	p := newPipe(nil, nil)
	done := make(chan error, 1)
	go func() { done <- carrierEnd{p}.WriteBuffers(net.Buffers{[]byte("abc"), []byte("defg"), []byte("h")}) }()
	got := make([]byte, 8)
	if n, err := io.ReadFull(p, got); err != nil || string(got[:n]) != "abcdefgh" {
		t.Errorf("%q %v", got[:n], err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What the client has not read is dropped when it closes, and the carrier goes free.
func TestPipeClosedWhileWriting(t *testing.T) {
	for name, end := range map[string]func(*pipe) error{"client": (*pipe).Close, "carrier": func(p *pipe) error { return carrierEnd{p}.Close() }} {
		p := newPipe(nil, nil)
		done := make(chan error, 1)
		go func() { done <- carrierEnd{p}.WriteBuffers(net.Buffers{make([]byte, 100)}) }()
		if _, err := io.ReadFull(p, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if err := end(p); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err == nil {
			t.Errorf("%s closed: the write says that all was read", name)
		}
	}
}

func TestPipeWriteIsBounded(t *testing.T) {
	p := newPipe(nil, nil)
	if err := p.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := p.Write(make([]byte, 10*writeAhead))
	if n != writeAhead || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", n, err)
	}
	got := make([]byte, writeAhead)
	if _, err := io.ReadFull(carrierEnd{p}, got); err != nil || !bytes.Equal(got, make([]byte, writeAhead)) {
		t.Error(err)
	}
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		t.Error("a deadline is not a timeout")
	}
}

func BenchmarkPipe(b *testing.B) {
	p := newPipe(nil, nil)
	chunk := make([]byte, 1<<20)
	b.SetBytes(int64(len(chunk)))
	go func() {
		for (carrierEnd{p}).WriteBuffers(net.Buffers{chunk}) == nil {
		}
	}()
	buf := make([]byte, 1<<20)
	for b.Loop() {
		if _, err := io.ReadFull(p, buf); err != nil {
			b.Fatal(err)
		}
	}
	_ = p.Close()
}

// A client tells a connection that broke from one that was closed: the first it tries again, the second may mean to it that the broker wants TLS.
func TestBrokenAndClosedDiffer(t *testing.T) {
	for name, linger := range map[string]int{"reset": 0, "closed": -1} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.(*net.TCPConn).SetLinger(linger)
				_ = c.Close()
			}()
			d, err := NewDialer(Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
			if errors.Is(err, syscall.ECONNRESET) && name == "reset" {
				return // the reset came before the connection was in the client's hands
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.Read(make([]byte, 1))
			if reset := errors.Is(err, syscall.ECONNRESET); reset != (name == "reset") || (!reset && err != io.EOF) {
				t.Errorf("the client is told: %v", err)
			}
		})
	}
}
