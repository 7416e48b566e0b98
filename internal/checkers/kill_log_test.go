package checkers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
)

const (
	logTopic      = "linear"
	logPartitions = 2
	offsetGroup   = "linear-group"
)

// raw asks one broker, each request once: who is not answered does not know whether it was done.
type raw struct {
	t    *testing.T
	addr string
	c    *kgo.Client
}

func newRaw(t *testing.T, addr string) *raw {
	t.Helper()
	r := &raw{t: t, addr: addr}
	r.again()
	t.Cleanup(func() { r.c.Close() })
	return r
}

func (r *raw) again() {
	if r.c != nil {
		r.c.Close()
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(r.addr), kgo.DialTimeout(2*time.Second), kgo.RetryTimeout(0), kgo.RequestRetries(0))
	if err != nil {
		r.t.Error(err)
		return
	}
	r.c = c
}

// answerLimit is for one request: longer than a broker takes to come back.
const answerLimit = 60 * time.Second

var errNotThere = errors.New("nobody listens there")

// ask sends a request once.
func (r *raw) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return r.c.SeedBrokers()[0].Request(ctx, req)
}

// oneRecord is a batch with one record, whose value is the number.
func oneRecord(value int64) []byte {
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, FirstTimestamp: time.Now().UnixMilli(), MaxTimestamp: time.Now().UnixMilli(), ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1}
	rec := kmsg.Record{Value: binary.BigEndian.AppendUint64(nil, uint64(value))}
	rec.Length = int32(len(rec.AppendTo(nil)) - 1)
	b.Records = rec.AppendTo(nil)
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-12))
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// values of the batches in an answer, one a batch; each is as long as its batch is.
func values(b []byte) (all []int64, first int64, err error) {
	first = -1
	_, err = batch.Each(b, func(h batch.Header, raw []byte) error {
		if first < 0 {
			first = h.BaseOffset
		}
		// The value is the last field but the count of headers, which is zero.
		all = append(all, int64(binary.BigEndian.Uint64(raw[len(raw)-9:])))
		return nil
	})
	return all, first, err
}

func (r *raw) produce(ctx context.Context, id [16]byte, partition int32, value int64) (int64, error) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: logTopic, TopicID: id, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: oneRecord(value)}}}}
	resp, err := r.ask(ctx, req)
	if err != nil {
		return 0, err
	}
	p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
}

func (r *raw) offset(ctx context.Context, partition int32, ts int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, ts
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: logTopic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	resp, err := r.ask(ctx, req)
	if err != nil {
		return 0, err
	}
	out := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return out.Offset, kerr.ErrorForCode(out.ErrorCode)
}

// fetch gives the values from an offset on.
func (r *raw) fetch(ctx context.Context, id [16]byte, partition int32, from int64, bytes int32) ([]int64, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID = -1, -1
	req.MaxBytes, req.SessionEpoch = bytes, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LogStartOffset = partition, from, bytes, -1, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = logTopic, id, []kmsg.FetchRequestTopicPartition{p}
	req.Topics = append(req.Topics, t)
	resp, err := r.ask(ctx, req)
	if err != nil {
		return nil, err
	}
	f := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(f.ErrorCode); err != nil {
		return nil, err
	}
	out := f.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(out.ErrorCode); err != nil {
		return nil, err
	}
	all, first, err := values(out.RecordBatches)
	if err == nil && len(all) > 0 && first != from {
		err = fmt.Errorf("a fetch from offset %d begins at %d", from, first)
	}
	return all, err
}

// refused: the broker has said no, so that nothing was done. Otherwise nobody knows.
func refused(err error) bool {
	var e *kerr.Error
	if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
		return true // it was never sent
	}
	return errors.As(err, &e) && !errors.Is(err, kerr.RequestTimedOut) && !errors.Is(err, kerr.NotEnoughReplicasAfterAppend)
}

