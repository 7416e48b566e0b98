package clustertest

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Retried asks until the answer is none of those that clients ask again after: errors that Kafka calls retriable, and connections that are lost. An Apache Kafka gives one
// now and then where nothing is wrong: after an election, and where it has not got round to something. (A ListOffsets by time that reads remotely is told
// REQUEST_TIMED_OUT at once where the read ends between the two looks that DelayedRemoteListOffsets.tryComplete of 4.4.0 takes at it.) A test that compares
// answers must compare what comes after that. It gives up after two minutes, with the last error.
func Retried(ctx context.Context, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, awaitFor)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil || !Temporary(err) {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// Temporary errors are what clients try again after by themselves.
func Temporary(err error) bool { return kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err) }
