package wire

import (
	"encoding/binary"
	"net"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// AbortedTransaction is one entry of a read_committed answer's list.
type AbortedTransaction struct{ ProducerID, FirstOffset int64 }

// Records are record bytes that lie in several buffers and belong to somebody.
type Records struct {
	Bufs [][]byte
	// Release gives the buffers back; nil if nobody waits for them. It is called exactly once, by whoever wrote the records or dropped them.
	Release func()
}

// Len is the number of record bytes.
func (r Records) Len() int {
	n := 0
	for _, b := range r.Bufs {
		n += len(b)
	}
	return n
}

// LeaderAndEpoch is the CurrentLeader tag (KIP-951, KIP-320).
type LeaderAndEpoch struct{ LeaderID, LeaderEpoch int32 }

// EpochEnd is the DivergingEpoch tag (KIP-595).
type EpochEnd struct {
	Epoch     int32
	EndOffset int64
}

// Node is an entry of the NodeEndpoints tag (KIP-951): where a CurrentLeader is.
type Node struct {
	ID   int32
	Host string
	Port int32
	Rack *string
}

// FetchPartition is one partition's answer. Aborted nil is null on the wire (read_uncommitted), empty is an empty list.
type FetchPartition struct {
	Partition                                       int32
	ErrorCode                                       int16
	HighWatermark, LastStableOffset, LogStartOffset int64
	Aborted                                         []AbortedTransaction
	PreferredReadReplica                            int32
	Records                                         Records
	Location                                        *remotestorage.Location
	CurrentLeader                                   *LeaderAndEpoch
	Diverging                                       *EpochEnd
}

// FetchTopic groups partitions. Versions to 12 carry the name, later ones the id.
type FetchTopic struct {
	Topic      string
	TopicID    remotestorage.UUID
	Partitions []FetchPartition
}

// FetchResponse is a Fetch answer, encoded by hand so that record bytes are never copied.
type FetchResponse struct {
	ThrottleMillis int32
	ErrorCode      int16
	SessionID      int32
	Topics         []FetchTopic
	Nodes          []Node // from v16 on
}

// Buffers gives the whole frame, size and header included, as buffers to be written in order, for versions 0 to 18. What is not record bytes is
// appended to scratch, which the buffers then alias; record bytes are passed through. Versions below 4 carry magic 2 batches like any other:
// whether the reader can bear them is the caller's business.
func (r *FetchResponse) Buffers(version int16, correlationID int32, scratch []byte) net.Buffers {
	e := fetchEncoder{version: version, flexible: version >= 12, dst: append(scratch, 0, 0, 0, 0)}
	e.start = len(scratch)
	e.response(r, correlationID)
	return e.buffers()
}

// Release gives back the records of all partitions, once: a second call does nothing.
func (r *FetchResponse) Release() {
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			rec := &r.Topics[i].Partitions[j].Records
			if rec.Release != nil {
				rec.Release()
			}
			*rec = Records{}
		}
	}
}

// splice says that records follow the bytes before at.
type splice struct {
	at   int
	bufs [][]byte
}

type fetchEncoder struct {
	version  int16
	flexible bool
	start    int
	dst      []byte
	splices  []splice
	records  int
}

func (e *fetchEncoder) response(r *FetchResponse, correlationID int32) {
	e.dst = kbin.AppendInt32(e.dst, correlationID)
	e.tags(0)
	if e.version >= 1 {
		e.dst = kbin.AppendInt32(e.dst, r.ThrottleMillis)
	}
	if e.version >= 7 {
		e.dst = kbin.AppendInt16(e.dst, r.ErrorCode)
		e.dst = kbin.AppendInt32(e.dst, r.SessionID)
	}
	e.array(len(r.Topics))
	for i := range r.Topics {
		e.topic(&r.Topics[i])
	}
	if e.version >= 16 && len(r.Nodes) > 0 {
		e.tags(1)
		e.tag(0, appendNodes(nil, r.Nodes))
		return
	}
	e.tags(0)
}

func (e *fetchEncoder) topic(t *FetchTopic) {
	switch {
	case e.version >= 13:
		e.dst = append(e.dst, t.TopicID[:]...)
	case e.flexible:
		e.dst = kbin.AppendCompactString(e.dst, t.Topic)
	default:
		e.dst = kbin.AppendString(e.dst, t.Topic)
	}
	e.array(len(t.Partitions))
	for i := range t.Partitions {
		e.partition(&t.Partitions[i])
	}
	e.tags(0)
}

