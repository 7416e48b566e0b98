package broker

import (
	"errors"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/streams"
)

// groupErrors are the error codes of what a group refuses.
var groupErrors = []struct {
	err  error
	code int16
}{
	{errLoading, errCoordinatorLoading},
	{errNotAvailable, errCoordinatorNotAvailable},
	{errInvalidGroup, errInvalidGroupID},
	{errNameTooLong, errInvalidGroupID},
	{group.ErrNotAvailable, errCoordinatorNotAvailable},
	{group.ErrIllegalGeneration, errIllegalGeneration},
	{group.ErrInconsistent, errInconsistentProtocol},
	{group.ErrUnknownMember, errUnknownMemberID},
	{group.ErrSessionTimeout, errInvalidSessionTimeout},
	{group.ErrRebalance, errRebalanceInProgress},
	{group.ErrMemberIDRequired, errMemberIDRequired},
	{group.ErrMaxSize, errGroupMaxSize},
	{group.ErrFenced, errFencedInstanceID},
	{group.ErrNonEmpty, errNonEmptyGroup},
	{group.ErrNotFound, errGroupIDNotFound},
	{group.ErrSubscribed, errGroupSubscribed},
	{group.ErrTooLarge, errInvalidCommitOffsetSize},
	{group.ErrMetadataTooLarge, errOffsetMetadataTooLarge},
	{group.ErrUnknownTopicOrPart, errUnknownTopicOrPartition},
	{group.ErrInvalidRequest, errInvalidRequest},
	{group.ErrFencedEpoch, errFencedMemberEpoch},
	{group.ErrStaleEpoch, errStaleMemberEpoch},
	{group.ErrUnreleased, errUnreleasedInstanceID},
	{group.ErrUnsupportedAssignor, errUnsupportedAssignor},
	{group.ErrInvalidRegex, errInvalidRegex},
	{group.ErrUnsupportedVersion, errUnsupportedVersion},
	{streams.ErrInvalidTopology, errStreamsInvalidTopology},
}

func groupCode(err error) int16 {
	if err == nil {
		return errNone
	}
	for _, e := range groupErrors {
		if errors.Is(err, e.err) {
			return e.code
		}
	}
	return errUnknown
}
