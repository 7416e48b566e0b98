package broker

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
)

// Every codec into topics of every compression.type, and what Apache Kafka keeps of it: batch by batch, opened, because compressed bytes may differ.
func TestCompressionSessionAsApacheKafka(t *testing.T) {
	compareSession(t, "compression", compressionDifferences, func(s *peerSession) {
		for _, target := range targets {
			s.create("to-"+target, 1, "compression.type", target)
			s.create("stamped-"+target, 1, "compression.type", target, "message.timestamp.type", "LogAppendTime")
		}
		s.recompressed()
		s.recompressedAgain()
		s.oddBatches()
		s.oddTimesAndKeys()
		s.strangeBatches()
		s.damagedBatches()
		s.sizesOfRecompressed()
		s.boundedRecords()
		s.boundedAfterwards()
		s.compressionConfigs()
		s.defaultsOfCompression()
	})
}

// A transaction's batches keep what they are known by, and its markers are nobody's to compress.
func TestCompressedTransactionsAsApacheKafka(t *testing.T) {
	compareTxnSession(t, "txncompression", nil, func(s *txnSession) {
		s.create("gzip", 1, "compression.type", "gzip")
		s.create("uncompressed", 1, "compression.type", "uncompressed")
		id := "squeezed"
		tid := s.tid(id)
		p := s.init("new", id, 5, noProducer)
		for _, commit := range []bool{true, false} {
			for i, topic := range []string{"gzip", "uncompressed", "gzip"} {
				fields := three()
				s.produce("some", 12, &tid, tp(topic, 0), squeezed(int8(2+i), len(fields), payloadOf(fields...), func(h *batch.Header) {
					h.ProducerID, h.ProducerEpoch, h.BaseSequence = p.ID, p.Epoch, int32(i/2*3)
					h.Attributes |= batch.Transactional
				}))
			}
			p = s.end(fmt.Sprintf("commit %t", commit), id, 5, p, commit)
			s.state(id)
		}
		s.log("gzip", 0)
		s.log("uncompressed", 0)
	})
}

// The reasons are in docs/differences.md.
var compressionDifferences = []difference{
	{"produce, a delete horizon", "BaseOffset 3 LogAppendTime -1", "LogAppendTime -1"},
	{"produce, a delete horizon", "LogAppendTime -1", "ErrorCode INVALID_RECORD BaseOffset -1 LogAppendTime -1"},
	{"produce, append time set by the client", "BaseOffset 3 LogAppendTime -1", "LogAppendTime -1"},
	{"produce, append time set by the client", "LogAppendTime -1", "ErrorCode INVALID_TIMESTAMP BaseOffset -1 LogAppendTime -1"},
	{"produce, timestamp -5", "UNKNOWN_SERVER_ERROR", "INVALID_TIMESTAMP"},
	{"produce, codec 5", "UNKNOWN_SERVER_ERROR", "INVALID_RECORD"},
	{"produce, an id below none", "ErrorCode UNKNOWN_SERVER_ERROR BaseOffset -1 ", ""},
	{"stored in bytes", `"\b\ufffdh\x02v"`, `"\x04\xffh\x02v"`},
}

var targets = []string{"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"}

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// kept is a record as a test writes it: key and value may be null, headers are name and value.
type kept struct {
	at         int64 // after the base timestamp
	key, value []byte
	headers    [][2][]byte
}

func varbytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

// body is a record without its length.
func (f kept) body(attributes byte, delta int64) []byte {
	r := binary.AppendVarint([]byte{attributes}, f.at)
	r = varbytes(varbytes(binary.AppendVarint(r, delta), f.key), f.value)
	r = binary.AppendVarint(r, int64(len(f.headers)))
	for _, h := range f.headers {
		r = varbytes(varbytes(r, h[0]), h[1])
	}
	return r
}

func payloadOf(fields ...kept) (payload []byte) {
	for i, f := range fields {
		b := f.body(0, int64(i))
		payload = append(binary.AppendVarint(payload, int64(len(b))), b...)
	}
	return payload
}

// squeezed is a batch of so many records with this payload, compressed.
func squeezed(c int8, records int, payload []byte, change func(h *batch.Header)) []byte {
	compressed, err := codec.Encode(nil, c, payload)
	if err != nil {
		panic(err)
	}
	return enclosed(c, records, compressed, change)
}

// enclosed is a batch whose payload is taken as it is.
func enclosed(c int8, records int, payload []byte, change func(h *batch.Header)) []byte {
	h, err := batch.ParseHeader(plain(nil))
	if err != nil {
		panic(err)
	}
	h.Attributes, h.NumRecords, h.LastOffsetDelta, h.MaxTimestamp = int16(c), int32(records), int32(records-1), h.BaseTimestamp+20
	if change != nil {
		change(&h)
	}
	return batch.AppendHeader(nil, &h, payload)
}

