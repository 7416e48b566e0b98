package broker

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// The same requests, byte for byte, are sent to this broker and were sent to Apache Kafka 4.4.0, whose answers are in testdata/session_*.txt. To record them
// anew, start one with auto.create.topics.enable=true and name its address. Texts of errors, throttle times and ids that are drawn at random are not
// compared; whatever else an answer holds is. Where ours differ on purpose, the script's list of differences says how, and docs/differences.md why.
var recordSession = flag.String("record-session", "", "address of an Apache Kafka whose answers are to be recorded")

// A difference replaces part of Apache Kafka's answer to one step by what we answer. One that is not met fails the test.
type difference struct{ step, kafka, ours string }

// peerSession is a scripted session with one broker.
type peerSession struct {
	t      *testing.T
	addr   string
	prefix string   // of the script's topics
	want   []string // Apache Kafka's answers with the differences applied; none while they are recorded
	conn   *rawConn
	lines  []string
	names  map[[16]byte]string // topic ids
	remote int64               // offsets below are read remotely, for which our answers wait no longer than they are told to
}

// compareSession holds script with our broker and compares, or records.
func compareSession(t *testing.T, name string, differences []difference, script func(*peerSession), opts ...brokerOption) {
	t.Helper()
	golden := fmt.Sprintf("testdata/session_%s_kafka_4.4.0.txt", name)
	s := &peerSession{t: t, prefix: name + "-", names: map[[16]byte]string{}}
	if *recordSession != "" {
		s.addr = *recordSession
		s.begin(script)
		if err := os.WriteFile(golden, []byte(strings.Join(s.lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	s.expect(golden, differences)
	s.addr = startBroker(t, t.TempDir(), opts...).addr
	s.begin(script)
	s.judge()
}

// expect reads what Apache Kafka answered.
func (s *peerSession) expect(golden string, differences []difference) {
	s.t.Helper()
	text, err := os.ReadFile(golden)
	if err != nil {
		s.t.Fatal(err)
	}
	s.want = apply(s.t, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), differences)
}

// judge compares what was answered with what was expected.
func (s *peerSession) judge() {
	s.t.Helper()
	for i := range min(len(s.lines), len(s.want)) {
		if s.lines[i] != s.want[i] {
			s.t.Errorf("line %d\nours: %s\nwant: %s", i+1, s.lines[i], s.want[i])
		}
	}
	if len(s.lines) != len(s.want) {
		s.t.Errorf("%d answers, Apache Kafka gave %d", len(s.lines), len(s.want))
	}
}

// apply replaces in Apache Kafka's answers what is ours on purpose.
func apply(t *testing.T, kafka []string, differences []difference) []string {
	t.Helper()
	met := make([]bool, len(differences))
	want := make([]string, len(kafka))
	for i, line := range kafka {
		step, answer, _ := strings.Cut(line, ": ")
		for j, d := range differences {
			if strings.HasPrefix(step, d.step) && strings.Contains(answer, d.kafka) {
				met[j] = true
				answer = strings.Replace(answer, d.kafka, d.ours, 1)
			}
		}
		want[i] = step + ": " + answer
	}
	for j, d := range differences {
		if !met[j] {
			t.Errorf("a difference that is not met: %+v", d)
		}
	}
	return want
}

func (s *peerSession) begin(script func(*peerSession)) {
	s.dial()
	s.clear()
	script(s)
}

func (s *peerSession) dial() {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	s.conn = &rawConn{Conn: c}
}

// clear removes what an earlier recording left.
func (s *peerSession) clear() {
	for _, name := range s.topicNames() {
		s.ask(deleteTopicsRequest(1, name))
	}
	await(s.t, "the topics to go", func() bool { return len(s.topicNames()) == 0 })
}

func (s *peerSession) topicNames() (names []string) {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(9)
	for _, t := range s.ask(req).(*kmsg.MetadataResponse).Topics {
		if strings.HasPrefix(*t.Topic, s.prefix) {
			names = append(names, *t.Topic)
		}
	}
	return names
}

func (s *peerSession) ask(req kmsg.Request) kmsg.Response {
	s.t.Helper()
	return s.conn.ask(s.t, req)
}

// step sends a request, and notes the answer.
func (s *peerSession) step(what string, version int16, req kmsg.Request) kmsg.Response {
	s.t.Helper()
	req.SetVersion(version)
	resp := s.ask(req)
	s.note("%s v%d: %s", what, version, s.text(resp))
	return resp
}

// settled is step for a fetch of which some is read remotely. Apache Kafka's answer waits for the store, ours goes out with what is ready; the read goes on,
// and the same fetch again finds it. What the answers brought counts together, if no single one is as it should be.
func (s *peerSession) settled(what string, version int16, req kmsg.Request) {
	s.t.Helper()
	s.step(what, version, req)
	n := len(s.lines)
	if n > len(s.want) {
		return
	}
	brought := map[[2]int]kmsg.FetchResponseTopicPartition{}
	for deadline := time.Now().Add(5 * time.Second); s.lines[n-1] != s.want[n-1] && time.Now().Before(deadline); {
		s.lines = s.lines[:n-1]
		resp := s.step(what, version, req).(*kmsg.FetchResponse)
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				p, at := &resp.Topics[i].Partitions[j], [2]int{i, j}
				if len(p.RecordBatches) > 0 {
					brought[at] = *p
				} else if earlier, ok := brought[at]; ok {
					*p = earlier
				}
			}
		}
		if together := fmt.Sprintf("%s v%d: %s", what, version, s.text(resp)); together == s.want[n-1] {
			s.lines[n-1] = together
		}
	}
}

// each holds the same step in each version; build makes a request anew.
func (s *peerSession) each(what string, from, to int16, build func(version int16) kmsg.Request) {
	s.t.Helper()
	for v := from; v <= to; v++ {
		s.step(what, v, build(v))
	}
}

func (s *peerSession) note(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// silent sends a request that is not answered, and notes whether the connection was closed: what comes next is the answer to a second request.
func (s *peerSession) silent(what string, version int16, req kmsg.Request) {
	s.t.Helper()
	req.SetVersion(version)
	s.conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := s.conn.Write(wire.AppendRequest(nil, req, 1, nil)); err != nil {
		s.t.Fatal(err)
	}
	second := kmsg.NewPtrApiVersionsRequest()
	if _, err := s.conn.Write(wire.AppendRequest(nil, second, 2, nil)); err != nil && !errors.Is(err, net.ErrClosed) {
		s.t.Log(err)
	}
	_, err := wire.ReadFrame(s.conn, 1<<20, nil)
	switch {
	case err == nil:
		s.note("%s v%d: no answer", what, version)
	case errors.Is(err, io.EOF) || strings.Contains(err.Error(), "reset"):
		s.note("%s v%d: closed", what, version)
		s.dial()
	default:
		s.t.Fatal(err)
	}
}

// id gives a topic's id.
func (s *peerSession) id(topic string) [16]byte {
	for id, name := range s.names {
		if name == topic {
			return id
		}
	}
	s.t.Fatalf("no id of %s", topic)
	return [16]byte{}
}

// create makes a topic whose answers are not noted, and waits until it is served.
func (s *peerSession) create(topic string, partitions int32, pairs ...string) {
	s.t.Helper()
	topic = s.prefix + topic
	pairs = append(pairs, "retention.ms", "-1") // timestamps are the script's
	req := createRequest(func(r *kmsg.CreateTopicsRequestTopic) {
		r.Topic, r.NumPartitions, r.ReplicationFactor, r.Configs = topic, partitions, 1, configsOf(pairs...)
	})
	req.SetVersion(7)
	if t := s.ask(req).(*kmsg.CreateTopicsResponse).Topics[0]; t.ErrorCode != 0 {
		s.t.Fatalf("creating %s: %s", topic, *t.ErrorMessage)
	}
	s.served(topic, partitions)
}

// served waits until a topic that was asked for is there.
func (s *peerSession) served(topic string, partitions int32) {
	s.t.Helper()
	await(s.t, topic, func() bool {
		meta := kmsg.NewPtrMetadataRequest()
		meta.SetVersion(12)
		meta.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
		t := s.ask(meta).(*kmsg.MetadataResponse).Topics[0]
		if t.ErrorCode != 0 || len(t.Partitions) != int(partitions) {
			return false
		}
		s.names[t.TopicID] = topic
		for n := range partitions {
			if p := s.offset(topic, n, offsetLatest); p.ErrorCode != 0 {
				return false
			}
		}
		return true
	})
}

func (s *peerSession) offset(topic string, partition int32, ts int64) kmsg.ListOffsetsResponseTopicPartition {
	s.t.Helper()
	return s.ask(listRequest(11, topic, partition, ts)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
}

func listRequest(version int16, topic string, partition int32, ts int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(version)
	req.ReplicaID = -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, ts
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	return req
}

// text writes an answer out: every field that is not zero, lists whose order means nothing in order.
func (s *peerSession) text(resp kmsg.Response) string {
	var b strings.Builder
	s.write(&b, reflect.ValueOf(resp).Elem())
	return b.String()
}

// unsaid are fields that are not compared.
var unsaid = map[string]bool{
	"Version": true, "UnknownTags": true, "ThrottleMillis": true, "ErrorMessage": true, "Host": true, "Port": true, "ClusterID": true, "Rack": true,
	"Dir": true, "OldStyleOffsets": true, "TotalBytes": true, "UsableBytes": true, "Documentation": true,
}

func (s *peerSession) write(b *strings.Builder, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			b.WriteString("null")
			return
		}
		s.write(b, v.Elem())
	case reflect.Struct:
		s.writeStruct(b, v)
	case reflect.Array:
		fmt.Fprintf(b, "%s", s.idText(v.Interface().([16]byte)))
	case reflect.Slice:
		s.writeList(b, v)
	case reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	default:
		fmt.Fprint(b, v.Interface())
	}
}

func (s *peerSession) idText(id [16]byte) string {
	if name, ok := s.names[id]; ok {
		return "<id of " + name + ">"
	}
	return "<unknown id>"
}

func (s *peerSession) writeStruct(b *strings.Builder, v reflect.Value) {
	b.WriteString("{")
	first := true
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		// A null list is not an empty one.
		if unsaid[name] || isDefault(f) || f.IsZero() && f.Kind() != reflect.Slice || f.Kind() == reflect.Slice && !f.IsNil() && f.Len() == 0 && name != "AbortedTransactions" {
			continue
		}
		if !first {
			b.WriteString(" ")
		}
		first = false
		b.WriteString(name + " ")
		switch {
		case name == "ErrorCode":
			b.WriteString(code(int16(f.Int())))
		case name == "SessionID", name == "ProducerID" && f.Int() > 0:
			b.WriteString("<some>")
		case name == "RecordBatches":
			b.WriteString(batchesText(f.Bytes()))
		default:
			s.write(b, f)
		}
	}
	b.WriteString("}")
}

