package broker

import (
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// idempotent is a batch of one record of a producer. Codec and flags go into the attributes.
func idempotent(id int64, epoch int16, sequence int32, attributes int16) []byte {
	b := batch.AppendSimple(nil, time.Now().UnixMilli(), []byte("k"), []byte("v"))
	be := binary.BigEndian
	be.PutUint16(b[21:], be.Uint16(b[21:])|uint16(attributes))
	be.PutUint64(b[43:], uint64(id))
	be.PutUint16(b[51:], uint16(epoch))
	be.PutUint32(b[53:], uint32(sequence))
	batch.FixCRC(b)
	return b
}

func produceRequest(version, acks int16, topic string, records ...[]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	req.Acks, req.TimeoutMillis = acks, 10_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	for i, r := range records {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = int32(i), r
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// TestProduceErrors: what a producer is told, in the order that one producer's history has it.
func TestProduceErrors(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 1, "max.message.bytes", "1000")
	c := b.raw(t)
	corrupt := idempotent(-1, -1, -1, 0)
	corrupt[len(corrupt)-1]++
	cut := idempotent(-1, -1, -1, 0)
	old := idempotent(-1, -1, -1, 0)
	old[16] = 1
	big := batch.AppendSimple(nil, time.Now().UnixMilli(), nil, make([]byte, 2000))
	for _, tc := range []struct {
		name    string
		version int16
		acks    int16
		topic   string
		records []byte
		want    int16
		offset  int64
	}{
		{"first", 9, -1, "t", idempotent(7, 0, 0, 0), 0, 0},
		{"second", 9, -1, "t", idempotent(7, 0, 1, 0), 0, 1},
		{"first again", 9, -1, "t", idempotent(7, 0, 0, 0), 0, 0},
		{"a gap", 9, -1, "t", idempotent(7, 0, 5, 0), errOutOfOrderSequence, -1},
		{"a new epoch", 9, -1, "t", idempotent(7, 1, 0, 0), 0, 2},
		{"the old epoch", 9, -1, "t", idempotent(7, 0, 2, 0), errInvalidProducerEpoch, -1},
		{"oldest version", 3, 1, "t", idempotent(-1, -1, -1, 0), 0, 3},
		{"newest version by name", 12, 1, "t", idempotent(-1, -1, -1, 0), 0, 4},
		{"corrupt", 9, 1, "t", corrupt, errCorruptMessage, -1},
		{"cut", 9, 1, "t", cut[:len(cut)-5], errInvalidRecord, -1},
		{"old format", 9, 1, "t", old, errInvalidRecord, -1},
		{"too large", 9, 1, "t", big, errMessageTooLarge, -1},
		{"nothing", 9, 1, "t", nil, errInvalidRecord, -1},
		{"unknown topic", 9, 1, "nope", idempotent(-1, -1, -1, 0), errUnknownTopicOrPartition, -1},
		{"strange acks", 9, 2, "t", idempotent(-1, -1, -1, 0), errInvalidRequiredAcks, -1},
		{"zstd in an old version", 6, 1, "t", idempotent(-1, -1, -1, 4), errUnsupportedCompression, -1},
		{"transactional", 9, 1, "t", idempotent(9, 0, 0, batch.Transactional), errTransactionalIDDenied, -1},
		{"internal", 9, 1, offsetsTopic, idempotent(-1, -1, -1, 0), errUnknownTopicOrPartition, -1},
	} {
		got := c.ask(t, produceRequest(tc.version, tc.acks, tc.topic, tc.records)).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if got.ErrorCode != tc.want || got.BaseOffset != tc.offset {
			t.Errorf("%s: error %d (%v), offset %d; want %d, %d", tc.name, got.ErrorCode, got.ErrorMessage, got.BaseOffset, tc.want, tc.offset)
		}
	}
	id, _ := b.topics.Get("t")
	req := produceRequest(13, 1, "", idempotent(-1, -1, -1, 0))
	req.Topics[0].TopicID = id.ID
	if got := c.ask(t, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; got.ErrorCode != 0 || got.BaseOffset != 5 {
		t.Errorf("by topic id: error %d, offset %d", got.ErrorCode, got.BaseOffset)
	}
	req = produceRequest(13, 1, "", idempotent(-1, -1, -1, 0))
	req.Topics[0].TopicID = [16]byte{1}
	if got := c.ask(t, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; got.ErrorCode != errUnknownTopicID {
		t.Errorf("by an unknown topic id: error %d", got.ErrorCode)
	}
}

// TestAcksNone: no answer comes, and an error closes the connection: there is no other way to tell.
func TestAcksNone(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 1)
	c := b.raw(t)
	c.Write(wire.AppendRequest(nil, produceRequest(9, acksNone, "t", idempotent(-1, -1, -1, 0)), 1, nil))
	meta := kmsg.NewPtrMetadataRequest()
	meta.SetVersion(9)
	if _, ok := c.ask(t, meta).(*kmsg.MetadataResponse); !ok {
		t.Fatal("the next answer is not the next request's")
	}
	if end := b.partition("t", 0).log.Offsets().LogEnd; end != 1 {
		t.Errorf("log end %d", end)
	}
	c.Write(wire.AppendRequest(nil, produceRequest(9, acksNone, "nope", idempotent(-1, -1, -1, 0)), 1, nil))
	if n, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d, %v; want the connection closed", n, err)
	}
}

// TestManyPartitionsInOneProduce: all are appended, and one answer waits for all their syncs.
func TestManyPartitionsInOneProduce(t *testing.T) {
	b := startBroker(t, t.TempDir())
	b.createTopic(t, "t", 8)
	var records [][]byte
	for range 9 { // one more than there are
		records = append(records, idempotent(-1, -1, -1, 0))
	}
	got := b.raw(t).ask(t, produceRequest(9, acksAll, "t", records...)).(*kmsg.ProduceResponse).Topics[0].Partitions
	for i, p := range got {
		want := errNone
		if i == 8 {
			want = errUnknownTopicOrPartition
		}
		if p.ErrorCode != want || p.Partition != int32(i) {
			t.Errorf("partition %d: error %d", p.Partition, p.ErrorCode)
		}
	}
}
