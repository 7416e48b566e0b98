package broker

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
)

func TestProduceSessionAsApacheKafka(t *testing.T) {
	compareSession(t, "produce", produceDifferences, func(s *peerSession) {
		s.create("t", 2, "max.message.bytes", "1000")
		s.create("compacted", 1, "cleanup.policy", "compact")
		s.create("append-time", 1, "message.timestamp.type", "LogAppendTime")
		s.create("bounded", 1, "message.timestamp.before.max.ms", "3600000", "message.timestamp.after.max.ms", "3600000")
		s.create("closed", 1)
		s.batches()
		s.timestamps()
		s.producers()
		s.manyAtOnce()
		s.acksNone()
		for _, topic := range []string{"produce-t", "produce-compacted", "produce-append-time", "produce-bounded", "produce-closed"} {
			s.step("end of "+topic, 11, listRequest(11, topic, 0, offsetLatest))
			s.step("read "+topic, 12, fetchRequestOf(topic, 0, 0, 1<<20))
		}
	})
}

// The reasons are in docs/differences.md.
var produceDifferences = []difference{
	{"produce, length too large", "UNKNOWN_SERVER_ERROR", "INVALID_RECORD"},
	{"produce, codec 5", "UNKNOWN_SERVER_ERROR", "INVALID_RECORD"},
	{"produce, gzip that is none", "ErrorCode UNKNOWN_SERVER_ERROR BaseOffset -1 ", ""},
	{"produce, append time set by the client", "LogAppendTime -1", "ErrorCode INVALID_TIMESTAMP BaseOffset -1 LogAppendTime -1"},
	{"produce, delete horizon set by the client", "LogAppendTime -1", "ErrorCode INVALID_RECORD BaseOffset -1 LogAppendTime -1"},
	{"produce, timestamp -2", "LogAppendTime -1", "ErrorCode INVALID_TIMESTAMP BaseOffset -1 LogAppendTime -1"},
	{"produce, timestamp -2 v9", "ErrorRecords null", "ErrorRecords [{}]"},
	{"produce, the same partition twice", "Partitions [", "Partitions [{BaseOffset 1 LogAppendTime -1 ErrorRecords null} "},
}

// stamped is a batch of one record.
func stamped(ts int64, key, value []byte, change func(b []byte)) []byte {
	b := batch.AppendSimple(nil, ts, key, value)
	if change != nil {
		change(b)
		batch.FixCRC(b)
	}
	return b
}

const stampOfTests = 1_750_000_000_000

func plain(change func(b []byte)) []byte {
	return stamped(stampOfTests, []byte("k"), []byte("v"), change)
}

// of is a batch of a producer.
func of(id int64, epoch int16, sequence int32) []byte {
	return plain(func(b []byte) { setProducer(b, id, epoch, sequence) })
}

func setProducer(b []byte, id int64, epoch int16, sequence int32) {
	be := binary.BigEndian
	be.PutUint64(b[43:], uint64(id))
	be.PutUint16(b[51:], uint16(epoch))
	be.PutUint32(b[53:], uint32(sequence))
}

// several is a batch of so many records.
func several(n int) []byte { return spread(make([]int64, n)...) }

// spread is a batch of records that many milliseconds after the first one's time.
func spread(after ...int64) []byte {
	h, err := batch.ParseHeader(plain(nil))
	if err != nil {
		panic(err)
	}
	var payload []byte
	for i, ms := range after {
		r := binary.AppendVarint([]byte{0}, ms)               // attributes, timestamp delta
		r = binary.AppendVarint(r, int64(i))                  // offset delta
		r = append(r, 2, 'k', 2, 'v', 0)                      // key, value, headers
		payload = binary.AppendVarint(payload, int64(len(r))) // length
		payload = append(payload, r...)
	}
	h.NumRecords, h.LastOffsetDelta, h.MaxTimestamp = int32(len(after)), int32(len(after)-1), h.BaseTimestamp+slices.Max(after)
	return batch.AppendHeader(nil, &h, payload)
}

func (s *peerSession) produce(what string, version, acks int16, topic string, records ...[]byte) *kmsg.ProduceResponse {
	s.t.Helper()
	req := produceRequest(version, acks, s.prefix+topic, records...)
	if version >= 13 {
		req.Topics[0].Topic, req.Topics[0].TopicID = "", s.id(s.prefix+topic)
	}
	return s.step("produce, "+what, version, req).(*kmsg.ProduceResponse)
}

