package tier

import (
	"time"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Log is what tiering needs of a partition's log on disk; *partlog.Log is one.
type Log interface {
	Config() partlog.Config
	Offsets() partlog.Offsets
	// Epochs is the log's lineage: what tells a valid remote segment from one of an abandoned leader.
	Epochs() *epoch.Cache
	// SetHighestRemoteOffset lets local retention delete up to this offset, inclusive.
	SetHighestRemoteOffset(offset int64)
	// Tierable lists, in order, the closed segments that lie wholly below the last stable offset and reach above the highest remote offset.
	Tierable() []partlog.SegmentFiles
	// AdvanceLogStart moves the log start forward; an offset at or below it changes nothing.
	AdvanceLogStart(offset int64, reason string) error
	// Available is the size of what the segment that offset lies in holds from there on, for retention by size.
	Available(offset, upTo int64) int64
	// SizeBehind is the size of the local segments that begin behind offset.
	SizeBehind(offset int64) int64
}

var _ Log = (*partlog.Log)(nil)

// Partition is one partition as the tier sees it, with the parts of its topic's configuration that matter here. Its zero configuration copies and never
// deletes.
type Partition struct {
	TP  remotestorage.TopicIDPartition
	Log Log
	// Retention is the total one over both tiers (retention.ms, retention.bytes); nil for a topic whose cleanup.policy does not delete.
	Retention *Retention
	// CopyDisabled is remote.log.copy.disable: nothing new is copied, what is remote is still read, retained and deleted.
	CopyDisabled bool
	// CopyLag holds copying back (remote.copy.lag.ms, remote.copy.lag.bytes).
	CopyLag CopyLag
	// RemoteOff is the owner's word that the remote part may go: remote storage was switched off with remote.log.delete.on.disable. What is still remote is
	// deleted, nothing is copied. A log without remote storage and without that word is left alone.
	RemoteOff bool
}

// CopyLag is when a closed segment may be copied: once its latest record is Ms old, or once Bytes lie behind it locally. 0 in either of them stands for at once,
// a negative value for never by that one. It is Apache Kafka's rule (KIP-1241), with a lag that follows local retention resolved.
type CopyLag struct {
	Ms, Bytes int64
}

// lets tells whether a segment may be copied. One that is from the future may, or it would wait for that.
func (l *CopyLag) lets(maxTimestampMs, bytesBehind int64, now time.Time) bool {
	if l.Ms == 0 || l.Bytes == 0 {
		return true
	}
	age := now.UnixMilli() - maxTimestampMs
	return l.Ms > 0 && (age < 0 || age >= l.Ms) || l.Bytes > 0 && bytesBehind >= l.Bytes
}

// Retention is a topic's total retention; a negative value stands for no limit, as in Kafka.
type Retention struct {
	Ms, Bytes int64
}

// expiryMs is the newest timestamp that time retention takes away, and whether there is time retention.
func (r *Retention) expiryMs(now time.Time) (int64, bool) {
	if r == nil || r.Ms < 0 {
		return 0, false
	}
	return now.UnixMilli() - r.Ms, true
}

// maxBytes is the size to be kept, and whether there is one.
func (r *Retention) maxBytes() (int64, bool) {
	if r == nil || r.Bytes < 0 {
		return 0, false
	}
	return r.Bytes, true
}
