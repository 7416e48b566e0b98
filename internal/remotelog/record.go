// Package remotelog is Kafka's remote log metadata: the records of the topic `__remote_log_metadata`, which partition of it a record belongs to, and
// an index over them that answers, by leader epoch, which remote segment holds an offset.
//
// It knows no client, opens no file and has no goroutines: whoever reads or writes the metadata topic (internal/tier on a broker, later the gateway and the
// library) hands records in. internal/locate asks the index. The byte format is described in docs/format/remote-log-metadata.md.
package remotelog

import (
	"errors"
	"fmt"

	"github.com/rewind-kafka/rewind/remotestorage"
)

var (
	// ErrUnknown: a record of a kind or version that this code does not know. It is to be skipped, with one warning.
	ErrUnknown = errors.New("unknown remote log metadata record")
	// ErrMalformed: the bytes are not a record of the kind that they say they are.
	ErrMalformed = errors.New("malformed remote log metadata record")
)

// Record is one of *SegmentRecord, *UpdateRecord, *PartitionDeleteRecord and *SnapshotRecord.
type Record interface{ isRecord() }

// SegmentRecord announces a segment (RemoteLogSegmentMetadataRecord), normally in state COPY_SEGMENT_STARTED.
type SegmentRecord struct {
	remotestorage.RemoteLogSegmentMetadata
	// UnknownTags counts tagged fields that were skipped; Append does not write them.
	UnknownTags int
}

// UpdateRecord moves a segment to another state (RemoteLogSegmentMetadataUpdateRecord).
type UpdateRecord struct {
	remotestorage.RemoteLogSegmentID
	BrokerID         int32
	EventTimestampMs int64
	CustomMetadata   []byte // nil: none
	State            remotestorage.SegmentState
	UnknownTags      int
}

// PartitionDeleteState is KIP-405's RemotePartitionDeleteState.
type PartitionDeleteState int8

const (
	DeletePartitionMarked   PartitionDeleteState = 0
	DeletePartitionStarted  PartitionDeleteState = 1
	DeletePartitionFinished PartitionDeleteState = 2
)

func (s PartitionDeleteState) String() string {
	switch s {
	case DeletePartitionMarked:
		return "DELETE_PARTITION_MARKED"
	case DeletePartitionStarted:
		return "DELETE_PARTITION_STARTED"
	case DeletePartitionFinished:
		return "DELETE_PARTITION_FINISHED"
	}
	return fmt.Sprintf("PartitionDeleteState(%d)", int8(s))
}

// PartitionDeleteRecord says how far the deletion of a whole partition has come (RemotePartitionDeleteMetadataRecord). Apache Kafka 4.4 deletes topics
// without writing one.
type PartitionDeleteRecord struct {
	remotestorage.TopicIDPartition
	BrokerID         int32
	EventTimestampMs int64
	State            PartitionDeleteState
	UnknownTags      int
}

// SnapshotRecord is a segment as Kafka writes it to a snapshot file of one partition (RemoteLogSegmentMetadataSnapshotRecord). It does not name its
// topic or partition: those fields of the metadata are zero.
type SnapshotRecord struct {
	remotestorage.RemoteLogSegmentMetadata
	UnknownTags int
}

func (*SegmentRecord) isRecord()         {}
func (*UpdateRecord) isRecord()          {}
func (*PartitionDeleteRecord) isRecord() {}
func (*SnapshotRecord) isRecord()        {}
