// Package partlog is one partition's log on disk, in Apache Kafka's own files: append, read, roll, recover, retention, compaction. It may be imported by
// the broker, the tiers and the tools; it knows nothing of requests, topics or object stores. docs/format/log.md describes its files.
//
// A Log has no goroutines of its own: every method works in its caller's. Appends are serialised by one lock, which is held while the batches
// are written to the page cache; reads and fsyncs are done outside it. All I/O goes through a vfs.FS.
package partlog

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Errors that callers branch on.
var (
	ErrCorruptMessage       = errors.New("message is corrupt")
	ErrMessageTooLarge      = errors.New("message batch is larger than max.message.bytes")
	ErrBatchListTooLarge    = errors.New("message batches are larger than segment.bytes")
	ErrInvalidTimestamp     = errors.New("timestamp is out of range")
	ErrInvalidRecord        = errors.New("record is invalid")
	ErrUnsupportedFormat    = errors.New("message format is not supported, only magic 2 is")
	ErrOutOfOrderSequence   = errors.New("sequence number is out of order")
	ErrInvalidProducerEpoch = errors.New("producer epoch is fenced")
	ErrInvalidTxnState      = errors.New("transaction state does not allow the write")
	ErrCoordinatorFenced    = errors.New("transaction coordinator is fenced")
	// ErrDecompress: the content of a batch is not what its codec writes, although its CRC is right.
	ErrDecompress = errors.New("records cannot be decompressed")
	// ErrUnverified: a transaction of the producer has ended since the guard was taken.
	ErrUnverified = errors.New("transaction may have ended meanwhile")
	// ErrOutOfRange: below the log start or above the log end.
	ErrOutOfRange = errors.New("offset is out of range")
	// ErrBelowLocal: at or above the log start, but the local segment has gone: read it remotely.
	ErrBelowLocal = errors.New("offset is below the local log start")
	// ErrStorage: the disk failed. After a failed fsync it is for good: what is on disk is not known any more.
	ErrStorage = errors.New("log storage failed")
	ErrClosed  = errors.New("log is closed")
	// ErrCorruptLog: something that should have been safe on disk is not what was written.
	ErrCorruptLog = errors.New("log is corrupt")
	// ErrAborted: what a reader of committed records asked for is there, but not which of it was aborted.
	ErrAborted = errors.New("aborted transactions cannot be told")
)

// Origin says who appends.
type Origin int8

const (
	// Client batches come from producers: everything is checked.
	Client Origin = iota
	// Internal batches are the broker's own (offsets, remote log metadata, transaction markers): control batches and any batch count are allowed.
	Internal
)

// Config is what a topic's configuration says about its logs. The zero value of a size or time is that of DefaultConfig only where said so there.
type Config struct {
	SegmentBytes, SegmentIndexBytes, IndexIntervalBytes     int
	SegmentMs                                               int64
	SegmentJitterMs                                         int64 // a segment is closed by SegmentMs up to so much earlier, drawn anew for each
	Preallocate                                             bool
	FlushMessages                                           int64 // an append that makes so many records unsynced syncs them; 0: never
	FlushMs                                                 int64 // see FlushAged
	RetentionMs, RetentionBytes                             int64 // -1: no limit
	LocalRetentionMs, LocalRetentionBytes                   int64 // -2: as retention
	RemoteStorage                                           bool
	Delete, Compact                                         bool
	MaxMessageBytes                                         int
	LogAppendTime                                           bool
	TimestampBeforeMaxMs, TimestampAfterMaxMs               int64
	MinCleanableRatio                                       float64
	DeleteRetentionMs, MinCompactionLagMs                   int64
	MaxCompactionLagMs, FileDeleteDelayMs, ProducerExpiryMs int64
	// Recompress: clients' batches are kept in Codec, at Kafka's Level for it.
	Recompress bool
	Codec      int8
	Level      int
	// MaxRecordBytes bounds each record of a batch that comes compressed; 0 is no bound.
	MaxRecordBytes int
	// CompactionMapBytes bounds the memory of one compaction (Kafka's log.cleaner.dedupe.buffer.size).
	CompactionMapBytes int
}

