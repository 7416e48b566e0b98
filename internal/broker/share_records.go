package broker

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/sharepart"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// shareSpans are the whole batches of what was read, and those of them that belong to aborted transactions.
func shareSpans(raw []byte, aborted []wire.AbortedTransaction) (batches, gone []sharepart.Span) {
	aborted = slices.SortedFunc(slices.Values(aborted), func(a, b wire.AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	open := map[int64]bool{} // producers in an aborted transaction
	// What was checked when it was written, or when it came from the store, can be walked; the rest of a damaged answer is left out.
	_, _ = batch.Each(raw, func(h batch.Header, b []byte) error {
		s := sharepart.Span{First: h.BaseOffset, Last: h.LastOffset()}
		batches = append(batches, s)
		if h.ProducerID < 0 {
			return nil
		}
		for len(aborted) > 0 && aborted[0].FirstOffset <= s.Last {
			open[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		switch {
		case h.IsControl():
			if isAbort(&h, b) {
				delete(open, h.ProducerID)
			}
		case h.IsTransactional() && open[h.ProducerID]:
			gone = append(gone, s)
		}
		return nil
	})
	return batches, gone
}

// isAbort tells whether a control batch is the marker of an aborted transaction.
func isAbort(h *batch.Header, raw []byte) (abort bool) {
	err := recordsOf(h, raw, func(key, _ []byte) error {
		abort = len(key) >= 4 && binary.BigEndian.Uint16(key[2:]) == batch.ControlAbort
		return nil
	})
	return abort && err == nil
}

// shareSlice cuts the batches without an acquired record off, before and behind.
func shareSlice(raw []byte, batches []sharepart.Span, acquired []sharepart.Delivery) []byte {
	if len(acquired) == 0 {
		return []byte{}
	}
	first, last := acquired[0].First, acquired[len(acquired)-1].Last
	from, to, at, i := 0, 0, 0, 0
	_, _ = batch.Each(raw, func(_ batch.Header, b []byte) error {
		switch s := batches[i]; {
		case s.Last < first:
			from = at + len(b)
		case s.First <= last:
			to = at + len(b)
		}
		at += len(b)
		i++
		return nil
	})
	return raw[from:max(from, to)]
}