func (s *peerSession) batches() {
	be := binary.BigEndian
	at := func(offset int, v ...byte) func([]byte) { return func(b []byte) { copy(b[offset:], v) } }
	corrupt, cut, old, older := plain(nil), plain(nil), plain(nil), plain(nil)
	corrupt[len(corrupt)-1]++
	old[16], older[16] = 1, 0
	for v := int16(3); v <= 13; v++ {
		for _, acks := range []int16{-1, 1} {
			s.produce("plain", v, acks, "t", plain(nil))
		}
	}
	for _, tc := range []struct {
		what    string
		records []byte
	}{
		{"three records", several(3)},
		{"corrupt", corrupt},
		{"cut", cut[:len(cut)-5]},
		{"cut in the header", cut[:30]},
		{"cut in the size", cut[:10]},
		{"one byte", cut[:1]},
		{"magic 1", old},
		{"magic 0", older},
		{"magic 3", plain(at(16, 3))},
		{"too large", stamped(stampOfTests, nil, make([]byte, 2000), nil)},
		{"nothing", []byte{}}, // null is never answered by Apache Kafka
		{"two batches", append(plain(nil), plain(nil)...)},
		{"a batch and a cut one", append(plain(nil), cut[:len(cut)-5]...)},
		{"a batch and a corrupt one", append(plain(nil), corrupt...)},
		{"a batch and a byte", append(plain(nil), 0)},
		{"base offset 7", plain(at(0, 0, 0, 0, 0, 0, 0, 0, 7))},
		{"leader epoch 9", plain(at(12, 0, 0, 0, 9))},
		{"last offset delta 1 of one record", plain(func(b []byte) { be.PutUint32(b[23:], 1) })},
		{"last offset delta -1", plain(func(b []byte) { be.PutUint32(b[23:], 0xffffffff) })},
		{"no records in the batch", plain(func(b []byte) { be.PutUint32(b[57:], 0) })},
		{"two records claimed, one there", plain(func(b []byte) { be.PutUint32(b[57:], 2); be.PutUint32(b[23:], 1) })},
		{"records -1", plain(func(b []byte) { be.PutUint32(b[57:], 0xffffffff) })},
		{"length 0", plain(at(8, 0, 0, 0, 0))},
		{"length -1", plain(at(8, 0xff, 0xff, 0xff, 0xff))},
		{"length too large", plain(at(8, 0x7f, 0xff, 0xff, 0xff))},
		{"codec 5", plain(at(21, 0, 5))},
		{"control batch", plain(at(21, 0, 0x20))},
		{"unknown attributes", plain(at(21, 0x80, 0))},
		{"max timestamp that is none", plain(at(35, 0, 0, 0, 0, 0, 0, 0, 1))},
	} {
		s.produce(tc.what, 9, -1, "t", tc.records)
		s.produce(tc.what, 3, 1, "t", tc.records)
	}
	// What is taken by one and not by the other has a topic of its own, so that the offsets of others stay the same.
	s.create("odd-gzip", 1)
	s.create("odd-append-time", 1)
	s.create("odd-horizon", 1)
	s.create("odd-timestamp", 1)
	s.produce("gzip that is none", 9, -1, "odd-gzip", plain(at(21, 0, 1)))
	s.produce("append time set by the client", 9, -1, "odd-append-time", plain(at(21, 0, 8)))
	s.produce("delete horizon set by the client", 9, -1, "odd-horizon", plain(at(21, 0, 0x40)))
	s.produce("timestamp -2", 9, -1, "odd-timestamp", stamped(-2, nil, nil, nil))
	s.produce("zstd before its version", 6, 1, "t", plain(at(21, 0, 4)))
	for _, acks := range []int16{2, -2} {
		s.produce("strange acks", 9, acks, "t", plain(nil))
	}
	for _, v := range []int16{3, 9, 12} {
		s.step("produce, unknown topic", v, produceRequest(v, 1, "produce-unknown", plain(nil)))
		s.step("produce, bad name", v, produceRequest(v, 1, "a b", plain(nil)))
		s.step("produce, unknown partition", v, produceRequest(v, 1, "produce-t", plain(nil), plain(nil), plain(nil)))
	}
	byID := produceRequest(13, 1, "", plain(nil))
	byID.Topics[0].TopicID = [16]byte{1}
	s.step("produce, unknown id", 13, byID)
	byID.Topics[0].TopicID = [16]byte{}
	s.step("produce, no id", 13, byID)
	s.produce("null key", 9, 1, "compacted", stamped(stampOfTests, nil, []byte("v"), nil))
	s.produce("null value", 9, 1, "compacted", stamped(stampOfTests, []byte("k"), nil, nil))
	s.produce("empty key", 9, 1, "compacted", stamped(stampOfTests, []byte{}, []byte("v"), nil))
}

