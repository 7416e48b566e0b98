package broker

import (
	"errors"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// localPart reads a partition's local log.
type localPart struct {
	*partition
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
		out.Aborted = l.aborted(data.Records, bound)
	}
	return out
}

// aborted lists the aborted transactions that a read_committed reader of records must know. It is never nil.
func (l *localPart) aborted(records wire.Records, bound int64) []wire.AbortedTransaction {
	none := []wire.AbortedTransaction{}
	if records.Len() == 0 {
		return none
	}
	if list := l.log.Aborted(l.offset, endOf(records, bound)); list != nil {
		return list
	}
	return none
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
