// Package txn is the transaction coordinator of Kafka (KIP-98, with KIP-360, KIP-447 and both versions of KIP-890) for one transactional id, as a state
// machine without clock, goroutine, socket or file. Transaction.Step takes the time and a command and gives replies, records, and markers to be written; a
// record that is replayed leads to the same state.
//
// The caller (internal/broker) appends the records of an Output before it does anything else of it, and tells Failed if that cannot be done. Then it
// writes the markers into every partition named and comes back with Complete. It sends Tick when Deadline has come.
//
// Records are those of Apache Kafka's __transaction_state, so that each side reads the other's.
package txn

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"
)

// Errors of replies, each for one error code of the protocol.
var (
	ErrNotAvailable   = errors.New("coordinator not available")
	ErrConcurrent     = errors.New("another change of the transaction is in progress")
	ErrFenced         = errors.New("producer is fenced by a newer one with the same transactional id")
	ErrUnknownMapping = errors.New("producer id is not that of the transactional id")
	ErrState          = errors.New("transaction is in a state that does not allow it")
	ErrTimeout        = errors.New("transaction timeout is larger than transaction.max.timeout.ms, or not positive")
	ErrAbortable      = errors.New("partition is not part of the transaction, which must be aborted")
	ErrNotFound       = errors.New("transactional id not found")
)

// State of a transaction, by Kafka's names and numbers.
type State int8

const (
	Empty State = iota
	Ongoing
	PrepareCommit
	PrepareAbort
	CompleteCommit
	CompleteAbort
	Dead
	PrepareEpochFence
)

var stateNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

func (s State) String() string { return stateNames[s] }

// ParseState finds a state by its name.
func ParseState(name string) (State, bool) {
	i := slices.Index(stateNames[:], name)
	return State(i), i >= 0
}

// ended: the transaction is decided and its markers are written, or there is none.
func (s State) ended() bool { return s == Empty || s == CompleteCommit || s == CompleteAbort }

func (s State) prepared() bool { return s == PrepareCommit || s == PrepareAbort }

// Producer is an incarnation of a producer.
type Producer struct {
	ID    int64
	Epoch int16
}

// NoID and NoEpoch stand for none.
const (
	NoID    int64 = -1
	NoEpoch int16 = -1
)

// lastEpoch is the largest epoch that a client is given: the one above it is left for fencing it.
const lastEpoch = math.MaxInt16 - 1

// TopicPartition is a partition that takes part in a transaction.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func compareTP(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// Version is which kind of transactions a client runs.
type Version int16

const (
	// V1 clients name their partitions before they write to them, and keep their epoch from one transaction to the next.
	V1 Version = 0
	// V2 clients (KIP-890) get a new epoch with the end of each transaction, so that nothing of the one before can come late.
	V2 Version = 2
)

func (v Version) bumps() bool { return v >= V2 }

// Config is what a transaction needs of the broker's configuration.
type Config struct {
	MaxTimeout time.Duration // transaction.max.timeout.ms
	Expiration time.Duration // transactional.id.expiration.ms
}

// Transaction is one transactional id and its current transaction. Its methods must not be called concurrently.
type Transaction struct {
	id     string
	config func() Config
	metadata
}

// metadata is copied by value before a step, to be put back if its record cannot be written. partitions is replaced, never changed in place.
type metadata struct {
	state      State
	producer   Producer
	lastEpoch  int16 // the epoch before the last bump that the client asked for: naming it is a retry of that; NoEpoch: no retry is possible
	previousID int64
	nextID     int64 // what the id becomes with the end of the transaction, as its epochs are used up; NoID
	timeout    time.Duration
	partitions []TopicPartition // sorted
	started    time.Time        // zero: there is no transaction
	updated    time.Time
	version    Version // of the client that began or ended the last transaction
}

// New makes the state of a transactional id that nobody has used yet. config is asked at each step, so that it may change.
func New(id string, config func() Config, now time.Time) *Transaction {
	return &Transaction{id: id, config: config, metadata: metadata{
		producer: Producer{NoID, NoEpoch}, lastEpoch: NoEpoch, previousID: NoID, nextID: NoID, updated: now,
	}}
}

// ID is the transactional id.
func (t *Transaction) ID() string { return t.id }

// State is where the transaction stands.
func (t *Transaction) State() State { return t.state }

// Disposable tells whether nothing would be lost if the id were forgotten: it has expired, or no record of it was ever written.
func (t *Transaction) Disposable() bool {
	return t.state == Dead || t.state == Empty && t.producer.ID == NoID
}

// Deadline is when Tick is due. ok is false while nothing can happen by itself.
func (t *Transaction) Deadline() (at time.Time, ok bool) {
	if t.state != Ongoing {
		return time.Time{}, false
	}
	return t.started.Add(t.timeout), true
}

// Description is a transaction as DescribeTransactions and ListTransactions give it.
type Description struct {
	State      State
	Producer   Producer
	Timeout    time.Duration
	Started    time.Time        // zero: there is no transaction
	Partitions []TopicPartition // not to be changed
}

// Describe returns what is to be told of the transaction.
func (t *Transaction) Describe() Description {
	return Description{State: t.state, Producer: t.producer, Timeout: t.timeout, Started: t.started, Partitions: t.partitions}
}

// with gives the sorted union of the partitions of the transaction and more.
func (m *metadata) with(more []TopicPartition) []TopicPartition {
	union := slices.Concat(m.partitions, more)
	slices.SortFunc(union, compareTP)
	return slices.Compact(union)
}

func (m *metadata) has(tp TopicPartition) bool {
	_, found := slices.BinarySearchFunc(m.partitions, tp, compareTP)
	return found
}

func (m *metadata) hasAll(tps []TopicPartition) bool {
	for _, tp := range tps {
		if !m.has(tp) {
			return false
		}
	}
	return true
}
