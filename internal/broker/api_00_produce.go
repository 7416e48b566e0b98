package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/quota"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// Produce, versions 3 to 13. acks=all is answered after the records are on stable storage (acks.all.sync), acks=1 after they are in the page cache. While
// one request waits for the disk, those behind it on the connection are appended already, so that one sync serves them all. Internal topics are refused
// with INVALID_TOPIC_EXCEPTION. For transactional batches see produce_transactional.go.

const (
	acksAll    = -1
	acksNone   = 0
	acksLeader = 1

	codecZstd            = 4
	firstProduceWithZstd = 7
)

func (b *Broker) handleProduce(ctx context.Context, c *conn, req *kmsg.ProduceRequest) (reply, error) {
	resp := kmsg.NewPtrProduceResponse()
	r := &produced{Response: resp, timeout: time.Duration(max(req.TimeoutMillis, 0)) * time.Millisecond}
	sync := req.Acks == acksAll && b.config().AcksAllSync
	failed := refuseCorrupt(resp, req)
	if failed != nil && req.Acks == acksNone {
		return nil, fmt.Errorf("acks=0: %w", failed)
	} else if failed != nil {
		return r, nil
	}
	denied := hasTransactional(req) && (req.TransactionID == nil || !b.allowedTransaction(c, acl.Write, *req.TransactionID))
	if !denied {
		b.joinAll(ctx, c, req)
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewProduceResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		out.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p, info, err := b.produce(ctx, c, req, denied, t, &t.Partitions[j], &out.Partitions[j])
			if err != nil && failed == nil {
				failed = err
			}
			if err == nil && sync {
				r.waits = append(r.waits, wait{&out.Partitions[j], p.log, info.LastOffset + 1})
			}
		}
		if len(out.Partitions) > 0 {
			resp.Topics = append(resp.Topics, out)
		}
	}
	c.charge(quota.Produce, float64(c.size))
	if req.Acks != acksNone {
		return r, nil
	}
	if failed != nil {
		return nil, fmt.Errorf("acks=0: %w", failed) // there is no other way to tell the producer
	}
	return nil, nil
}

// refuseCorrupt refuses the whole request where the records of one partition are no batch at all, as Apache Kafka does: it looks through all of them first.
func refuseCorrupt(resp *kmsg.ProduceResponse, req *kmsg.ProduceRequest) (corrupt error) {
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			if code, err := checkFraming(req.Topics[i].Partitions[j].Records); code == errCorruptMessage {
				corrupt = err
			}
		}
	}
	if corrupt == nil {
		return nil
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewProduceResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		for j := range t.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.BaseOffset, p.LogAppendTime, p.LogStartOffset = t.Partitions[j].Partition, -1, -1, -1
			p.ErrorCode, p.ErrorMessage = errCorruptMessage, kmsg.StringPtr(corrupt.Error())
			out.Partitions = append(out.Partitions, p)
		}
		if len(out.Partitions) > 0 {
			resp.Topics = append(resp.Topics, out)
		}
	}
	return corrupt
}

