package sharestate

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
)

// Record is one record of __share_group_state. A nil Value deletes.
type Record struct{ Key, Value []byte }

// Record types: the first two bytes of a key. The first two bytes of a value are its version.
const (
	typeSnapshot int16 = 0
	typeUpdate   int16 = 1

	valueVersion int16 = 0
	// tagComplete is the tag of Complete (KIP-1226); absent it is -1.
	tagComplete = 0
)

// Errors of records.
var (
	ErrUnknownRecord = errors.New("unknown kind of record in __share_group_state")
	ErrRecord        = errors.New("damaged record in __share_group_state")
)

// Entry is a record taken apart.
type Entry struct {
	Key      Key
	Snapshot bool // else an update
	Deleted  bool
	State    State
}

// uuid is how Apache Kafka writes topic ids.
func uuid(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func appendKey(kind int16, k Key) []byte {
	b := kbin.AppendInt16(nil, kind)
	b = kbin.AppendString(b, k.Group)
	b = kbin.AppendUuid(b, k.TopicID)
	return kbin.AppendInt32(b, k.Partition)
}

func tombstone(k Key) Record { return Record{Key: appendKey(typeSnapshot, k)} }

func snapshotRecord(k Key, s *State) Record {
	b := kbin.AppendInt16(nil, valueVersion)
	b = kbin.AppendInt32(b, s.SnapshotEpoch)
	b = kbin.AppendInt32(b, s.Epoch)
	b = kbin.AppendInt32(b, s.LeaderEpoch)
	b = kbin.AppendInt64(b, s.Start)
	b = kbin.AppendInt64(b, s.Created.UnixMilli())
	b = kbin.AppendInt64(b, s.Written.UnixMilli())
	return Record{Key: appendKey(typeSnapshot, k), Value: appendTail(b, s)}
}

func updateRecord(k Key, s *State) Record {
	b := kbin.AppendInt16(nil, valueVersion)
	b = kbin.AppendInt32(b, s.SnapshotEpoch)
	b = kbin.AppendInt32(b, s.LeaderEpoch)
	b = kbin.AppendInt64(b, s.Start)
	return Record{Key: appendKey(typeUpdate, k), Value: appendTail(b, s)}
}

func appendTail(b []byte, s *State) []byte {
	b = kbin.AppendCompactArrayLen(b, len(s.Batches))
	for _, k := range s.Batches {
		b = kbin.AppendInt64(b, k.First)
		b = kbin.AppendInt64(b, k.Last)
		b = kbin.AppendInt8(b, k.State)
		b = kbin.AppendInt16(b, k.Count)
		b = kbin.AppendUvarint(b, 0)
	}
	if s.Complete == -1 {
		return kbin.AppendUvarint(b, 0)
	}
	b = kbin.AppendUvarint(b, 1)
	b = kbin.AppendUvarint(b, tagComplete)
	b = kbin.AppendUvarint(b, 4)
	return kbin.AppendInt32(b, s.Complete)
}

// ParseRecord takes a record apart. ErrUnknownRecord: a later release wrote it.
func ParseRecord(key, value []byte) (e Entry, err error) {
	r := kbin.Reader{Src: key}
	switch kind := r.Int16(); {
	case !r.Ok():
		return e, fmt.Errorf("%w: key of %d bytes", ErrRecord, len(key))
	case kind == typeSnapshot:
		e.Snapshot = true
	case kind != typeUpdate:
		return e, fmt.Errorf("%w: type %d", ErrUnknownRecord, kind)
	}
	e.Key.Group = r.String()
	e.Key.TopicID = r.Uuid()
	e.Key.Partition = r.Int32()
	if !r.Ok() || len(r.Src) > 0 {
		return e, fmt.Errorf("%w: key of %d bytes", ErrRecord, len(key))
	}
	if value == nil {
		e.Deleted = true
		return e, nil
	}
	return e, e.State.parse(value, e.Snapshot)
}

func (s *State) parse(value []byte, snapshot bool) error {
	r := kbin.Reader{Src: value}
	if v := r.Int16(); r.Ok() && v != valueVersion {
		return fmt.Errorf("%w: version %d of a value", ErrUnknownRecord, v)
	}
	s.SnapshotEpoch = r.Int32()
	if snapshot {
		s.Epoch = r.Int32()
	}
	s.LeaderEpoch, s.Start, s.Complete = r.Int32(), r.Int64(), -1
	if snapshot {
		s.Created, s.Written = time.UnixMilli(r.Int64()), time.UnixMilli(r.Int64())
	}
	n := r.CompactArrayLen()
	const least = 8 + 8 + 1 + 2 + 1 // bytes that a batch takes
	if n < 0 || int(n) > len(r.Src)/least {
		return fmt.Errorf("%w: value with %d batches", ErrRecord, n)
	}
	for range n {
		s.Batches = append(s.Batches, Batch{First: r.Int64(), Last: r.Int64(), State: r.Int8(), Count: r.Int16()})
		eachTag(&r, func(uint32, kbin.Reader) {})
	}
	eachTag(&r, func(tag uint32, v kbin.Reader) {
		if tag == tagComplete {
			s.Complete = v.Int32()
		}
	})
	if !r.Ok() {
		return fmt.Errorf("%w: value of %d bytes", ErrRecord, len(value))
	}
	return nil
}

func eachTag(r *kbin.Reader, fn func(tag uint32, value kbin.Reader)) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag, size := r.Uvarint(), r.Uvarint()
		v := r.Span(int(size))
		fn(tag, kbin.Reader{Src: v})
	}
}
