package broker

import (
	"errors"
	"log/slog"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// localPart reads a partition's local log.
type localPart struct {
	*partition
	logger    *slog.Logger
	offset    int64
	committed bool
}

// bound is the first offset that the reader may not see.
func (l *localPart) bound(o *logOffsets) int64 {
	if l.committed {
		return o.LastStable
	}
	return o.HighWatermark
}

func (l *localPart) Available() (int, bool) {
	o := l.log.Offsets()
	if l.offset < o.LogStart || l.offset > o.LogEnd {
		return 0, true // an error by now
	}
	return int(l.log.Available(l.offset, l.bound(&o))), false
}

func (l *localPart) Subscribe(wake func()) (cancel func()) { return l.log.Notify(wake) }

func (l *localPart) Read(limit int, whole bool) wire.FetchPartition {
	o := l.log.Offsets()
	bound := l.bound(&o)
	data, err := l.log.Read(l.offset, limit, bound, whole)
	switch {
	case errors.Is(err, partlog.ErrBelowLocal):
		// Retention took the local segment while this fetch waited. The next fetch of the offset goes to the remote tier.
		err = nil
	case err != nil:
		return failedPartition(l.tp.Partition, readError(err))
	}
	o = l.log.Offsets() // as of now: never below what was just read
	out := emptyPartition(l.tp.Partition, &o)
	out.Records = data.Records
	if l.committed {
		if out.Aborted, err = l.aborted(data.Records, bound); err != nil {
			if data.Records.Release != nil {
				data.Records.Release()
			}
			l.logger.Error("aborted transactions cannot be told", "partition", l.tp.String(), "offset", l.offset, "err", err)
			return failedPartition(l.tp.Partition, readError(err))
		}
	}
	return out
}

// aborted lists the aborted transactions that a read_committed reader of records must know. It is nil only with an error.
func (l *localPart) aborted(records wire.Records, bound int64) ([]wire.AbortedTransaction, error) {
	if records.Len() == 0 {
		return []wire.AbortedTransaction{}, nil
	}
	return l.log.AbortedTransactions(l.offset, endOf(records, bound))
}

// endOf is the offset after the last whole batch of records, or bound if they lie in several pieces: a list for more than was read is right too.
func endOf(records wire.Records, bound int64) int64 {
	if len(records.Bufs) != 1 {
		return bound
	}
	end := bound
	_, err := batch.Each(records.Bufs[0], func(h batch.Header, _ []byte) error {
		end = h.LastOffset() + 1
		return nil
	})
	if err != nil {
		return bound
	}
	return end
}