func (b *Broker) produce(ctx context.Context, c *conn, req *kmsg.ProduceRequest, denied bool, t *kmsg.ProduceRequestTopic, in *kmsg.ProduceRequestTopicPartition, out *kmsg.ProduceResponseTopicPartition) (*partition, partlog.AppendInfo, error) {
	out.Default()
	out.Partition, out.BaseOffset, out.LogAppendTime, out.LogStartOffset = in.Partition, -1, -1, -1
	fail := func(code int16, err error) (*partition, partlog.AppendInfo, error) {
		out.ErrorCode, out.ErrorMessage = code, kmsg.StringPtr(err.Error())
		return nil, partlog.AppendInfo{}, err
	}
	p, code := b.resolvePartition(c, acl.Write, req.Version >= 13, t.Topic, t.TopicID, in.Partition)
	switch code {
	case errNone:
	case errTopicAuthorization:
		return fail(code, errors.New(topicDenied))
	default:
		return fail(code, errors.New("no such topic or partition"))
	}
	if denied {
		return fail(errTransactionalIDDenied, errTxnDenied)
	}
	if code, err := checkProduce(req, p, in.Records); err != nil {
		return fail(code, err)
	}
	if size, err := batch.PeekSize(in.Records); err == nil {
		in.Records = in.Records[:size] // what is behind it is no whole batch, and counts for nothing
	}
	if code, err := checkHeader(in.Records); err != nil {
		out.LogStartOffset = p.log.Offsets().LogStart
		return fail(code, err)
	}
	info, err := b.appendProduced(ctx, req, p, in.Records)
	if err != nil {
		if errors.Is(err, partlog.ErrStorage) {
			b.log.Error("appending", "partition", p.tp.String(), "err", err)
		}
		code := produceCode(err, req.Version)
		if !errors.As(err, new(verificationError)) && code != errCorruptMessage && code != errMessageTooLarge && code != errRecordListTooLarge && code != errStorage {
			out.LogStartOffset = p.log.Offsets().LogStart
		}
		if refused := new(partlog.RecordsError); errors.As(err, &refused) {
			out.ErrorRecords = errorRecords(refused)
		}
		return fail(code, err)
	}
	b.metrics.produced(len(in.Records))
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = info.BaseOffset, info.LogAppendTimeMs, info.LogStartOffset
	if h, err := batch.ParseHeader(in.Records); err == nil && info.Duplicate && info.LogAppendTimeMs < 0 {
		out.LogAppendTime = h.MaxTimestamp // as Apache Kafka has it
	}
	return p, info, nil
}

// errorRecords tells a producer which of its records are at fault, so that it can send the others again.
func errorRecords(refused *partlog.RecordsError) []kmsg.ProduceResponseTopicPartitionErrorRecord {
	out := make([]kmsg.ProduceResponseTopicPartitionErrorRecord, len(refused.Records))
	for i := range out {
		out[i].RelativeOffset, out[i].ErrorMessage = refused.Records[i].Index, &refused.Records[i].Reason
	}
	return out
}

// checkProduce looks at what the log does not know of.
func checkProduce(req *kmsg.ProduceRequest, p *partition, records []byte) (int16, error) {
	switch {
	case p.internal:
		return errInvalidTopic, fmt.Errorf("%s is internal", p.tp.Topic)
	case len(records) == 0:
		return errInvalidRecord, errors.New("no records for the partition")
	}
	if code, err := checkFraming(records); err != nil {
		return code, err
	}
	// What else is wrong with a batch the log says.
	if h, err := batch.ParseHeader(records); err == nil && h.Codec() == codecZstd && req.Version < firstProduceWithZstd {
		return errUnsupportedCompression, fmt.Errorf("zstd needs Produce version %d", firstProduceWithZstd)
	}
	if req.Acks != acksAll && req.Acks != acksNone && req.Acks != acksLeader {
		return errInvalidRequiredAcks, fmt.Errorf("acks %d, -1, 0 and 1 are known", req.Acks)
	}
	return errNone, nil
}

// checkFraming tells what is no batch at all from one that came to harm: the latter is sent again, the former would be as wrong then.
func checkFraming(records []byte) (int16, error) {
	const upToMagic = 17
	size, err := batch.PeekSize(records)
	switch {
	case errors.Is(err, batch.ErrShort), err == nil && len(records) < upToMagic:
		return errInvalidRecord, errors.New("no whole batch for the partition")
	case err != nil:
		return errCorruptMessage, err
	}
	switch magic := int8(records[upToMagic-1]); {
	case magic < 0 || magic > 2:
		return errCorruptMessage, fmt.Errorf("magic %d", magic)
	case len(records) < size:
		return errInvalidRecord, errors.New("no whole batch for the partition")
	case magic != 2:
		return errInvalidRecord, fmt.Errorf("magic %d, 2 is allowed", magic)
	}
	if next, err := batch.PeekSize(records[size:]); err == nil && next <= len(records)-size {
		return errInvalidRecord, errors.New("several batches for one partition, one is allowed")
	}
	return errNone, nil
}