// startLog has clients produce, ask for the log's end and start, and fetch. What they were told is linearisable.
func startLog(t *testing.T, v victim) (judge func(t *testing.T)) {
	t.Helper()
	id := createTopic(t, v, logTopic, logPartitions)
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	var histories [logPartitions]*recorder
	for p := range int32(logPartitions) {
		h := newRecorder()
		histories[p] = h
		var ends, next atomic.Int64
		for n := range 3 {
			clients.Go(func() { produceOn(ctx, newRaw(t, v.address()), h, n, id, p, &next, &ends) })
			clients.Go(func() { askOn(ctx, newRaw(t, v.address()), h, 3+n, id, p, &ends) })
		}
	}
	t.Cleanup(clients.Wait)
	t.Cleanup(cancel)
	return func(t *testing.T) {
		cancel()
		clients.Wait()
		for p, h := range histories {
			final := finalLog(t, newRaw(t, v.address()), id, int32(p))
			if err := checkLog(h.ops, final); err != nil {
				t.Errorf("partition %d: %v", p, err)
			}
			lost := 0
			for _, o := range h.ops {
				if o.Return == forever {
					lost++
				}
			}
			t.Logf("partition %d: %d operations, %d of them never answered, %d records", p, len(h.ops), lost, len(final))
			if len(final) == 0 || lost == 0 {
				t.Error("the load was none")
			}
		}
	}
}

// pause between the operations of one client, so that a history does not grow beyond what can be judged.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func produceOn(ctx context.Context, r *raw, h *recorder, client int, id [16]byte, partition int32, next, ends *atomic.Int64) {
	for ctx.Err() == nil {
		a := ask{"produce", 1000*(next.Add(1)) + int64(client)}
		call := h.now()
		at, err := r.produce(context.WithoutCancel(ctx), id, partition, a.value)
		switch {
		case err == nil:
			h.add(client, call, a, told{n: at})
			ends.Store(max(at, ends.Load()))
		case refused(err):
			pause(ctx, 20*time.Millisecond)
		default:
			h.lost(client, call, a)
			pause(ctx, 50*time.Millisecond)
		}
		pause(ctx, 8*time.Millisecond)
	}
}

func askOn(ctx context.Context, r *raw, h *recorder, client int, id [16]byte, partition int32, ends *atomic.Int64) {
	for n := 0; ctx.Err() == nil; n++ {
		call := h.now()
		var a ask
		var got told
		var err error
		switch n % 4 {
		case 0, 2:
			a = ask{kind: "end"}
			got.n, err = r.offset(ctx, partition, -1)
		case 1:
			a = ask{"fetch", ends.Load() + int64(n/4%3) - 1}
			if a.value < 0 {
				continue
			}
			var list []int64
			list, err = r.fetch(ctx, id, partition, a.value, 1)
			if len(list) > 0 {
				got.n = list[0]
			} else {
				got.none = true
			}
			if errors.Is(err, kerr.OffsetOutOfRange) { // beyond the end, which a fetch at the end is not
				got.none, err = true, nil
			}
		case 3:
			a = ask{kind: "start"}
			got.n, err = r.offset(ctx, partition, -2)
		}
		if err == nil {
			h.add(client, call, a, got)
		} else {
			pause(ctx, 20*time.Millisecond)
		}
		pause(ctx, 4*time.Millisecond)
	}
}

// finalLog reads everything.
func finalLog(t *testing.T, r *raw, id [16]byte, partition int32) (all []int64) {
	t.Helper()
	end, err := r.offset(t.Context(), partition, -1)
	for err == nil && int64(len(all)) < end {
		var more []int64
		if more, err = r.fetch(t.Context(), id, partition, int64(len(all)), 1<<20); len(more) == 0 && err == nil {
			err = fmt.Errorf("nothing at offset %d of %d", len(all), end)
		}
		all = append(all, more...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func createTopic(t *testing.T, v victim, topic string, partitions int32) [16]byte {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(v.address()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := kadm.NewClient(c).CreateTopic(t.Context(), partitions, 1, nil, topic)
	if err != nil {
		t.Fatal(err)
	}
	awaitServed(t, v, topic, partitions)
	return r.ID
}

func awaitServed(t *testing.T, v victim, topic string, partitions int32) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(v.address()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for end := time.Now().Add(time.Minute); ; pause(t.Context(), 20*time.Millisecond) {
		l, err := kadm.NewClient(c).ListEndOffsets(t.Context(), topic)
		if err == nil && l.Error() == nil && len(l[topic]) == int(partitions) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waiting for %s: %v %v", topic, err, l)
		}
	}
}
