package broker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
)

// lettersSession is about dead letter queues. The name of the session is what their names have to begin with.
type lettersSession struct{ *shareSession }

func TestShareLettersAsApacheKafka(t *testing.T) {
	compareShareSession(t, "dlq.letters", lettersDifferences, func(x *shareSession) {
		s := &lettersSession{x}
		s.create("t", 2)
		s.queue("dead", 2)
		s.rejected()
		s.exceeded()
		s.copied()
		s.narrow()
		s.impossible()
		s.made()
		s.switchedOff()
	})
}

// The reasons are in docs/differences.md.
var lettersDifferences = []difference{
	{"letters of tight-0", "100 bytes; ", "100 bytes; __dlq.errors.topic=dlq.letters-t __dlq.errors.partition=1 __dlq.errors.offset=12 __dlq.errors.group=tight " +
		"__dlq.errors.delivery.count=1 __dlq.errors.message=Offset rejected by client., key null, value null; "},
}

// queue makes a topic for dead letters.
func (s *lettersSession) queue(name string, partitions int32, pairs ...string) {
	s.t.Helper()
	s.create(name, partitions, append(pairs, "errors.deadletterqueue.group.enable", "true")...)
}

// member makes a group with a queue, and a member of it that has read everything of a partition.
func (s *lettersSession) member(group, queue string, partition int32, pairs ...string) {
	s.t.Helper()
	if queue != "" {
		pairs = append(pairs, "errors.deadletterqueue.topic.name", s.prefix+queue)
	}
	s.configure(group, append(pairs, "share.auto.offset.reset", "earliest")...)
	if *recordSession != "" {
		time.Sleep(time.Second) // its broker hears of it a little later
	}
	s.join(group, "m", 2, "t")
	s.fetch(group+" reads", group, "m", 0, nil, partition)
}

// done waits until so many records of a partition are left for a group.
func (s *lettersSession) done(group string, partition int32, left int64) {
	s.t.Helper()
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	req.SetVersion(1)
	g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	g.GroupID = s.group(group)
	g.Topics = []kmsg.DescribeShareGroupOffsetsRequestGroupTopic{{Topic: s.prefix + "t", Partitions: []int32{partition}}}
	req.Groups = []kmsg.DescribeShareGroupOffsetsRequestGroup{g}
	var got kmsg.DescribeShareGroupOffsetsResponseGroupTopicPartition
	await(s.t, group+" to go on", func() bool {
		got = s.ask(req).(*kmsg.DescribeShareGroupOffsetsResponse).Groups[0].Topics[0].Partitions[0]
		return got.Lag == left
	})
	s.note("left of %s: %d", group, got.Lag)
}

// letters notes what is in a queue. The order means nothing: records that were rejected one by one are written at the same time.
func (s *lettersSession) letters(queue string, partitions int32) {
	s.t.Helper()
	for n := range partitions {
		var all []string
		s.fetchLog(s.prefix+queue, n, func(h batch.Header, raw []byte) {
			err := batch.EachRecord(batch.Payload(raw), h.NumRecords, func(r *batch.Record) error {
				all = append(all, strings.ReplaceAll(letterText(r), s.suffix, ""))
				return nil
			})
			if err != nil {
				s.t.Fatal(err)
			}
		})
		slices.Sort(all)
		s.note("letters of %s-%d: %s", queue, n, strings.Join(all, "; "))
	}
}

func letterText(r *batch.Record) string {
	text := ""
	for b, i := r.Headers, int32(0); i < r.HeaderCount; i++ {
		for _, sep := range []string{" ", "="} {
			size, n := binary.Varint(b)
			text += sep + string(b[n:n+int(size)])
			b = b[n+int(size):]
		}
	}
	return fmt.Sprintf("%s, key %s, value %s", strings.TrimSpace(text), fieldText(r.Key), fieldText(r.Value))
}

