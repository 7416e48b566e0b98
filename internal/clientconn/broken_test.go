package clientconn

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// slowToClose is a broker's end whose Close takes a while, or whose writes fail.
type slowToClose struct {
	net.Conn
	before  chan struct{} // Close waits for it
	refuses error         // of all writes; nil: they are passed on
}

func (s *slowToClose) Write(b []byte) (int, error) {
	if s.refuses != nil {
		return 0, s.refuses
	}
	return s.Conn.Write(b)
}

func (s *slowToClose) Close() error {
	select {
	case <-s.before:
	case <-time.After(time.Minute):
	}
	return s.Conn.Close()
}

// What a handler makes of it that its own request failed, because the connection to the broker has ended or does so with that request, does not get to the client: it would be taken for the
// broker's word. The client sees the connection end.
func TestNoAnswerOnceTheBrokerIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		refuses error
		later   bool
	}{"it hangs up": {}, "it cannot be written to": {refuses: syscall.EPIPE}, "it hangs up, later": {later: true}, "it cannot be written to, later": {refuses: syscall.EPIPE, later: true}} {
		t.Run(name, func(t *testing.T) {
			client, ours := tcpPair(t)
			upstream, broker := tcpPair(t)
			defer client.Close()
			defer broker.Close()
			up := &slowToClose{Conn: upstream, before: make(chan struct{}), refuses: c.refuses}
			conn := New(Socket(ours), up, Options{})
			over := sync.OnceFunc(func() { close(up.before) })
			if c.refuses != nil {
				over() // who is told closes it
			}
			answer := func(ctx context.Context, q wire.RequestHeader) (Answer, error) {
				_, err := conn.Request(ctx, kmsg.NewPtrMetadataRequest())
				if err == nil {
					t.Error("the broker has answered")
				}
				return Answer{Frame: ownFrame(q.CorrelationID, "nothing there"), Release: over}, nil
			}
			h := handlerFuncs{wants: wantsFetch, answer: answer}
			if c.later {
				h.answer = func(_ context.Context, q wire.RequestHeader) (Answer, error) {
					return Answer{Later: func(ctx context.Context) (Answer, error) { return answer(ctx, q) }}, nil
				}
			}
			done := make(chan error, 1)
			go func() { done <- conn.Run(h) }()
			if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			id := "test"
			if _, err := client.Write(wire.AppendRequest(nil, &kmsg.FetchRequest{Version: 11}, 7, &id)); err != nil {
				t.Fatal(err)
			}
			if c.refuses == nil {
				if _, err := wire.ReadFrame(broker, 1<<20, nil); err != nil {
					t.Fatal(err)
				}
				broker.Close()
			}
			if got, err := io.ReadAll(client); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the client got %q, %v", got, err)
			}
			over()
			conn.Close()
			if err := <-done; !errors.Is(err, c.refuses) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