func (s *peerSession) timestamps() {
	hour := time.Hour.Milliseconds()
	now := time.Now().UnixMilli()
	for _, tc := range []struct {
		what  string
		topic string
		ts    int64
	}{
		{"now", "bounded", now},
		{"two hours ago", "bounded", now - 2*hour},
		{"in two hours", "bounded", now + 2*hour},
		{"half an hour ago", "bounded", now - hour/2},
		{"timestamp -1", "bounded", -1},
		{"timestamp -1", "t", -1},
		{"timestamp 0", "t", 0},
		{"in two hours", "t", now + 2*hour},
		{"in 23 hours", "closed", now + 23*hour},
	} {
		s.produce(tc.what, 9, 1, tc.topic, stamped(tc.ts, []byte("k"), []byte("v"), nil))
		s.produce(tc.what, 3, 1, tc.topic, stamped(tc.ts, []byte("k"), []byte("v"), nil))
	}
	req := produceRequest(9, 1, "produce-append-time", plain(nil))
	got := s.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	s.note("append time: %s offset %d, now %t", code(got.ErrorCode), got.BaseOffset, got.LogAppendTime >= now)
}

// producers is the history of some idempotent producers. What Apache Kafka gives as an id is not asked: any will do.
func (s *peerSession) producers() {
	for _, tc := range []struct {
		what    string
		records []byte
	}{
		{"first sequence not 0", of(100, 0, 5)},
		{"second of those", of(100, 0, 6)},
		{"first", of(7, 0, 0)},
		{"second", of(7, 0, 1)},
		{"first again", of(7, 0, 0)},
		{"second again", of(7, 0, 1)},
		{"a gap", of(7, 0, 5)},
		{"third", of(7, 0, 2)},
		{"fourth", of(7, 0, 3)},
		{"fifth", of(7, 0, 4)},
		{"sixth", of(7, 0, 5)},
		{"first, long gone", of(7, 0, 0)},
		{"second, remembered still", of(7, 0, 1)},
		{"a new epoch, not from 0", of(7, 1, 3)},
		{"a new epoch", of(7, 1, 0)},
		{"the old epoch", of(7, 0, 6)},
		{"an epoch leapt over", of(7, 5, 0)},
		{"sequence -1", of(7, 5, -1)},
		{"epoch -1", of(7, -1, 1)},
		{"no id, but an epoch", of(-1, 0, 0)},
		{"wraps", of(8, 0, 0)},
		{"transactional, unknown", plain(func(b []byte) { setProducer(b, 9, 0, 0); b[22] = batch.Transactional })},
		{"transactional without a producer", plain(func(b []byte) { b[22] = batch.Transactional })},
		{"two batches of one producer", append(of(11, 0, 0), of(11, 0, 1)...)},
		{"their second", of(11, 0, 1)},
	} {
		s.produce("idempotent, "+tc.what, 9, -1, "t", tc.records)
	}
	end := plain(func(b []byte) { setProducer(b, 12, 0, 1<<31-1) })
	s.produce("idempotent, last sequence as first", 9, -1, "t", end)
	s.produce("idempotent, wrapped", 9, -1, "t", of(12, 0, 0))
}

func (s *peerSession) manyAtOnce() {
	corrupt := plain(nil)
	corrupt[len(corrupt)-1]++
	s.produce("a good and a bad partition", 9, -1, "t", plain(nil), corrupt)
	s.produce("a bad and a good partition", 9, -1, "t", corrupt, plain(nil))
	s.create("odd-twice", 2)
	twice := produceRequest(9, -1, "produce-odd-twice", plain(nil), plain(nil))
	twice.Topics[0].Partitions[1].Partition = 0
	s.step("produce, the same partition twice", 9, twice)
	s.step("produce, no partitions", 9, produceRequest(9, -1, "produce-t"))
	none := kmsg.NewPtrProduceRequest()
	none.Acks = -1
	s.step("produce, no topics", 9, none)
}

func (s *peerSession) acksNone() {
	corrupt := plain(nil)
	corrupt[len(corrupt)-1]++
	s.silent("acks 0", 9, produceRequest(9, acksNone, "produce-closed", plain(nil)))
	s.silent("acks 0, corrupt", 9, produceRequest(9, acksNone, "produce-closed", corrupt))
	s.silent("acks 0, unknown topic", 9, produceRequest(9, acksNone, "produce-unknown", plain(nil)))
	s.silent("acks 0 of three", 9, produceRequest(9, acksNone, "produce-closed", several(3)))
}
