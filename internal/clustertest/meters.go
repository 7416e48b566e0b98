package clustertest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/freeport"
)

// Meters are a broker's counters since its start.
type Meters struct {
	BytesOut int64 // sent to consumers
	// RemoteBytes and RemoteFetches are what it read from the store for consumers.
	RemoteBytes, RemoteFetches int64
	FetchRequests              int64 // of consumers
	CPU                        time.Duration
}

// Meters of all brokers that run, added up; of one topic, or of all if it is "". FetchRequests and CPU know no topics.
func (c *Cluster) Meters(t testing.TB, topic string) (sum Meters) {
	t.Helper()
	for _, n := range c.nodes {
		if n.running() {
			m := c.MetersOf(t, n.id, topic)
			sum = Meters{sum.BytesOut + m.BytesOut, sum.RemoteBytes + m.RemoteBytes, sum.RemoteFetches + m.RemoteFetches, sum.FetchRequests + m.FetchRequests, sum.CPU + m.CPU}
		}
	}
	return sum
}

// MetersOf is Meters of one broker.
func (c *Cluster) MetersOf(t testing.TB, id int32, topic string) (m Meters) {
	t.Helper()
	n, of := c.node(t, id), ""
	if topic != "" {
		of = ",topic=" + topic
	}
	count := func(bean string) int64 {
		v, err := n.meter(bean)
		if err != nil {
			t.Fatalf("meter %s of broker %d: %v", bean, n.id, err)
		}
		return v
	}
	m.BytesOut = count("kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec" + of)
	m.RemoteBytes = count("kafka.server:type=BrokerTopicMetrics,name=RemoteFetchBytesPerSec" + of)
	m.RemoteFetches = count("kafka.server:type=BrokerTopicMetrics,name=RemoteFetchRequestsPerSec" + of)
	for v := 4; v <= 18; v++ {
		m.FetchRequests += count(fmt.Sprintf("kafka.network:type=RequestMetrics,name=RequestsPerSec,request=FetchConsumer,version=%d", v))
	}
	var err error
	if m.CPU, err = cpuTime(n.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return m
}

// Since is what was counted after before.
func (m Meters) Since(before Meters) Meters {
	return Meters{m.BytesOut - before.BytesOut, m.RemoteBytes - before.RemoteBytes, m.RemoteFetches - before.RemoteFetches, m.FetchRequests - before.FetchRequests, m.CPU - before.CPU}
}

func (n *node) meter(bean string) (int64, error) {
	u := url.URL{Scheme: "http", Host: freeport.Address(n.ports.meters), Path: "/" + bean, RawQuery: "Count"}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(u.String())
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return strconv.ParseInt(string(text), 10, 64)
}

// clockTick is Linux's unit of CPU times in /proc.
const clockTick = 10 * time.Millisecond

// cpuTime is user and system time of a process, all its threads.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in parentheses, may have blanks. After it come the state and, as 12th and 13th fields, the times.
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("process %d: %d fields", pid, len(f))
	}
	var sum time.Duration
	for _, s := range f[11:13] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * clockTick
	}
	return sum, nil
}
