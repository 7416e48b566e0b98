package partlog

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// AbortedEntries gives the entries of the local transaction indexes that overlap [from, upTo). from may lie below the local log start: the rest is then in
// the remote segments' indexes, which the caller has walked, and transactions that began there and were aborted here are among the entries.
// complete says that no marker can be missing behind the local log's start: every transaction that begins below upTo is decided (upTo is at most the
// last stable offset), and every index could be read.
//
// It is of one moment: where from lies below the local start as it was then, the caller finds that what is missing is remote by now.
func (l *Log) AbortedEntries(from, upTo int64) (entries []segment.AbortedTxn, complete bool) {
	l.swapMu.RLock()
	defer l.swapMu.RUnlock()
	for {
		v, err := l.view()
		if err != nil {
			return nil, false
		}
		entries, err := l.abortedEntries(&v, from, upTo)
		if errors.Is(err, fs.ErrNotExist) {
			continue // retention only ever goes on
		}
		return entries, err == nil && upTo <= v.lastStable
	}
}

// abortedList is what a read_committed reader of [from, upTo) must know of, by the local indexes: never nil without an error.
func (l *Log) abortedList(v *view, from, upTo int64) ([]wire.AbortedTransaction, error) {
	entries, err := l.abortedEntries(v, from, upTo)
	if err != nil {
		return nil, err
	}
	list := make([]wire.AbortedTransaction, 0, len(entries))
	for _, e := range entries {
		list = append(list, wire.AbortedTransaction{ProducerID: e.ProducerID, FirstOffset: e.FirstOffset})
	}
	return list, nil
}

// abortedEntries looks through the log as v has it. It is fs.ErrNotExist if retention has taken a segment since: its index, which may not be there for want of
// aborted transactions, tells nothing then. l.swapMu is held shared.
func (l *Log) abortedEntries(v *view, from, upTo int64) (entries []segment.AbortedTxn, err error) {
	first := max(0, v.find(from))
	if entries, err = l.entriesFrom(v, first, from, upTo); err != nil {
		return nil, err
	}
	if gone := v.segs[first].base; gone < l.segments()[0].base {
		return nil, fmt.Errorf("transaction index of segment %d: %w", gone, fs.ErrNotExist)
	}
	return entries, nil
}

func (l *Log) entriesFrom(v *view, first int, from, upTo int64) (entries []segment.AbortedTxn, err error) {
	for _, s := range v.segs[first:] {
		all, err := l.txnEntries(s)
		if err != nil {
			return nil, fmt.Errorf("reading transaction index of segment %d: %w", s.base, err)
		}
		for _, e := range all {
			if e.Overlaps(from, upTo) {
				entries = append(entries, e)
			}
			if e.LastStableOffset >= upTo {
				return entries, nil // everything that begins below upTo is decided by here
			}
		}
	}
	return entries, nil
}

// txnEntries are those of one segment, in order.
func (l *Log) txnEntries(s *seg) ([]segment.AbortedTxn, error) {
	if h := s.hot.Load(); h != nil {
		return segment.ParseTxnIndex(h.txnIndex())
	}
	path := l.path(s.base, segment.TxnIndexSuffix)
	b, err := atomicfile.Read(l.fs, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return segment.ParseTxnIndex(b)
}
