package backfill

import (
	"cmp"
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
	budget = cmp.Or(budget, rewind.DefaultMemoryBudget)
	chunk = cmp.Or(chunk, rewind.DefaultChunkBytes)
	parallelism = int(min(int64(cmp.Or(parallelism, rewind.DefaultParallelism)), max(budget/int64(chunk), 1)))
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
	ranges := make(chan byteRange)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(ranges)
		return cutRanges(ctx, locations, int64(chunk), ranges)
	})
	var total atomic.Int64
	for range parallelism {
		g.Go(func() error {
			buf := make([]byte, chunk)
			for r := range ranges {
				n, err := r.read(ctx, f, buf)
				if err != nil {
					return err
				}
				total.Add(int64(n))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Result{}, err
	}
	used, err := usage.Since(before)
	if err != nil {
		return Result{}, err
	}
	return Result{Bytes: total.Load(), Seconds: time.Since(start).Seconds(), Client: used}, nil
}

// byteRange is one GET.
type byteRange struct {
	of         *remotestorage.Location
	start, end int64
}

// cutRanges sends the ranges of all segments.
func cutRanges(ctx context.Context, locations []*remotestorage.Location, chunk int64, to chan<- byteRange) error {
	for _, l := range locations {
		for at := int64(0); at < l.SegmentSizeInBytes; at += chunk {
			select {
			case to <- byteRange{l, at, min(at+chunk, l.SegmentSizeInBytes)}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

func (r byteRange) read(ctx context.Context, f remotestorage.RemoteStorageFetcher, buf []byte) (int, error) {
	body, err := f.FetchLogSegment(ctx, r.of, r.start, r.end)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	n, err := io.ReadFull(body, buf[:r.end-r.start])
	if err != nil {
		return n, fmt.Errorf("reading a range: %w", err)
	}
	return n, nil
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
			if l, err := wire.PartitionLocation(&part); l != nil || err != nil {
				return l, err
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
