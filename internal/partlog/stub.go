package partlog

import (
	"context"
	"errors"
	"time"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/internal/wire"
)

var errUnwritten = errors.New("partlog: not written yet")

// Files bounds the open files of many logs together.
type Files struct{}

// NewFiles allows max open files.
func NewFiles(max int) *Files { return &Files{} }

// Log is one partition's log.
type Log struct{}

// Open opens the log in o.Dir, or makes it.
func Open(o Options) (*Log, error) { return nil, errUnwritten }

func (l *Log) Close() error       { return errUnwritten }
func (l *Log) SetConfig(c Config) {}
func (l *Log) Config() Config     { return Config{} }
func (l *Log) Append(records []byte, origin Origin) (AppendInfo, error) {
	return AppendInfo{}, errUnwritten
}
func (l *Log) Sync(ctx context.Context, offset int64) error { return errUnwritten }
func (l *Log) Flush(ctx context.Context) error              { return errUnwritten }
func (l *Log) Read(offset int64, limit int, upTo int64, whole bool) (Data, error) {
	return Data{}, errUnwritten
}
func (l *Log) Available(offset, upTo int64) int64                           { return 0 }
func (l *Log) Offsets() Offsets                                             { return Offsets{} }
func (l *Log) Aborted(from, upTo int64) []wire.AbortedTransaction           { return nil }
func (l *Log) AbortedEntries(from, upTo int64) ([]segment.AbortedTxn, bool) { return nil, false }
func (l *Log) OffsetForTimestamp(ts int64) (offset, timestamp int64, leaderEpoch int32, ok bool, err error) {
	return 0, 0, 0, false, errUnwritten
}
func (l *Log) MaxTimestamp() (offset, timestamp int64, leaderEpoch int32, ok bool, err error) {
	return 0, 0, 0, false, errUnwritten
}
func (l *Log) Epochs() *epoch.Cache                                   { return nil }
func (l *Log) LeaderEpoch() int32                                     { return 0 }
func (l *Log) Notify(wake func()) (cancel func())                     { return nop }
func (l *Log) Roll(force bool) error                                  { return errUnwritten }
func (l *Log) Tierable() []SegmentFiles                               { return nil }
func (l *Log) SetHighestRemoteOffset(offset int64)                    {}
func (l *Log) ApplyRetention(now time.Time) ([]DeletedSegment, error) { return nil, errUnwritten }
func (l *Log) DeleteRecords(offset int64) (newStart int64, err error) { return 0, errUnwritten }
func (l *Log) AdvanceLogStart(offset int64, reason string) error      { return errUnwritten }
func (l *Log) Compact(ctx context.Context) error                      { return errUnwritten }
func (l *Log) Compactable() (ratio float64)                           { return 0 }
func (l *Log) Stats() Stats                                           { return Stats{} }
func (l *Log) Delete() error                                          { return errUnwritten }
