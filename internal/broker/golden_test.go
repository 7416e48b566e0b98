package broker

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/logdir"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/topics"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// startGolden makes a broker of a golden set: its local folders, its metadata records, its objects. The broker that wrote them is gone; ours answers in its
// place. Nothing is tiered or deleted meanwhile.
func startGolden(t *testing.T, set *golden.Set, opts ...brokerOption) *testBroker {
	t.Helper()
	dir := t.TempDir()
	if !set.CopyLocal(t, dir) {
		t.Skipf("%s has no local logs", set.Name)
	}
	facts := set.Facts(t)
	node := int32(1)
	if facts.Leader != nil {
		node = *facts.Leader
	}
	// The sets were copied after a clean stop, without its marker.
	if err := os.WriteFile(filepath.Join(dir, logdir.CleanShutdownFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	registerGolden(t, dir, facts)
	writeMetadata(t, dir, node, set, facts.MetadataPartitions)
	return startBroker(t, dir, append([]brokerOption{withRSM(golden.Store{Dir: set.ObjectsDir()}), func(o *Options) {
		o.passive = true
		o.Config.NodeID = node
		o.Config.MetadataPartitions = facts.MetadataPartitions
		o.Config.AutoCreateTopics = false
	}}, opts...)...)
}

// registerGolden gives the topics their configurations, which lay with the other broker's controller.
func registerGolden(t *testing.T, dir string, facts *golden.Facts) {
	t.Helper()
	r, err := topics.Open(vfs.Default, vfs.Default.PathJoin(dir, "topics"))
	if err != nil {
		t.Fatal(err)
	}
	for name, topic := range facts.Topics {
		if _, err := r.Adopt(topics.Topic{Name: name, ID: golden.TopicID(t, topic.ID), Partitions: int32(len(topic.Partitions)), Configs: topic.Configs}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Adopt(topics.Topic{Name: metadataTopic, ID: topics.NewID(), Partitions: facts.MetadataPartitions, Internal: true}); err != nil {
		t.Fatal(err)
	}
}

// writeMetadata appends the set's records to logs of __remote_log_metadata.
func writeMetadata(t *testing.T, dir string, node int32, set *golden.Set, partitions int32) {
	t.Helper()
	d, err := logdir.Open(vfs.Default, dir, logdir.Options{NodeID: node})
	if err != nil {
		t.Fatal(err)
	}
	r, err := topics.Open(vfs.Default, vfs.Default.PathJoin(dir, "topics"))
	if err != nil {
		t.Fatal(err)
	}
	topic, _ := r.Get(metadataTopic)
	logs := make([]*partlog.Log, partitions)
	for i := range logs {
		tp := topic.TopicIDPartition(int32(i))
		path, err := d.CreatePartition(tp)
		if err != nil {
			t.Fatal(err)
		}
		if logs[i], err = partlog.Open(partlog.Options{Dir: path, TP: tp, Config: partlog.DefaultConfig(), Clean: true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, rec := range set.Metadata(t) {
		if _, err := logs[rec.Partition].Append(batch.AppendSimple(nil, rec.Timestamp, rec.Key, rec.Value), partlog.Internal); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range logs {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.MarkClean(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// rawConn is a connection without a client's opinions.
type rawConn struct {
	net.Conn
	buf []byte
	id  int32
}

func (b *testBroker) raw(t testing.TB) *rawConn {
	t.Helper()
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &rawConn{Conn: c}
}

func (c *rawConn) ask(t testing.TB, req kmsg.Request) kmsg.Response {
	t.Helper()
	c.id++
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Write(wire.AppendRequest(nil, req, c.id, nil)); err != nil {
		t.Fatal(err)
	}
	frame, err := wire.ReadFrame(c, 256<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, body, err := wire.ResponseBody(frame, req.Key(), req.GetVersion())
	if err != nil {
		t.Fatal(err)
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	return resp
}

// fetch asks for one partition, as the golden answers were asked for.
func (c *rawConn) fetch(t testing.TB, id remotestorage.UUID, f *golden.Fetch, change func(*kmsg.FetchRequestTopicPartition)) kmsg.FetchResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(17)
	req.ReplicaState.ID = -1
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis, req.IsolationLevel = f.FetchMaxBytes, f.MinBytes, max(f.MaxWaitMs, 5000), f.Isolation
	rt := kmsg.NewFetchRequestTopic()
	rt.TopicID = id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = f.Partition, f.FetchOffset, f.PartitionMaxBytes
	if change != nil {
		change(&rp)
	}
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	if f.RecordsBytes == 0 && f.PartitionError == 0 {
		req.MaxWaitMillis = 10 // nothing is to come
	}
	resp := c.ask(t, req).(*kmsg.FetchResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("answer of %d topics", len(resp.Topics))
	}
	return resp.Topics[0].Partitions[0]
}

// deadLineage tells whether a set's broker served batches past an epoch's end (kafka-facts 18), where we knowingly differ.
func deadLineage(set *golden.Set) bool { return strings.Contains(set.Name, "unclean-roll") }

// TestGoldenProbes: every fetch at an edge is answered as Apache Kafka answered it.
func TestGoldenProbes(t *testing.T) {
	for _, set := range golden.KafkaSets(t) {
		t.Run(set.Name, func(t *testing.T) {
			t.Parallel()
			b := startGolden(t, set)
			facts, c := set.Facts(t), b.raw(t)
			bad := 0
			probes := set.Probes(t)
			for i := range probes {
				f := &probes[i]
				got := c.fetch(t, golden.TopicID(t, facts.Topics[f.Topic].ID), f, nil)
				if diff := differs(set, f, &got); diff != "" && bad < 10 {
					bad++
					t.Errorf("%s-%d offset %d isolation %d limit %d: %s", f.Topic, f.Partition, f.FetchOffset, f.Isolation, f.PartitionMaxBytes, diff)
				}
			}
			t.Logf("%d probes", len(probes))
		})
	}
}

func differs(set *golden.Set, f *golden.Fetch, got *kmsg.FetchResponseTopicPartition) string {
	if got.ErrorCode != f.PartitionError || got.HighWatermark != f.HighWatermark || got.LastStableOffset != f.LastStableOffset || got.LogStartOffset != f.LogStartOffset {
		return fmt.Sprintf("error %d, HW %d, LSO %d, log start %d; want %d, %d, %d, %d", got.ErrorCode, got.HighWatermark, got.LastStableOffset, got.LogStartOffset,
			f.PartitionError, f.HighWatermark, f.LastStableOffset, f.LogStartOffset)
	}
	if (got.RecordBatches == nil) != f.RecordsNull {
		return fmt.Sprintf("records null: %v, want %v", got.RecordBatches == nil, f.RecordsNull)
	}
	if sum := sha256.Sum256(got.RecordBatches); hex.EncodeToString(sum[:]) != f.RecordsSHA256 && !deadLineage(set) {
		return fmt.Sprintf("%d bytes of records, want %d; first base %d, want %s", len(got.RecordBatches), f.RecordsBytes, firstBase(got.RecordBatches), offsetText(f.FirstBaseOffset))
	}
	return abortedDiffers(f, got)
}

func firstBase(b []byte) int64 {
	if h, err := batch.ParseHeader(b); err == nil {
		return h.BaseOffset
	}
	return -1
}

func offsetText(v *int64) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprint(*v)
}

// abortedDiffers compares the lists as sets. Apache Kafka's may hold more than needed (kafka-facts 11): what overlaps what was returned must be there, and
// nothing that its own answer does not have, unless the bytes differ.
func abortedDiffers(f *golden.Fetch, got *kmsg.FetchResponseTopicPartition) string {
	if (got.AbortedTransactions == nil) != (f.Aborted == nil) {
		return fmt.Sprintf("aborted null: %v, want %v", got.AbortedTransactions == nil, f.Aborted == nil)
	}
	last := int64(-1)
	batch.Each(got.RecordBatches, func(h batch.Header, _ []byte) error { last = h.LastOffset(); return nil })
	have := make(map[golden.Aborted]bool)
	for _, a := range got.AbortedTransactions {
		e := golden.Aborted{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}
		if have[e] {
			return fmt.Sprintf("aborted transaction %v twice", e)
		}
		have[e] = true
	}
	for _, a := range f.Aborted {
		if a.FirstOffset <= last && !have[a] {
			return fmt.Sprintf("aborted transaction %v is missing in %v", a, got.AbortedTransactions)
		}
	}
	for e := range have {
		if e.FirstOffset <= last && !slices.Contains(f.Aborted, e) {
			return fmt.Sprintf("aborted transaction %v, which Apache Kafka does not have: %v", e, f.Aborted)
		}
	}
	return ""
}

// TestGoldenAborted: read_committed fetches carry the aborted transactions that Apache Kafka's carried.
func TestGoldenAborted(t *testing.T) {
	for _, set := range golden.KafkaSets(t) {
		t.Run(set.Name, func(t *testing.T) {
			t.Parallel()
			if !set.Has("aborted.jsonl.gz") {
				t.Skip("no such file")
			}
			b := startGolden(t, set)
			facts, c := set.Facts(t), b.raw(t)
			bad := 0
			fetches := set.AbortedFetches(t)
			for i := range fetches {
				f := &fetches[i]
				if f.FetchMaxBytes == 0 {
					f.FetchMaxBytes = 50 << 20
				}
				f.Isolation = isolationCommitted
				got := c.fetch(t, golden.TopicID(t, facts.Topics[f.Topic].ID), f, nil)
				diff := abortedDiffers(f, &got)
				if got.ErrorCode != f.PartitionError {
					diff = fmt.Sprintf("error %d, want %d", got.ErrorCode, f.PartitionError)
				}
				if diff != "" && bad < 10 {
					bad++
					t.Errorf("%s-%d offset %d limit %d: %s", f.Topic, f.Partition, f.FetchOffset, f.PartitionMaxBytes, diff)
				}
			}
			t.Logf("%d fetches", len(fetches))
		})
	}
}

// TestGoldenBatches: a consumer that reads from the log start on gets every batch, byte for byte, across both tiers.
func TestGoldenBatches(t *testing.T) {
	for _, set := range golden.KafkaSets(t) {
		t.Run(set.Name, func(t *testing.T) {
			t.Parallel()
			b := startGolden(t, set)
			facts, c := set.Facts(t), b.raw(t)
			want := make(map[string][]golden.Batch)
			for _, x := range set.Batches(t) {
				k := fmt.Sprintf("%s-%d", x.Topic, x.Partition)
				want[k] = append(want[k], x)
			}
			for _, p := range facts.Partitions(t) {
				got := readAll(t, c, &p)
				checkBatches(t, set, &p, want[p.String()], got)
			}
		})
	}
}

// readAll reads raw batches from the log start to the end.
func readAll(t *testing.T, c *rawConn, p *golden.Partition) [][]byte {
	t.Helper()
	var all [][]byte
	for next := p.LogStartOffset; next < p.HighWatermark; {
		f := golden.Fetch{Partition: p.TopicIDPartition.Partition, FetchOffset: next, PartitionMaxBytes: 20_000, FetchMaxBytes: 1 << 20, MinBytes: 1, RecordsBytes: 1}
		got := c.fetch(t, p.TopicID, &f, nil)
		if got.ErrorCode != 0 {
			t.Fatalf("%s offset %d: error %d", p, next, got.ErrorCode)
		}
		before := next
		if _, err := batch.Each(got.RecordBatches, func(h batch.Header, raw []byte) error {
			all = append(all, bytes.Clone(raw))
			next = h.LastOffset() + 1
			return nil
		}); err != nil {
			t.Fatalf("%s offset %d: %v", p, before, err)
		}
		if next == before {
			t.Fatalf("%s offset %d: an empty answer, the high watermark is %d", p, before, p.HighWatermark)
		}
	}
	return all
}

func checkBatches(t *testing.T, set *golden.Set, p *golden.Partition, want []golden.Batch, got [][]byte) {
	t.Helper()
	if deadLineage(set) {
		return // judged by internal/locate's tests, which know the lineage
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d batches, want %d", p, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if sum := sha256.Sum256(got[i]); hex.EncodeToString(sum[:]) != want[i].SHA256 {
			t.Errorf("%s: batch %d at %d differs from the one at %d", p, i, firstBase(got[i]), want[i].BaseOffset)
			return
		}
	}
}

// TestGoldenListOffsets: special timestamps in every version, lookups by timestamp, both isolation levels.
func TestGoldenListOffsets(t *testing.T) {
	for _, set := range golden.KafkaSets(t) {
		t.Run(set.Name, func(t *testing.T) {
			t.Parallel()
			b := startGolden(t, set)
			c := b.raw(t)
			for _, p := range set.Facts(t).Partitions(t) {
				for key, want := range p.ListOffsetsSpecialVersions {
					var ts int64
					var version int16
					if _, err := fmt.Sscanf(key, "%d/v%d", &ts, &version); err != nil {
						t.Fatal(err)
					}
					compareOffset(t, c, set, &p, version, 0, ts, want)
				}
				for key, want := range p.ListOffsetsSpecial {
					var ts int64
					fmt.Sscan(key, &ts)
					compareOffset(t, c, set, &p, 11, 0, ts, want.Uncommitted)
					compareOffset(t, c, set, &p, 11, 1, ts, want.Committed)
				}
				for _, want := range p.ListOffsetsByTimestamp {
					compareOffset(t, c, set, &p, 11, 0, want.Query, want.Uncommitted)
					compareOffset(t, c, set, &p, 11, 1, want.Query, want.Committed)
				}
			}
		})
	}
}

func compareOffset(t *testing.T, c *rawConn, set *golden.Set, p *golden.Partition, version int16, isolation int8, ts int64, want golden.OffsetAnswer) {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(version)
	req.IsolationLevel = isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = p.Topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = p.TopicIDPartition.Partition, ts
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	got := c.ask(t, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	have := golden.OffsetAnswer{Error: got.ErrorCode, Timestamp: got.Timestamp, Offset: got.Offset, LeaderEpoch: got.LeaderEpoch}
	if have == want {
		return
	}
	if ts == offsetMaxTimestamp && want.Error == 0 && have.Timestamp >= want.Timestamp {
		return // we look at both tiers (kafka-facts 14)
	}
	if deadLineage(set) {
		return // kafka-facts 18
	}
	// Where compaction took the record that a remote segment's metadata names as its newest, Apache Kafka passes over the segment. We find its records.
	if strings.Contains(set.Name, "f-gaps") && ts >= 0 && have.Error == 0 && have.Timestamp >= ts && have.Offset < want.Offset && have.Offset >= p.LogStartOffset {
		return
	}
	t.Errorf("%s v%d isolation %d timestamp %d: %+v, want %+v", p, version, isolation, ts, have, want)
}

// TestGoldenEpochs: OffsetForLeaderEpoch for every epoch, and at the edges.
func TestGoldenEpochs(t *testing.T) {
	type edge struct {
		Asked   int32 `json:"asked"`
		Current int32 `json:"askedCurrentLeaderEpoch"`
		golden.EpochEnd
	}
	for _, set := range golden.KafkaSets(t) {
		t.Run(set.Name, func(t *testing.T) {
			t.Parallel()
			b := startGolden(t, set)
			c := b.raw(t)
			for _, p := range set.Facts(t).Partitions(t) {
				if got := b.epochOf(p.Topic, p.TopicIDPartition.Partition); got != p.Metadata.LeaderEpoch {
					t.Errorf("%s: leader epoch %d, want %d", &p, got, p.Metadata.LeaderEpoch)
				}
				for _, want := range p.OffsetForLeaderEpoch {
					compareEpoch(t, c, &p, -1, want)
				}
				var edges []edge
				if len(p.OffsetForLeaderEpochEdge) > 0 {
					if err := json.Unmarshal(p.OffsetForLeaderEpochEdge, &edges); err != nil {
						t.Fatal(err)
					}
				}
				for _, e := range edges {
					e.EpochEnd.Asked = e.Asked
					compareEpoch(t, c, &p, e.Current, e.EpochEnd)
				}
			}
		})
	}
}

func compareEpoch(t *testing.T, c *rawConn, p *golden.Partition, current int32, want golden.EpochEnd) {
	t.Helper()
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.SetVersion(4)
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = p.Topic
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = p.TopicIDPartition.Partition, current, want.Asked
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	got := c.ask(t, req).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
	if have := (golden.EpochEnd{Asked: want.Asked, Error: got.ErrorCode, LeaderEpoch: got.LeaderEpoch, EndOffset: got.EndOffset}); have != want {
		t.Errorf("%s current epoch %d: %+v, want %+v", p, current, have, want)
	}
}

// TestGoldenFencing: fetches and lookups that name a leader epoch are let through or refused as by Apache Kafka.
func TestGoldenFencing(t *testing.T) {
	type fencing struct {
		Topics map[string]struct {
			ID         string `json:"topicId"`
			Partitions map[int32]struct {
				Fetches []struct {
					Offset         int64 `json:"fetchOffset"`
					Current        int32 `json:"currentLeaderEpoch"`
					PartitionError int16 `json:"partitionError"`
					RecordsBytes   int   `json:"recordsBytes"`
				} `json:"fetchWithCurrentLeaderEpoch"`
				Lookups []struct {
					Current   int32 `json:"askedCurrentLeaderEpoch"`
					Timestamp int64 `json:"askedTimestamp"`
					Error     int16 `json:"error"`
					Offset    int64 `json:"offset"`
				} `json:"listOffsetsWithCurrentLeaderEpoch"`
			} `json:"partitions"`
		} `json:"topics"`
	}
	compared := 0
	for _, set := range golden.KafkaSets(t) {
		if set.LocalDir(t) == "" {
			continue
		}
		b := startGolden(t, set)
		c := b.raw(t)
		var facts fencing
		if err := json.NewDecoder(set.Open(t, "facts.json")).Decode(&facts); err != nil {
			t.Fatal(err)
		}
		for name, topic := range facts.Topics {
			for n, p := range topic.Partitions {
				for _, want := range p.Fetches {
					compared++
					f := golden.Fetch{Partition: n, FetchOffset: want.Offset, PartitionMaxBytes: 4096, FetchMaxBytes: 50 << 20, MinBytes: 1, RecordsBytes: want.RecordsBytes, PartitionError: want.PartitionError}
					got := c.fetch(t, golden.TopicID(t, topic.ID), &f, func(rp *kmsg.FetchRequestTopicPartition) { rp.CurrentLeaderEpoch = want.Current })
					if got.ErrorCode != want.PartitionError || len(got.RecordBatches) != want.RecordsBytes && !deadLineage(set) {
						t.Errorf("%s: %s-%d offset %d, epoch %d: error %d, %d bytes; want %d, %d", set.Name, name, n, want.Offset, want.Current, got.ErrorCode, len(got.RecordBatches), want.PartitionError, want.RecordsBytes)
					}
					if leader := got.CurrentLeader; want.PartitionError == errFencedLeaderEpoch && (leader.LeaderID != b.nodeID || leader.LeaderEpoch != b.epochOf(name, n)) {
						t.Errorf("%s: %s-%d: error 74 names leader %+v", set.Name, name, n, leader)
					}
				}
				for _, want := range p.Lookups {
					compared++
					req := kmsg.NewPtrListOffsetsRequest()
					req.SetVersion(11)
					rt := kmsg.NewListOffsetsRequestTopic()
					rt.Topic = name
					rp := kmsg.NewListOffsetsRequestTopicPartition()
					rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = n, want.Timestamp, want.Current
					rt.Partitions = append(rt.Partitions, rp)
					req.Topics = append(req.Topics, rt)
					got := c.ask(t, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
					if got.ErrorCode != want.Error || got.Offset != want.Offset {
						t.Errorf("%s: %s-%d timestamp %d, epoch %d: error %d, offset %d; want %d, %d", set.Name, name, n, want.Timestamp, want.Current, got.ErrorCode, got.Offset, want.Error, want.Offset)
					}
				}
			}
		}
	}
	if compared == 0 {
		t.Error("nothing was compared")
	}
	t.Logf("%d answers", compared)
}

func appendRequest(req kmsg.Request, id int32) []byte { return wire.AppendRequest(nil, req, id, nil) }
