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
func (l *Log) AbortedEntries(from, upTo int64) (entries []segment.AbortedTxn, complete bool) {
	stable := l.Offsets().LastStable // taken first: what is decided stays decided
	entries, err := l.abortedEntries(from, upTo)
	return entries, err == nil && upTo <= stable
}

// AbortedTransactions gives the aborted transactions that a read_committed reader of [from, upTo) must know of, by the local indexes: never nil. An error is
// an index that could not be read: to go on without it would show aborted records.
func (l *Log) AbortedTransactions(from, upTo int64) ([]wire.AbortedTransaction, error) {
	entries, err := l.abortedEntries(from, upTo)
	if err != nil {
		return nil, err
	}
	list := make([]wire.AbortedTransaction, 0, len(entries))
	for _, e := range entries {
		list = append(list, wire.AbortedTransaction{ProducerID: e.ProducerID, FirstOffset: e.FirstOffset})
	}
	return list, nil
}

func (l *Log) abortedEntries(from, upTo int64) (entries []segment.AbortedTxn, err error) {
	l.swapMu.RLock()
	defer l.swapMu.RUnlock()
	v, err := l.view()
	if err != nil {
		return nil, err
	}
	for i := max(0, v.find(from)); i < len(v.segs); i++ {
		all, err := l.txnEntries(v.segs[i])
		if err != nil {
			return nil, fmt.Errorf("reading transaction index of segment %d: %w", v.segs[i].base, err)
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
