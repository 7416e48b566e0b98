package aiven

import (
	"fmt"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// The objects of one segment.
const (
	logSuffix      = ".log"
	indexesSuffix  = ".indexes"
	manifestSuffix = ".rsm-manifest"
)

const (
	offsetDigits = 20
	idLength     = 22
)

// partitionDir is the folder of a partition, with its slash.
func partitionDir(tp remotestorage.TopicIDPartition) string {
	return fmt.Sprintf("%s-%s/%d/", tp.Topic, tp.TopicID, tp.Partition)
}

// segmentName is what the names of a segment's objects have in common, without prefix and suffix.
func segmentName(id remotestorage.RemoteLogSegmentID, base int64) string {
	return fmt.Sprintf("%s%0*d-%s", partitionDir(id.TopicIDPartition), offsetDigits, base, id.ID)
}
