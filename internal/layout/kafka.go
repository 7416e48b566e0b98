// Package layout names the objects of a remote log store; docs/format/remote-layout.md is its page. Layout kafka is that of Apache Kafka's LocalTieredStorage:
//
//	<prefix>/<topic>-<partition>-<topicId>/<base offset, 20 digits>-<segmentId><suffix>
//
// Ids are Kafka's Uuid text, 22 characters, which may hold '-' as topic names may: names are taken apart from the end.
// The package does no I/O, keeps nothing and imports remotestorage only; stores and tools that look into stores import it.
package layout

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Suffix tells the files of one segment apart.
type Suffix string

const (
	Log              Suffix = ".log"
	OffsetIndex      Suffix = ".index"
	TimeIndex        Suffix = ".timeindex"
	TransactionIndex Suffix = ".txnindex" // there only if the segment has aborted transactions
	LeaderEpoch      Suffix = ".leader_epoch_checkpoint"
	ProducerSnapshot Suffix = ".snapshot"
)

// ErrName: a name that is not of this layout. Stores are shared; whoever lists one passes over such names.
var ErrName = errors.New("not a name of layout kafka")

const (
	idLength     = 22
	offsetDigits = 20
)

// IndexSuffix is the file that holds an index.
func IndexSuffix(t remotestorage.IndexType) (Suffix, error) {
	switch t {
	case remotestorage.IndexOffset:
		return OffsetIndex, nil
	case remotestorage.IndexTimestamp:
		return TimeIndex, nil
	case remotestorage.IndexProducerSnapshot:
		return ProducerSnapshot, nil
	case remotestorage.IndexTransaction:
		return TransactionIndex, nil
	case remotestorage.IndexLeaderEpoch:
		return LeaderEpoch, nil
	}
	return "", fmt.Errorf("index type %d has no file", int8(t))
}

// PartitionDir is the folder of one partition, without a slash.
func PartitionDir(tp remotestorage.TopicIDPartition) string {
	return tp.Topic + "-" + strconv.FormatInt(int64(tp.Partition), 10) + "-" + tp.TopicID.String()
}

// ParsePartitionDir reads what PartitionDir writes.
func ParsePartitionDir(name string) (remotestorage.TopicIDPartition, error) {
	var tp remotestorage.TopicIDPartition
	cut := len(name) - idLength - 1
	if cut < 0 || name[cut] != '-' {
		return tp, fmt.Errorf("folder %q: %w", name, ErrName)
	}
	id, err := parseID(name[cut+1:])
	if err != nil {
		return tp, fmt.Errorf("folder %q: %w", name, ErrName)
	}
	dash := strings.LastIndexByte(name[:cut], '-')
	if dash < 1 {
		return tp, fmt.Errorf("folder %q: %w", name, ErrName)
	}
	partition, err := strconv.ParseInt(name[dash+1:cut], 10, 32)
	if err != nil || partition < 0 || strconv.FormatInt(partition, 10) != name[dash+1:cut] {
		return tp, fmt.Errorf("folder %q: %w", name, ErrName)
	}
	topic := name[:dash]
	if !validTopic(topic) {
		return tp, fmt.Errorf("folder %q: %w", name, ErrName)
	}
	return remotestorage.TopicIDPartition{TopicID: id, Topic: topic, Partition: int32(partition)}, nil
}

// SegmentName is what the names of a segment's files have in common, folder included.
func SegmentName(id remotestorage.RemoteLogSegmentID, base int64) string {
	return fmt.Sprintf("%s/%0*d-%s", PartitionDir(id.TopicIDPartition), offsetDigits, base, id.ID)
}

// ObjectName is the name of one file of a segment, folder included.
func ObjectName(id remotestorage.RemoteLogSegmentID, base int64, s Suffix) string {
	return SegmentName(id, base) + string(s)
}

// Object is a name taken apart.
type Object struct {
	remotestorage.RemoteLogSegmentID
	BaseOffset int64
	Suffix     Suffix
}

// ParseObject reads what ObjectName writes.
func ParseObject(name string) (Object, error) {
	dir, file, ok := strings.Cut(name, "/")
	if !ok {
		return Object{}, fmt.Errorf("object %q: %w", name, ErrName)
	}
	tp, err := ParsePartitionDir(dir)
	if err != nil {
		return Object{}, fmt.Errorf("object %q: %w", name, ErrName)
	}
	dot := strings.IndexByte(file, '.')
	if dot != offsetDigits+1+idLength || file[offsetDigits] != '-' {
		return Object{}, fmt.Errorf("object %q: %w", name, ErrName)
	}
	suffix := Suffix(file[dot:])
	switch suffix {
	case Log, OffsetIndex, TimeIndex, TransactionIndex, LeaderEpoch, ProducerSnapshot:
	default:
		return Object{}, fmt.Errorf("object %q: %w", name, ErrName)
	}
	base, err := strconv.ParseUint(file[:offsetDigits], 10, 63)
	if err != nil {
		return Object{}, fmt.Errorf("object %q: %w", name, ErrName)
	}
	id, err := parseID(file[offsetDigits+1 : dot])
	if err != nil {
		return Object{}, fmt.Errorf("object %q: %w", name, ErrName)
	}
	return Object{
		RemoteLogSegmentID: remotestorage.RemoteLogSegmentID{TopicIDPartition: tp, ID: id},
		BaseOffset:         int64(base),
		Suffix:             suffix,
	}, nil
}

// parseID takes an id in its one spelling only: base64 ignores the last character's low bits, and two names must not mean one segment.
func parseID(s string) (remotestorage.UUID, error) {
	id, err := remotestorage.ParseUUID(s)
	if err != nil {
		return id, err
	}
	if id.String() != s {
		return id, ErrName
	}
	return id, nil
}

// validTopic is Kafka's rule for topic names.
func validTopic(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 249 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
