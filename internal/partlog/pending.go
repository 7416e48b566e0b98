package partlog

import (
	"context"
	"time"

	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/internal/wire"
)

type doomed struct{}

func (l *Log) finishRewrites(names []string) ([]string, error)              { return names, nil }
func (l *Log) Aborted(from, upTo int64) []wire.AbortedTransaction           { return nil }
func (l *Log) AbortedEntries(from, upTo int64) ([]segment.AbortedTxn, bool) { return nil, false }
func (l *Log) OffsetForTimestamp(ts int64) (offset, timestamp int64, leaderEpoch int32, ok bool, err error) {
	return 0, 0, 0, false, nil
}
func (l *Log) MaxTimestamp() (offset, timestamp int64, leaderEpoch int32, ok bool, err error) {
	return 0, 0, 0, false, nil
}
func (l *Log) Tierable() []SegmentFiles                               { return nil }
func (l *Log) SetHighestRemoteOffset(offset int64)                    {}
func (l *Log) ApplyRetention(now time.Time) ([]DeletedSegment, error) { return nil, nil }
func (l *Log) DeleteRecords(offset int64) (newStart int64, err error) { return 0, nil }
func (l *Log) AdvanceLogStart(offset int64, reason string) error      { return nil }
func (l *Log) Compact(ctx context.Context) error                      { return nil }
func (l *Log) Compactable() (ratio float64)                           { return 0 }
func (l *Log) Delete() error                                          { return nil }
