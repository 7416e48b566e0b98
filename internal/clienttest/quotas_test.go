package clienttest

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// throttleMax is the longest that the Java producer was told to wait.
var throttleMax = regexp.MustCompile(`producer-metrics:produce-throttle-time-max:\S* *: ([0-9.]+)`)

// TestThrottledJava: Apache Kafka's own producer and consumer keep to a quota, get everything across, and the producer's metrics say that it was told to wait.
func TestThrottledJava(t *testing.T) {
	j := lab.jvm.Get(t)
	s := lab.binary.Start(t, append(brokerArgs(t.TempDir(), "127.0.0.1:0", "file://"+t.TempDir()), "--set", "quota.window.num=2")...)
	w := &world{addr: s.Ready.Addr, child: s.Child, logs: s.Logs}
	w.admin = w.client(t)
	w.create(t, []topic{{"t", 1}}, nil)
	const rate, size, n = 100_000, 1000, 600
	name := "perf"
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.Entries = []kmsg.AlterClientQuotasRequestEntry{{
		Entity: []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "client-id", Name: &name}},
		Ops:    []kmsg.AlterClientQuotasRequestEntryOp{{Key: "producer_byte_rate", Value: rate}, {Key: "consumer_byte_rate", Value: rate}},
	}}
	if resp, err := req.RequestWith(t.Context(), w.admin); err != nil || resp.Entries[0].ErrorCode != 0 {
		t.Fatal(err, resp)
	}
	// What a second gives is free, and so is the last answer's wait: a batch for the producer, what a second gives for the consumer.
	began := time.Now()
	out := j.Tool(t, "org.apache.kafka.tools.ProducerPerformance", nil, "--topic", "t", "--num-records", strconv.Itoa(n), "--record-size", strconv.Itoa(size), "--throughput", "-1", "--print-metrics",
		"--bootstrap-server", w.addr, "--command-property", "client.id=perf", "batch.size=16384", "linger.ms=50")
	if took, least := time.Since(began), time.Duration((n*size-rate-5*16384)/rate)*time.Second; took < least {
		t.Errorf("the producer took %s, at least %s", took, least)
	}
	if m := throttleMax.FindSubmatch(out); m == nil || bytes.HasPrefix(m[1], []byte("0.0")) {
		t.Errorf("the producer was not told to wait: %s", out)
	}
	if end := w.offsets(t, []topic{{"t", 1}}, latest)["t"][0]; end != n {
		t.Errorf("%d records, of %d", end, n)
	}
	began = time.Now()
	j.Tool(t, "org.apache.kafka.tools.ConsumerPerformance", nil, "--topic", "t", "--num-records", fmt.Sprint(n), "--bootstrap-server", w.addr, "--command-property", "client.id=perf", "--timeout", "60000")
	if took, least := time.Since(began), time.Duration((n*size-2*rate)/rate)*time.Second; took < least {
		t.Errorf("the consumer took %s, at least %s", took, least)
	}
}
