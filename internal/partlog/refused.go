package partlog

import (
	"errors"
	"fmt"
)

// RecordError says what is wrong with one record of a batch that was refused.
type RecordError struct {
	Index  int32 // in the batch, from 0
	Reason string
}

// RecordsError: a batch was refused for some of its records. It is ErrInvalidTimestamp if the time of one is wrong, else ErrInvalidRecord (as in Apache Kafka, KIP-467).
type RecordsError struct {
	Records []RecordError // at most maxRefused, the first ones
	err     error
}

func (e *RecordsError) Error() string { return e.err.Error() }
func (e *RecordsError) Unwrap() error { return e.err }

// maxRefused bounds what a batch of very many wrong records makes of itself in an answer.
const maxRefused = 1000

// refused gathers what is wrong with single records of a batch. The zero value has nothing.
type refused struct {
	records []RecordError
	err     error
}

// add takes what is wrong with record n; nil is nothing. A wrong time is the batch's error rather than a missing key.
func (r *refused) add(n int32, err error) {
	if err == nil {
		return
	}
	if r.err == nil || errors.Is(err, ErrInvalidTimestamp) && !errors.Is(r.err, ErrInvalidTimestamp) {
		r.err = fmt.Errorf("record %d: %w", n, err)
	}
	if len(r.records) < maxRefused {
		r.records = append(r.records, RecordError{n, err.Error()})
	}
}

func (r *refused) all() error {
	if r.err == nil {
		return nil
	}
	return &RecordsError{r.records, r.err}
}
