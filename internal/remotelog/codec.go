package remotelog

import (
	"encoding/binary"
	"fmt"

	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	frameVersion = 1

	keySegment         = 0
	keyUpdate          = 1
	keyPartitionDelete = 2
	keySnapshot        = 3

	tagTxnIndexEmpty = 0
)

// Parse reads the value of one record. ErrUnknown asks the caller to skip it, ErrMalformed says that it is damaged; tagged fields that are not known are
// skipped and counted in the record. The record keeps no reference to value.
func Parse(value []byte) (Record, error) { return new(Parser).Parse(value) }

// Parser parses many records for somebody who is done with one before the next, as Index.Apply is. Its zero value is ready. It is not safe for concurrent use.
type Parser struct {
	segment SegmentRecord
	update  UpdateRecord
	epochs  []remotestorage.EpochStart
	topics  map[string]string // names met before
	again   bool              // this is not the first record
}

// maxTopics and maxName bound what is kept of names. Kafka's are no longer.
const maxTopics, maxName = 100_000, 249

// name gives a topic's name, if it can without making it anew.
func (p *Parser) name(b []byte) string {
	if s, ok := p.topics[string(b)]; ok {
		return s
	}
	s := string(b)
	if !p.again || len(s) > maxName {
		return s
	}
	if p.topics == nil || len(p.topics) >= maxTopics {
		p.topics = make(map[string]string)
	}
	p.topics[s] = s
	return s
}

// Parse is the function of that name, but the record is good only until the next call.
func (p *Parser) Parse(value []byte) (Record, error) {
	r := reader{b: value, p: p}
	defer func() { p.again = true }()
	frame, key, version := r.uvarint(), r.uvarint(), r.uvarint()
	if r.bad {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(value))
	}
	if frame != frameVersion || key > keySnapshot || version != 0 {
		return nil, fmt.Errorf("%w: frame %d, api key %d, version %d", ErrUnknown, frame, key, version)
	}
	var rec Record
	switch key {
	case keySegment:
		rec = readSegment(&r)
	case keyUpdate:
		rec = readUpdate(&r)
	case keyPartitionDelete:
		rec = readPartitionDelete(&r)
	case keySnapshot:
		rec = readSnapshot(&r)
	}
	if r.bad || len(r.b) != 0 {
		return nil, fmt.Errorf("%w: api key %d, %d bytes, %d of them left over", ErrMalformed, key, len(value), len(r.b))
	}
	return rec, nil
}

func readSegment(r *reader) Record {
	m := &r.p.segment
	*m = SegmentRecord{}
	m.RemoteLogSegmentID = r.segmentID(&m.UnknownTags)
	readBody(r, &m.RemoteLogSegmentMetadata, &m.UnknownTags)
	return m
}

func readSnapshot(r *reader) Record {
	m := &SnapshotRecord{}
	m.ID = r.uuid()
	readBody(r, &m.RemoteLogSegmentMetadata, &m.UnknownTags)
	return m
}

// readBody reads what segment and snapshot records have in common: everything from the start offset on. Their order of fields is the same since the
// snapshot record leaves out only what names the partition.
func readBody(r *reader, m *remotestorage.RemoteLogSegmentMetadata, unknown *int) {
	m.StartOffset = r.int64()
	m.EndOffset = r.int64()
	m.BrokerID = r.int32()
	m.MaxTimestampMs = r.int64()
	m.EventTimestampMs = r.int64()
	m.SegmentLeaderEpochs = r.epochs(unknown)
	m.SegmentSizeInBytes = r.int32()
	m.CustomMetadata = r.nullableBytes()
	m.State = remotestorage.SegmentState(r.int8())
	r.tags(unknown, func(tag uint64, field *reader) bool {
		if tag != tagTxnIndexEmpty {
			return false
		}
		m.TxnIndexEmpty = field.int8() != 0
		return true
	})
}

