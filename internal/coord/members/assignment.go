package members

import (
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// Assignment says of which epoch the target assignment is, and when it was made.
type Assignment struct {
	Epoch int32
	Made  int64 // milliseconds, 0: the next may come at once
}

// MayAssign tells whether the last assignment is long enough ago. One of a time to come was made before the clock was set back: nobody is to wait for that.
func (a Assignment) MayAssign(now time.Time, interval time.Duration) bool {
	made := time.UnixMilli(a.Made)
	return a.Made == 0 || interval == 0 || !now.Before(made.Add(interval)) || now.UnixMilli() < a.Made
}

// AssignmentType is the type of record that keeps it. Its tag 0 is when the assignment was made (KIP-1263).
func AssignmentType[G group.Kind](version uint16, of func(G) *Assignment) *RecordType[G, Assignment] {
	return &RecordType[G, Assignment]{
		Version: version,
		Write: func(b []byte, v *Assignment) []byte {
			var made []byte
			if v.Made != 0 {
				made = kbin.AppendInt64(nil, v.Made)
			}
			return AppendTags(kbin.AppendInt32(b, v.Epoch), made)
		},
		Read: func(r *Reader) *Assignment {
			v := &Assignment{Epoch: r.Int32()}
			r.Tags(func(f *Reader) { v.Made = f.Int64() })
			return v
		},
		Apply: func(g G, _ string, v *Assignment) func() {
			if v == nil {
				v = &Assignment{Epoch: FirstEpoch}
			}
			return Set(of(g), *v)
		},
	}
}