// isDefault tells whether a field is a struct that says nothing.
func isDefault(f reflect.Value) bool {
	if f.Kind() != reflect.Struct || !f.CanAddr() {
		return false
	}
	said, ok := reflect.New(f.Type()).Interface().(interface{ Default() })
	if !ok {
		return false
	}
	said.Default()
	return reflect.DeepEqual(said, f.Addr().Interface())
}

func (s *peerSession) writeList(b *strings.Builder, v reflect.Value) {
	if v.IsNil() {
		b.WriteString("null")
		return
	}
	var items []string
	for i := range v.Len() {
		// Configurations that nobody set are another test's matter.
		if c, ok := v.Index(i).Interface().(kmsg.CreateTopicsResponseTopicConfig); ok && c.Source != int8(config.SourceTopic) || s.foreign(v.Index(i)) {
			continue
		}
		var item strings.Builder
		s.write(&item, v.Index(i))
		items = append(items, item.String())
	}
	if kind := v.Type().Elem().Name(); v.Type().Elem().Kind() == reflect.Struct && !slices.ContainsFunc(ordered, func(o string) bool { return strings.HasPrefix(kind, o) }) {
		slices.Sort(items)
	}
	b.WriteString("[" + strings.Join(items, " ") + "]")
}

// ordered are the answers in which the order of what is listed means something.
var ordered = []string{"Fetch", "DescribeTopicPartitions", "ListOffsets"}

// foreign tells of a topic in a list that is none of the script's, and was not asked for: Apache Kafka has others.
func (s *peerSession) foreign(v reflect.Value) bool {
	if v.Kind() != reflect.Struct {
		return false
	}
	topic, failed := v.FieldByName("Topic"), v.FieldByName("ErrorCode")
	if !topic.IsValid() || failed.IsValid() && failed.Int() != 0 {
		return false
	}
	if topic.Kind() == reflect.Pointer {
		topic = topic.Elem()
	}
	return topic.IsValid() && topic.String() != "" && !strings.HasPrefix(topic.String(), s.prefix)
}

// batchesText tells which batches an answer holds, and how much of a cut one.
func batchesText(b []byte) string {
	var parts []string
	n, err := batch.Each(b, func(h batch.Header, raw []byte) error {
		parts = append(parts, fmt.Sprintf("%d-%d:%d", h.BaseOffset, h.LastOffset(), len(raw)))
		return nil
	})
	if err != nil {
		parts = append(parts, err.Error())
	}
	if rest := len(b) - n; rest > 0 {
		parts = append(parts, fmt.Sprintf("cut:%d", rest))
	}
	return "[" + strings.Join(parts, " ") + "]"
}
