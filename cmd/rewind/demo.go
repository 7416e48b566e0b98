package main

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/rewind-kafka/rewind/internal/backfill"
	"github.com/rewind-kafka/rewind/internal/bench"
	"github.com/rewind-kafka/rewind/internal/demo"
)

// distanceFlags stand for an object store's distance. For tests and demonstrations.
type distanceFlags struct {
	StoreLatency    time.Duration `help:"Wait before the first byte of every read from the store (tests and demonstrations)." default:"${latency}"`
	StoreStreamRate size          `help:"Bytes a second that one stream from the store gives, 0 for no limit (tests and demonstrations)." default:"${rate}"`
}

type demoCmd struct {
	StoreLatency    *time.Duration `help:"Wait before the first byte of every read from the demo's own store (30ms); a real store has its own."`
	StoreStreamRate *size          `help:"Bytes a second that one stream from the demo's own store gives, 0 for no limit (100MB)."`

	Size         size   `help:"How much history to read back; up to two segments more are loaded, of which the last stays local." default:"512MiB"`
	RecordBytes  int    `help:"Bytes of key and value of a record." default:"1024"`
	SegmentBytes size   `help:"segment.bytes of the topic." default:"64MiB"`
	Store        string `help:"Object store URL, such as s3://bucket?region=..., or file:///dir; default is a directory that is removed."`
	Dir          string `help:"Keep the data here; default is a temporary directory that is removed."`
	JSON         bool   `help:"Print one JSON object instead of the table."`
	Verbose      bool   `help:"Show the servers' logs."`
}

func (c *demoCmd) Run(ctx context.Context) error {
	o := demo.Options{
		Size: int64(c.Size), RecordBytes: c.RecordBytes, SegmentBytes: int64(c.SegmentBytes), Store: c.Store,
		Dir: c.Dir, Progress: os.Stderr, Logs: logs(c.Verbose),
	}
	switch {
	case c.Store == "" || strings.HasPrefix(c.Store, "file://"):
		o.Latency, o.StreamRate = 30*time.Millisecond, 100e6
		if c.StoreLatency != nil {
			o.Latency = *c.StoreLatency
		}
		if c.StoreStreamRate != nil {
			o.StreamRate = int64(*c.StoreStreamRate)
		}
	case c.StoreLatency != nil || c.StoreStreamRate != nil:
		return errors.New("--store-latency and --store-stream-rate put a distance before the demo's own store; one given by --store has its own")
	}
	rep, err := demo.Run(ctx, o)
	if err != nil {
		return err
	}
	if c.JSON {
		return rep.WriteJSON(os.Stdout)
	}
	return rep.WriteTable(os.Stdout)
}

func logs(verbose bool) io.Writer {
	if verbose {
		return os.Stderr
	}
	return nil
}

type benchCmd struct {
	distanceFlags `embed:"" set:"latency=30ms" set:"rate=104857600"`

	Peer         bool     `help:"Measure against a real Apache Kafka, which 'make peers' installs."`
	PeerScript   string   `help:"The script that runs it." default:"peers/kafka/kafka-peer.sh"`
	PeerHome     string   `help:"Where it is installed." default:".cache/peers/kafka"`
	Size         size     `help:"History per topic." default:"1GiB"`
	RecordBytes  int      `help:"Bytes of key and value of a record." default:"1024"`
	SegmentBytes size     `help:"segment.bytes of the topics." default:"64MiB"`
	Runs         int      `help:"Interleaved runs, of which the median counts." default:"3"`
	Readers      int      `help:"Readers at once, where the memory of the gateway is measured." default:"100"`
	Memory       size     `help:"Memory budget of the direct reader." default:"64MiB"`
	Parallelism  int      `help:"GETs that the direct reader keeps in flight." default:"16"`
	Figure       []string `help:"Measure only this figure (may be repeated)."`
	Dir          string   `help:"Keep the data here; default is a temporary directory that is removed."`
	JSON         bool     `help:"Print one JSON object instead of the table."`
	Verbose      bool     `help:"Show the servers' logs."`
}

func (c *benchCmd) Run(ctx context.Context) error {
	o := bench.Options{
		Size: int64(c.Size), RecordBytes: c.RecordBytes, SegmentBytes: int64(c.SegmentBytes), Runs: c.Runs, Readers: c.Readers,
		Latency: c.StoreLatency, StreamRate: int64(c.StoreStreamRate), Memory: int64(c.Memory), Parallelism: c.Parallelism,
		Figures: c.Figure, Dir: c.Dir, Progress: os.Stderr, Logs: logs(c.Verbose),
	}
	if c.Peer {
		o.PeerScript, o.PeerHome = c.PeerScript, c.PeerHome
	}
	rep, err := bench.Run(ctx, o)
	if err != nil {
		return err
	}
	if c.JSON {
		return rep.WriteJSON(os.Stdout)
	}
	return rep.WriteTable(os.Stdout)
}

type jobCmd struct {
	CPUProfile string `help:"Write a CPU profile of the read here."`
	Job        string `arg:""`
}

func (c *jobCmd) Run(ctx context.Context) (err error) {
	if c.CPUProfile != "" {
		f, err := os.Create(c.CPUProfile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return errors.Join(err, f.Close())
		}
		defer func() { pprof.StopCPUProfile(); err = errors.Join(err, f.Close()) }()
	}
	return backfill.ServeJob(ctx, c.Job, os.Stdin, os.Stdout)
}
