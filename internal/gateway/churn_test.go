package gateway

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// Clients come, ask, and go in the middle of everything, while brokers move and the gateway closes at last: nothing is left running, and every answer that came was whole.
func TestChurn(t *testing.T) {
	one, two := oneBroker(t, nil, 1), oneBroker(t, nil, 1)
	g := startGateway(t, Options{Upstream: []string{one.addr()}, PollInterval: -1, Brokers: func(context.Context) ([]Broker, error) {
		return []Broker{{1, "127.0.0.1", one.port()}}, nil
	}})
	addrs := []string{g.Addr().String(), g.BrokerAddr(1).String()}
	var clients, mover sync.WaitGroup
	stop := make(chan struct{})
	mover.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
				g.learned([]Broker{{1, "127.0.0.1", []int32{one.port(), two.port()}[i%2]}})
			}
		}
	})
	for seed := range uint64(16) {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for range 40 {
				churn(t, r, addrs[r.IntN(len(addrs))])
			}
		})
	}
	clients.Wait()
	close(stop)
	mover.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := g.Close(ctx); err != nil {
		t.Error(err)
	}
	if n := g.connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// churn is one connection. It may be ended from the other side at any time: its broker moves.
func churn(t *testing.T, r *rand.Rand, addr string) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Error(err)
		return
	}
	var asked []kmsg.Request
	for range r.IntN(5) {
		req := kmsg.RequestForKey([]int16{keyApiVersions, keyMetadata, keyFindCoordinator, keyFetch, keyDescribeCluster, keyShareFetch, 9, 60}[r.IntN(8)])
		req.SetVersion(req.MaxVersion() - int16(r.IntN(int(min(req.MaxVersion(), 2)))))
		frame := wire.AppendRequest(nil, req, 4711, nil)
		if r.IntN(20) == 0 {
			frame = frame[:r.IntN(len(frame))]
			_, _ = nc.Write(frame) // and gone
			return
		}
		if _, err := nc.Write(frame); err != nil {
			return
		}
		asked = append(asked, req)
	}
	for _, req := range asked {
		if r.IntN(10) == 0 {
			return
		}
		frame, err := wire.ReadFrame(nc, 1<<20, nil)
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Errorf("%s version %d: no answer", kmsg.NameForKey(req.Key()), req.GetVersion())
			}
			return
		}
		id, body, err := wire.ResponseBody(frame, req.Key(), req.GetVersion())
		resp := req.ResponseKind()
		if err == nil {
			err = resp.ReadFrom(body)
		}
		if err != nil || id != 4711 {
			t.Errorf("%s version %d: correlation id %d, %v", kmsg.NameForKey(req.Key()), req.GetVersion(), id, err)
			return
		}
	}
}
