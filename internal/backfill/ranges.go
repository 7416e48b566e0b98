package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/httpfetcher"
	"github.com/rewind-kafka/rewind/internal/usage"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// ErrNoLocation: the broker answered a fetch below the wanted end without a location.
var ErrNoLocation = errors.New("the broker gave no location")

// readRanges is the yardstick of a direct reader: it learns the segments' locations first, then opens all their ranges, so many in flight and in
// no order, into memory that the budget bounds, and drops the bytes.
func readRanges(ctx context.Context, o Options, budget int64, parallelism, chunk int) (Result, error) {
	if budget == 0 {
		budget = rewind.DefaultMemoryBudget
	}
	if parallelism == 0 {
		parallelism = rewind.DefaultParallelism
	}
	if chunk == 0 {
		chunk = rewind.DefaultChunkBytes
	}
	parallelism = int(min(int64(parallelism), max(budget/int64(chunk), 1)))
	before, err := usage.Read()
	if err != nil {
		return Result{}, err
	}
	start := time.Now()
	locations, err := locations(ctx, o)
	if err != nil {
		return Result{}, err
	}
	f, err := httpfetcher.New(httpfetcher.Options{AllowedHosts: []string{"127.0.0.1"}})
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	type job struct {
		at         *remotestorage.Location
		start, end int64
	}
	jobs := make(chan job)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(jobs)
		for _, l := range locations {
			for at := int64(0); at < l.SegmentSizeInBytes; at += int64(chunk) {
				select {
				case jobs <- job{l, at, min(at+int64(chunk), l.SegmentSizeInBytes)}:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return nil
	})
	var total atomic.Int64
	for range parallelism {
		g.Go(func() error {
			buf := make([]byte, chunk)
			for j := range jobs {
				body, err := f.FetchLogSegment(ctx, j.at, j.start, j.end)
				if err != nil {
					return err
				}
				n, err := io.ReadFull(body, buf[:j.end-j.start])
				body.Close()
				if err != nil {
					return fmt.Errorf("reading a range: %w", err)
				}
				total.Add(int64(n))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Result{}, err
	}
	after, err := usage.Read()
	if err != nil {
		return Result{}, err
	}
	return Result{Bytes: total.Load(), Seconds: time.Since(start).Seconds(),
		Client: usage.Self{CPUSeconds: after.CPUSeconds - before.CPUSeconds, MaxRSS: after.MaxRSS}}, nil
}

// locations asks for the location of every segment below Until.
func locations(ctx context.Context, o Options) ([]*remotestorage.Location, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.Brokers[0])
	if err != nil {
		return nil, fmt.Errorf("connecting for locations: %w", err)
	}
	defer conn.Close()
	r := rawReader{conn: conn, o: o, limit: 1}
	var all []*remotestorage.Location
	for p, until := range o.Until {
		for offset := int64(0); offset < until; {
			l, err := r.location(p, offset)
			if err != nil {
				return nil, fmt.Errorf("asking for the location of %s-%d at offset %d: %w", o.Topic, p, offset, err)
			}
			all = append(all, l)
			offset = l.EndOffset + 1
		}
	}
	return all, nil
}

func (r *rawReader) location(p int32, offset int64) (*remotestorage.Location, error) {
	r.next = offset
	req := r.request(p)
	wire.SetSupportedStorageFormatVersions(req, []string{remotestorage.StorageFormatApacheKafkaV1})
	wire.SetLocationRequested(&req.Topics[0].Partitions[0], true)
	resp, err := r.roundTrip(req)
	if err != nil {
		return nil, err
	}
	for _, t := range resp.Topics {
		for _, part := range t.Partitions {
			if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
				return nil, err
			}
			var found *remotestorage.Location
			var bad error
			part.UnknownTags.Each(func(tag uint32, b []byte) {
				if tag == wire.TagRemoteLogSegment {
					found, bad = wire.ParseLocation(b)
				}
			})
			if found != nil || bad != nil {
				return found, bad
			}
		}
	}
	return nil, ErrNoLocation
}

func (r *rawReader) request(p int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = rawVersion
	req.ReplicaID = -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, max(r.limit, 50<<20)
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = r.o.Topic
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = p, r.next, r.limit
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	return req
}

func (r *rawReader) roundTrip(req *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	r.correlation++
	r.req = wire.AppendRequest(r.req[:0], req, r.correlation, nil)
	if _, err := r.conn.Write(r.req); err != nil {
		return nil, err
	}
	if err := r.readFrame(); err != nil {
		return nil, err
	}
	resp := &kmsg.FetchResponse{Version: rawVersion}
	if err := resp.ReadFrom(r.resp[5:]); err != nil { // correlation id and an empty tag section
		return nil, fmt.Errorf("decoding the answer: %w", err)
	}
	return resp, kerr.ErrorForCode(resp.ErrorCode)
}
