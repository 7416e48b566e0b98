package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

var topicID = remotestorage.UUID{1, 2, 3}

func tpOf(partition int32) remotestorage.TopicIDPartition {
	return remotestorage.TopicIDPartition{TopicID: topicID, Topic: "orders", Partition: partition}
}

// fakeLog is a log of closed segments without a disk, for what depends on the tier alone.
type fakeLog struct {
	mu       sync.Mutex
	offsets  partlog.Offsets
	segments []partlog.SegmentFiles
	active   int64 // bytes of the active segment
	epochs   *epoch.Cache
	highest  int64
	moves    []string
	noRemote bool // remote.storage.enable=false
}

func (l *fakeLog) Config() partlog.Config { return partlog.Config{RemoteStorage: !l.noRemote} }

func newFakeLog(epochs ...remotestorage.EpochStart) *fakeLog {
	if len(epochs) == 0 {
		epochs = []remotestorage.EpochStart{{LeaderEpoch: 0, StartOffset: 0}}
	}
	return &fakeLog{epochs: epoch.New(epochs), highest: -1}
}

// add closes a segment [base, end] of this many bytes; the active segment begins behind it.
func (l *fakeLog) add(base, end int64, size int, maxMs int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	file := func(b []byte) remotestorage.SegmentFile {
		return remotestorage.SegmentFile{Size: int64(len(b)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
	}
	if len(l.segments) == 0 && l.offsets.LogEnd == 0 {
		l.offsets.LogStart, l.offsets.LocalLogStart = base, base
	}
	entries := l.epochs.EntriesUpTo(end + 1)
	l.segments = append(l.segments, partlog.SegmentFiles{
		Base: base, End: end, MaxTimestampMs: maxMs, LeaderEpochs: l.epochs.Range(base, end+1), TxnIndexEmpty: true,
		Data: remotestorage.LogSegmentData{
			Log:         file(bytes.Repeat([]byte{byte(base)}, size)),
			OffsetIndex: file([]byte("index")), TimeIndex: file([]byte("timeindex")), ProducerSnapshot: file([]byte("snapshot")),
			LeaderEpochIndex: epoch.AppendCheckpoint(nil, entries),
		},
	})
	l.offsets.LastStable, l.offsets.HighWatermark, l.offsets.LogEnd = end+1, end+1, end+1
}

// dropLocal is local retention of the first n segments.
func (l *fakeLog) dropLocal(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments[:n] {
		if s.End > l.highest {
			panic(fmt.Sprintf("local retention takes segment %d, only %d is remote", s.Base, l.highest))
		}
		l.offsets.LocalLogStart = s.End + 1
	}
	l.segments = slices.Clone(l.segments[n:])
}

func (l *fakeLog) Offsets() partlog.Offsets {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.offsets
}

func (l *fakeLog) Epochs() *epoch.Cache { return l.epochs }

func (l *fakeLog) Tierable() []partlog.SegmentFiles {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []partlog.SegmentFiles
	for _, s := range l.segments {
		if s.End > l.highest && s.End >= l.offsets.LogStart {
			out = append(out, s)
		}
	}
	return out
}

func (l *fakeLog) SetHighestRemoteOffset(o int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.highest = o
}

func (l *fakeLog) highestRemote() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.highest
}

func (l *fakeLog) AdvanceLogStart(o int64, reason string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o <= l.offsets.LogStart {
		return nil
	}
	l.offsets.LogStart = o
	l.moves = append(l.moves, fmt.Sprintf("%d by %s", o, reason))
	l.epochs.TruncateFromStart(o)
	for len(l.segments) > 0 && l.segments[0].End < o {
		l.offsets.LocalLogStart = l.segments[0].End + 1
		l.segments = l.segments[1:]
	}
	l.offsets.LocalLogStart = max(l.offsets.LocalLogStart, min(o, l.offsets.LocalLogStart))
	return nil
}

func (l *fakeLog) Available(int64, int64) int64 { return l.active }

func (l *fakeLog) SizeBehind(offset int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := l.active
	for _, s := range l.segments {
		if s.Base > offset {
			size += s.Data.Log.Size
		}
	}
	return size
}

// fakeRecordLog keeps batches in memory; only what was synced survives clone.
type fakeRecordLog struct {
	crowded int // so many syncs find too many files open
	mu      sync.Mutex
	bytes   []byte
	next    int64
	synced  int64 // offset
	cut     int   // length of bytes at synced
	syncs   atomic.Int64
	fail    error         // of the next syncs
	block   chan struct{} // syncs wait for it
}

var errDisk = errors.New("disk error")

func (l *fakeRecordLog) Append(b []byte, _ partlog.Origin) (partlog.AppendInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.next
	n, err := batch.Each(b, func(h batch.Header, raw []byte) error {
		batch.SetBaseOffset(raw, l.next)
		l.next += int64(h.LastOffsetDelta) + 1
		return nil
	})
	if err != nil || n != len(b) {
		return partlog.AppendInfo{}, partlog.ErrCorruptMessage
	}
	l.bytes = append(l.bytes, b...)
	return partlog.AppendInfo{BaseOffset: first, LastOffset: l.next - 1}, nil
}

func (l *fakeRecordLog) Sync(_ context.Context, offset int64) error {
	if l.block != nil {
		<-l.block
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncs.Add(1)
	if l.fail != nil {
		return l.fail
	}
	if l.crowded > 0 {
		l.crowded--
		return fmt.Errorf("%w: %w", partlog.ErrStorage, syscall.EMFILE)
	}
	l.synced, l.cut = l.next, len(l.bytes)
	return nil
}

func (l *fakeRecordLog) Read(offset int64, limit int, upTo int64, whole bool) (partlog.Data, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	start := len(l.bytes)
	at := 0
	_, _ = batch.Each(l.bytes, func(h batch.Header, raw []byte) error {
		if h.LastOffset() >= offset && start == len(l.bytes) {
			start = at
		}
		at += len(raw)
		return nil
	})
	b := l.bytes[start:]
	if len(b) > limit {
		n, _ := batch.PeekSize(b)
		b = b[:max(limit, n)]
	}
	return partlog.Data{Records: wire.Records{Bufs: [][]byte{bytes.Clone(b)}}}, nil
}

func (l *fakeRecordLog) Offsets() partlog.Offsets {
	l.mu.Lock()
	defer l.mu.Unlock()
	return partlog.Offsets{HighWatermark: l.next, LastStable: l.next, LogEnd: l.next}
}

// clone is the log after the power has gone.
func (l *fakeRecordLog) clone() *fakeRecordLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &fakeRecordLog{bytes: bytes.Clone(l.bytes[:l.cut]), next: l.synced, synced: l.synced, cut: l.cut}
}
