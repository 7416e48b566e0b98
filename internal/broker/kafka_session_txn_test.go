package broker

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// To record these anew, start an Apache Kafka with transaction.state.log.num.partitions=2, offsets.topic.num.partitions=2 and
// transaction.abort.timed.out.transaction.cleanup.interval.ms=1000 besides.

func compareTxnSession(t *testing.T, name string, differences []difference, script func(*txnSession)) {
	compareSession(t, name, differences, func(s *peerSession) {
		x := &txnSession{peerSession: s, suffix: fmt.Sprintf("-%d", time.Now().UnixNano()), ids: map[int64]string{}}
		for range 2 { // so that none of the script's ids is 0
			x.ask(initRequest(nil, 0, noProducer))
		}
		find := kmsg.NewPtrFindCoordinatorRequest() // makes __transaction_state
		find.SetVersion(4)
		find.CoordinatorType, find.CoordinatorKeys = 1, []string{"any"}
		x.ask(find)
		script(x)
	}, withKeys("transaction.state.log.num.partitions", "2", "offsets.topic.num.partitions", "2"))
}

var noProducer = txn.Producer{ID: -1, Epoch: -1}

// txnSession is a session whose transactional ids are new each time; producer ids are written in the order in which they turned up.
type txnSession struct {
	*peerSession
	suffix string
	ids    map[int64]string
}

func (s *txnSession) tid(name string) string { return name + s.suffix }

func (s *txnSession) step(what string, version int16, req kmsg.Request) kmsg.Response {
	s.t.Helper()
	resp := s.peerSession.step(what, version, req)
	last := len(s.lines) - 1
	s.lines[last] = strings.ReplaceAll(s.lines[last], s.suffix, "")
	return resp
}

func (s *txnSession) id(id int64) string {
	if id < 0 {
		return "none"
	}
	if _, ok := s.ids[id]; !ok {
		s.ids[id] = fmt.Sprintf("p%d", len(s.ids)+1)
	}
	return s.ids[id]
}

// patient is a step that is taken again as long as the last transaction is not complete, or a coordinator not ready: how long that takes is nobody's promise.
func (s *txnSession) patient(what string, version int16, req func() kmsg.Request) kmsg.Response {
	s.t.Helper()
	var resp kmsg.Response
	before := len(s.lines)
	await(s.t, what, func() bool {
		s.lines = s.lines[:before]
		resp = s.step(what, version, req())
		return !strings.Contains(s.lines[before], "CONCURRENT_TRANSACTIONS") && !strings.Contains(s.lines[before], "COORDINATOR") &&
			!strings.Contains(s.lines[before], "NOT_ENOUGH_REPLICAS")
	})
	return resp
}

func initRequest(tid *string, timeout int32, expected txn.Producer) *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.SetVersion(4)
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = tid, timeout, expected.ID, expected.Epoch
	return req
}

func (s *txnSession) init(what, id string, version int16, expected txn.Producer) txn.Producer {
	s.t.Helper()
	tid := s.tid(id)
	resp := s.patient("init, "+what, version, func() kmsg.Request { return initRequest(&tid, 60_000, expected) }).(*kmsg.InitProducerIDResponse)
	s.note("producer: %s", s.id(resp.ProducerID))
	return txn.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}
}

func (s *txnSession) addRequest(id string, p txn.Producer, tps ...txn.TopicPartition) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = s.tid(id), p.ID, p.Epoch
	for _, tp := range tps {
		req.Topics = append(req.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: s.prefix + tp.Topic, Partitions: []int32{tp.Partition}})
	}
	return req
}

func (s *txnSession) add(what, id string, p txn.Producer, tps ...txn.TopicPartition) {
	s.t.Helper()
	s.patient("add, "+what, 3, func() kmsg.Request { return s.addRequest(id, p, tps...) })
}

func (s *txnSession) end(what, id string, version int16, p txn.Producer, commit bool) txn.Producer {
	s.t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = s.tid(id), p.ID, p.Epoch, commit
	resp := s.patient("end, "+what, version, func() kmsg.Request { return req }).(*kmsg.EndTxnResponse)
	if version >= 5 {
		s.note("producer: %s", s.id(resp.ProducerID))
	}
	return txn.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}
}

