package golden

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Facts is what the broker said of a set's topics after the set was made.
type Facts struct {
	MetadataPartitions int32            `json:"metadataPartitions"`
	Leader             *int32           `json:"leader"` // which broker led at the end, in sets that had two
	Topics             map[string]Topic `json:"topics"`
}

// Topic is a topic of a set.
type Topic struct {
	Topic      string                   `json:"topic"`
	ID         string                   `json:"topicId"`
	Configs    map[string]string        `json:"configs"`
	Partitions map[string]PartitionFact `json:"partitions"`
}

// PartitionFact is what the broker said of a partition.
type PartitionFact struct {
	Metadata                   LeaderFact                  `json:"metadata"`
	LogStartOffset             int64                       `json:"logStartOffset"`
	LocalLogStartOffset        int64                       `json:"localLogStartOffset"`
	LatestTieredOffset         int64                       `json:"latestTieredOffset"`
	HighWatermark              int64                       `json:"highWatermark"`
	LastStableOffset           int64                       `json:"lastStableOffset"`
	OffsetForLeaderEpoch       []EpochEnd                  `json:"offsetForLeaderEpoch"`
	ListOffsetsSpecial         map[string]IsolationAnswers `json:"listOffsetsSpecial"`
	ListOffsetsSpecialVersions map[string]OffsetAnswer     `json:"listOffsetsSpecialByVersion"`
	ListOffsetsByTimestamp     []TimestampAnswers          `json:"listOffsetsByTimestamp"`
	OffsetForLeaderEpochEdge   json.RawMessage             `json:"offsetForLeaderEpochEdge"`
}

// LeaderFact is the partition in a Metadata answer.
type LeaderFact struct {
	Leader      int32 `json:"leader"`
	LeaderEpoch int32 `json:"leaderEpoch"`
}

// EpochEnd is an answer to OffsetForLeaderEpoch.
type EpochEnd struct {
	Asked       int32 `json:"asked"`
	Error       int16 `json:"error"`
	LeaderEpoch int32 `json:"leaderEpoch"`
	EndOffset   int64 `json:"endOffset"`
}

// OffsetAnswer is an answer to ListOffsets.
type OffsetAnswer struct {
	Error       int16 `json:"error"`
	Timestamp   int64 `json:"timestamp"`
	Offset      int64 `json:"offset"`
	LeaderEpoch int32 `json:"leaderEpoch"`
}

// IsolationAnswers are the answers at both isolation levels.
type IsolationAnswers struct {
	Uncommitted OffsetAnswer `json:"read_uncommitted"`
	Committed   OffsetAnswer `json:"read_committed"`
}

// TimestampAnswers are the answers for one timestamp.
type TimestampAnswers struct {
	Query int64 `json:"query"`
	IsolationAnswers
}

// Facts reads facts.json.
func (s *Set) Facts(tb testing.TB) *Facts {
	tb.Helper()
	var f Facts
	if err := json.NewDecoder(s.Open(tb, "facts.json")).Decode(&f); err != nil {
		tb.Fatalf("%s: facts: %v", s.Name, err)
	}
	return &f
}

// Partition is a partition of a set with what the broker said of it.
type Partition struct {
	remotestorage.TopicIDPartition
	PartitionFact
	Configs map[string]string
}

// Partitions lists the partitions of all topics, in a fixed order.
func (f *Facts) Partitions(tb testing.TB) []Partition {
	tb.Helper()
	var out []Partition
	for name, t := range f.Topics {
		for n, fact := range t.Partitions {
			i, err := strconv.ParseInt(n, 10, 32)
			if err != nil {
				tb.Fatal(err)
			}
			tp := remotestorage.TopicIDPartition{TopicID: TopicID(tb, t.ID), Topic: name, Partition: int32(i)}
			out = append(out, Partition{TopicIDPartition: tp, PartitionFact: fact, Configs: t.Configs})
		}
	}
	slices.SortFunc(out, func(a, b Partition) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	return out
}

// Epochs gives the partition's leader epochs by its answers to OffsetForLeaderEpoch: every epoch that was answered with itself exists, and starts where the
// one before it ends.
func (p *PartitionFact) Epochs() []remotestorage.EpochStart {
	var out []remotestorage.EpochStart
	start := p.LogStartOffset
	for _, a := range p.OffsetForLeaderEpoch {
		if a.Error != 0 || a.LeaderEpoch != a.Asked || a.LeaderEpoch < 0 {
			continue
		}
		if a.EndOffset > start || a.LeaderEpoch == p.Metadata.LeaderEpoch {
			out = append(out, remotestorage.EpochStart{LeaderEpoch: a.LeaderEpoch, StartOffset: start})
		}
		start = max(start, a.EndOffset)
	}
	return out
}
