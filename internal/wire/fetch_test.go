package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/remotestorage"
)

func testLocation() *remotestorage.Location {
	return &remotestorage.Location{
		RemoteLogSegmentID: remotestorage.UUID{1, 2, 3}, StorageFormatVersion: remotestorage.StorageFormatApacheKafkaV1,
		BaseOffset: 100, EndOffset: 900, LastOffset: 800, SegmentSizeInBytes: 5000, StartPosition: 10, EndPosition: 4000,
		RemoteLogSegmentLocation: "s3://bucket/key", SignedRemoteLogSegmentLocation: "https://store/key?signature",
		SignedLocationExpiryMs: 1234567890123, CustomMetadata: []byte{9, 8},
	}
}

func testResponse() *FetchResponse {
	rack := "r1"
	return &FetchResponse{
		ThrottleMillis: 7, ErrorCode: 0, SessionID: 42,
		Topics: []FetchTopic{
			{Topic: "first", TopicID: remotestorage.UUID{1}, Partitions: []FetchPartition{
				{Partition: 0, HighWatermark: 10, LastStableOffset: 9, LogStartOffset: 3, PreferredReadReplica: -1,
					Aborted: []AbortedTransaction{{ProducerID: 5, FirstOffset: 6}},
					Records: Records{Bufs: [][]byte{[]byte("abc"), nil, []byte("defg")}}},
				{Partition: 1, ErrorCode: 74, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: 3,
					CurrentLeader: &LeaderAndEpoch{LeaderID: 4, LeaderEpoch: 8}, Diverging: &EpochEnd{Epoch: 2, EndOffset: 77}},
			}},
			{Topic: "second", TopicID: remotestorage.UUID{2}, Partitions: []FetchPartition{
				{Partition: 9, HighWatermark: 1, LastStableOffset: 1, PreferredReadReplica: -1, Aborted: []AbortedTransaction{}, Location: testLocation()},
				{Partition: 10, HighWatermark: 1, LastStableOffset: 1, PreferredReadReplica: -1, Records: Records{Bufs: [][]byte{bytes.Repeat([]byte{7}, 300)}}},
			}},
		},
		Nodes: []Node{{ID: 4, Host: "h", Port: 9092, Rack: &rack}},
	}
}

func join(bufs [][]byte) []byte { return bytes.Join(bufs, nil) }

// Everything that a version carries must come back out of kmsg's decoder, and nothing may be left over.
func TestFetchResponseDecodes(t *testing.T) {
	for version := int16(0); version <= 18; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			r := testResponse()
			prefix := []byte("kept")
			frame := join(r.Buffers(version, 99, append([]byte{}, prefix...)))
			if size := int(binary.BigEndian.Uint32(frame)); size != len(frame)-4 {
				t.Fatalf("size says %d, frame has %d", size, len(frame)-4)
			}
			corr, body, err := ResponseBody(frame[4:], 1, version)
			if err != nil || corr != 99 {
				t.Fatal(corr, err)
			}
			got := kmsg.NewPtrFetchResponse()
			got.Version = version
			if err := got.ReadFrom(body); err != nil {
				t.Fatal(err)
			}
			if again := got.AppendTo(nil); !bytes.Equal(again, body) {
				t.Errorf("kmsg writes it differently:\n%x\n%x", again, body)
			}
			checkFetch(t, version, r, got)
		})
	}
}

func checkFetch(t *testing.T, version int16, want *FetchResponse, got *kmsg.FetchResponse) {
	t.Helper()
	if version >= 7 && (got.SessionID != 42) || version >= 1 && got.ThrottleMillis != 7 {
		t.Errorf("session %d, throttle %d", got.SessionID, got.ThrottleMillis)
	}
	if version >= 16 != (len(got.Brokers) == 1) {
		t.Errorf("nodes %v", got.Brokers)
	}
	for i := range want.Topics {
		wt, gt := &want.Topics[i], &got.Topics[i]
		if version <= 12 && gt.Topic != wt.Topic || version >= 13 && gt.TopicID != wt.TopicID {
			t.Errorf("topic %q %x", gt.Topic, gt.TopicID)
		}
		for j := range wt.Partitions {
			checkPartition(t, version, &wt.Partitions[j], &gt.Partitions[j])
		}
	}
}

func checkPartition(t *testing.T, version int16, w *FetchPartition, g *kmsg.FetchResponseTopicPartition) {
	t.Helper()
	if g.Partition != w.Partition || g.ErrorCode != w.ErrorCode || g.HighWatermark != w.HighWatermark || !bytes.Equal(g.RecordBatches, join(w.Records.Bufs)) {
		t.Errorf("partition %+v", g)
	}
	if g.RecordBatches == nil {
		t.Error("records are null")
	}
	if version >= 4 && ((g.AbortedTransactions == nil) != (w.Aborted == nil) || len(g.AbortedTransactions) != len(w.Aborted)) {
		t.Errorf("aborted %v", g.AbortedTransactions)
	}
	for i, a := range g.AbortedTransactions {
		if a.ProducerID != w.Aborted[i].ProducerID || a.FirstOffset != w.Aborted[i].FirstOffset {
			t.Errorf("aborted %v", a)
		}
	}
	if version >= 11 && g.PreferredReadReplica != w.PreferredReadReplica {
		t.Errorf("replica %d", g.PreferredReadReplica)
	}
	if version < 12 {
		return
	}
	if w.CurrentLeader != nil && (g.CurrentLeader.LeaderID != 4 || g.CurrentLeader.LeaderEpoch != 8 || g.DivergingEpoch.Epoch != 2 || g.DivergingEpoch.EndOffset != 77) {
		t.Errorf("leader %+v, diverging %+v", g.CurrentLeader, g.DivergingEpoch)
	}
	l, err := PartitionLocation(g)
	if err != nil || !reflect.DeepEqual(l, w.Location) {
		t.Errorf("location %+v %v", l, err)
	}
}

// Record bytes must be the caller's own memory, not copies.
func TestFetchResponseCopiesNoRecords(t *testing.T) {
	rec := []byte("records")
	r := &FetchResponse{Topics: []FetchTopic{{Partitions: []FetchPartition{{Records: Records{Bufs: [][]byte{rec}}}}}}}
	for _, b := range r.Buffers(12, 1, nil) {
		if len(b) == len(rec) && &b[0] == &rec[0] {
			return
		}
	}
	t.Error("the record buffer is not among the frame's buffers")
}

func TestFetchResponseReleasesOnce(t *testing.T) {
	n := 0
	r := &FetchResponse{Topics: []FetchTopic{{Partitions: []FetchPartition{{Records: Records{Release: func() { n++ }}}, {}}}}}
	r.Release()
	r.Release()
	if n != 1 {
		t.Errorf("released %d times", n)
	}
}

func BenchmarkFetchResponseBuffers(b *testing.B) {
	r := testResponse()
	scratch := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		r.Buffers(16, 1, scratch[:0])
	}
}
