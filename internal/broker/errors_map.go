package broker

import (
	"errors"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/topics"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// appendError gives the code for a failed append.
func appendError(err error) int16 {
	for _, e := range [...]struct {
		err  error
		code int16
	}{
		{partlog.ErrCorruptMessage, errCorruptMessage},
		{partlog.ErrMessageTooLarge, errMessageTooLarge},
		{partlog.ErrBatchListTooLarge, errRecordListTooLarge},
		{partlog.ErrInvalidTimestamp, errInvalidTimestamp},
		{partlog.ErrInvalidRecord, errInvalidRecord},
		{partlog.ErrDecompress, errUnknown},
		{partlog.ErrUnsupportedFormat, errUnsupportedForFormat},
		{partlog.ErrOutOfOrderSequence, errOutOfOrderSequence},
		{partlog.ErrInvalidProducerEpoch, errInvalidProducerEpoch},
		{partlog.ErrInvalidTxnState, errInvalidTxnState},
		{partlog.ErrCoordinatorFenced, errCoordinatorFenced},
		{partlog.ErrClosed, errNotLeader}, // closing, or the topic was just deleted: the client looks again
		{partlog.ErrStorage, errStorage},
	} {
		if errors.Is(err, e.err) {
			return e.code
		}
	}
	return errUnknown
}

// readError gives the code for a failed read of the local log.
func readError(err error) int16 {
	switch {
	case errors.Is(err, partlog.ErrOutOfRange):
		return errOffsetOutOfRange
	case errors.Is(err, partlog.ErrClosed):
		return errNotLeader
	case errors.Is(err, partlog.ErrStorage):
		return errStorage
	case errors.Is(err, partlog.ErrInvalidRecord):
		return errInvalidRecord // a record above max.decompressed.message.bytes, in a lookup by timestamp
	}
	return errUnknown
}

// remoteError gives the code for a failed remote read: damage is final, a store that is away, or refuses for now (credentials that have run out), is not.
func remoteError(err error) int16 {
	if errors.Is(err, remote.ErrUnavailable) || errors.Is(err, remotestorage.ErrDenied) {
		return errStorage
	}
	return errUnknown
}

// topicError gives the code for a failed change of a topic.
func topicError(err error) int16 {
	switch {
	case errors.Is(err, topics.ErrExists):
		return errTopicAlreadyExists
	case errors.Is(err, topics.ErrUnknown):
		return errUnknownTopicOrPartition
	case errors.Is(err, errNotMore):
		return errInvalidPartitions
	case errors.Is(err, topics.ErrName), errors.Is(err, topics.ErrCollision):
		return errInvalidTopic
	case errors.Is(err, config.ErrUnknownKey), errors.Is(err, config.ErrInvalidValue):
		return errInvalidConfig
	case errors.Is(err, partlog.ErrStorage):
		return errStorage
	}
	return errUnknown
}
