package clientconn

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// zeros are as many as are asked for.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// Frames of 100 MiB, both ways, cost no memory to speak of: with a kernel that splices and without, seen by a walker or not.
func TestLargeFramesTakeLittleMemory(t *testing.T) {
	const size = 100 << 20
	const limit = 4 << 20
	for _, tcp := range []bool{true, false} {
		for _, pull := range []bool{false, true} {
			t.Run(fmt.Sprintf("tcp %v pulled %v", tcp, pull), func(t *testing.T) {
				client, ours := tcpPair(t)
				upstream, broker := tcpPair(t)
				defer client.Close()
				defer broker.Close()
				end := Client(Socket(ours))
				if !tcp {
					end = struct{ Client }{end}
				}
				c := New(end, upstream, Options{MaxRequestBytes: size})
				h := handlerFuncs{}
				if pull {
					h = puller(&c, func(_ *Incoming, a *Answer) error {
						w, err := wire.NewFetchWalker(12)
						a.Transform, a.Skip = w.Walk, w
						return err
					})
				}
				done := make(chan error, 1)
				go func() { done <- c.Run(h) }()

				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if !pull {
					go func() {
						_, _ = client.Write([]byte("\x06\x40\x00\x00\x00\x03\x00\x01\x00\x00\x00\x07\x00\x00"))
						_, _ = io.CopyN(client, zeros{}, size-10)
					}()
					if _, err := io.CopyN(io.Discard, broker, 4+size); err != nil {
						t.Fatal(err)
					}
					go func() {
						_, _ = broker.Write([]byte("\x06\x40\x00\x00\x00\x00\x00\x01"))
						_, _ = io.CopyN(broker, zeros{}, size-4)
					}()
				} else {
					if _, err := client.Write([]byte("\x00\x00\x00\x0a\x00\x01\x00\x0b\x00\x00\x00\x07\xff\xff")); err != nil {
						t.Fatal(err)
					}
					if _, err := wire.ReadFrame(broker, 1000, nil); err != nil {
						t.Fatal(err)
					}
					// Header and head of a Fetch response of version 12: one topic "t", one partition whose records fill the frame but for one empty tag section each of partition, topic and response.
					front := "\x06\x40\x00\x00" + "\x00\x00\x00\x01\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "\x02\x02t\x02" +
						"\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00" + "\xff\xff\xff\xff"
					records := size + 4 - len(front) - 4 - 3
					n := uint32(records + 1)
					front += string([]byte{byte(n) | 0x80, byte(n>>7) | 0x80, byte(n>>14) | 0x80, byte(n >> 21)})
					go func() {
						_, _ = broker.Write([]byte(front))
						_, _ = io.CopyN(broker, zeros{}, int64(records)+3)
					}()
				}
				if _, err := io.CopyN(io.Discard, client, 4+size); err != nil {
					t.Fatal(err)
				}
				runtime.ReadMemStats(&after)
				if n := after.TotalAlloc - before.TotalAlloc; n > limit {
					t.Errorf("%d bytes allocated, limit %d", n, limit)
				} else {
					t.Logf("%d bytes allocated", n)
				}
				c.Close()
				<-done
			})
		}
	}
}

type wrapped struct{ net.Conn }

func (w wrapped) TCPConn() *net.TCPConn {
	t, _ := w.Conn.(*net.TCPConn)
	return t
}

// Bytes may pass by the process only where both ends' are those of TCP.
func TestWhereTheKernelMayCopy(t *testing.T) {
	a, b := tcpPair(t)
	defer a.Close()
	defer b.Close()
	secret := tls.Client(a, &tls.Config{ServerName: "broker"})
	for name, tt := range map[string]struct {
		client, upstream net.Conn
		want             bool
	}{
		"both":            {a, b, true},
		"wrapped":         {a, wrapped{b}, true},
		"wrapped TLS":     {a, wrapped{secret}, false},
		"TLS upstream":    {a, secret, false},
		"TLS client":      {secret, b, false},
		"unknown wrapper": {struct{ net.Conn }{a}, b, false},
	} {
		if c := New(Socket(tt.client), tt.upstream, Options{}); (c.clientTCP != nil && c.upstreamTCP != nil) != tt.want || (c.clientTCP == nil) != (c.upstreamTCP == nil) {
			t.Errorf("%s: %v", name, !tt.want)
		}
	}
}
