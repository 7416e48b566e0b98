package partlog

import (
	"errors"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rewind-kafka/rewind/internal/batch"
)

// A marker that is to be newer than the records it ends. Nothing is newer than the last epoch, and where nothing is open it may be a marker once more.
func TestNewerMarker(t *testing.T) {
	ts := epoch0.UnixMilli()
	for name, c := range map[string]struct {
		records, marker int16
		open            bool
		want            error
	}{
		"newer":                          {3, 4, true, nil},
		"that of the records":            {3, 3, true, ErrInvalidProducerEpoch},
		"older":                          {3, 2, true, ErrInvalidProducerEpoch},
		"older, nothing open":            {3, 2, false, ErrInvalidProducerEpoch},
		"that of the records, none open": {3, 3, false, nil},
		"the last there is":              {math.MaxInt16, math.MaxInt16, true, nil},
		"the one before the last":        {math.MaxInt16 - 1, math.MaxInt16 - 1, true, ErrInvalidProducerEpoch},
	} {
		t.Run(name, func(t *testing.T) {
			l := mustOpen(t, testOptions(vfs.NewMem()))
			b := plain(1, ts, 10).producer(7, c.records, 0).build(t)
			if c.open {
				b[22] |= batch.Transactional
				batch.FixCRC(b)
			}
			mustAppend(t, l, b)
			_, err := l.AppendVerified(marker(7, c.marker, true, 1, ts), Internal, NewerMarker)
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if open := l.producers.InTransaction(7, c.records); open != (c.open && err != nil) {
				t.Errorf("open %v after %v", open, err)
			}
			mustClose(t, l)
		})
	}
}
