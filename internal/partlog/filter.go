package partlog

import (
	"fmt"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// filter decides what a compaction keeps, batch by batch.
type filter struct {
	latest   *offsetMap
	aborted  map[int64][]segment.AbortedTxn // by producer
	last     map[int64]int64                // each producer's last batch, by its last offset: it keeps its header for ever
	marked   map[int64]int16                // producers that nothing is known of but a marker, and its epoch: it stays for ever
	open     map[int64]bool                 // producers with a transactional batch that stays, whose marker is still to come
	nowMs    int64
	horizon  int64 // what tombstones that are seen for the first time get
	decoder  codec.Decoder
	payload  []byte
	rebuilt  []byte
	out      []byte
	endOfRun int64 // the last offset of the group: that batch keeps its header too
}

// apply gives what is to be written for a batch: the batch itself, a smaller one, or nothing. What it gives is good until the next call.
//
// Offsets never change: a batch keeps its base and its last offset whatever goes from it. If all records go, the batch goes too, unless it is a
// producer's last one (its sequence must be known for the next retry) or the group's last one (which says where the group ends).
func (f *filter) apply(h *batch.Header, raw []byte) ([]byte, error) {
	if h.IsControl() {
		return f.control(h, raw)
	}
	kept, err := f.data(h, raw)
	if kept != nil && h.IsTransactional() {
		f.open[h.ProducerID] = true // its header alone begins the transaction for whoever reads the log anew
	}
	return kept, err
}

// control: a marker stays as long as anything is there of the transaction that it ends, and then as long as a tombstone does, for a reader that is in the
// middle of it. Control batches of other kinds stay.
func (f *filter) control(h *batch.Header, raw []byte) ([]byte, error) {
	epoch, only := f.marked[h.ProducerID]
	open := f.open[h.ProducerID]
	delete(f.open, h.ProducerID)
	switch {
	case !h.IsTransactional(), open, only && epoch == h.ProducerEpoch:
		return raw, nil
	case h.NumRecords == 0:
		if f.mustKeep(h) {
			return raw, nil
		}
		return nil, nil
	case !h.HasDeleteHorizon():
		return f.withHorizon(h, raw)
	case f.nowMs < h.BaseTimestamp:
		return raw, nil
	}
	return f.emptied(h), nil
}

// withHorizon writes all of a batch anew with a delete horizon.
func (f *filter) withHorizon(h *batch.Header, raw []byte) ([]byte, error) {
	n := *h
	n.Attributes |= batch.DeleteHorizonFlag
	n.BaseTimestamp = f.horizon
	f.rebuilt = f.rebuilt[:0]
	err := batch.EachRecord(batch.Payload(raw), h.NumRecords, func(r *batch.Record) error {
		f.rebuilt = batch.AppendRecord(f.rebuilt, r, r.Attributes, h.BaseTimestamp+r.TimestampDelta-n.BaseTimestamp, r.OffsetDelta)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("control batch at offset %d: %w", h.BaseOffset, err)
	}
	f.out = batch.AppendHeader(f.out[:0], &n, f.rebuilt)
	return f.out, nil
}

func (f *filter) data(h *batch.Header, raw []byte) ([]byte, error) {
	if h.NumRecords == 0 && f.mustKeep(h) {
		return raw, nil
	}
	if h.NumRecords == 0 || f.isAborted(h) {
		return f.emptied(h), nil
	}
	records, err := f.decoder.Decode(f.payload[:0], h.Codec(), batch.Payload(raw), maxDecoded)
	if err != nil {
		return nil, fmt.Errorf("opening the batch at offset %d: %w", h.BaseOffset, err)
	}
	if h.Codec() != codec.None {
		f.payload = records
	}
	kept, tombstones, err := f.count(h, records)
	switch {
	case err != nil:
		return nil, fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
	case kept == 0:
		return f.emptied(h), nil
	case kept == h.NumRecords && (!tombstones || h.HasDeleteHorizon()):
		return raw, nil
	}
	return f.rebuild(h, records, kept, tombstones)
}

func (f *filter) mustKeep(h *batch.Header) bool {
	last, ok := f.last[h.ProducerID]
	return h.ProducerID >= 0 && ok && last == h.LastOffset() || h.LastOffset() == f.endOfRun
}

// emptied is a batch without its records: nothing, or its header.
func (f *filter) emptied(h *batch.Header) []byte {
	if !f.mustKeep(h) {
		return nil
	}
	e := *h
	e.NumRecords, e.Attributes = 0, h.Attributes&^(batch.CodecMask|batch.DeleteHorizonFlag)
	if h.HasDeleteHorizon() {
		e.BaseTimestamp = h.MaxTimestamp
	}
	f.out = batch.AppendHeader(f.out[:0], &e, nil)
	return f.out
}

func (f *filter) isAborted(h *batch.Header) bool {
	if !h.IsTransactional() {
		return false
	}
	for _, a := range f.aborted[h.ProducerID] {
		if a.FirstOffset <= h.BaseOffset && h.LastOffset() <= a.LastOffset {
			return true
		}
	}
	return false
}

// keeps: a record goes if a later one has its key, if it has no key, or if it is a tombstone whose time is over (KIP-534: delete.retention.ms after the
// first compaction that saw it).
func (f *filter) keeps(h *batch.Header, r *batch.Record) bool {
	if r.Key == nil || f.latest.latest(r.Key) > h.BaseOffset+int64(r.OffsetDelta) {
		return false
	}
	return r.Value != nil || !h.HasDeleteHorizon() || f.nowMs < h.BaseTimestamp
}

func (f *filter) count(h *batch.Header, records []byte) (kept int32, tombstones bool, err error) {
	err = batch.EachRecord(records, h.NumRecords, func(r *batch.Record) error {
		if f.keeps(h, r) {
			kept++
			tombstones = tombstones || r.Value == nil
		}
		return nil
	})
	return kept, tombstones, err
}

// rebuild writes the batch anew with the records that stay. With tombstones among them it gets a delete horizon, which takes the base timestamp's
// place: the records' times are then written relative to it.
func (f *filter) rebuild(h *batch.Header, records []byte, kept int32, tombstones bool) ([]byte, error) {
	n := *h
	n.NumRecords = kept
	if tombstones && !h.HasDeleteHorizon() {
		n.Attributes |= batch.DeleteHorizonFlag
		n.BaseTimestamp = f.horizon
	}
	largest := int64(segment.NoTimestamp)
	f.rebuilt = f.rebuilt[:0]
	err := batch.EachRecord(records, h.NumRecords, func(r *batch.Record) error {
		if !f.keeps(h, r) {
			return nil
		}
		ts := h.BaseTimestamp + r.TimestampDelta
		largest = max(largest, ts)
		f.rebuilt = batch.AppendRecord(f.rebuilt, r, r.Attributes, ts-n.BaseTimestamp, r.OffsetDelta)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !h.IsLogAppendTime() {
		n.MaxTimestamp = largest
	}
	payload, err := codec.Encode(nil, h.Codec(), f.rebuilt)
	if err != nil {
		return nil, fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
	}
	f.out = batch.AppendHeader(f.out[:0], &n, payload)
	return f.out, nil
}