// checkHeader looks for what a producer must not say, in a batch whose bytes are as they were sent.
func checkHeader(records []byte) (int16, error) {
	h, err := batch.ParseHeader(records)
	switch {
	case h.ProducerID >= 0 && h.ProducerEpoch < 0 && batch.CheckCRC(&h, records) == nil:
		return errInvalidProducerEpoch, fmt.Errorf("producer %d has epoch %d", h.ProducerID, h.ProducerEpoch)
	case err != nil && batch.CheckCRC(&h, records) == nil:
		return errInvalidRecord, err
	case err == nil && h.BaseOffset != 0:
		return errInvalidRecord, fmt.Errorf("base offset %d, a producer's is 0", h.BaseOffset)
	}
	return errNone, nil
}

// resolvePartition finds a partition by its topic's name or, where the request's version says so, id, for a client that may do the operation. Whether there is
// a topic of that name is told to those only.
func (b *Broker) resolvePartition(c *conn, op acl.Operation, byID bool, name string, id [16]byte, n int32) (*partition, int16) {
	name, code := b.topicName(byID, name, id)
	if code != errNone {
		return nil, code
	}
	if !b.allowedTopic(c, op, name) {
		return nil, errTopicAuthorization
	}
	return b.existing(byID, name, id, n)
}

// topicName is the name of the topic that a request names one way or the other.
func (b *Broker) topicName(byID bool, name string, id [16]byte) (string, int16) {
	if !byID {
		return name, errNone
	}
	t, ok := b.topics.ByID(id)
	if !ok {
		return "", errUnknownTopicID
	}
	return t.Name, errNone
}

// existing finds a partition by the name that its topic had when that was looked up, or that the request gives. A topic that was asked for by its id may be gone since, and
// another one have its name.
func (b *Broker) existing(byID bool, topic string, id [16]byte, n int32) (*partition, int16) {
	switch p := b.partition(topic, n); {
	case p == nil:
		return nil, errUnknownTopicOrPartition
	case byID && p.tp.TopicID != id:
		return nil, errUnknownTopicID
	default:
		return p, errNone
	}
}

// produced is a produce answer that may still have to wait for the disk.
type produced struct {
	kmsg.Response
	timeout time.Duration
	waits   []wait
}

type wait struct {
	out *kmsg.ProduceResponseTopicPartition
	log *partlog.Log
	end int64
}

func (r *produced) buffers(ctx context.Context, version int16, correlationID int32) (net.Buffers, error) {
	if len(r.waits) > 0 {
		r.sync(ctx)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	r.SetVersion(version)
	return net.Buffers{wire.AppendResponse(nil, r.Response, correlationID)}, nil
}

func (*produced) release() {}

// sync waits for all partitions at once: their syncs run beside each other.
func (r *produced) sync(ctx context.Context) {
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.timeout)
		defer cancel()
	}
	if len(r.waits) == 1 {
		r.waits[0].sync(ctx)
		return
	}
	var all sync.WaitGroup
	for i := range r.waits {
		all.Go(func() { r.waits[i].sync(ctx) })
	}
	all.Wait()
}

func (w *wait) sync(ctx context.Context) {
	err := w.log.Sync(ctx, w.end)
	if err == nil {
		return
	}
	w.out.ErrorCode, w.out.ErrorMessage = appendError(err), kmsg.StringPtr(err.Error())
	if errors.Is(err, context.DeadlineExceeded) {
		w.out.ErrorCode = errRequestTimedOut
	}
	w.out.BaseOffset, w.out.LogAppendTime, w.out.LogStartOffset = -1, -1, -1
}
