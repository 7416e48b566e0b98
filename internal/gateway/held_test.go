package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/history"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// All connections share the memory for frames that are kept whole; who meets the bound waits, and it is told. A fetch that lies with the broker, for however long, takes none of it.
func TestFramesAreHeldTogether(t *testing.T) {
	let := make(chan struct{})
	arrived := make(chan struct{}, 10)
	b := startFake(t, nil, func(h wire.RequestHeader) kmsg.Response {
		if h.Key == keyFetch {
			arrived <- struct{}{}
			<-let
		}
		resp := kmsg.ResponseForKey(h.Key)
		resp.SetVersion(h.Version)
		return resp
	})
	var log logged
	g := startGateway(t, Options{Upstream: []string{b.addr()}, Brokers: noBrokers, MaxHeldBytes: 100_000, Registerer: prometheus.NewRegistry(), Logger: log.logger()})
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.ReplicaID = 12, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = "past"
	for i := range 1000 {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition = int32(i)
		topic.Partitions = append(topic.Partitions, p)
	}
	fetch.Topics = append(fetch.Topics, topic)
	met := func() float64 { return testutil.ToFloat64(g.metrics.limits.WithLabelValues("held-requests")) }
	var running sync.WaitGroup
	for range 3 {
		running.Go(func() { exchange(t, g.Addr().String(), fetch) })
		<-arrived
	}
	// One that is still being sent. What lies with the broker may have had its room for another moment.
	was := met()
	slow, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	frame := wire.AppendRequest(nil, fetch, 4711, nil)
	if _, err := slow.Write(frame[:len(frame)/2]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its room to be taken", func() bool {
		running.Go(func() { exchange(t, g.Addr().String(), fetch) })
		select {
		case <-arrived: // it came first
			return false
		case <-time.After(200 * time.Millisecond):
			return met() > was
		}
	})
	running.Go(func() { exchange(t, g.Addr().String(), fetch) })
	eventually(t, "two to wait", func() bool { return met() >= was+2 })
	if len(arrived) > 0 {
		t.Error("more is held than may be")
	}
	if _, err := slow.Write(frame[len(frame)/2:]); err != nil {
		t.Fatal(err)
	}
	close(let)
	running.Wait()
	if n := strings.Count(log.String(), "a frame waits for memory"); n != 1 {
		t.Errorf("it is told %d times", n)
	}
}

func TestEndReason(t *testing.T) {
	for want, err := range map[string]error{
		"client-certificate": errCertificate, "tls": errHandshake, "not-tls": fmt.Errorf("%w: %w", errHandshake, tls.RecordHeaderError{}), "upstream": errUpstream,
		"protocol": clientconn.ErrProtocol, "memory": clientconn.ErrHeld, "not-taken": clientconn.ErrNotTaken, "frame-size": wire.ErrFrameTooLarge,
		"malformed": wire.ErrMalformed, "other": errors.New("else"),
	} {
		if got := endReason(fmt.Errorf("reading: %w", err)); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// What the cache had is told apart from what the store was read for, and an answer is counted once among those that left.
func TestPathsOfBytes(t *testing.T) {
	b := startFake(t, nil, func(wire.RequestHeader) kmsg.Response { return nil })
	g := startGateway(t, Options{Upstream: []string{b.addr()}, Brokers: noBrokers, Registerer: prometheus.NewRegistry()})
	c := &conn{g: g}
	c.reads.p = &g.principals
	for _, d := range []history.Bytes{{Direct: 100, Cached: 30, Upstream: 7}, {Direct: 50, Cached: 50}, {Direct: 20}, {Upstream: 5}, {}} {
		hooks{c}.Delivered(d)
	}
	c.reads.close()
	for path, want := range map[string][2]float64{"store": {90, 2}, "cache": {80, 2}, "brokers": {12, 3}} {
		if n, answers := fetched(g, path), testutil.ToFloat64(g.metrics.fetches.WithLabelValues(path)); n != want[0] || answers != want[1] {
			t.Errorf("%s: %v bytes in %v answers, want %v", path, n, answers, want)
		}
	}
	if n, answers := g.Given(); n != 182 || answers != 5 {
		t.Errorf("%d bytes in %d answers", n, answers)
	}
}