func (e *fetchEncoder) partition(p *FetchPartition) {
	e.dst = kbin.AppendInt32(e.dst, p.Partition)
	e.dst = kbin.AppendInt16(e.dst, p.ErrorCode)
	e.dst = kbin.AppendInt64(e.dst, p.HighWatermark)
	if e.version >= 4 {
		e.dst = kbin.AppendInt64(e.dst, p.LastStableOffset)
	}
	if e.version >= 5 {
		e.dst = kbin.AppendInt64(e.dst, p.LogStartOffset)
	}
	if e.version >= 4 {
		e.aborted(p.Aborted)
	}
	if e.version >= 11 {
		e.dst = kbin.AppendInt32(e.dst, p.PreferredReadReplica)
	}
	e.recordBytes(p.Records)
	if e.flexible {
		e.partitionTags(p)
	}
}

func (e *fetchEncoder) aborted(list []AbortedTransaction) {
	if e.flexible {
		e.dst = kbin.AppendCompactNullableArrayLen(e.dst, len(list), list == nil)
	} else {
		e.dst = kbin.AppendNullableArrayLen(e.dst, len(list), list == nil)
	}
	for _, a := range list {
		e.dst = kbin.AppendInt64(e.dst, a.ProducerID)
		e.dst = kbin.AppendInt64(e.dst, a.FirstOffset)
		e.tags(0)
	}
}

// recordBytes writes the length and remembers where the bytes go. No records are an empty field, not a null one, as Apache Kafka has it.
func (e *fetchEncoder) recordBytes(r Records) {
	n := r.Len()
	if e.flexible {
		e.dst = kbin.AppendUvarint(e.dst, uint32(n)+1)
	} else {
		e.dst = kbin.AppendInt32(e.dst, int32(n))
	}
	if n > 0 {
		e.records += n
		e.splices = append(e.splices, splice{len(e.dst), r.Bufs})
	}
}

func (e *fetchEncoder) partitionTags(p *FetchPartition) {
	n := 0
	for _, there := range [...]bool{p.Diverging != nil, p.CurrentLeader != nil, p.Location != nil} {
		if there {
			n++
		}
	}
	e.tags(n)
	if d := p.Diverging; d != nil {
		b := kbin.AppendInt64(kbin.AppendInt32(nil, d.Epoch), d.EndOffset)
		e.tag(0, append(b, 0))
	}
	if l := p.CurrentLeader; l != nil {
		b := kbin.AppendInt32(kbin.AppendInt32(nil, l.LeaderID), l.LeaderEpoch)
		e.tag(1, append(b, 0))
	}
	if p.Location != nil {
		e.tag(TagRemoteLogSegment, AppendLocation(nil, p.Location))
	}
}

func (e *fetchEncoder) array(n int) {
	if e.flexible {
		e.dst = kbin.AppendCompactArrayLen(e.dst, n)
		return
	}
	e.dst = kbin.AppendArrayLen(e.dst, n)
}

func (e *fetchEncoder) tags(n int) {
	if e.flexible {
		e.dst = kbin.AppendUvarint(e.dst, uint32(n))
	}
}

func (e *fetchEncoder) tag(key uint32, val []byte) {
	e.dst = kbin.AppendUvarint(e.dst, key)
	e.dst = kbin.AppendUvarint(e.dst, uint32(len(val)))
	e.dst = append(e.dst, val...)
}

// buffers cuts dst at the splices. Only now: dst may have moved while it grew.
func (e *fetchEncoder) buffers() net.Buffers {
	frame := e.dst[e.start:]
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4+e.records))
	var out net.Buffers
	from := e.start
	for _, s := range e.splices {
		out = append(out, e.dst[from:s.at:s.at])
		for _, b := range s.bufs {
			if len(b) > 0 {
				out = append(out, b)
			}
		}
		from = s.at
	}
	return append(out, e.dst[from:])
}

func appendNodes(dst []byte, nodes []Node) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(nodes))
	for _, n := range nodes {
		dst = kbin.AppendInt32(dst, n.ID)
		dst = kbin.AppendCompactString(dst, n.Host)
		dst = kbin.AppendInt32(dst, n.Port)
		dst = kbin.AppendCompactNullableString(dst, n.Rack)
		dst = append(dst, 0)
	}
	return dst
}
