package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions of the records of __transaction_state, as Apache Kafka 4.4 writes them.
const (
	keyVersion   = 0
	valueVersion = 1
)

// ErrUnknownRecord: a record of a kind or version that is not known here.
var ErrUnknownRecord = errors.New("unknown record in __transaction_state")

// Record is one record of __transaction_state. A nil value is a tombstone.
type Record struct{ Key, Value []byte }

func key(id string) []byte {
	k := kmsg.NewTxnMetadataKey()
	k.Version, k.TransactionalID = keyVersion, id
	return k.AppendTo(nil)
}

func (t *Transaction) record() Record {
	v := kmsg.NewTxnMetadataValue()
	v.Version, v.ProducerID, v.ProducerEpoch = valueVersion, t.producer.ID, t.producer.Epoch
	v.TimeoutMillis, v.State = int32(t.timeout.Milliseconds()), kmsg.TransactionState(t.state)
	v.LastUpdateTimestamp, v.StartTimestamp = t.updated.UnixMilli(), millis(t.started)
	v.PreviousProducerID, v.NextProducerID, v.ClientTransactionVersion = t.previousID, t.nextID, int16(t.version)
	if t.state != Empty { // an empty one has null
		v.Topics = []kmsg.TxnMetadataValueTopic{}
	}
	for _, tp := range t.partitions { // sorted
		n := len(v.Topics)
		if n == 0 || v.Topics[n-1].Topic != tp.Topic {
			v.Topics = append(v.Topics, kmsg.TxnMetadataValueTopic{Topic: tp.Topic})
			n++
		}
		v.Topics[n-1].Partitions = append(v.Topics[n-1].Partitions, tp.Partition)
	}
	return Record{Key: key(t.id), Value: v.AppendTo(nil)}
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}

func timeOf(ms int64) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Entry is a record taken apart. State is nil for a tombstone.
type Entry struct {
	ID    string
	State *kmsg.TxnMetadataValue
}

// ParseRecord takes a record apart. It does not alias key and value.
func ParseRecord(key, value []byte) (Entry, error) {
	if len(key) < 2 {
		return Entry{}, fmt.Errorf("key of %d bytes: %w", len(key), ErrUnknownRecord)
	}
	if v := binary.BigEndian.Uint16(key); v != keyVersion {
		return Entry{}, fmt.Errorf("key version %d: %w", v, ErrUnknownRecord)
	}
	var k kmsg.TxnMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return Entry{}, fmt.Errorf("parsing the key of a transaction: %w", err)
	}
	e := Entry{ID: k.TransactionalID}
	if value == nil {
		return e, nil
	}
	if len(value) < 2 {
		return Entry{}, fmt.Errorf("value of %d bytes: %w", len(value), ErrUnknownRecord)
	}
	if v := binary.BigEndian.Uint16(value); v > valueVersion {
		return Entry{}, fmt.Errorf("value version %d: %w", v, ErrUnknownRecord)
	}
	v := kmsg.NewTxnMetadataValue()
	if err := v.ReadFrom(append([]byte(nil), value...)); err != nil {
		return Entry{}, fmt.Errorf("parsing transaction %s: %w", e.ID, err)
	}
	if v.State < 0 || int(v.State) >= len(stateNames) {
		return Entry{}, fmt.Errorf("transaction %s in state %d: %w", e.ID, v.State, ErrUnknownRecord)
	}
	e.State = &v
	return e, nil
}

// Replay lets a record of the log take effect. After the last one, Loaded makes the transaction ready for commands.
func (t *Transaction) Replay(e Entry) {
	v := e.State
	if v == nil {
		t.state = Dead
		return
	}
	t.metadata = metadata{
		state: State(v.State), producer: Producer{v.ProducerID, v.ProducerEpoch}, lastEpoch: NoEpoch, previousID: v.PreviousProducerID, nextID: v.NextProducerID,
		timeout: time.Duration(v.TimeoutMillis) * time.Millisecond, started: timeOf(v.StartTimestamp), updated: timeOf(v.LastUpdateTimestamp),
		version: Version(v.ClientTransactionVersion),
	}
	var list []TopicPartition
	for _, topic := range v.Topics {
		for _, p := range topic.Partitions {
			list = append(list, TopicPartition{topic.Topic, p})
		}
	}
	t.partitions = t.with(list)
}

// Loaded gives the markers that a crash may have left unwritten: a transaction that was decided is completed, whatever happens.
func (t *Transaction) Loaded() *Markers {
	if !t.state.prepared() {
		return nil
	}
	return t.markers()
}
