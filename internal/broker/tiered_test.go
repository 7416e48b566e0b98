package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/fileserver"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// directoryStore is a store in a directory; signed URLs are served on loopback.
func directoryStore(t *testing.T) (remotestorage.RemoteStorageManager, string) {
	t.Helper()
	dir := t.TempDir()
	key, err := fileserver.LoadKey(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(nil)
	t.Cleanup(front.Close)
	signer, err := fileserver.NewSigner(key, &url.URL{Scheme: "http", Host: front.Listener.Addr().String()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := fileserver.NewHandler(dir, "", signer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	front.Config.Handler = files
	front.Start()
	store, err := file.Open(dir, file.Options{Sign: signer.Sign})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	m, err := bucket.NewManager(bucket.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	return m, dir
}

// tieredKeys tier fast.
func tieredKeys() brokerOption {
	return withKeys("remote.log.manager.task.interval.ms", "50", "log.retention.check.interval.ms", "50")
}

// tieredTopic makes a topic whose segments are small and leave the local log once they are remote.
func (b *testBroker) tieredTopic(t *testing.T, name string, partitions int32, pairs ...string) {
	t.Helper()
	b.createTopic(t, name, partitions, append([]string{
		"remote.storage.enable", "true", "internal.segment.bytes", "20000", "local.retention.bytes", "1", "retention.ms", "-1", "file.delete.delay.ms", "0",
	}, pairs...)...)
}

// produceTiered writes records of 100 to 1000 bytes and waits until all but the active segments are remote only.
func (b *testBroker) produceTiered(t *testing.T, topic string, partitions int32, n int) {
	t.Helper()
	cl := b.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(5000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for p := range partitions {
		for i := 0; i < n; i += 20 {
			var batch []*kgo.Record
			for j := i; j < min(i+20, n); j++ {
				batch = append(batch, &kgo.Record{Topic: topic, Partition: p, Key: []byte(strconv.Itoa(j)), Value: make([]byte, 100+j*7%900),
					Timestamp: time.UnixMilli(1_700_000_000_000 + int64(j))})
			}
			if err := cl.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for p := range partitions {
		b.awaitTiered(t, topic, p)
	}
}

func (b *testBroker) awaitTiered(t *testing.T, topic string, n int32) {
	t.Helper()
	p := b.partition(topic, n)
	await(t, fmt.Sprintf("%s-%d to be remote", topic, n), func() bool {
		o := p.log.Offsets()
		return p.log.Stats().Segments == 1 && o.LocalLogStart > 0
	})
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

func checkSequence(t *testing.T, got []*kgo.Record, partitions int32, n int) {
	t.Helper()
	next := make(map[int32]int)
	for _, r := range got {
		if want := strconv.Itoa(next[r.Partition]); string(r.Key) != want || len(r.Value) != 100+next[r.Partition]*7%900 || r.Offset != int64(next[r.Partition]) {
			t.Fatalf("partition %d offset %d: key %s with %d bytes, want %s", r.Partition, r.Offset, r.Key, len(r.Value), want)
		}
		next[r.Partition]++
	}
	for p := range partitions {
		if next[p] != n {
			t.Errorf("partition %d: %d records, want %d", p, next[p], n)
		}
	}
}

// TestTieredHistory: what has left the local log is read back by a plain client, from the beginning and after a restart, several partitions at once
// (docs/cases.md, 11), and the log start stays where it was (14).
func TestTieredHistory(t *testing.T) {
	rsm, _ := directoryStore(t)
	dir := t.TempDir()
	b := startBroker(t, dir, withRSM(rsm), tieredKeys())
	b.tieredTopic(t, "history", 3)
	b.produceTiered(t, "history", 3, 400)
	read := func(b *testBroker) {
		t.Helper()
		cl := b.client(t, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		checkSequence(t, consume(t, cl, 1200), 3, 400)
	}
	read(b)
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	again := startBroker(t, dir, withRSM(rsm), tieredKeys())
	read(again)
}

func TestCase14_LogStartAfterRestart(t *testing.T) {
	rsm, _ := directoryStore(t)
	dir := t.TempDir()
	b := startBroker(t, dir, withRSM(rsm), tieredKeys())
	b.tieredTopic(t, "kept", 1)
	b.produceTiered(t, "kept", 1, 200)
	before := b.partition("kept", 0).log.Offsets()
	if before.LogStart != 0 || before.LocalLogStart == 0 {
		t.Fatalf("log start %d, local log start %d", before.LogStart, before.LocalLogStart)
	}
	b.Close(context.Background())
	after := startBroker(t, dir, withRSM(rsm), tieredKeys()).partition("kept", 0).log.Offsets()
	if after.LogStart != 0 || after.LocalLogStart != before.LocalLogStart {
		t.Errorf("after a restart log start %d and local log start %d, want 0 and %d", after.LogStart, after.LocalLogStart, before.LocalLogStart)
	}
}

// locationFetch asks for a location, as a capable client does.
func locationFetch(topic string, parts ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(12)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 5000, 1, 50<<20, -1
	wire.SetSupportedStorageFormatVersions(req, []string{remotestorage.StorageFormatApacheKafkaV1})
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	for i, offset := range parts {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = int32(i), offset, 1<<20
		wire.SetLocationRequested(&rp, true)
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func locationOf(t *testing.T, p *kmsg.FetchResponseTopicPartition) *remotestorage.Location {
	t.Helper()
	var found *remotestorage.Location
	p.UnknownTags.Each(func(tag uint32, b []byte) {
		if tag != wire.TagRemoteLogSegment {
			return
		}
		l, err := wire.ParseLocation(b)
		if err != nil {
			t.Fatal(err)
		}
		found = l
	})
	return found
}

func TestLocations(t *testing.T) {
	rsm, _ := directoryStore(t)
	b := startBroker(t, t.TempDir(), withRSM(rsm), tieredKeys())
	b.tieredTopic(t, "far", 2)
	b.produceTiered(t, "far", 2, 300)
	c := b.raw(t)
	end := b.partition("far", 0).log.Offsets()

	t.Run("given", func(t *testing.T) {
		resp := c.ask(t, locationFetch("far", 0, end.LocalLogStart)).(*kmsg.FetchResponse)
		remote, local := &resp.Topics[0].Partitions[0], &resp.Topics[0].Partitions[1]
		l := locationOf(t, remote)
		if l == nil {
			t.Fatalf("no location: error %d, %d bytes", remote.ErrorCode, len(remote.RecordBatches))
		}
		if len(remote.RecordBatches) != 0 || remote.ErrorCode != 0 || remote.HighWatermark != end.HighWatermark || remote.LogStartOffset != 0 || remote.PreferredReadReplica != -1 {
			t.Errorf("answer beside the location: %+v", remote)
		}
		if l.BaseOffset != 0 || l.StartPosition != 0 || l.LastOffset != l.EndOffset || l.SignedRemoteLogSegmentLocation == "" || l.SignedLocationExpiryMs <= time.Now().UnixMilli() {
			t.Errorf("location %+v", l)
		}
		if locationOf(t, local) != nil || len(local.RecordBatches) == 0 {
			t.Errorf("a local offset was answered with %d bytes, location %v", len(local.RecordBatches), locationOf(t, local))
		}
	})
	for name, change := range map[string]func(*kmsg.FetchRequest){
		"not asked":      func(r *kmsg.FetchRequest) { wire.SetLocationRequested(&r.Topics[0].Partitions[0], false) },
		"no format":      func(r *kmsg.FetchRequest) { wire.SetSupportedStorageFormatVersions(r, nil) },
		"other format":   func(r *kmsg.FetchRequest) { wire.SetSupportedStorageFormatVersions(r, []string{"ApacheKafkaV9"}) },
		"not a consumer": func(r *kmsg.FetchRequest) { r.ReplicaID = -2 },
	} {
		t.Run(name, func(t *testing.T) {
			req := locationFetch("far", 0)
			change(req)
			p := &c.ask(t, req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			if locationOf(t, p) != nil || len(p.RecordBatches) == 0 || p.ErrorCode != 0 {
				t.Errorf("%d bytes, error %d, location %v; want records", len(p.RecordBatches), p.ErrorCode, locationOf(t, p))
			}
		})
	}
	t.Run("committed", func(t *testing.T) {
		req := locationFetch("far", 0)
		req.IsolationLevel = isolationCommitted
		p := &c.ask(t, req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if locationOf(t, p) == nil || p.AbortedTransactions == nil || len(p.AbortedTransactions) != 0 {
			t.Errorf("aborted list %v, location %v; want an empty list, not null", p.AbortedTransactions, locationOf(t, p))
		}
	})
	t.Run("in a session", func(t *testing.T) {
		req := locationFetch("far", 0)
		req.SessionEpoch = 0
		first := c.ask(t, req).(*kmsg.FetchResponse)
		next := locationFetch("far")
		next.Topics, next.SessionID, next.SessionEpoch = nil, first.SessionID, 1
		second := c.ask(t, next).(*kmsg.FetchResponse)
		if first.SessionID == 0 || len(second.Topics) != 1 || locationOf(t, &second.Topics[0].Partitions[0]) == nil {
			t.Errorf("session %d, second answer %+v; want the location again", first.SessionID, second)
		}
	})
	t.Run("hidden by DeleteRecords", func(t *testing.T) {
		if _, err := b.partition("far", 0).log.DeleteRecords(5); err != nil {
			t.Fatal(err)
		}
		p := &c.ask(t, locationFetch("far", 5)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if l := locationOf(t, p); l != nil || len(p.RecordBatches) == 0 {
			t.Errorf("a segment that DeleteRecords cut into was offered: %v, %d bytes", l, len(p.RecordBatches))
		}
		p = &c.ask(t, locationFetch("far", 4)).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if p.ErrorCode != errOffsetOutOfRange {
			t.Errorf("below the log start: error %d, want 1", p.ErrorCode)
		}
	})
}

// TestRemotePartitionMaxBytes: KIP-1178's limit holds for the remote part only, up and down.
func TestRemotePartitionMaxBytes(t *testing.T) {
	rsm, _ := directoryStore(t)
	b := startBroker(t, t.TempDir(), withRSM(rsm), tieredKeys())
	b.tieredTopic(t, "limits", 1)
	b.produceTiered(t, "limits", 1, 300)
	c := b.raw(t)
	for _, tc := range []struct {
		limit, remote int32
		low, high     int
	}{
		{1 << 20, -1, 10_000, 20_000}, // a segment
		{1 << 20, 9000, 9000, 9000},
		{1, 9000, 9000, 9000},
		{9000, -1, 9000, 9000},
	} {
		req := locationFetch("limits", 0)
		p := &req.Topics[0].Partitions[0]
		wire.SetLocationRequested(p, false)
		p.PartitionMaxBytes = tc.limit
		wire.SetRemotePartitionMaxBytes(p, tc.remote)
		got := len(c.ask(t, req).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches)
		if got < tc.low || got > tc.high {
			t.Errorf("limit %d, remote limit %d: %d bytes, want %d to %d", tc.limit, tc.remote, got, tc.low, tc.high)
		}
	}
}

func objectsIn(t *testing.T, dir string) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return nil // a folder may go while it is walked
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDeletedTopicLeavesNoObjects: neither when the topic is deleted, nor when it is taken off remote storage with the owner's word for it.
func TestDeletedTopicLeavesNoObjects(t *testing.T) {
	rsm, dir := directoryStore(t)
	b := startBroker(t, t.TempDir(), withRSM(rsm), tieredKeys())
	b.tieredTopic(t, "deleted", 2)
	b.produceTiered(t, "deleted", 2, 200)
	if objectsIn(t, dir) == 0 {
		t.Fatal("nothing is remote")
	}
	if err := b.deleteTopic("deleted", remotestorage.UUID{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the objects to go", func() bool { return objectsIn(t, dir) == 0 })

	b.tieredTopic(t, "off", 1)
	b.produceTiered(t, "off", 1, 200)
	configs := map[string]string{"internal.segment.bytes": "20000"}
	if err := b.setTopicConfigs("off", b.logs.topic("off").id, configs); !errors.Is(err, config.ErrInvalidValue) {
		t.Errorf("switched off without consent: %v", err)
	}
	configs["remote.log.delete.on.disable"] = "true"
	if err := b.setTopicConfigs("off", b.logs.topic("off").id, configs); err != nil {
		t.Fatal(err)
	}
	await(t, "the objects to go", func() bool { return objectsIn(t, dir) == 0 })
	if o := b.partition("off", 0).log.Offsets(); o.LogStart != o.LocalLogStart || o.LogStart == 0 {
		t.Errorf("log start %d, local log start %d; want the same", o.LogStart, o.LocalLogStart)
	}
}
