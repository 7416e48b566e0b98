package locate

import (
	"fmt"
	"math"
	"testing"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestObjectName: a name is a base offset of twenty digits and the segment's id, as layouts write it.
func TestObjectName(t *testing.T) {
	for _, offset := range []int64{0, 7, 12345, math.MaxInt64} {
		m := &remotestorage.RemoteLogSegmentMetadata{StartOffset: offset}
		m.ID = remotestorage.RandomUUID()
		if got, want := objectName(m, ".log"), fmt.Sprintf("%020d-%s.log", offset, m.ID); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
