package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/rewind-kafka/rewind/internal/backfill"
)

// path is one way to read the history back.
type path struct {
	name   string
	title  string
	broker string // configuration lines of the broker for this read
	job    ReadJob
}

const noReadAhead = "remote.read.ahead.enable: false\nremote.read.cache.bytes: 0\n"

var paths = []path{
	{name: "kafka-like", title: "broker, as Apache Kafka does it", broker: noReadAhead},
	{name: "kafka-like-remote-max", title: "the same, remote.max.partition.fetch.bytes 4 MiB", broker: noReadAhead, job: ReadJob{RemoteMax: 4 << 20}},
	{name: "broker", title: "broker with read-ahead"},
	{name: "direct", title: "direct from the store", job: ReadJob{Direct: true}},
}

// ReadJob is what a reading child process is told on its standard input.
type ReadJob struct {
	Broker     string
	Topic      string
	Until      int64
	Direct     bool  // through the dialer, following locations
	RemoteMax  int32 // remote.max.partition.fetch.bytes, through the dialer; 0 leaves it out
	Latency    string
	StreamRate int64 // distance before direct reads of a store that is not behind the demo's own front
}

// ReadLine is a line of a reading child's output: progress, and at last the result.
type ReadLine struct {
	Progress int64            `json:"progress,omitempty"`
	Result   *backfill.Result `json:"result,omitempty"`
	Error    string           `json:"error,omitempty"`
}

// Read is one row of the report.
type Read struct {
	Path        string  `json:"path"`
	Records     int64   `json:"records"`
	Bytes       int64   `json:"bytes"`
	Digest      string  `json:"digest"`
	Seconds     float64 `json:"seconds"`
	MiBPerS     float64 `json:"mib_per_s"`
	Fetches     int64   `json:"fetches"`
	BrokerBytes int64   `json:"broker_bytes"`
	BrokerCPUS  float64 `json:"broker_cpu_s"`
	ClientCPUS  float64 `json:"client_cpu_s"`
}

func (d *demo) read(ctx context.Context, p path) (Read, error) {
	if err := d.startBroker(ctx, p.broker); err != nil {
		return Read{}, err
	}
	before, err := d.broker.Usage()
	if err != nil {
		return Read{}, err
	}
	d.say.step("reading: "+p.title, d.until*int64(d.RecordBytes))
	job := p.job
	job.Broker, job.Topic, job.Until = d.broker.Ready.Addr, topic, d.until
	if d.Store != "" {
		job.Latency, job.StreamRate = d.Latency.String(), d.StreamRate
	}
	res, err := runRead(ctx, job, d.say.at, d.Logs)
	if err != nil {
		return Read{}, err
	}
	after, err := d.broker.Usage()
	if err != nil {
		return Read{}, err
	}
	return Read{
		Path: p.name, Records: res.Records, Bytes: res.Bytes, Digest: res.Digest, Seconds: res.Seconds, MiBPerS: res.MiBPerSecond(),
		Fetches: after.Fetches - before.Fetches, BrokerBytes: after.BytesSent - before.BytesSent,
		BrokerCPUS: after.CPUSeconds - before.CPUSeconds, ClientCPUS: res.Client.CPUSeconds,
	}, nil
}

// runRead runs one read in a process of its own.
func runRead(ctx context.Context, job ReadJob, progress func(int64), logs io.Writer) (backfill.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return backfill.Result{}, err
	}
	in, err := json.Marshal(job)
	if err != nil {
		return backfill.Result{}, err
	}
	cmd := exec.CommandContext(ctx, self, "demo-read", string(in))
	cmd.Stderr = logs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return backfill.Result{}, err
	}
	if err := cmd.Start(); err != nil {
		return backfill.Result{}, fmt.Errorf("starting the reader: %w", err)
	}
	res, readErr := readLines(out, progress)
	if err := cmd.Wait(); err != nil && readErr == nil {
		readErr = fmt.Errorf("the reader ended badly: %w", err)
	}
	if ctx.Err() != nil {
		readErr = ctx.Err()
	}
	return res, readErr
}

func readLines(out io.Reader, progress func(int64)) (backfill.Result, error) {
	for s := bufio.NewScanner(out); s.Scan(); {
		var l ReadLine
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return backfill.Result{}, fmt.Errorf("a line of the reader: %w", err)
		}
		switch {
		case l.Error != "":
			return backfill.Result{}, errors.New(l.Error)
		case l.Result != nil:
			return *l.Result, nil
		default:
			progress(l.Progress)
		}
	}
	return backfill.Result{}, errors.New("the reader ended without a result")
}
