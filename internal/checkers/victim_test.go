package checkers

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/freeport"
)

// victim is a broker that is killed and started again on its files and its address.
type victim interface {
	address() string
	kill()
	restart()
	// dropped is how often it says in its log that it left out the marker of a transactional id in a partition of txnTopic.
	dropped(id string, partition int32) int
}

// each runs a test on our broker, and on an Apache Kafka.
func each(t *testing.T, run func(t *testing.T, v victim)) {
	t.Helper()
	t.Run("ours", func(t *testing.T) { run(t, startOurs(t)) })
	t.Run("Apache Kafka", func(t *testing.T) { run(t, startKafka(t)) })
}

type kafkaVictim struct {
	t *testing.T
	c *clustertest.Cluster
}

func startKafka(t *testing.T) victim {
	t.Helper()
	return &kafkaVictim{t, clustertest.Start(t, clustertest.Options{})}
}

func (k *kafkaVictim) address() string { return k.c.Bootstrap(clustertest.Plaintext) }
func (k *kafkaVictim) kill()           { k.t.Helper(); k.c.Kill(k.t, 1) }
func (k *kafkaVictim) restart()        { k.t.Helper(); k.c.Restart(k.t, 1) }

func (k *kafkaVictim) dropped(id string, partition int32) (n int) {
	k.t.Helper()
	for _, line := range k.c.Said(k.t, 1, "Couldn't find leader endpoint for partitions ") {
		partitions, rest, _ := strings.Cut(line, " while trying to send transaction markers for ")
		if strings.HasPrefix(rest, id+",") && strings.Contains(partitions, fmt.Sprintf("%s-%d", txnTopic, partition)) {
			n++
		}
	}
	return n
}

// ourVictim is our binary.
type ourVictim struct {
	t    *testing.T
	dir  string
	addr string
	cmd  *exec.Cmd
	in   io.Closer
	done chan struct{} // closed when the process has ended

	mu  sync.Mutex
	log []byte // of all its lives
}

const startLimit = 90 * time.Second

func startOurs(t *testing.T) victim {
	t.Helper()
	v := &ourVictim{t: t, dir: t.TempDir()}
	t.Cleanup(v.kill)
	for try := 0; ; try++ {
		port, err := freeport.Find(1)
		if err != nil {
			t.Fatal(err)
		}
		v.addr = freeport.Address(port)
		err = v.start()
		if err == nil {
			return v
		}
		if v.kill(); try == 3 || !strings.Contains(v.said(), "address already in use") {
			t.Fatalf("starting the broker: %v\n%s", err, v.said())
		}
	}
}

func (v *ourVictim) start() error {
	args := []string{"broker", "--control", "--data-dir", filepath.Join(v.dir, "data"), "--listen", v.addr, "--http-listen", "127.0.0.1:0", "--store", "file://" + filepath.Join(v.dir, "store")}
	for _, kv := range []string{"offsets.topic.num.partitions=4", "transaction.state.log.num.partitions=4", "group.initial.rebalance.delay.ms=0", "auto.create.topics.enable=false"} {
		args = append(args, "--set", kv)
	}
	v.cmd, v.done = exec.Command(rewindBinary.Path(v.t), args...), make(chan struct{})
	v.cmd.Stderr = v
	in, err := v.cmd.StdinPipe() // when this process dies its end closes, and the broker stops
	if err != nil {
		return err
	}
	v.in = in
	out, w, err := os.Pipe()
	if err != nil {
		return err
	}
	v.cmd.Stdout = w
	err = v.cmd.Start()
	w.Close()
	if err != nil {
		out.Close()
		return err
	}
	ready := make(chan error, 1)
	go func(cmd *exec.Cmd, done chan struct{}) { // ends with the process, which kill ends and waits for
		defer out.Close()
		_, err := bufio.NewReader(out).ReadBytes('\n')
		ready <- err
		_ = cmd.Wait()
		close(done)
	}(v.cmd, v.done)
	select {
	case err := <-ready:
		return err
	case <-time.After(startLimit):
		return fmt.Errorf("silent for %v", startLimit)
	}
}

func (v *ourVictim) address() string { return v.addr }

func (v *ourVictim) dropped(string, int32) int { return 0 }

func (v *ourVictim) kill() {
	if v.cmd == nil || v.cmd.Process == nil {
		return
	}
	_ = v.cmd.Process.Kill() // an error means that it has ended already
	<-v.done
	_ = v.in.Close()
}

func (v *ourVictim) restart() {
	v.t.Helper()
	if err := v.start(); err != nil {
		v.t.Fatalf("starting the broker again: %v\n%s", err, v.said())
	}
}

// Write takes in the broker's log.
func (v *ourVictim) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.log = append(v.log, p...)
	return len(p), nil
}

func (v *ourVictim) said() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return string(v.log[max(0, len(v.log)-6000):])
}
