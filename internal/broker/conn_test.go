package broker

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestFramePace: a frame that was counted holds up others, so a peer that does not send what it has claimed is not waited for as long as the whole frame might
// take; one that sends slowly, but does, is.
func TestFramePace(t *testing.T) {
	const size = 100 << 20
	for _, c := range []struct {
		name  string
		write func(net.Conn)
		least time.Duration // until the reader gives up
		most  time.Duration
	}{
		{"silent", func(net.Conn) {}, frameGrace, frameGrace + time.Second},
		{"silent after a megabyte", func(nc net.Conn) { nc.Write(make([]byte, 1<<20)) }, frameGrace, frameGrace + 17*time.Second},
		{"a byte a second", func(nc net.Conn) {
			for {
				if _, err := nc.Write([]byte{0}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, frameGrace, frameGrace + 2*time.Second},
		{"slow, but steady for ten minutes", func(nc net.Conn) {
			for range 600 {
				if _, err := nc.Write(make([]byte, frameRate)); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, 600 * time.Second, 660 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(nil, defaultLimits(), slog.New(slog.DiscardHandler))
			client, nc := net.Pipe()
			conn := newConn(s, nc)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				client.Write(binary.BigEndian.AppendUint32(nil, size))
				c.write(client)
			}()
			began := time.Now()
			if c.name == "silent" {
				time.AfterFunc(frameGrace/2, func() {
					if !s.frames.TryAcquire(s.limits.queuedBytes) {
						t.Error("a claim alone holds up others")
						return
					}
					s.frames.Release(s.limits.queuedBytes)
				})
			}
			_, err := conn.readRequest(size)
			if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < c.least || took > c.most {
				t.Errorf("%s: %v after %v", c.name, err, took)
			}
			if !s.frames.TryAcquire(s.limits.queuedBytes) {
				t.Errorf("%s: the budget is not given back", c.name)
			}
			conn.stop()
			client.Close()
			s.cancel()
			<-gone
		})
	}
}
