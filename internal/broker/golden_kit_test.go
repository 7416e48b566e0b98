package broker

import (
	"net"
	"os"
	"path/filepath"
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
	if _, err := r.Adopt(topics.Topic{Name: metadataTopic, ID: remotestorage.RandomUUID(), Partitions: facts.MetadataPartitions, Internal: true}); err != nil {
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
	id int32
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

func appendRequest(req kmsg.Request, id int32) []byte { return wire.AppendRequest(nil, req, id, nil) }