// txnBatch is a batch of one record of a producer.
func txnBatch(p txn.Producer, sequence int32, transactional bool) []byte {
	b := batch.AppendSimple(nil, stampOfTests, []byte("k"), fmt.Appendf(nil, "%d-%d", p.Epoch, sequence))
	setProducer(b, p.ID, p.Epoch, sequence)
	if transactional {
		b[22] |= batch.Transactional
	}
	batch.FixCRC(b)
	return b
}

func (s *txnSession) produce(what string, version int16, id *string, tp txn.TopicPartition, records []byte) {
	s.t.Helper()
	s.patient("produce, "+what, version, func() kmsg.Request {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis, req.TransactionID = -1, 10_000, id
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: s.prefix + tp.Topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: tp.Partition, Records: slices.Clone(records)}}}}
		return req
	})
}

func (s *txnSession) describeRequest(ids ...string) *kmsg.DescribeTransactionsRequest {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	for _, id := range ids {
		if id != "" {
			id = s.tid(id)
		}
		req.TransactionalIDs = append(req.TransactionalIDs, id)
	}
	return req
}

// state notes what a transaction is said to be, once its markers are written.
func (s *txnSession) state(id string) {
	s.t.Helper()
	s.await(id, func(state string) bool { return !strings.HasPrefix(state, "Prepare") })
}

