package clustertest

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/peers"
)

// Transactions is Apache Kafka's own producer in Java, as many of them as there are transactional ids, in one process that ends with the test.
type Transactions struct {
	t   testing.TB
	in  io.WriteCloser
	out *bufio.Reader
	err *strings.Builder
	cmd *exec.Cmd
}

// commandWait is for one command of the Java producer.
const commandWait = 2 * time.Minute

// Transactions starts the producer.
func (c *Cluster) Transactions(t testing.TB) *Transactions {
	t.Helper()
	dir := filepath.Join(peers.Root(), "peers", "kafka")
	x := &Transactions{t: t, err: new(strings.Builder)}
	x.cmd = exec.Command(c.java[0], "-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile="+filepath.Join(dir, "log4j2-tools.properties"), "-cp", c.jars,
		filepath.Join(dir, "TxnLoad.java"), c.Bootstrap(internal))
	x.cmd.Stderr = x.err
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := x.cmd.StdoutPipe()
	if err == nil {
		x.in, err = x.cmd.StdinPipe()
	}
	if err == nil {
		err = x.cmd.Start()
	}
	if err != nil {
		t.Fatalf("starting java: %v", err)
	}
	x.out = bufio.NewReader(stdout)
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill() // open transactions are left open, as by a producer that was killed
		_ = x.cmd.Wait()
	})
	return x
}

func (x *Transactions) do(format string, args ...any) string {
	x.t.Helper()
	timer := time.AfterFunc(commandWait, func() { _ = x.cmd.Process.Kill() })
	defer timer.Stop()
	_, err := fmt.Fprintf(x.in, format+"\n", args...)
	line := ""
	if err == nil {
		line, err = x.out.ReadString('\n')
	}
	if err != nil {
		_ = x.cmd.Process.Kill()
		_ = x.cmd.Wait()
		x.t.Fatalf("java, at %s: %v\n%s", fmt.Sprintf(format, args...), err, x.err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "ok"))
}

// Begin, Commit and Abort a transaction of a transactional id.
func (x *Transactions) Begin(id string) { x.t.Helper(); x.do("begin %s", id) }

// Commit ends the id's transaction.
func (x *Transactions) Commit(id string) { x.t.Helper(); x.do("commit %s", id) }

// Abort ends the id's transaction.
func (x *Transactions) Abort(id string) { x.t.Helper(); x.do("abort %s", id) }

// Send writes n records of size bytes, each a batch, and returns the offset of the first. Id "-" is a producer without transactions.
func (x *Transactions) Send(id, topic string, partition int32, n, size int) int64 {
	x.t.Helper()
	at, err := strconv.ParseInt(x.do("send %s %s %d %d %d", id, topic, partition, n, size), 10, 64)
	if err != nil {
		x.t.Fatal(err)
	}
	return at
}

// LoadTransactions makes a tiered topic whose history has every way in which transactions meet segments, in each partition: committed and aborted ones within a segment, interleaved
// ones, aborted ones that span segments and whose marker stands segments later, a segment of little but markers, and one begun in the store whose abort marker is in the
// brokers' own log only. All but the active segments are in the store only.
func (c *Cluster) LoadTransactions(t testing.TB, topic string, partitions int32) {
	t.Helper()
	c.CreateTiered(t, topic, partitions, nil)
	x := c.Transactions(t)
	const size = 1000 // 20 records fill a segment
	for p := range partitions {
		send := func(id string, n int) { x.Send(id, topic, p, n, size) }
		for _, end := range []func(string){x.Abort, x.Commit} { // within a segment
			x.Begin("a")
			send("a", 3)
			end("a")
		}
		x.Begin("a") // interleaved
		x.Begin("b")
		for range 4 {
			send("a", 1)
			send("b", 1)
			send("-", 1)
		}
		x.Abort("b")
		send("a", 2)
		x.Commit("a")
		x.Begin("a") // over segments, and the marker segments later
		send("a", 25)
		send("-", 45)
		x.Begin("b")
		send("b", 30)
		x.Commit("b")
		x.Abort("a")
		for range 60 { // markers, with hardly anything between
			x.Begin("b")
			x.Send("b", topic, p, 1, 20)
			x.Abort("b")
		}
		send("-", 30)
		if p == 0 {
			x.Begin("c") // one for all partitions, from the store over the edge into the local logs
		}
		send("c", 3)
		send("-", 30)
	}
	c.Roll(t, topic)
	ends := c.Offsets(t, topic, Latest)
	for p := range ends {
		ends[p]--
		x.Send("c", topic, int32(p), 1, size)
	}
	x.Abort("c")
	c.AwaitLocalStart(t, topic, ends)
}
