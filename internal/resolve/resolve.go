// Package resolve holds the words between who knows where history lies on somebody else's cluster (package metadatatopic, which reads Apache Kafka's own
// metadata topic) and who reads it for a client (internal/history, for the gateway and for the library). It has no code of its own, and no goroutines.
package resolve

import (
	"context"
	"errors"
	"fmt"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/remotestorage"
)

var (
	// ErrNotReady: the metadata topic has not been read to its end, or what is known of the partition is too old. It wraps remote.ErrLocal: the broker serves.
	ErrNotReady = fmt.Errorf("not everything is known of the partition yet: %w", remote.ErrLocal)
	// ErrEpoch: the question's leader epochs are not those of the confirmed lineage (KIP-320). It wraps remote.ErrLocal: the broker judges.
	ErrEpoch = fmt.Errorf("the client's leader epoch is not the confirmed one: %w", remote.ErrLocal)
	// ErrNotOffered: the range is there but a client may not be sent to it. Who resolved reads it itself.
	ErrNotOffered = errors.New("segment is not offered to clients")
)

// Question asks for the history of a partition from an offset on.
type Question struct {
	TP        remotestorage.TopicIDPartition // complete: name and id
	Offset    int64
	Committed bool // the answer comes with the aborted transactions
	// The leader epochs of the client's Fetch (KIP-320), -1 where it sends none.
	CurrentLeaderEpoch, LastFetchedEpoch int32
	// MaxBytes is about how much a location may grant; 0: no limit. Resolve does not heed it.
	MaxBytes int64
}

// Facts is what the cluster last said of a partition.
type Facts struct {
	LeaderEpoch int32
	// LogStart is at most five seconds old, HighWatermark and LastStable at most one, while somebody asks for them.
	LogStart, HighWatermark, LastStable int64
	// LocalStart is the first offset that the leader still has on its own disk.
	LocalStart int64
}

// Learnt is what an answer of the cluster that passed by said of a partition; -1 where it said nothing.
type Learnt struct {
	LogStart, HighWatermark, LastStable int64
}

// Resolver knows where the history of a cluster's partitions lies. It is safe for concurrent use. An error that wraps remote.ErrLocal means that the broker is to
// serve the offset; any other is a failure, after which the broker serves as well, for a while.
type Resolver interface {
	// Topic completes a topic of which the client gave the name or the id.
	Topic(ctx context.Context, name string, id remotestorage.UUID) (string, remotestorage.UUID, error)
	// Facts gives what is known, and keeps it fresh for some seconds from now. The first time it asks the cluster.
	Facts(ctx context.Context, tp remotestorage.TopicIDPartition) (Facts, error)
	// Known is Facts without waiting; false if nothing fresh enough is known.
	Known(tp remotestorage.TopicIDPartition) (Facts, bool)
	// Local tells, without waiting, whether the offset is surely not to be read from the store, so that a reader of the newest records never waits.
	Local(tp remotestorage.TopicIDPartition, offset int64) bool
	// Resolve finds the range of a remote segment that holds the offset, or the next batch after it.
	Resolve(ctx context.Context, q Question) (remote.Range, error)
	// Location makes a location of a range that Resolve has found for the question, signed if the store signs; it may shorten the range, to the question's
	// MaxBytes too. ErrNotOffered as above.
	Location(ctx context.Context, q Question, rng *remote.Range) (*remotestorage.Location, error)
	// Learn takes note of an answer that passed by.
	Learn(tp remotestorage.TopicIDPartition, l Learnt)
	// Moved says that a broker answered with error 6, 74 or 75: what is known of the partition is to be learnt anew.
	Moved(tp remotestorage.TopicIDPartition)
}
