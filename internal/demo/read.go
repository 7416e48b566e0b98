package demo

import (
	"context"
	"net/url"

	"github.com/rewind-kafka/rewind/internal/backfill"
)

// path is one way to read the history back.
type path struct {
	name   string
	title  string
	broker string // configuration lines of the broker for this read
	job    backfill.Job
}

const noReadAhead = "remote.read.ahead.enable: false\nremote.read.cache.bytes: 0\n"

// noLocations keeps a client that asks with the dialer's tags on the broker's own reads.
const noLocations = "remote.fetch.location.enable: false\n"

var paths = []path{
	{name: "kafka-like", title: "broker, as Apache Kafka does it", broker: noReadAhead},
	{name: "kafka-like-remote-max", title: "the same, remote.max.partition.fetch.bytes 4 MiB", broker: noReadAhead + noLocations, job: backfill.Job{RemoteMax: 4 << 20}},
	{name: "broker", title: "broker with read-ahead"},
	{name: "direct", title: "direct from the store", job: backfill.Job{Direct: true}},
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
	BrokerRSS   int64   `json:"broker_max_rss_kib"`
}

// storeHosts names the endpoint of an S3-compatible store or an emulator: the dialer opens only the well-known stores by itself.
func (d *demo) storeHosts() []string {
	u, err := url.Parse(d.Store)
	if err != nil {
		return nil // the broker has said so
	}
	e, err := url.Parse(u.Query().Get("endpoint"))
	if err != nil || e.Host == "" {
		return nil
	}
	return []string{e.Host}
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
	job.Mode, job.Broker, job.Topic, job.Digest = backfill.ModeConsumer, d.broker.Ready.Addr, topic, true
	job.Until, job.AllowedHosts = map[int32]int64{0: d.until}, d.storeHosts()
	res, err := backfill.RunJob(ctx, job, d.say.at, d.Logs)
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
		BrokerCPUS: after.CPUSeconds - before.CPUSeconds, ClientCPUS: res.Client.CPUSeconds, BrokerRSS: after.MaxRSS,
	}, nil
}