func (s *txnSession) await(id string, ok func(state string) bool) {
	s.t.Helper()
	var got kmsg.DescribeTransactionsResponseTransactionState
	await(s.t, "the transaction's end", func() bool {
		got = s.ask(s.describeRequest(id)).(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
		return ok(got.State)
	})
	var parts []string
	for _, t := range got.Topics {
		slices.Sort(t.Partitions)
		parts = append(parts, partitionsText(t.Topic, t.Partitions))
	}
	slices.Sort(parts)
	s.note("state of %s: %s %s %s epoch %d, timeout %d, begun %v, %v", id, code(got.ErrorCode), got.State, s.id(got.ProducerID), got.ProducerEpoch, got.TimeoutMillis, got.StartTimestamp >= 0, parts)
}

// partitionsText leaves out which partition of __consumer_offsets it is: that follows from the group's name, which is another one each time.
func partitionsText(topic string, partitions []int32) string {
	if topic == offsetsTopic {
		return topic
	}
	return fmt.Sprintf("%s%v", topic, partitions)
}

func (s *txnSession) fetchLog(topic string, partition int32, fn func(h batch.Header, raw []byte)) {
	s.t.Helper()
	for at := int64(0); ; {
		p := s.ask(fetchRequestOf(topic, partition, at, 1<<20)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			s.t.Fatal(kerr.ErrorForCode(p.ErrorCode))
		}
		next := at
		if _, err := batch.Each(p.RecordBatches, func(h batch.Header, raw []byte) error {
			next = h.LastOffset() + 1
			fn(h, raw)
			return nil
		}); err != nil {
			s.t.Fatal(err)
		}
		if next == at {
			return
		}
		at = next
	}
}

// log notes every batch of a partition.
func (s *txnSession) log(topic string, partition int32) {
	s.t.Helper()
	s.fetchLog(s.prefix+topic, partition, func(h batch.Header, raw []byte) {
		kind := ""
		if h.IsControl() {
			_ = batch.EachRecord(batch.Payload(raw), h.NumRecords, func(r *batch.Record) error {
				kind = fmt.Sprintf(" control key %x, value version %d of %d bytes", r.Key, binary.BigEndian.Uint16(r.Value), len(r.Value))
				return nil
			})
		}
		s.note("log of %s-%d: %d-%d %s epoch %d sequence %d attributes %#x%s", topic, partition, h.BaseOffset, h.LastOffset(), s.id(h.ProducerID), h.ProducerEpoch, h.BaseSequence, h.Attributes, kind)
	})
}

// records notes what __transaction_state has of an id.
func (s *txnSession) records(id string) {
	s.t.Helper()
	for n := range int32(2) {
		s.fetchLog("__transaction_state", n, func(h batch.Header, raw []byte) {
			err := batch.EachRecord(batch.Payload(raw), h.NumRecords, func(r *batch.Record) error {
				e, err := txn.ParseRecord(r.Key, r.Value)
				if err != nil || e.ID != s.tid(id) {
					return err
				}
				s.note("record of %s: batch of %s attributes %#x, %s", id, s.id(h.ProducerID), h.Attributes, s.recordText(e.State))
				return nil
			})
			if err != nil {
				s.t.Error(err)
			}
		})
	}
}

func (s *txnSession) recordText(v *kmsg.TxnMetadataValue) string {
	if v == nil {
		return "tombstone"
	}
	topics := "null"
	if v.Topics != nil {
		var parts []string
		for _, t := range v.Topics {
			slices.Sort(t.Partitions)
			parts = append(parts, partitionsText(t.Topic, t.Partitions))
		}
		slices.SortFunc(parts, cmp.Compare)
		topics = fmt.Sprint(parts)
	}
	return fmt.Sprintf("v%d %s %s epoch %d timeout %d begun %v previous %s next %s client %d next epoch %d topics %s", v.Version, txn.State(v.State), s.id(v.ProducerID), v.ProducerEpoch, v.TimeoutMillis,
		v.StartTimestamp >= 0, s.id(v.PreviousProducerID), s.id(v.NextProducerID), v.ClientTransactionVersion, v.NextProducerEpoch, topics)
}

func tp(topic string, n int32) txn.TopicPartition {
	return txn.TopicPartition{Topic: topic, Partition: n}
}

func TestTransactionsAsApacheKafka(t *testing.T) {
	compareTxnSession(t, "txn", nil, func(s *txnSession) {
		s.create("t", 2)
		s.create("u", 2)
		s.create("v", 1)
		s.create("w", 1)
		s.firstVersion()
		s.secondVersion()
		s.fenced()
		s.timedOut()
		s.resumed()
		s.refused()
	})
}

// firstVersion: a client that names its partitions, with everything it may repeat.
func (s *txnSession) firstVersion() {
	id := "one"
	tid := s.tid(id)
	s.step("describe, unknown", 0, s.describeRequest(id))
	p := s.init("new", id, 4, noProducer)
	s.state(id)
	s.end("nothing begun", id, 4, p, true)
	s.end("nothing begun, abort", id, 4, p, false)
	s.produce("not added", 11, &tid, tp("t", 0), txnBatch(p, 0, true))
	s.add("two", id, p, tp("t", 0), tp("t", 1))
	s.add("one of them again", id, p, tp("t", 1))
	s.state(id)
	s.produce("first", 11, &tid, tp("t", 0), txnBatch(p, 0, true))
	s.produce("second", 11, &tid, tp("t", 0), txnBatch(p, 1, true))
	s.produce("again", 11, &tid, tp("t", 0), txnBatch(p, 1, true))
	s.produce("not transactional", 11, nil, tp("t", 0), txnBatch(p, 2, false))
	s.produce("not transactional, with an id", 11, &tid, tp("t", 0), txnBatch(p, 2, false))
	s.produce("not added", 11, &tid, tp("u", 0), txnBatch(p, 0, true))
	s.produce("another epoch", 11, &tid, tp("t", 1), txnBatch(txn.Producer{ID: p.ID, Epoch: p.Epoch + 1}, 0, true))
	s.end("commit", id, 4, p, true)
	s.state(id)
	s.end("commit again", id, 4, p, true)
	s.end("abort after commit", id, 4, p, false)
	s.produce("after the end", 11, &tid, tp("t", 0), txnBatch(p, 2, true))
	s.add("next", id, p, tp("t", 0))
	s.produce("to be aborted", 11, &tid, tp("t", 0), txnBatch(p, 2, true))
	s.end("abort", id, 4, p, false)
	s.state(id)
	s.end("abort again", id, 4, p, false)
	s.end("commit after abort", id, 4, p, true)
	s.log("t", 0)
	s.log("t", 1)
	s.records(id)
}

// secondVersion: KIP-890.
func (s *txnSession) secondVersion() {
	id := "two"
	tid := s.tid(id)
	p0 := s.init("new", id, 5, noProducer)
	s.end("commit of nothing", id, 5, p0, true)
	p := s.end("abort of nothing", id, 5, p0, false)
	s.state(id)
	s.end("abort of nothing, again", id, 5, p0, false)
	s.end("commit instead, again", id, 5, p0, true)
	s.produce("an old epoch", 12, &tid, tp("u", 0), txnBatch(p0, 0, true))
	s.produce("first", 12, &tid, tp("u", 0), txnBatch(p, 0, true))
	s.produce("second", 12, &tid, tp("u", 0), txnBatch(p, 1, true))
	s.produce("other partition", 12, &tid, tp("u", 1), txnBatch(p, 0, true))
	s.state(id)
	q := s.end("commit", id, 5, p, true)
	s.state(id)
	s.end("commit again", id, 5, p, true)
	s.end("abort instead", id, 5, p, false)
	s.end("commit of nothing in the next", id, 5, q, true)
	s.produce("after the end, old epoch", 12, &tid, tp("u", 0), txnBatch(p, 2, true))
	s.produce("next, not from 0", 12, &tid, tp("u", 0), txnBatch(q, 2, true))
	s.produce("next, from 0", 12, &tid, tp("u", 0), txnBatch(q, 0, true))
	r := s.end("abort", id, 5, q, false)
	s.state(id)
	s.end("abort again", id, 5, q, false)
	s.end("commit instead", id, 5, q, true)
	s.produce("and next", 12, &tid, tp("u", 0), txnBatch(r, 0, true))
	s.end("by an old version", id, 4, r, true)
	s.state(id)
	s.log("u", 0)
	s.log("u", 1)
	s.records(id)
}

// fenced: a new client takes over an open transaction, of either version.
func (s *txnSession) fenced() {
	for _, v := range []struct{ init, produce, end int16 }{{4, 11, 4}, {5, 12, 5}} {
		id := fmt.Sprintf("fenced-%d", v.end)
		tid := s.tid(id)
		old := s.init("old", id, v.init, noProducer)
		if v.end < 5 {
			s.add("old", id, old, tp("v", 0))
		}
		s.produce("old", v.produce, &tid, tp("v", 0), txnBatch(old, 0, true))
		young := s.init("new", id, v.init, noProducer)
		s.state(id)
		s.end("old", id, v.end, old, true)
		s.produce("old", v.produce, &tid, tp("v", 0), txnBatch(old, 1, true))
		if v.end < 5 {
			s.add("old", id, old, tp("v", 0))
			s.add("new", id, young, tp("v", 0))
		}
		s.produce("new", v.produce, &tid, tp("v", 0), txnBatch(young, 0, true))
		s.end("new", id, v.end, young, true)
		s.state(id)
		s.init("old, by its epoch", id, v.init, old)
		s.records(id)
	}
	s.log("v", 0)
}

// timedOut: nobody ends the transaction.
func (s *txnSession) timedOut() {
	for _, v := range []struct{ produce, end int16 }{{11, 4}, {12, 5}} {
		id := fmt.Sprintf("slow-%d", v.end)
		tid := s.tid(id)
		resp := s.patient("init, short timeout", 4, func() kmsg.Request { return initRequest(&tid, 500, noProducer) }).(*kmsg.InitProducerIDResponse)
		p := txn.Producer{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}
		if v.end < 5 {
			s.add("slow", id, p, tp("w", 0))
		}
		s.produce("slow", v.produce, &tid, tp("w", 0), txnBatch(p, 0, true))
		s.await(id, func(state string) bool { return state == "CompleteAbort" })
		s.end("too late", id, v.end, p, true)
		s.end("too late, abort", id, v.end, p, false)
		s.produce("too late", v.produce, &tid, tp("w", 0), txnBatch(p, 1, true))
		s.init("by the old epoch", id, 4, p)
		s.init("by the old epoch again", id, 4, p)
		s.init("by the fencing epoch", id, 4, txn.Producer{ID: p.ID, Epoch: p.Epoch + 1})
		s.init("anew", id, 4, noProducer)
		s.records(id)
	}
	s.log("w", 0)
}

// resumed: KIP-360.
func (s *txnSession) resumed() {
	id := "resumed"
	p := s.init("new", id, 5, txn.Producer{ID: 12345, Epoch: 7})
	s.init("unknown id", id, 5, txn.Producer{ID: p.ID + 1_000_000, Epoch: 0})
	q := s.init("bumped", id, 5, p)
	s.init("bumped again", id, 5, p)
	s.init("epoch too high", id, 5, txn.Producer{ID: p.ID, Epoch: 100})
	s.init("and on", id, 5, q)
	s.init("the first again", id, 5, p)
	r := s.init("anew", id, 5, noProducer)
	s.init("what is fenced", id, 5, q)
	tid := s.tid(id)
	s.produce("after that", 12, &tid, tp("v", 0), txnBatch(r, 0, true))
	s.end("commit", id, 5, r, true)
	s.state(id)
	s.init("by the epoch before the commit", id, 5, r)
	s.init("by the epoch before the commit again", id, 5, r)
	s.records(id)
}

func (s *txnSession) refused() {
	empty, id := "", "refused"
	tid := s.tid(id)
	p := s.init("new", id, 4, noProducer)
	other := txn.Producer{ID: p.ID + 1_000_000, Epoch: p.Epoch}
	for v := int16(0); v <= 5; v++ {
		s.step("init, no id at all", v, initRequest(&empty, 1000, noProducer))
		s.step("init, timeout 0", v, initRequest(&tid, 0, noProducer))
		s.step("init, timeout too long", v, initRequest(&tid, 900_001, noProducer))
	}
	s.step("init, epoch without an id", 4, initRequest(&tid, 1000, txn.Producer{ID: -1, Epoch: 1}))
	s.step("init, id without an epoch", 4, initRequest(&tid, 1000, txn.Producer{ID: 1, Epoch: -1}))
	for v := int16(0); v <= 3; v++ {
		s.step("add, nobody", v, s.addRequest("nobody", p, tp("t", 0)))
		s.step("add, other producer", v, s.addRequest(id, other, tp("t", 0)))
		s.step("add, other epoch", v, s.addRequest(id, txn.Producer{ID: p.ID, Epoch: p.Epoch + 1}, tp("t", 0)))
		s.step("add, unknown topic", v, s.addRequest(id, p, tp("t", 0), tp("unknown", 0)))
		s.step("add, unknown partition", v, s.addRequest(id, p, tp("t", 7)))
		s.step("add, nothing", v, s.addRequest(id, p))
	}
	for v := int16(4); v <= 5; v++ {
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		for _, partitions := range [][]int32{{0, 1}, {0, 0}} {
			for _, verify := range []bool{true, false} {
				for _, name := range []string{id, "nobody"} {
					tx := kmsg.NewAddPartitionsToTxnRequestTransaction()
					tx.TransactionalID, tx.ProducerID, tx.ProducerEpoch, tx.VerifyOnly = s.tid(name), p.ID, p.Epoch, verify
					tx.Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: s.prefix + "t", Partitions: partitions}}
					req.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{tx}
					s.step(fmt.Sprintf("add, several, %s, verify %v, %v", name, verify, partitions), v, req)
				}
			}
		}
		s.end("abort", id, 4, p, false)
		s.state(id)
	}
	for v := int16(0); v <= 4; v++ {
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = s.tid("nobody"), p.ID, p.Epoch, "g"
		s.step("add offsets, nobody", v, req)
		req.TransactionalID, req.ProducerID = s.tid(id), other.ID
		s.step("add offsets, other producer", v, req)
	}
	for v := int16(0); v <= 5; v++ {
		s.end("nobody", "nobody", v, p, true)
		s.end("other producer", id, v, other, true)
		s.end("other epoch", id, v, txn.Producer{ID: p.ID, Epoch: p.Epoch + 1}, true)
	}
	s.step("describe, several", 0, s.describeRequest("", "nobody"))
	nobody := s.tid("nobody")
	for _, v := range []int16{11, 12} {
		s.produce("nobody", v, &nobody, tp("t", 0), txnBatch(p, 0, true))
		s.produce("other producer", v, &tid, tp("t", 0), txnBatch(other, 0, true))
		s.produce("other epoch", v, &tid, tp("t", 0), txnBatch(txn.Producer{ID: p.ID, Epoch: p.Epoch + 1}, 0, true))
		s.produce("no id", v, nil, tp("t", 0), txnBatch(p, 0, true))
		s.produce("empty id", v, &empty, tp("t", 0), txnBatch(p, 0, true))
		s.produce("not transactional, no producer", v, &tid, tp("t", 0), plain(nil))
	}
	for v := int16(0); v <= 6; v++ {
		for _, kind := range []int8{0, 1} {
			if v == 0 && kind == 1 {
				continue
			}
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKey, req.CoordinatorType, req.CoordinatorKeys = s.tid(id), kind, []string{s.tid(id), ""}
			s.step(fmt.Sprintf("find coordinator, type %d", kind), v, req)
		}
	}
}
