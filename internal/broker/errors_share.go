package broker

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/rewind-kafka/rewind/internal/coord/share"
	"github.com/rewind-kafka/rewind/internal/coord/sharestate"
	"github.com/rewind-kafka/rewind/internal/sharepart"
	"github.com/rewind-kafka/rewind/internal/sharesession"
)

// Kafka's error codes of share groups.
const (
	errInvalidRecordState   int16 = 121
	errShareSessionNotFound int16 = 122
	errInvalidShareSession  int16 = 123
	errShareSessionLimit    int16 = 133
)

// shareErrors are the error codes of what share groups refuse.
var shareErrors = []struct {
	err  error
	code int16
}{
	{share.ErrFencedEpoch, errFencedMemberEpoch},
	{sharepart.ErrInvalidRecordState, errInvalidRecordState},
	{sharepart.ErrInvalidRequest, errInvalidRequest},
	{sharesession.ErrNotFound, errShareSessionNotFound},
	{sharesession.ErrInvalidEpoch, errInvalidShareSession},
	{sharesession.ErrLimit, errShareSessionLimit},
	{sharestate.ErrFencedState, errNotLeader},
	{sharestate.ErrFencedLeader, errNotLeader},
	{errShareFenced, errNotLeader}, // it comes again, and finds what was kept
	{errLoading, errCoordinatorNotAvailable},
}

func shareCode(err error) int16 {
	if err == nil {
		return errNone
	}
	if c, ok := codeIn(err); ok {
		return c
	}
	for _, e := range shareErrors {
		if errors.Is(err, e.err) {
			return e.code
		}
	}
	return groupCode(err)
}

// codeError is an error that is only a code.
type codeError int16

func (e codeError) Error() string {
	if err := kerr.ErrorForCode(int16(e)); err != nil {
		return err.Error()
	}
	return "unknown error"
}

func codeIn(err error) (int16, bool) {
	var c codeError
	ok := errors.As(err, &c)
	return int16(c), ok
}

// shareHandlers are the keys of share groups.
func (b *Broker) shareHandlers() []api {
	return []api{
		on(1, 1, b.handleShareGroupHeartbeat),
		on(1, 1, b.handleShareGroupDescribe),
		later(1, 2, b.handleShareFetch),
		on(1, 2, b.handleShareAcknowledge),
		on(0, 1, b.handleDescribeShareGroupOffsets),
		on(0, 0, b.handleAlterShareGroupOffsets),
		on(0, 0, b.handleDeleteShareGroupOffsets),
	}
}
