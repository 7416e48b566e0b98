package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// shadows bounds shadow mode: one comparison at a time, so that it costs the brokers one remote read at a time and the gateway two answers' memory.
type shadows struct{ busy atomic.Bool }

const (
	maxShadow     = 16 << 20 // larger answers are not compared
	shadowTimeout = 30 * time.Second
)

// shadow compares some of the answers out of the store with what the broker itself gives for them. The broker is asked on the client's own connection, so with the client's own
// rights and quota; the client's next requests come behind that, which is the price of the mode.
func (c *conn) shadow(req wire.RequestHeader, a *clientconn.Answer) {
	n := c.g.policy.Load().ShadowPerMillion
	if n <= 0 || a.Stream != nil || rand.IntN(1_000_000) >= n {
		return
	}
	size := 0
	for _, b := range a.Frame {
		size += len(b)
	}
	if size > maxShadow || !c.g.shadows.busy.CompareAndSwap(false, true) {
		c.g.metrics.shadowed.WithLabelValues("skipped").Inc()
		return
	}
	frame := slices.Concat(a.Frame...)
	c.tasks.Go(func() {
		defer c.g.shadows.busy.Store(false)
		ctx, cancel := context.WithTimeout(c.ctx, shadowTimeout)
		defer cancel()
		c.compare(ctx, req, frame)
	})
}

func (c *conn) compare(ctx context.Context, req wire.RequestHeader, frame []byte) {
	result := "same"
	err := c.compareAll(ctx, req, frame)
	var d *difference
	switch {
	case errors.As(err, &d):
		result = "different"
		c.g.log.Error("shadow mode: the store and the broker differ", "topic", d.topic, "partition", d.partition, "offset", d.offset, "what", d.what, "principal", c.who.name())
	case errors.Is(err, clientconn.ErrClosed):
		result = "skipped" // the client has gone, or its broker: nobody is in doubt of what it was given
	case err != nil:
		result = "not-compared"
		c.g.log.Warn("shadow mode: the broker did not give what to compare with", "err", err)
	}
	c.g.metrics.shadowed.WithLabelValues(result).Inc()
}

// difference is what shadow mode looks for.
type difference struct {
	topic     string
	partition int32
	offset    int64
	what      string
}

func (d *difference) Error() string {
	return fmt.Sprintf("%s/%d at %d: %s", d.topic, d.partition, d.offset, d.what)
}

