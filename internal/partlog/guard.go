package partlog

import (
	"fmt"
	"math"

	"github.com/rewind-kafka/rewind/internal/producerstate"
)

// Guard says when a transaction was looked at: it is where the log ended then. Between a coordinator's word that a transaction is open and the append that
// relies on it, the transaction may end, marker and all; the batch would then begin a transaction that nobody ever ends.
type Guard int64

const (
	unguarded Guard = -1
	// NewerMarker is for markers of coordinators that raise a producer's epoch with each transaction's end: ErrInvalidProducerEpoch if it is still that of
	// the open transaction, unless it is the last there is. So a marker that is late cannot end the transaction after its own.
	NewerMarker Guard = -2
)

// Guard tells whether this incarnation of a producer has a transaction open in this log. If not, the coordinator is to be asked, and what it says is good for
// an AppendVerified with the guard.
func (l *Log) Guard(producerID int64, epoch int16) (g Guard, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Guard(l.producers.End()), l.producers.InTransaction(producerID, epoch)
}

// AppendVerified is Append of transactional batches. ErrUnverified: a transaction of the producer has ended since the guard was taken, and whether the next one
// is open must be found out anew.
func (l *Log) AppendVerified(records []byte, origin Origin, g Guard) (AppendInfo, error) {
	return l.appendGuarded(records, origin, g)
}

// checkGuard: l.mu is held.
func (l *Log) checkGuard(batches []checked, g Guard) error {
	if g == unguarded {
		return nil
	}
	for i := range batches {
		b := &batches[i]
		if g == NewerMarker {
			if b.marker && b.ProducerEpoch != math.MaxInt16 && l.producers.InTransaction(b.ProducerID, b.ProducerEpoch) {
				return fmt.Errorf("%w: producer %d, the records that the marker ends have its epoch %d", ErrInvalidProducerEpoch, b.ProducerID, b.ProducerEpoch)
			}
			continue
		}
		if b.IsTransactional() && !b.IsControl() && !l.producers.InTransaction(b.ProducerID, b.ProducerEpoch) && l.producers.MarkedSince(b.ProducerID, int64(g)) {
			return ErrUnverified
		}
	}
	return nil
}

// Producers are those that the log knows of, ascending by id.
func (l *Log) Producers() []producerstate.SnapshotEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.Snapshot()
}