func fieldText(b []byte) string {
	if b == nil {
		return "null"
	}
	if len(b) > 10 {
		return fmt.Sprintf("%q and so on, %d bytes", b[:5], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// sizes notes how many records the batches of a queue have.
func (s *lettersSession) sizes(queue string) {
	s.t.Helper()
	var counts []int32
	s.fetchLog(s.prefix+queue, 0, func(h batch.Header, raw []byte) { counts = append(counts, h.NumRecords) })
	s.note("batches of %s: %v records", queue, counts)
}

// produced writes a batch of records of such keys and values; nil is null.
func (s *lettersSession) produced(partition int32, with int8, records ...[2][]byte) {
	s.t.Helper()
	h, err := batch.ParseHeader(plain(nil))
	if err != nil {
		s.t.Fatal(err)
	}
	var payload []byte
	for i, r := range records {
		payload = appendLetter(payload, int32(i), &letterCopy{r[0], r[1]}, [][2]string{{"its", "header"}})
	}
	if payload, err = codec.Encode(nil, with, payload); err != nil {
		s.t.Fatal(err)
	}
	h.Attributes, h.LastOffsetDelta, h.NumRecords = int16(with), int32(len(records)-1), int32(len(records))
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	req.Acks, req.TimeoutMillis = -1, 10_000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: s.prefix + "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: batch.AppendHeader(nil, &h, payload)}}}}
	if p := s.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 {
		s.t.Fatal(code(p.ErrorCode))
	}
}

func (s *lettersSession) rejected() {
	s.fill(0, 3, 7)
	s.fill(1, 4)
	s.member("g", "dead", 0)
	s.acknowledge("some are rejected", "g", "m", 1, 0, nil, ackOf(0, 3, accept, reject, reject, gap), ackOf(4, 9, accept))
	s.done("g", 0, 0)
	s.letters("dead", 2)
	s.member("h", "dead", 1)
	s.fetch("rejected in a fetch", "h", "m", 1, piggyback(1, ackOf(0, 3, reject)), 1)
	s.done("h", 1, 0)
	s.letters("dead", 2)
	s.member("none", "", 1)
	s.acknowledge("rejected in a group without a queue", "none", "m", 1, 1, nil, ackOf(0, 3, reject))
	s.done("none", 1, 0)
}

func (s *lettersSession) exceeded() {
	s.queue("often", 1)
	s.member("released", "often", 1, "share.delivery.count.limit", "2")
	s.acknowledge("released once", "released", "m", 1, 1, nil, ackOf(0, 3, release))
	s.fetch("once more", "released", "m", 2, nil)
	s.acknowledge("released twice", "released", "m", 3, 1, nil, ackOf(0, 2, release), ackOf(3, 3, reject))
	s.done("released", 1, 0)
	s.member("left", "often", 1, "share.delivery.count.limit", "2")
	s.fetch("left", "left", "m", -1, nil)
	s.fetch("back", "left", "m", 0, nil, 1)
	s.fetch("left again", "left", "m", -1, nil)
	s.done("left", 1, 0)
	s.member("slow", "often", 1, "share.delivery.count.limit", "2", "share.record.lock.duration.ms", "1000")
	await(s.t, "the lock to end", func() bool {
		time.Sleep(100 * time.Millisecond)
		req := s.fetchRequest("slow", "n", 0, nil, 1)
		resp := s.ask(req).(*kmsg.ShareFetchResponse)
		s.ask(s.fetchRequest("slow", "n", -1, func(r *kmsg.ShareFetchRequest) { r.Topics = nil }))
		return resp.ErrorCode != 0 || len(resp.Topics) > 0 && len(resp.Topics[0].Partitions[0].AcquiredRecords) > 0
	})
	s.done("slow", 1, 0)
	s.letters("often", 1)
}

func (s *lettersSession) copied() {
	s.queue("copies", 1)
	text := func(s string) []byte { return []byte(s) }
	s.produced(0, codec.None, [2][]byte{text("a"), text("1")}, [2][]byte{nil, text("2")}, [2][]byte{text("c"), nil}, [2][]byte{{}, {}})
	s.produced(0, codec.Zstd, [2][]byte{text("e"), text("5")}, [2][]byte{text("f"), text("6")})
	s.member("copied", "copies", 0, "errors.deadletterqueue.copy.record.enable", "true")
	s.acknowledge("all but two are rejected", "copied", "m", 1, 0, nil, ackOf(0, 9, accept), ackOf(10, 15, reject, reject, reject, reject, accept, reject))
	s.done("copied", 0, 0)
	s.letters("copies", 1)
}

// narrow are queues whose batches are small.
func (s *lettersSession) narrow() {
	s.queue("narrow", 1, "max.message.bytes", "700")
	s.member("narrow", "narrow", 0)
	s.acknowledge("many", "narrow", "m", 1, 0, nil, ackOf(0, 15, reject))
	s.done("narrow", 0, 0)
	s.letters("narrow", 1)
	s.sizes("narrow")
	large := func(n int) [2][]byte { return [2][]byte{[]byte("k"), bytes.Repeat([]byte{'x'}, n)} }
	s.produced(1, codec.None, large(100), large(300), large(200), large(800), large(100))
	s.produced(1, codec.Gzip, large(100), large(800))
	s.queue("small", 1, "max.message.bytes", "700")
	s.member("small", "small", 1, "errors.deadletterqueue.copy.record.enable", "true")
	s.acknowledge("larger ones", "small", "m", 1, 1, nil, ackOf(0, 3, accept), ackOf(4, 10, reject))
	s.done("small", 1, 0)
	s.letters("small", 1)
	s.produced(1, codec.None, large(100), large(550), large(100))
	s.queue("tight", 1, "max.message.bytes", "700")
	s.member("tight", "tight", 1, "errors.deadletterqueue.copy.record.enable", "true")
	s.acknowledge("one that is too large with its headers", "tight", "m", 1, 1, nil, ackOf(0, 10, accept), ackOf(11, 13, reject))
	s.done("tight", 1, 0)
	s.letters("tight", 1)
}

// impossible are queues that cannot be written to.
func (s *lettersSession) impossible() {
	s.create("not.for.letters", 1)
	s.queue("compacted", 1, "cleanup.policy", "compact")
	for _, queue := range []string{"absent", "not.for.letters", "compacted"} {
		s.member("to-"+queue, queue, 0)
		s.acknowledge("rejected, to "+queue, "to-"+queue, "m", 1, 0, nil, ackOf(0, 15, reject))
		s.done("to-"+queue, 0, 0)
	}
	s.letters("not.for.letters", 1)
	s.letters("compacted", 1)
	s.configureBroker("errors.deadletterqueue.topic.name.prefix", "letters.")
	s.member("misnamed", "dead", 0)
	s.acknowledge("rejected, to a queue of another name", "misnamed", "m", 1, 0, nil, ackOf(0, 15, reject))
	s.done("misnamed", 0, 0)
	s.configureBroker("errors.deadletterqueue.topic.name.prefix", "")
	s.letters("dead", 2)
}

// configureBroker sets a dynamic default of the cluster, or takes it away.
func (s *lettersSession) configureBroker(key, value string) {
	s.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType = kmsg.ConfigResourceTypeBroker
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	if c.Name, c.Value = key, &value; value == "" {
		c.Value, c.Op = nil, 1
	}
	r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{c}
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{r}
	s.step("set "+key+"="+value, 1, req)
	if *recordSession != "" {
		time.Sleep(time.Second)
	}
}

// made is a queue that is made when it is needed.
func (s *lettersSession) made() {
	s.configureBroker("errors.deadletterqueue.auto.create.topics.enable", "true")
	s.member("maker", "made", 0)
	s.acknowledge("rejected, to a queue that is made", "maker", "m", 1, 0, nil, ackOf(0, 9, accept), ackOf(10, 15, reject))
	s.done("maker", 0, 0)
	s.served(s.prefix+"made", 1)
	s.letters("made", 1)
	describe := kmsg.NewPtrDescribeConfigsRequest()
	describe.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: 2, ResourceName: s.prefix + "made", ConfigNames: []string{"errors.deadletterqueue.group.enable", "message.timestamp.type"}}}
	s.step("describe the one that was made", 4, describe)
	s.configureBroker("errors.deadletterqueue.auto.create.topics.enable", "")
}

// switchedOff: dead letters are a thing of share.version 2.
func (s *lettersSession) switchedOff() {
	level := func(n int16, kind int8) {
		s.t.Helper()
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.TimeoutMillis, req.FeatureUpdates = 5000, []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "share.version", MaxVersionLevel: n, UpgradeType: kind}}
		s.step(fmt.Sprintf("share.version %d", n), 1, req)
		if *recordSession != "" {
			time.Sleep(time.Second)
		}
	}
	s.member("off", "dead", 0)
	level(1, 2)
	s.acknowledge("rejected at share.version 1", "off", "m", 1, 0, nil, ackOf(0, 14, reject))
	s.done("off", 0, 1)
	level(2, 1)
	s.acknowledge("rejected at share.version 2", "off", "m", 2, 0, nil, ackOf(15, 15, reject))
	s.done("off", 0, 0)
	s.letters("dead", 2)
}