func (c *conn) compareAll(ctx context.Context, req wire.RequestHeader, frame []byte) error {
	r, err := decode(req)
	if err != nil {
		return err
	}
	asked := r.(*kmsg.FetchRequest)
	_, body, err := wire.ResponseBody(frame[4:], keyFetch, req.Version)
	if err != nil {
		return err
	}
	ours := kmsg.NewFetchResponse()
	ours.Version = req.Version
	if err := ours.ReadFrom(body); err != nil {
		return err
	}
	for i := range ours.Topics {
		t := &ours.Topics[i]
		for j := range t.Partitions {
			if err := c.comparePartition(ctx, asked, t, &t.Partitions[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *conn) comparePartition(ctx context.Context, asked *kmsg.FetchRequest, t *kmsg.FetchResponseTopic, ours *kmsg.FetchResponseTopicPartition) error {
	if ours.ErrorCode != 0 || len(ours.RecordBatches) < batch.HeaderSize {
		return nil
	}
	first, err := batch.ParseHeader(ours.RecordBatches)
	if err != nil {
		return err
	}
	resp, err := c.carrier.Request(ctx, shadowRequest(asked, t, ours, &first))
	if err != nil {
		return err
	}
	theirs := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(theirs.ErrorCode); err != nil {
		return err
	}
	answered := false
	for i := range theirs.Topics {
		for j := range theirs.Topics[i].Partitions {
			answered = true
			p := &theirs.Topics[i].Partitions[j]
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("the broker answers: %w", err)
			}
			if what, at := differ(ours, p, asked.IsolationLevel == 1); what != "" {
				name := t.Topic
				if name == "" {
					name = fmt.Sprintf("%x", t.TopicID)
				}
				return &difference{name, ours.Partition, at, what}
			}
		}
	}
	if !answered {
		return errMute
	}
	return nil
}

var errMute = errors.New("the broker says nothing of the partition")

// shadowRequest asks for the same records once more. It begins with the first batch's last offset: the batch's beginning may lie before the log start.
func shadowRequest(asked *kmsg.FetchRequest, t *kmsg.FetchResponseTopic, ours *kmsg.FetchResponseTopicPartition, first *batch.Header) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = asked.Version
	req.MinBytes, req.MaxBytes, req.IsolationLevel, req.SessionEpoch = 1, int32(len(ours.RecordBatches)), asked.IsolationLevel, -1
	topic, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	topic.Topic, topic.TopicID = t.Topic, t.TopicID
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = ours.Partition, first.LastOffset(), int32(len(ours.RecordBatches))
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	return req
}

// differ compares what both have: the whole batches from the first on, and, for a committed reader, which of them it would be shown. "": no difference.
func differ(ours, theirs *kmsg.FetchResponseTopicPartition, committed bool) (what string, at int64) {
	a, b := split(ours.RecordBatches), split(theirs.RecordBatches)
	if len(b) == 0 {
		return "the broker gives no batch", offsetOf(a)
	}
	n := min(len(a), len(b))
	for i := range n {
		if !bytes.Equal(a[i].raw, b[i].raw) {
			return fmt.Sprintf("batch %d to %d is %d to %d on the broker, or of other bytes", a[i].h.BaseOffset, a[i].h.LastOffset(), b[i].h.BaseOffset, b[i].h.LastOffset()), a[i].h.BaseOffset
		}
	}
	if !committed {
		return "", 0
	}
	mine, his := hidden(a[:n], ours.AbortedTransactions), hidden(b[:n], theirs.AbortedTransactions)
	for i := range n {
		if mine[i] != his[i] {
			return "the lists of aborted transactions hide different batches", a[i].h.BaseOffset
		}
	}
	return "", 0
}

type shadowBatch struct {
	h   batch.Header
	raw []byte
}

func offsetOf(b []shadowBatch) int64 {
	if len(b) == 0 {
		return -1
	}
	return b[0].h.BaseOffset
}

func split(b []byte) (all []shadowBatch) {
	// What is cut off at the end is compared with the answer that has it whole.
	_, _ = batch.Each(b, func(h batch.Header, raw []byte) error {
		all = append(all, shadowBatch{h, raw})
		return nil
	})
	return all
}

// hidden tells which batches a committed reader does not show, in the way in which Kafka's consumers do it.
func hidden(batches []shadowBatch, aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction) []bool {
	open, out := make(map[int64]bool), make([]bool, len(batches))
	rest := slices.SortedFunc(slices.Values(aborted), func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return int(a.FirstOffset - b.FirstOffset)
	})
	for i := range batches {
		h := &batches[i].h
		for len(rest) > 0 && rest[0].FirstOffset <= h.LastOffset() {
			open[rest[0].ProducerID] = true
			rest = rest[1:]
		}
		switch {
		case h.IsControl():
			if aborts(h, batches[i].raw) {
				delete(open, h.ProducerID)
			}
		case h.IsTransactional():
			out[i] = open[h.ProducerID]
		}
	}
	return out
}

func aborts(h *batch.Header, raw []byte) (yes bool) {
	// A marker that cannot be read is none, on both sides.
	_ = batch.EachRecord(batch.Payload(raw), h.NumRecords, func(r *batch.Record) error {
		kind, _, err := batch.ParseControl(r)
		yes = err == nil && kind == batch.ControlAbort
		return nil
	})
	return yes
}
