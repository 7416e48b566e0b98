package locate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/rewind-kafka/rewind/internal/producerstate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// aborted lists the aborted transactions that overlap [from, upTo), for a range that begins in h. A transaction begun in one segment is aborted by a marker
// that may stand in a later one, or in the local log: the search goes on until every transaction begun below upTo is decided. That is so
//   - once an entry was written when the last stable offset had passed upTo, or
//   - if the producer snapshot at a segment's end knows of no open transaction that began below upTo.
//
// Where neither holds at the end of the remote tier, and the local log cannot tell, upTo is lowered to where the first transaction that is open there begins: below that all is
// decided. ErrUndecided if nothing is left then.
//
// The list is never nil, without an entry twice, in order of first offsets. All of them overlap [from, decided).
func (r *Resolver) aborted(ctx context.Context, h holding, v View, from, upTo int64) (list []wire.AbortedTransaction, decided int64, err error) {
	found := abortedSet{from: from, upTo: upTo, seen: make(map[wire.AbortedTransaction]bool)}
	for {
		entries, err := r.txnIndex(ctx, &h.m)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range entries {
			// A marker outside the live part belongs to an abandoned history, or stands in the segment before as well.
			if e.LastOffset < h.at || e.LastOffset > h.last {
				continue
			}
			if found.add(e); e.LastStableOffset >= upTo {
				return found.list(upTo), upTo, nil
			}
		}
		if decided, err = r.decidedAtEnd(ctx, h); err != nil {
			return nil, 0, err
		}
		if decided >= upTo {
			return found.list(upTo), upTo, nil
		}
		next, ok, err := h.next()
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			entries, complete := v.LocalAborted(from, upTo)
			// A segment that left the local log beside that search was remote before it did: its markers are in neither, unless it is walked.
			if next, ok, err = h.next(); err != nil {
				return nil, 0, err
			}
			if !ok {
				return found.withLocal(h.m.TopicIDPartition, entries, complete, decided)
			}
		}
		h = next
	}
}

// withLocal is the result once all remote segments were walked, the last of which has decided all that begins below decided.
func (s *abortedSet) withLocal(tp remotestorage.TopicIDPartition, entries []segment.AbortedTxn, complete bool, decided int64) ([]wire.AbortedTransaction, int64, error) {
	for _, e := range entries {
		s.add(e)
	}
	switch {
	case complete:
		return s.list(s.upTo), s.upTo, nil
	case decided > s.from:
		return s.list(decided), decided, nil
	}
	return nil, 0, &remote.PlaceError{TopicIDPartition: tp, Offset: s.from, Err: ErrUndecided}
}

type abortedSet struct {
	from, upTo int64
	seen       map[wire.AbortedTransaction]bool
}

func (s *abortedSet) add(e segment.AbortedTxn) {
	if e.Overlaps(s.from, s.upTo) {
		s.seen[wire.AbortedTransaction{ProducerID: e.ProducerID, FirstOffset: e.FirstOffset}] = true
	}
}

// list gives those that begin below upTo.
func (s *abortedSet) list(upTo int64) []wire.AbortedTransaction {
	out := make([]wire.AbortedTransaction, 0, len(s.seen))
	for a := range s.seen {
		if a.FirstOffset < upTo {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b wire.AbortedTransaction) int {
		return cmp.Or(cmp.Compare(a.FirstOffset, b.FirstOffset), cmp.Compare(a.ProducerID, b.ProducerID))
	})
	return out
}

// txnIndex is the segment's transaction index, empty if the metadata says so. An index that should be there and is not, or cannot be read, is an error:
// to go on without it would hand aborted records to a read_committed consumer.
func (r *Resolver) txnIndex(ctx context.Context, m *remotestorage.RemoteLogSegmentMetadata) ([]segment.AbortedTxn, error) {
	if m.TxnIndexEmpty {
		return nil, nil
	}
	entries, err := fetchIndex(ctx, r, m, remotestorage.IndexTransaction, segment.ParseTxnIndex)
	switch {
	case errors.Is(err, remotestorage.ErrNotFound) && !r.txnKnown:
		return nil, placeError(m, m.StartOffset, segment.TxnIndexSuffix, fmt.Errorf("there is no transaction index, and its writer may not say when there is none: %w", ErrUndecided))
	case errors.Is(err, remotestorage.ErrNotFound):
		return nil, placeError(m, m.StartOffset, segment.TxnIndexSuffix, fmt.Errorf("transaction index is lost: %w", remote.ErrDamaged))
	case errors.Is(err, errUnreadable):
		return nil, placeError(m, m.StartOffset, segment.TxnIndexSuffix, fmt.Errorf("%w: %w", remote.ErrDamaged, err))
	case err == nil && len(entries) == 0 && r.txnKnown:
		return nil, placeError(m, m.StartOffset, segment.TxnIndexSuffix, fmt.Errorf("transaction index is empty though the metadata says it is not: %w", remote.ErrDamaged))
	}
	return entries, err
}

// decidedAtEnd tells up to where every transaction was decided at the segment's end: where the first one that is open there begins, or MaxInt64. It may say 0 where it cannot
// tell: without the snapshot the search just goes on.
func (r *Resolver) decidedAtEnd(ctx context.Context, h holding) (upTo int64, err error) {
	if h.last < h.m.EndOffset {
		return 0, nil // the snapshot is of an end that is not on the lineage
	}
	entries, err := fetchIndex(ctx, r, &h.m, remotestorage.IndexProducerSnapshot, producerstate.ParseSnapshot)
	if errors.Is(err, remotestorage.ErrNotFound) || errors.Is(err, errUnreadable) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	upTo = math.MaxInt64
	for _, t := range producerstate.OpenTransactions(entries) {
		upTo = min(upTo, t.FirstOffset)
	}
	return upTo, nil
}
