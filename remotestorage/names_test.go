package remotestorage

import (
	"fmt"
	"testing"
)

func TestNames(t *testing.T) {
	for want, v := range map[string]fmt.Stringer{
		"COPY_SEGMENT_STARTED": CopySegmentStarted, "DELETE_SEGMENT_FINISHED": DeleteSegmentFinished, "SegmentState(9)": SegmentState(9), "SegmentState(-1)": SegmentState(-1),
		"offset": IndexOffset, "leader epoch": IndexLeaderEpoch, "IndexType(5)": IndexType(5), "IndexType(-1)": IndexType(-1),
		"orders-3":                        TopicIDPartition{Topic: "orders", Partition: 3},
		"orders-3/AAAAAAAAAAAAAAAAAAAAAQ": RemoteLogSegmentID{TopicIDPartition: TopicIDPartition{Topic: "orders", Partition: 3}, ID: UUID{15: 1}},
	} {
		if got := v.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
