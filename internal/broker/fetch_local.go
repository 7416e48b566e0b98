package broker

import (
	"errors"
	"log/slog"

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

func (l *localPart) bound(o *logOffsets) int64 { return readBound(o, l.committed) }

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
	read := l.log.Read
	if l.committed {
		read = l.log.ReadCommitted
	}
	data, err := read(l.offset, limit, bound, whole)
	if err != nil && !errors.Is(err, partlog.ErrBelowLocal) {
		if errors.Is(err, partlog.ErrAborted) {
			l.logger.Error("records cannot be served", "partition", l.tp.String(), "offset", l.offset, "err", err)
		}
		return failedPartition(l.tp.Partition, readError(err))
	}
	o = l.log.Offsets() // as of now: never below what was just read
	out := emptyPartition(l.tp.Partition, &o)
	out.Records = data.Records // none with an error: retention took the local segment while this fetch waited, and the next fetch goes to the remote tier
	if out.Aborted = data.Aborted; l.committed && out.Aborted == nil {
		out.Aborted = []wire.AbortedTransaction{}
	}
	return out
}
