package backfill

import (
	"context"
	"fmt"

	"github.com/rewind-kafka/rewind"
)

// run does the job in this process.
func (j *Job) run(ctx context.Context, progress func(int64)) (Result, error) {
	o := Options{Brokers: []string{j.Broker}, Topic: j.Topic, Until: j.Until, PartitionMaxBytes: j.PartitionMaxBytes, Digest: j.Digest, Progress: progress}
	if j.Mode == ModeRanges {
		return readRanges(ctx, o, j.MemoryBudget, j.Parallelism, j.ChunkBytes)
	}
	if j.Direct || j.RemoteMax > 0 {
		d, err := rewind.NewDialer(rewind.Options{
			RemoteMaxPartitionFetchBytes: j.RemoteMax,
			MemoryBudget:                 j.MemoryBudget,
			Parallelism:                  j.Parallelism,
			ChunkBytes:                   j.ChunkBytes,
			AllowedHosts:                 j.AllowedHosts,
		})
		if err != nil {
			return Result{}, err
		}
		defer d.Close()
		o.Dial = d.DialContext
	}
	switch j.Mode {
	case ModeConsumer:
		return Read(ctx, o)
	case ModeRaw:
		return ReadRaw(ctx, o)
	}
	return Result{}, fmt.Errorf("unknown mode %q", j.Mode)
}
