package history

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// BenchmarkStream fetches the newest records in a loop: straight from the broker, through a proxy that copies bytes, and through a History that streams.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		for _, way := range []string{"direct", "copied", "streamed"} {
			b.Run(fmt.Sprintf("%d KiB/%s", size>>10, way), func(b *testing.B) { benchStream(b, size, way) })
		}
	}
}

func benchStream(b *testing.B, size int, way string) {
	fb := newFakeBroker(b)
	p := fb.topic("live", 1).parts[0]
	fb.append(p, batchOf(0, 0, 1, size))
	d, err := makeDialer(dialOptions{DisableRemoteFetch: true, Change: func(o *Options) { o.Resolver, o.Stream = &fakeResolver{b: fb}, true }})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	var conn net.Conn
	switch way {
	case "streamed":
		conn, err = d.DialContext(b.Context(), "tcp", fb.addr())
	case "direct":
		conn, err = net.Dial("tcp", fb.addr())
	case "copied":
		conn, err = copied(b, fb.addr())
	}
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	frame := make([]byte, 2*size+1000)
	fetch := func() {
		if _, err := conn.Write(wire.AppendRequest(nil, fetchOf(12, time.Second, at(p, 0)), 1, nil)); err != nil {
			b.Fatal(err)
		}
		if frame, err = wire.ReadFrame(conn, 100<<20, frame); err != nil {
			b.Fatal(err)
		}
	}
	for range 3 {
		fetch()
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		fetch()
	}
}

// copied is a connection through a proxy that looks at nothing.
func copied(b *testing.B, addr string) (net.Conn, error) {
	up, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	client, ours, err := socketPair(b.Context())
	if err != nil {
		return nil, err
	}
	for _, way := range [][2]net.Conn{{ours, up}, {up, ours}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			way[0].Close()
			way[1].Close()
		}()
	}
	return client, nil
}
