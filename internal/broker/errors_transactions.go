package broker

import (
	"errors"

	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// Error codes that only transactions have.
const (
	errNotEnoughReplicas        int16 = 19
	errInvalidProducerID        int16 = 49
	errInvalidTxnTimeout        int16 = 50
	errConcurrentTransactions   int16 = 51
	errTransactionalIDDenied    int16 = 53
	errUnstableOffsetCommit     int16 = 88
	errProducerFenced           int16 = 90
	errTransactionAbortable     int16 = 120
	errInvalidRegularExpression int16 = 128
)

// txnErrors are the error codes of what a transaction refuses.
var txnErrors = []struct {
	err  error
	code int16
}{
	{errLoading, errCoordinatorLoading},
	{errNotAvailable, errCoordinatorNotAvailable},
	{errNoTransactionalID, errInvalidRequest},
	{errNameTooLong, errInvalidRequest},
	{txn.ErrNotAvailable, errCoordinatorNotAvailable},
	{txn.ErrConcurrent, errConcurrentTransactions},
	{txn.ErrFenced, errProducerFenced},
	{txn.ErrUnknownMapping, errInvalidProducerID},
	{txn.ErrState, errInvalidTxnState},
	{txn.ErrTimeout, errInvalidTxnTimeout},
	{txn.ErrAbortable, errTransactionAbortable},
	{txn.ErrNotFound, errTransactionalIDNotFound},
}

func txnCode(err error) int16 {
	if err == nil {
		return errNone
	}
	for _, e := range txnErrors {
		if errors.Is(err, e.err) {
			return e.code
		}
	}
	return errUnknown
}

// txnCodeFor is txnCode for clients that may be too old to know of PRODUCER_FENCED.
func txnCodeFor(err error, version, firstFenced int16) int16 {
	code := txnCode(err)
	if code == errProducerFenced && version < firstFenced {
		return errInvalidProducerEpoch
	}
	return code
}