// DefaultConfig is Apache Kafka's defaults.
func DefaultConfig() Config {
	const forever = int64(1<<63 - 1)
	return Config{
		SegmentBytes: 1 << 30, SegmentIndexBytes: 10 << 20, IndexIntervalBytes: 4096, SegmentMs: 7 * 24 * 3600 * 1000,
		FlushMessages: forever, FlushMs: forever,
		RetentionMs: 7 * 24 * 3600 * 1000, RetentionBytes: -1, LocalRetentionMs: -2, LocalRetentionBytes: -2, Delete: true,
		MaxMessageBytes: 1<<20 + 12, TimestampBeforeMaxMs: forever, TimestampAfterMaxMs: 3600 * 1000, MinCleanableRatio: 0.5,
		DeleteRetentionMs: 24 * 3600 * 1000, MaxCompactionLagMs: forever, FileDeleteDelayMs: 60 * 1000, ProducerExpiryMs: 24 * 3600 * 1000,
		CompactionMapBytes: 128 << 20,
	}
}

// Options say where a log is and what is known of it from elsewhere.
type Options struct {
	FS     vfs.FS // nil: the operating system's
	Dir    string // the partition's folder; made if it is not there
	TP     remotestorage.TopicIDPartition
	Config Config
	// Clean: the node was stopped cleanly, nothing needs to be scanned.
	Clean bool
	// RecoveryPoint and LogStartOffset are from the node's checkpoints; 0 if they have none.
	RecoveryPoint, LogStartOffset int64
	// MayBeRemote: what lies below the first local segment may be remote although the configuration says nothing of remote storage (it may be lost, as that of an adopted
	// folder is). Then the log start stays what it was, and whoever finds that nothing is there calls AdvanceLogStart.
	MayBeRemote bool
	// LeaderEpoch is the epoch that appended batches get.
	LeaderEpoch int32
	// Files bounds the open files of many logs together; nil gives the log a small bound of its own.
	Files *Files
	// OnRoll is called, without a lock, by an Append or an ApplyRetention that has closed a segment, when its other work is done. It must not block. nil:
	// nobody is told.
	OnRoll func()
	Logger *slog.Logger     // nil: discarded; its lines name the partition
	Clock  func() time.Time // nil: time.Now
}

// AppendInfo is what a producer is told.
type AppendInfo struct {
	BaseOffset, LastOffset int64
	LogAppendTimeMs        int64 // -1 with CreateTime
	LogStartOffset         int64
	Duplicate              bool
}

// Offsets are read together: LogStart <= LocalLogStart <= LastStable <= HighWatermark <= LogEnd.
type Offsets struct {
	LogStart, LocalLogStart, HighWatermark, LastStable, LogEnd int64
	// Recovery is what recovery-point-offset-checkpoint may say: everything below it is on stable storage, indexes included.
	Recovery int64
}

// Data is what a read gives.
type Data struct {
	Records wire.Records
	// FirstBaseOffset is the base of the first batch, which may be below the offset asked; -1 if there is no batch.
	FirstBaseOffset int64
	// NextOffset is where to go on: behind the last whole batch in Records. The offset asked if there is none.
	NextOffset int64
	// Aborted are the aborted transactions that a reader of Records must know of. ReadCommitted gives them, never nil; Read does not.
	Aborted []wire.AbortedTransaction
}

// Stats are sizes for metrics and DescribeLogDirs.
type Stats struct {
	Size     int64
	Segments int
}

// SegmentFiles is a closed segment as the tiers copy it.
type SegmentFiles struct {
	Base, End      int64 // first and last offset, inclusive
	MaxTimestampMs int64
	// LeaderEpochs are the segment's own, the first beginning at Base.
	LeaderEpochs  []remotestorage.EpochStart
	Data          remotestorage.LogSegmentData // LeaderEpochIndex is the whole history up to End
	TxnIndexEmpty bool
}

// DeletedSegment is a segment that retention took from the local log.
type DeletedSegment struct {
	Base, End int64
	Size      int64
	Reason    string
}

func nop() {}

var _ io.Closer = (*Log)(nil)
