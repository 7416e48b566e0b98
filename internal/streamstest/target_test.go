package streamstest

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/control"
	"github.com/rewind-kafka/rewind/internal/freeport"
)

// target is a broker that can be killed.
type target struct {
	name, addr string
	// crash ends it as the loss of its process would, and starts it again on its files and address.
	crash func(t *testing.T)
}

// targets are ours, and in the long version an Apache Kafka. Each is started by the test that wants it.
func targets() map[string]func(t *testing.T) *target {
	all := map[string]func(t *testing.T) *target{"rewind": startRewind}
	if full() {
		all["kafka"] = startKafka
	}
	return all
}

func startRewind(t *testing.T) *target {
	t.Helper()
	port, err := freeport.Find(1) // not one that an outgoing connection may take while the broker is down
	if err != nil {
		t.Fatal(err)
	}
	dir, logs := t.TempDir(), &appender{path: filepath.Join(t.TempDir(), "broker.log")}
	args := []string{"broker", "--control", "--data-dir", dir, "--listen", freeport.Address(port), "--http-listen", "127.0.0.1:0"}
	for _, kv := range []string{
		"group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=4", "transaction.state.log.num.partitions=4", "log.retention.check.interval.ms=1000",
		"auto.create.topics.enable=false", "group.streams.initial.rebalance.delay.ms=0", "group.streams.min.session.timeout.ms=6000", "group.streams.session.timeout.ms=6000",
		"group.streams.min.heartbeat.interval.ms=500", "group.streams.heartbeat.interval.ms=500", "group.streams.num.standby.replicas=1",
	} {
		args = append(args, "--set", kv)
	}
	var child *control.Child
	start := func() {
		t.Helper()
		// Not the test's context: the broker is stopped by a clean-up, when that one has ended.
		if child, err = control.StartBinary(context.Background(), rewindBinary.Path(t), logs, args...); err != nil {
			t.Fatal(err)
		}
	}
	start()
	t.Cleanup(func() {
		if err := child.Stop(20 * time.Second); err != nil {
			t.Errorf("stopping the broker: %v", err)
		}
		if t.Failed() {
			t.Logf("the broker's log:\n%s", logs.end())
		}
	})
	return &target{name: "rewind", addr: child.Ready.Addr, crash: func(t *testing.T) {
		t.Helper()
		if err := syscall.Kill(child.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := child.Stop(10 * time.Second); err == nil {
			t.Fatal("the killed broker ended well")
		}
		start()
	}}
}

func startKafka(t *testing.T) *target {
	t.Helper()
	c := clustertest.Start(t, clustertest.Options{Config: map[string]string{
		"group.streams.initial.rebalance.delay.ms": "0", "group.streams.min.session.timeout.ms": "6000", "group.streams.session.timeout.ms": "6000",
		"group.streams.min.heartbeat.interval.ms": "500", "group.streams.heartbeat.interval.ms": "500", "group.streams.num.standby.replicas": "1",
	}})
	id := c.IDs()[0]
	return &target{name: "kafka", addr: c.Bootstrap(clustertest.Plaintext), crash: func(t *testing.T) {
		t.Helper()
		c.Kill(t, id)
		c.Restart(t, id)
	}}
}

func (g *target) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(g.addr), kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// appender keeps what a process says.
type appender struct{ path string }

func (a *appender) Write(p []byte) (int, error) {
	f, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := f.Write(p)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return n, err
}

func (a *appender) end() []byte {
	b, err := os.ReadFile(a.path)
	if err != nil {
		return []byte(err.Error())
	}
	return b[max(0, len(b)-8<<10):]
}