func readUpdate(r *reader) Record {
	m := &r.p.update
	*m = UpdateRecord{}
	m.RemoteLogSegmentID = r.segmentID(&m.UnknownTags)
	m.BrokerID = r.int32()
	m.EventTimestampMs = r.int64()
	m.CustomMetadata = r.nullableBytes()
	m.State = remotestorage.SegmentState(r.int8())
	r.tags(&m.UnknownTags, nil)
	return m
}

func readPartitionDelete(r *reader) Record {
	m := &PartitionDeleteRecord{}
	m.TopicIDPartition = r.topicIDPartition(&m.UnknownTags)
	m.BrokerID = r.int32()
	m.EventTimestampMs = r.int64()
	m.State = PartitionDeleteState(r.int8())
	r.tags(&m.UnknownTags, nil)
	return m
}

// Append writes the record's value, byte for byte as Apache Kafka's serde does.
func Append(dst []byte, r Record) []byte {
	switch m := r.(type) {
	case *SegmentRecord:
		dst = append(dst, frameVersion, keySegment, 0)
		dst = appendSegmentID(dst, m.RemoteLogSegmentID)
		return appendBody(dst, &m.RemoteLogSegmentMetadata)
	case *UpdateRecord:
		dst = append(dst, frameVersion, keyUpdate, 0)
		dst = appendSegmentID(dst, m.RemoteLogSegmentID)
		dst = binary.BigEndian.AppendUint32(dst, uint32(m.BrokerID))
		dst = binary.BigEndian.AppendUint64(dst, uint64(m.EventTimestampMs))
		dst = appendNullableBytes(dst, m.CustomMetadata)
		return append(dst, byte(m.State), 0)
	case *PartitionDeleteRecord:
		dst = append(dst, frameVersion, keyPartitionDelete, 0)
		dst = appendTopicIDPartition(dst, m.TopicIDPartition)
		dst = binary.BigEndian.AppendUint32(dst, uint32(m.BrokerID))
		dst = binary.BigEndian.AppendUint64(dst, uint64(m.EventTimestampMs))
		return append(dst, byte(m.State), 0)
	case *SnapshotRecord:
		dst = append(dst, frameVersion, keySnapshot, 0)
		dst = append(dst, m.ID[:]...)
		return appendBody(dst, &m.RemoteLogSegmentMetadata)
	}
	panic(fmt.Sprintf("remotelog: appending a %T", r)) // Record has no other implementations
}

func appendBody(dst []byte, m *remotestorage.RemoteLogSegmentMetadata) []byte {
	be := binary.BigEndian
	dst = be.AppendUint64(dst, uint64(m.StartOffset))
	dst = be.AppendUint64(dst, uint64(m.EndOffset))
	dst = be.AppendUint32(dst, uint32(m.BrokerID))
	dst = be.AppendUint64(dst, uint64(m.MaxTimestampMs))
	dst = be.AppendUint64(dst, uint64(m.EventTimestampMs))
	dst = binary.AppendUvarint(dst, uint64(len(m.SegmentLeaderEpochs))+1)
	for _, e := range m.SegmentLeaderEpochs {
		dst = be.AppendUint32(dst, uint32(e.LeaderEpoch))
		dst = be.AppendUint64(dst, uint64(e.StartOffset))
		dst = append(dst, 0)
	}
	dst = be.AppendUint32(dst, uint32(m.SegmentSizeInBytes))
	dst = appendNullableBytes(dst, m.CustomMetadata)
	dst = append(dst, byte(m.State))
	if m.TxnIndexEmpty {
		return append(dst, 1, tagTxnIndexEmpty, 1, 1)
	}
	return append(dst, 0)
}

func appendSegmentID(dst []byte, id remotestorage.RemoteLogSegmentID) []byte {
	dst = appendTopicIDPartition(dst, id.TopicIDPartition)
	dst = append(dst, id.ID[:]...)
	return append(dst, 0)
}

func appendTopicIDPartition(dst []byte, tp remotestorage.TopicIDPartition) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(tp.Topic))+1)
	dst = append(dst, tp.Topic...)
	dst = append(dst, tp.TopicID[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(tp.Partition))
	return append(dst, 0)
}

func appendNullableBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b))+1)
	return append(dst, b...)
}
