package broker

import (
	"errors"

	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// remotePart reads a partition's history from the store, through a reader that lives on between fetches: what is not there when the fetch has waited long
// enough is there for the next one.
type remotePart struct {
	side       *remoteSide
	local      *localPart // the same offset; for where the remote tier ends
	localLimit int
	owner      uint64
	limit      int

	reader *remote.PartitionReader // opened when first looked at
}

func (r *remotePart) open() *remote.PartitionReader {
	if r.reader == nil {
		r.reader = r.side.reader(r.local.partition, r.owner, r.local.offset, r.local.committed)
		r.reader.SetLimit(r.limit)
	}
	return r.reader
}

// Available says "now" once the reader has what the fetch may take, or will get no further before it is read: a remote read does not wait for MinBytes.
func (r *remotePart) Available() (int, bool) {
	reader := r.open()
	n, err := reader.Available()
	switch {
	case outdated(err, r.local.offset, r.local.log.Offsets().LocalLogStart):
		return 0, true // answered empty; the next fetch finds this reader failed and opens another
	case errors.Is(err, remote.ErrLocal) && !errors.Is(err, locate.ErrUndecided):
		n, _ := r.atLocalStart().Available()
		return n, n > 0
	case err != nil:
		return 0, true
	}
	return n, n > 0 && (n >= r.limit || reader.Settled())
}

func (r *remotePart) Subscribe(wake func()) (cancel func()) {
	cancelRemote, cancelLocal := r.open().Subscribe(wake), r.local.Subscribe(wake)
	return func() { cancelRemote(); cancelLocal() }
}

// atLocalStart reads on where the remote tier ends: an offset in the gap between the two is served by the first local batch.
func (r *remotePart) atLocalStart() *localPart {
	l := *r.local
	l.offset = max(l.offset, l.log.Offsets().LocalLogStart)
	return &l
}

func (r *remotePart) Read(limit int, whole bool) wire.FetchPartition {
	o := r.local.log.Offsets()
	if r.local.offset < o.LogStart {
		return failedPartition(r.local.tp.Partition, errOffsetOutOfRange)
	}
	out := emptyPartition(r.local.tp.Partition, &o)
	if limit <= 0 {
		return out // without an aborted list, as Apache Kafka has it
	}
	if r.local.committed {
		out.Aborted = []wire.AbortedTransaction{}
	}
	data, err := r.open().Read(limit, whole, true)
	switch {
	case errors.Is(err, locate.ErrBelowLogStart):
		return failedPartition(r.local.tp.Partition, errOffsetOutOfRange)
	case outdated(err, r.local.offset, o.LocalLogStart):
		return out
	case errors.Is(err, remote.ErrLocal) && !errors.Is(err, locate.ErrUndecided):
		return r.atLocalStart().Read(min(limit, r.localLimit), whole)
	case errors.Is(err, remote.ErrClosed):
		return out // its pool needed the room; the next fetch opens another
	case err != nil:
		r.side.failed(r.local.tp, err)
		return failedPartition(r.local.tp.Partition, remoteError(err))
	}
	out.Records = data.Records
	if r.local.committed && data.Aborted != nil {
		out.Aborted = data.Aborted
	}
	return out
}

// locationPart answers with a location where it can, and reads like remotePart where not.
type locationPart struct {
	*remotePart
	work *locationWork

	reads  bool   // no location is to be had: read
	wake   func() // of the subscriber, if any
	cancel func() // of the read's subscription
}

func (l *locationPart) start() *locationWork {
	if l.work == nil {
		l.work = l.side.locate(l.local.partition, l.local.offset, l.local.committed)
	}
	return l.work
}

// settle turns to reading once it is known that there is no location. It runs on the fetch's goroutine only, as Available and Read do.
func (l *locationPart) settle() (found *locationAnswer, pending bool) {
	if l.reads {
		return nil, false
	}
	answer, done := l.start().result()
	if !done {
		return nil, true
	}
	// DeleteRecords may have cut into the segment since: then it is not offered any more.
	if answer != nil && answer.location.BaseOffset >= l.local.log.Offsets().LogStart {
		return answer, false
	}
	l.reads = true
	if l.wake != nil {
		l.cancel = l.remotePart.Subscribe(l.wake)
	}
	return nil, false
}

func (l *locationPart) Available() (int, bool) {
	switch found, pending := l.settle(); {
	case found != nil:
		return 0, true
	case pending:
		return 0, false
	}
	return l.remotePart.Available()
}

func (l *locationPart) Subscribe(wake func()) (cancel func()) {
	l.wake = wake
	if l.reads {
		return l.remotePart.Subscribe(wake)
	}
	cancelWork := l.start().subscribe(wake)
	return func() {
		cancelWork()
		if l.cancel != nil {
			l.cancel()
		}
	}
}

func (l *locationPart) Read(limit int, whole bool) wire.FetchPartition {
	found, pending := l.settle()
	if found == nil && !pending {
		return l.remotePart.Read(limit, whole)
	}
	o := l.local.log.Offsets()
	if l.local.offset < o.LogStart {
		return failedPartition(l.local.tp.Partition, errOffsetOutOfRange)
	}
	out := emptyPartition(l.local.tp.Partition, &o)
	if l.local.committed {
		out.Aborted = []wire.AbortedTransaction{}
	}
	if found != nil {
		location := found.location
		out.Location = &location
		if l.local.committed {
			out.Aborted = found.aborted
		}
		l.work.take()
		l.side.b.metrics.located()
	}
	return out
}

// locationAnswer is a location and what belongs to it.
type locationAnswer struct {
	location remotestorage.Location
	aborted  []wire.AbortedTransaction
}
