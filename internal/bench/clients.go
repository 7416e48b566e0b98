package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rewind-kafka/rewind/internal/backfill"
)

// Readers that are not ours, each in a process of its own, each reading partition 0 from its beginning on with its own defaults.

func readKgo(l *lab, addr, topic string, records int64) func(context.Context) (backfill.Result, error) {
	j := l.job(addr, topic, nil)
	j.Until = map[int32]int64{0: records}
	return l.run(j)
}

// readJava is Apache Kafka's own ConsumerPerformance; what it takes to start and to join its group is left out.
func readJava(l *lab, addr, topic string, records int64) func(context.Context) (backfill.Result, error) {
	return func(ctx context.Context) (backfill.Result, error) {
		var res backfill.Result
		cmd := exec.CommandContext(ctx, l.PeerScript, "consume-perf", "--bootstrap-server", addr, "--topic", topic, "--num-records", fmt.Sprint(records),
			"--timeout", "60000", "--hide-header")
		cmd.Env = append(os.Environ(), "KAFKA_PEER_HOME="+l.PeerHome)
		var out, logs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &logs
		if err := cmd.Run(); err != nil {
			return res, fmt.Errorf("Java consumer: %w: %s", err, &logs)
		}
		return parseConsumerPerformance(out.String())
	}
}

// parseConsumerPerformance takes data.consumed.in.MB, data.consumed.in.nMsg and fetch.time.ms out of the last line.
func parseConsumerPerformance(out string) (res backfill.Result, err error) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	f := strings.Split(lines[len(lines)-1], ", ")
	if len(f) != 10 {
		return res, fmt.Errorf("the Java consumer said %q", out)
	}
	mb, err1 := strconv.ParseFloat(f[2], 64)
	n, err2 := strconv.ParseInt(f[4], 10, 64)
	ms, err3 := strconv.ParseFloat(f[7], 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return res, fmt.Errorf("the Java consumer said %q: %w", out, err)
	}
	return backfill.Result{Records: n, Bytes: int64(mb * (1 << 20)), Seconds: ms / 1000}, nil
}

// readKcat is librdkafka; it counts records only, and all of them have the lab's size.
func readKcat(l *lab, addr, topic string, records int64) func(context.Context) (backfill.Result, error) {
	return func(ctx context.Context) (backfill.Result, error) {
		var res backfill.Result
		// One byte a record is printed: formatting is not what is measured.
		cmd := exec.CommandContext(ctx, "kcat", "-C", "-q", "-b", addr, "-t", topic, "-p", "0", "-o", "0", "-c", fmt.Sprint(records), "-f", "x")
		var logs bytes.Buffer
		var out counter
		cmd.Stdout, cmd.Stderr = &out, &logs
		start := time.Now()
		if err := cmd.Run(); err != nil {
			return res, fmt.Errorf("kcat: %w: %s", err, &logs)
		}
		if int64(out) != records {
			return res, fmt.Errorf("kcat read %d records, not %d: %s", out, records, &logs)
		}
		return backfill.Result{Records: records, Bytes: records * int64(l.RecordBytes), Seconds: time.Since(start).Seconds()}, nil
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func pidOf(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return pid, nil
}
