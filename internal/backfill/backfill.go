// Package backfill is one timed read of a topic's history by an ordinary Go consumer, with a digest of what it saw: what the demo shows and the
// bench measures. Imported by internal/demo, internal/bench and cmd/rewind.
package backfill

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/usage"
)

// Options says what is read and how. The zero value of a size leaves kgo's own default.
type Options struct {
	Brokers []string
	Topic   string
	// Until is per partition the offset to stop at, exclusive; partitions that are not named are not read.
	Until map[int32]int64
	// PartitionMaxBytes is the consumer's max.partition.fetch.bytes.
	PartitionMaxBytes int32
	// Dial replaces the consumer's way to connect: the one line that makes a Go consumer read directly.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Digest off leaves the digest empty; a bench that measures the reader alone does not want its cost.
	Digest bool
	// Committed reads with read_committed.
	Committed bool
	// Progress is called now and then with the bytes read so far.
	Progress func(bytes int64)
	// Pace is the most bytes a second that are taken; 0 is as fast as they come.
	Pace int64
	// Stall is how long nothing may arrive before the read fails; 0 is a minute.
	Stall time.Duration
}

// Result is what the reader saw. Bytes are of keys and values.
type Result struct {
	Records int64   `json:"records"`
	Bytes   int64   `json:"bytes"`
	Digest  string  `json:"digest"`
	Seconds float64 `json:"seconds"`
	// MemoryPeak is the most that the dialer held of its memory budget, sampled; 0 without the dialer.
	MemoryPeak int64      `json:"memory_peak,omitempty"`
	Client     usage.Self `json:"client"` // of the reading process; CPU of the read alone
}

// MiBPerSecond is the pace of keys and values.
func (r Result) MiBPerSecond() float64 {
	if r.Seconds == 0 {
		return 0
	}
	return float64(r.Bytes) / (1 << 20) / r.Seconds
}

// ErrStalled: nothing arrived for Options.Stall.
var ErrStalled = errors.New("the read made no progress")

// Read consumes from the earliest offset up to Until.
func Read(ctx context.Context, o Options) (Result, error) {
	if o.Stall == 0 {
		o.Stall = time.Minute
	}
	want := make(map[int32]kgo.Offset, len(o.Until))
	for p := range o.Until {
		want[p] = kgo.NewOffset().AtStart()
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{o.Topic: want}),
	}
	if o.PartitionMaxBytes > 0 {
		opts = append(opts, kgo.FetchMaxPartitionBytes(o.PartitionMaxBytes))
	}
	if o.Dial != nil {
		opts = append(opts, kgo.Dialer(o.Dial))
	}
	if o.Committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	before, err := usage.Read()
	if err != nil {
		return Result{}, err
	}
	start := time.Now()
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return Result{}, fmt.Errorf("making the consumer: %w", err)
	}
	defer cl.Close()
	t := newTally(o)
	if err := t.consume(ctx, cl); err != nil {
		return Result{}, err
	}
	res := Result{Records: t.records, Bytes: t.bytes, Seconds: time.Since(start).Seconds()}
	if o.Digest {
		res.Digest = t.digest()
	}
	if res.Client, err = usage.Since(before); err != nil {
		return Result{}, err
	}
	return res, nil
}

// tally counts and digests, partition by partition: the digest is independent of how partitions interleave.
type tally struct {
	o              Options
	left           int // partitions not yet at their end
	parts          map[int32]*partition
	records, bytes int64
	start          time.Time
}

type partition struct {
	until, next int64
	sum         *xxhash.Digest
	done        bool
}

func newTally(o Options) *tally {
	t := &tally{o: o, start: time.Now(), parts: make(map[int32]*partition, len(o.Until))}
	for p, until := range o.Until {
		t.parts[p] = &partition{until: until, next: -1, sum: xxhash.New(), done: until == 0}
		if until > 0 {
			t.left++
		}
	}
	return t
}

func (t *tally) consume(ctx context.Context, cl *kgo.Client) error {
	for t.left > 0 {
		poll, cancel := context.WithTimeout(ctx, t.o.Stall)
		fetches := cl.PollFetches(poll)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		var failed error
		fetches.EachError(func(topic string, p int32, err error) {
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%w for %v", ErrStalled, t.o.Stall)
			}
			failed = errors.Join(failed, fmt.Errorf("reading %s-%d: %w", topic, p, err))
		})
		if failed != nil {
			return failed
		}
		for it := fetches.RecordIter(); !it.Done(); {
			if err := t.add(it.Next()); err != nil {
				return err
			}
		}
		if t.o.Progress != nil {
			t.o.Progress(t.bytes)
		}
		if err := t.pace(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pace waits until what was read is due.
func (t *tally) pace(ctx context.Context) error {
	if t.o.Pace <= 0 {
		return nil
	}
	due := t.start.Add(time.Duration(float64(t.bytes) / float64(t.o.Pace) * float64(time.Second)))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *tally) add(r *kgo.Record) error {
	p := t.parts[r.Partition]
	if p == nil || p.done {
		return nil
	}
	if r.Offset < p.next {
		return fmt.Errorf("reading %s-%d: offset %d came after %d", r.Topic, r.Partition, r.Offset, p.next-1)
	}
	p.next = r.Offset + 1
	if r.Offset < p.until {
		t.records++
		t.bytes += int64(len(r.Key) + len(r.Value))
		if t.o.Digest {
			p.add(r)
		}
	}
	if p.next >= p.until {
		p.done = true
		t.left--
	}
	return nil
}

func (p *partition) add(r *kgo.Record) {
	var h [24]byte
	binary.BigEndian.PutUint64(h[:], uint64(r.Offset))
	binary.BigEndian.PutUint64(h[8:], uint64(length(r.Key)))
	binary.BigEndian.PutUint64(h[16:], uint64(length(r.Value)))
	p.sum.Write(h[:])
	p.sum.Write(r.Key)
	p.sum.Write(r.Value)
}

// length tells null from empty.
func length(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

func (t *tally) digest() string {
	all := xxhash.New()
	var b [12]byte
	for p := int32(0); len(t.parts) > 0; p++ {
		part, ok := t.parts[p]
		if !ok {
			continue
		}
		delete(t.parts, p)
		binary.BigEndian.PutUint32(b[:], uint32(p))
		binary.BigEndian.PutUint64(b[4:], part.sum.Sum64())
		all.Write(b[:])
	}
	return fmt.Sprintf("%016x", all.Sum64())
}

// LocalStart asks where a topic's local log begins, per partition: everything below is only in the object store.
func LocalStart(ctx context.Context, cl *kgo.Client, topic string, partitions int) (map[int32]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for p := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition = int32(p)
		rp.Timestamp = -4 // earliest local, KIP-405
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("asking for the local log start of %s: %w", topic, err)
	}
	out := make(map[int32]int64, partitions)
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("asking for the local log start of %s-%d: %w", topic, p.Partition, err)
			}
			out[p.Partition] = p.Offset
		}
	}
	return out, nil
}
