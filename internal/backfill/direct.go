package backfill

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rewind-kafka/rewind"
)

// run does the job in this process.
func (j *Job) run(ctx context.Context, progress func(int64)) (Result, error) {
	o := Options{
		Brokers: []string{j.Broker}, Topic: j.Topic, Until: j.Until, PartitionMaxBytes: j.PartitionMaxBytes, Digest: j.Digest, Progress: progress, Pace: j.Pace,
	}
	if j.Via != "" {
		o.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, j.Via)
		}
	}
	if j.CAFile != "" {
		var err error
		if o.Dial, err = dialTLS(j.CAFile); err != nil {
			return Result{}, err
		}
	}
	if j.Mode == ModeRanges {
		return readRanges(ctx, o, j.MemoryBudget, j.Parallelism, j.ChunkBytes)
	}
	if j.Direct || j.RemoteMax > 0 {
		dialer := rewind.Options{
			RemoteMaxPartitionFetchBytes: j.RemoteMax,
			MemoryBudget:                 j.MemoryBudget,
			Parallelism:                  j.Parallelism,
			ChunkBytes:                   j.ChunkBytes,
			AllowedHosts:                 j.AllowedHosts,
		}
		if j.Bare != nil {
			r, err := j.Bare.open(ctx, j.Broker)
			if err != nil {
				return Result{}, err
			}
			defer r.close()
			dialer.Resolver = r.resolver
		}
		d, err := rewind.NewDialer(dialer)
		if err != nil {
			return Result{}, err
		}
		defer d.Close()
		o.Dial = d.DialContext
		peak := watchMemory(d)
		res, err := j.read(ctx, o)
		res.MemoryPeak = peak()
		return res, err
	}
	return j.read(ctx, o)
}

func dialTLS(caFile string) (func(context.Context, string, string) (net.Conn, error), error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("reading whom to trust: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("reading whom to trust: %s has no certificate", caFile)
	}
	return (&tls.Dialer{Config: &tls.Config{RootCAs: roots}}).DialContext, nil
}

func (j *Job) read(ctx context.Context, o Options) (Result, error) {
	switch j.Mode {
	case ModeConsumer:
		return Read(ctx, o)
	case ModeRaw:
		return ReadRaw(ctx, o)
	case ModeProducer:
		return Write(ctx, o, j.Write, j.RecordBytes, j.AcksAll)
	}
	return Result{}, fmt.Errorf("unknown mode %q", j.Mode)
}

const memorySample = 5 * time.Millisecond

// watchMemory samples what the dialer holds of its budget until the returned function is called, which gives the largest sample.
func watchMemory(d *rewind.Dialer) (peak func() int64) {
	stop, result := make(chan struct{}), make(chan int64, 1)
	go func() {
		tick := time.NewTicker(memorySample)
		defer tick.Stop()
		most := int64(0)
		for {
			most = max(most, d.Stats().MemoryInUse)
			select {
			case <-tick.C:
			case <-stop:
				result <- most
				return
			}
		}
	}()
	return func() int64 { close(stop); return <-result }
}