// three are records of all kinds: without key, without value, with headers, in the order of no clock.
func three() []kept {
	return []kept{
		{at: 5, key: []byte("k"), value: []byte("a value, a value, a value, a value")},
		{at: 20, key: nil, value: []byte{}, headers: [][2][]byte{{[]byte("h"), []byte("v")}, {[]byte("null"), nil}, {[]byte{}, []byte{}}}},
		{at: 0, key: []byte{}, value: nil},
	}
}

// stored notes what is in a partition, opened.
func (s *peerSession) stored(topic string) {
	s.t.Helper()
	var all []byte
	for offset := int64(0); ; {
		req := fetchRequestOf(s.prefix+topic, 0, offset, 1<<20)
		got := s.ask(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if got.ErrorCode != 0 {
			s.t.Fatalf("reading %s at %d: %s", topic, offset, code(got.ErrorCode))
		}
		before := offset
		_, err := batch.Each(got.RecordBatches, func(h batch.Header, raw []byte) error {
			all, offset = append(all, raw...), h.LastOffset()+1
			return nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
		if offset == before {
			break
		}
	}
	_, err := batch.Each(all, func(h batch.Header, raw []byte) error {
		s.note("stored in %s: %s", topic, openedText(s.t, &h, raw))
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// openedText is a batch but for its size and CRC, and for times that are near now.
func openedText(t *testing.T, h *batch.Header, raw []byte) string {
	t.Helper()
	if err := batch.CheckCRC(h, raw); err != nil {
		t.Error(err)
	}
	stamp := func(ms int64) string {
		if d := time.Since(time.UnixMilli(ms)); d > -time.Hour && d < time.Hour {
			return "now"
		}
		return fmt.Sprint(ms)
	}
	text := fmt.Sprintf("offsets %d-%d epoch %d attributes %#x times %s %s producer %d %d %d records %d", h.BaseOffset, h.LastOffset(), h.LeaderEpoch, uint16(h.Attributes),
		stamp(h.BaseTimestamp), stamp(h.MaxTimestamp), h.ProducerID, h.ProducerEpoch, h.BaseSequence, h.NumRecords)
	var d codec.Decoder
	defer d.Close()
	payload, err := d.Decode(nil, h.Codec(), batch.Payload(raw), 64<<20)
	if err != nil {
		return text + " that cannot be opened"
	}
	var records []string
	err = batch.EachRecord(payload, h.NumRecords, func(r *batch.Record) error {
		key, value := fmt.Sprintf("%+q", r.Key), fmt.Sprintf("%+q", r.Value)
		if len(r.Value) > 100 {
			value = fmt.Sprintf("%d bytes", len(r.Value))
		}
		if r.Key == nil {
			key = "null"
		}
		if r.Value == nil {
			value = "null"
		}
		records = append(records, fmt.Sprintf("%d %d+%d %s=%s %d %+q", r.Attributes, r.OffsetDelta, r.TimestampDelta, key, value, r.HeaderCount, r.Headers))
		return nil
	})
	if err != nil {
		return text + " that are none"
	}
	return text + " [" + strings.Join(records, ", ") + "]"
}

// recompressed sends every codec to every topic.
func (s *peerSession) recompressed() {
	for _, target := range targets {
		for _, topic := range []string{"to-" + target, "stamped-" + target} {
			for c := range int8(5) {
				fields := three()
				s.produceAppended(codecNames[c], 9, -1, topic, squeezed(c, len(fields), payloadOf(fields...), nil))
			}
			s.produceAppended("acks 1", 13, 1, topic, squeezed(2, 1, payloadOf(three()[0]), func(h *batch.Header) { h.MaxTimestamp = h.BaseTimestamp + 5 }))
			s.silent("acks 0 to "+topic, 9, produceRequest(9, acksNone, s.prefix+topic, squeezed(4, 1, payloadOf(three()[1]), nil)))
			s.produceAppended("before zstd was there", 3, -1, topic, squeezed(1, 1, payloadOf(three()[0]), func(h *batch.Header) { h.MaxTimestamp = h.BaseTimestamp + 5 }))
			s.stored(topic)
		}
	}
	for v := int16(4); v <= 12; v++ { // readers of before there was zstd
		for _, topic := range []string{"to-zstd", "to-gzip", "to-producer"} {
			got := s.ask(versioned(fetchRequestOf(s.prefix+topic, 0, 0, 1<<20), v)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			s.note("fetch of %s v%d: %s some %t", topic, v, code(got.ErrorCode), len(got.RecordBatches) > 0)
		}
	}
}

func versioned[R kmsg.Request](req R, v int16) R {
	req.SetVersion(v)
	return req
}

// produceAppended is produce, where of the append time it is told only whether there is one, and of a refusal not which records are at fault.
func (s *peerSession) produceAppended(what string, version, acks int16, topic string, records ...[]byte) {
	s.t.Helper()
	req := produceRequest(version, acks, s.prefix+topic, records...)
	if version >= 13 {
		req.Topics[0].Topic, req.Topics[0].TopicID = "", s.id(s.prefix+topic)
	}
	resp := s.ask(req).(*kmsg.ProduceResponse)
	for i := range resp.Topics[0].Partitions {
		p := &resp.Topics[0].Partitions[i]
		p.ErrorRecords = nil
		if time.Since(time.UnixMilli(p.LogAppendTime)) < time.Hour {
			p.LogAppendTime = 1
		}
	}
	s.note("produce, %s to %s v%d: %s", what, topic, version, s.text(resp))
}

// recompressedAgain: producers whose batches come twice, and one in a transaction, keep what they are known by.
func (s *peerSession) recompressedAgain() {
	s.create("retries", 1, "compression.type", "zstd")
	of := func(id int64, epoch int16, sequence int32) []byte {
		fields := three()
		return squeezed(1, len(fields), payloadOf(fields...), func(h *batch.Header) { h.ProducerID, h.ProducerEpoch, h.BaseSequence = id, epoch, sequence })
	}
	for _, tc := range []struct {
		what    string
		records []byte
	}{
		{"first", of(7, 0, 0)}, {"second", of(7, 0, 3)}, {"first again", of(7, 0, 0)}, {"second again", of(7, 0, 3)}, {"a gap", of(7, 0, 9)},
		{"a new epoch", of(7, 1, 0)}, {"the old one", of(7, 0, 6)}, {"no id", of(-1, -1, -1)}, {"sequence -1", of(8, 0, -1)},
	} {
		s.produceAppended("idempotent, "+tc.what, 9, -1, "retries", tc.records)
	}
	s.stored("retries")
}

// oddBatches are what a broker that writes a batch anew puts in order, and what it refuses.
func (s *peerSession) oddBatches() {
	f := three()
	long := payloadOf(f[0])
	long[0] += 2
	nullKey := kept{at: 5, key: []byte("k"), headers: [][2][]byte{{nil, []byte("v")}}}
	s.try("odd", []trial{
		{"offsets backwards", 3, placed(0, 2, 1, 0), nil},
		{"offsets with holes", 3, placed(0, 0, 5, 9), nil},
		{"one offset thrice", 3, placed(0, 0, 0, 0), nil},
		{"marked records", 1, placed(0x7f, 0), nil},
		{"attributes that are none", 3, payloadOf(f...), func(h *batch.Header) { h.Attributes |= 0x100 }},
		{"another largest time", 3, payloadOf(f...), func(h *batch.Header) { h.MaxTimestamp = 17 }},
		{"a control batch", 3, payloadOf(f...), func(h *batch.Header) { h.Attributes |= batch.Control }},
		{"base offset 7", 3, payloadOf(f...), func(h *batch.Header) { h.BaseOffset = 7 }},
		{"a last offset of its own", 3, payloadOf(f...), func(h *batch.Header) { h.LastOffsetDelta = 4 }},
		{"fewer records than there are", 2, payloadOf(f...), nil},
		{"more records than there are", 4, payloadOf(f...), nil},
		{"no records", 0, nil, func(h *batch.Header) { h.LastOffsetDelta = 0 }},
		{"a record that is too long", 1, long, nil},
		{"a record of negative length", 1, []byte{1, 0, 0, 0}, nil},
		{"a record of 2 GiB", 1, binary.AppendVarint(nil, 1<<31-1), nil},
		{"a header without key", 1, payloadOf(nullKey), nil},
		{"timestamp -1", 1, payloadOf(kept{key: []byte("k")}), func(h *batch.Header) { h.BaseTimestamp, h.MaxTimestamp = -1, -1 }},
		{"times far apart", 2, payloadOf(kept{key: []byte("k"), at: 1 << 40}, kept{key: []byte("k"), at: -1 << 40}), nil},
	})
	s.stored("odd-gzip")
	s.stored("odd-uncompressed")
}

// trial is a batch of so many records.
type trial struct {
	what    string
	records int
	payload []byte
	change  func(h *batch.Header)
}

// placed are records of these offset deltas.
func placed(attributes byte, deltas ...int64) (payload []byte) {
	for i, d := range deltas {
		b := three()[i].body(attributes, d)
		payload = append(binary.AppendVarint(payload, int64(len(b))), b...)
	}
	return payload
}

// try sends batches, each with several codecs, to topics of other ones.
func (s *peerSession) try(name string, trials []trial, pairs ...string) {
	for _, target := range []string{"gzip", "uncompressed"} {
		topic := name + "-" + target
		s.create(topic, 1, append([]string{"compression.type", target}, pairs...)...)
		for _, tc := range trials {
			for _, c := range []int8{0, 1, 4} {
				if codecNames[c] != target && (c != 0 || target != "uncompressed") { // what comes as it is to be we pass through
					s.produceAppended(fmt.Sprintf("%s (%s)", tc.what, codecNames[c]), 9, -1, topic, squeezed(c, tc.records, tc.payload, tc.change))
				}
			}
		}
	}
}

func (s *peerSession) oddTimesAndKeys() {
	f := three()
	s.try("compact", []trial{
		{"keys and none", 3, payloadOf(f...), nil},
		{"keys", 1, payloadOf(f[0]), nil},
	}, "cleanup.policy", "compact")
	s.try("bounded", []trial{{"long ago", 3, payloadOf(f...), nil}}, "message.timestamp.before.max.ms", "3600000")
	far := payloadOf(kept{key: []byte("k"), at: 1 << 40})
	s.try("unbounded", []trial{{"far ahead", 1, far, nil}}, "message.timestamp.after.max.ms", "9223372036854775807")
	for _, target := range []string{"gzip", "uncompressed"} {
		s.stored("unbounded-" + target)
		// As they are to be, but looked into.
		for c := range int8(2) {
			s.produceAppended(fmt.Sprintf("keys and none (%s)", codecNames[c]), 9, -1, "compact-"+target, squeezed(c, 3, payloadOf(f...), nil))
			s.produceAppended(fmt.Sprintf("keys (%s)", codecNames[c]), 9, -1, "compact-"+target, squeezed(c, 1, payloadOf(f[0]), nil))
			s.produceAppended(fmt.Sprintf("long ago (%s)", codecNames[c]), 9, -1, "bounded-"+target, squeezed(c, 3, payloadOf(f...), nil))
		}
		s.stored("compact-" + target)
	}
}

// strangeBatches are those to which we answer otherwise.
func (s *peerSession) strangeBatches() {
	f := three()
	s.try("horizon", []trial{{"a delete horizon", 3, payloadOf(f...), func(h *batch.Header) { h.Attributes |= batch.DeleteHorizonFlag }}})
	s.try("append-time", []trial{{"append time set by the client", 3, payloadOf(f...), func(h *batch.Header) { h.Attributes |= batch.LogAppendTime }}})
	s.try("old", []trial{{"timestamp -5", 1, payloadOf(kept{key: []byte("k")}), func(h *batch.Header) { h.BaseTimestamp, h.MaxTimestamp = -5, -5 }}})
	s.try("unknown-codec", []trial{{"codec 5", 3, payloadOf(f...), func(h *batch.Header) { h.Attributes = h.Attributes&^batch.CodecMask | 5 }}})
	for _, c := range []int8{1, 4} {
		s.create("no-producer-"+codecNames[c], 1, "compression.type", "lz4")
		s.produceAppended("an id below none", 9, -1, "no-producer-"+codecNames[c], squeezed(c, 3, payloadOf(f...), func(h *batch.Header) { h.ProducerID = -5 }))
	}
	s.try("bytes", []trial{{"a header's key that is no text", 1, payloadOf(kept{at: 5, key: []byte("k"), headers: [][2][]byte{{{0xff, 'h'}, []byte("v")}}}), nil}})
	s.stored("bytes-gzip")
	s.stored("bytes-uncompressed")
}

// damagedBatches have a right CRC, and content that is not what their codec writes.
func (s *peerSession) damagedBatches() {
	fields := three()
	payload := payloadOf(fields...)
	for _, target := range []string{"uncompressed", "zstd", "gzip"} {
		topic := "damaged-" + target
		s.create(topic, 1, "compression.type", target)
		for c := int8(1); c < 5; c++ {
			whole, err := codec.Encode(nil, c, payload)
			if err != nil {
				s.t.Fatal(err)
			}
			if target == codecNames[c] {
				continue // we do not look into it
			}
			for _, tc := range []struct {
				what    string
				records int
				payload []byte
			}{
				{"nothing", 3, nil},
				{"plain records", 3, payload},
				{"cut", 3, whole[:len(whole)/2]},
				{"cut after its first byte", 3, whole[:1]},
				{"changed at its beginning", 3, damaged(whole, 0)},
				{"twice", 6, append(whole[:len(whole):len(whole)], whole...)},
			} {
				s.produceAppended(fmt.Sprintf("damaged, %s (%s)", tc.what, codecNames[c]), 9, -1, topic, enclosed(c, tc.records, tc.payload, nil))
			}
			if c == codec.Gzip || c == codec.Zstd { // which have a sum of their content
				s.produceAppended(fmt.Sprintf("damaged, changed in the middle (%s)", codecNames[c]), 9, -1, topic, enclosed(c, 3, damaged(whole, len(whole)/2), nil))
			}
		}
		s.stored(topic)
	}
}

func damaged(b []byte, at int) []byte {
	b = append([]byte(nil), b...)
	b[at] ^= 0x55
	return b
}

// sizesOfRecompressed: max.message.bytes holds for what came, and for what is to be kept.
func (s *peerSession) sizesOfRecompressed() {
	large := payloadOf(kept{key: []byte("k"), value: make([]byte, 5000)})
	for _, target := range []string{"uncompressed", "gzip", "zstd", "producer"} {
		topic := "small-" + target
		s.create(topic, 1, "compression.type", target, "max.message.bytes", "1000")
		for _, c := range []int8{0, 1, 4} {
			s.produceAppended(fmt.Sprintf("5000 bytes (%s)", codecNames[c]), 9, -1, topic, squeezed(c, 1, large, func(h *batch.Header) { h.MaxTimestamp = h.BaseTimestamp }))
		}
		s.stored(topic)
	}
}

// boundedRecords: max.decompressed.message.bytes is about records of compressed batches.
func (s *peerSession) boundedRecords() {
	of := func(n int) []byte { // a record that is n bytes without its length
		f := kept{key: []byte("k")}
		for f.value = make([]byte, 1); len(f.body(0, 0)) < n; {
			f.value = append(f.value, 0)
		}
		return payloadOf(f)
	}
	two := append(of(100), func() []byte { b := of(100); b[4] = 2; return b }()...)
	lying := append(of(100), binary.AppendVarint(nil, 1000)...)
	for _, target := range []string{"producer", "gzip", "uncompressed"} {
		topic := "bound-" + target
		s.create(topic, 1, "compression.type", target, "max.decompressed.message.bytes", "100")
		for c := range int8(5) {
			for _, tc := range []struct {
				what    string
				records int
				payload []byte
			}{
				{"100 bytes", 1, of(100)}, {"101 bytes", 1, of(101)}, {"5000 bytes", 1, of(5000)}, {"twice 100 bytes", 2, two}, {"1000 bytes that are not there", 2, lying},
			} {
				s.produceAppended(fmt.Sprintf("%s (%s)", tc.what, codecNames[c]), 9, -1, topic, squeezed(c, tc.records, tc.payload, nil))
			}
		}
		s.stored(topic)
	}
}

// boundedAfterwards: records that are there already when the bound comes.
func (s *peerSession) boundedAfterwards() {
	s.create("late-bound", 1)
	topic := s.prefix + "late-bound"
	for i := range int64(3) {
		large := payloadOf(kept{at: i, key: []byte("k"), value: make([]byte, 200)})
		s.produceAppended("before the bound", 9, -1, "late-bound", squeezed(4, 1, large, func(h *batch.Header) { h.MaxTimestamp = h.BaseTimestamp + i }))
	}
	s.step("offset by time, before the bound", 7, listRequest(7, topic, 0, stampOfTests+1))
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.SetVersion(1)
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: ofTopic, ResourceName: topic,
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "max.decompressed.message.bytes", Value: kmsg.StringPtr("100")}}}}
	if got := s.ask(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
		s.t.Fatal(deref(got.ErrorMessage))
	}
	large := payloadOf(kept{at: 3, key: []byte("k"), value: make([]byte, 200)})
	await(s.t, "the bound to be in force", func() bool {
		got := s.ask(produceRequest(9, -1, topic, squeezed(4, 1, large, func(h *batch.Header) { h.MaxTimestamp = h.BaseTimestamp + 3 }))).(*kmsg.ProduceResponse)
		return got.Topics[0].Partitions[0].ErrorCode == errInvalidRecord
	})
	s.step("offset by time, above the bound", 7, listRequest(7, topic, 0, stampOfTests+1))
	s.step("offset of the largest time, above the bound", 7, listRequest(7, topic, 0, -3))
	s.stored("late-bound")
}
