package broker

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// countedReply is a large answer of which it is known how many there are at a time.
type countedReply struct{ now *atomic.Int32 }

const countedSize = 16 << 20 // more than what the sockets hold

func (countedReply) buffers(context.Context, int16, int32) (net.Buffers, error) {
	return net.Buffers{binary.BigEndian.AppendUint32(nil, countedSize), make([]byte, countedSize)}, nil
}
func (r countedReply) release() { r.now.Add(-1) }

// TestUnreadAnswersAreBounded: whoever asks often without reading the answers, whatever he asks for, and whether he says that he will not ask further or not, makes the broker hold one answer. In the end he gets
// all of them.
func TestUnreadAnswersAreBounded(t *testing.T) {
	const asked = 20
	for _, req := range []kmsg.Request{kmsg.NewPtrFetchRequest(), kmsg.NewPtrShareFetchRequest(), kmsg.NewPtrMetadataRequest()} {
		for _, closes := range []bool{false, true} {
			name := kmsg.NameForKey(req.Key())
			if closes {
				name += ", half closed"
			}
			t.Run(name, func(t *testing.T) {
				var now, most atomic.Int32
				handled := make(chan struct{}, asked)
				answer := func() (reply, error) {
					most.Store(max(most.Load(), now.Add(1))) // one connection's requests are handled one by one
					handled <- struct{}{}
					return countedReply{&now}, nil
				}
				s := serveTable(t, defaultLimits(),
					later(0, 18, func(context.Context, *conn, *kmsg.FetchRequest) (reply, error) { return answer() }),
					later(0, 2, func(context.Context, *conn, *kmsg.ShareFetchRequest) (reply, error) { return answer() }),
					later(0, 13, func(context.Context, *conn, *kmsg.MetadataRequest) (reply, error) { return answer() }))
				c := s.dial(t)
				c.SetDeadline(time.Now().Add(60 * time.Second))
				req.SetVersion(req.MaxVersion())
				if _, err := c.Write(slices.Repeat(wire.AppendRequest(nil, req, 1, nil), asked)); err != nil {
					t.Fatal(err)
				}
				if closes {
					c.(*net.TCPConn).CloseWrite()
				}
				<-handled
				time.Sleep(100 * time.Millisecond) // so that more would be handled, as a rule
				if _, err := io.CopyN(io.Discard, c, asked*(4+countedSize)); err != nil {
					t.Error(err)
				}
				if n := most.Load(); n > 1 {
					t.Errorf("%d answers were held at a time", n)
				}
			})
		}
	}
}

// TestLargeFramesWaitOutside: large requests that a client sends behind a fetch that waits are not held in the memory that all connections share, and are served in their order.
func TestLargeFramesWaitOutside(t *testing.T) {
	const frame = 1 << 20
	letGo := make(chan struct{})
	waits := make(chan struct{}, 1)
	l := defaultLimits()
	l.queuedBytes = frame * 3 / 2
	s := serveTable(t, l,
		on(0, 18, func(ctx context.Context, _ *conn, _ *kmsg.FetchRequest) (kmsg.Response, error) {
			waits <- struct{}{}
			select {
			case <-letGo:
			case <-ctx.Done():
			}
			return kmsg.NewPtrFetchResponse(), nil
		}),
		on(0, 9, func(context.Context, *conn, *kmsg.ProduceRequest) (kmsg.Response, error) {
			return kmsg.NewPtrProduceResponse(), nil
		}))
	produce := func(correlation int32) []byte {
		req := produceRequest(9, acksLeader, "t", make([]byte, frame))
		return wire.AppendRequest(nil, req, correlation, nil)
	}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.SetVersion(12)
	c, other := s.dial(t), s.dial(t)
	c.SetDeadline(time.Now().Add(60 * time.Second))
	c.Write(wire.AppendRequest(nil, fetch, 0, nil))
	<-waits
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range int32(8) {
			c.Write(produce(i + 1))
		}
	}()
	time.Sleep(100 * time.Millisecond) // so that they are there first, as a rule
	other.SetDeadline(time.Now().Add(20 * time.Second))
	other.Write(produce(7))
	if id := readCorrelation(t, other); id != 7 {
		t.Errorf("correlation id %d", id)
	}
	close(letGo)
	for i := range int32(9) {
		if id := readCorrelation(t, c); id != i {
			t.Fatalf("answer %d has correlation id %d", i, id)
		}
	}
	<-sent
}
