package tier

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func segmentRecord(tp remotestorage.TopicIDPartition, id byte, start, end int64) *remotelog.SegmentRecord {
	return &remotelog.SegmentRecord{RemoteLogSegmentMetadata: remotestorage.RemoteLogSegmentMetadata{
		RemoteLogSegmentID: remotestorage.RemoteLogSegmentID{TopicIDPartition: tp, ID: remotestorage.UUID{id}},
		StartOffset:        start, EndOffset: end, SegmentSizeInBytes: 10,
		SegmentLeaderEpochs: []remotestorage.EpochStart{{LeaderEpoch: 0, StartOffset: start}},
	}}
}

func update(tp remotestorage.TopicIDPartition, id byte, s remotestorage.SegmentState) *remotelog.UpdateRecord {
	return &remotelog.UpdateRecord{RemoteLogSegmentID: remotestorage.RemoteLogSegmentID{TopicIDPartition: tp, ID: remotestorage.UUID{id}}, State: s}
}

func openMetadata(t testing.TB, logs []*fakeRecordLog) *MetadataLog {
	t.Helper()
	m, err := NewMetadataLog(logs, remotelog.NewIndex(), MetadataOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func fakeRecordLogs(n int) []*fakeRecordLog {
	logs := make([]*fakeRecordLog, n)
	for i := range logs {
		logs[i] = &fakeRecordLog{}
	}
	return logs
}

func TestPublishIsDurableBeforeItIsApplied(t *testing.T) {
	logs := fakeRecordLogs(5)
	m := openMetadata(t, logs)
	ctx := context.Background()
	for p := range int32(20) {
		if err := m.Publish(ctx, segmentRecord(tpOf(p), 1, 0, 9)); err != nil {
			t.Fatal(err)
		}
		if err := m.Publish(ctx, update(tpOf(p), 1, remotestorage.CopySegmentFinished)); err != nil {
			t.Fatal(err)
		}
	}
	var after []*fakeRecordLog
	for _, l := range logs {
		after = append(after, l.clone())
	}
	again := openMetadata(t, after)
	for p := range int32(20) {
		for _, m := range []*MetadataLog{m, again} {
			all := m.Index().Partition(tpOf(p)).All()
			if len(all) != 1 || all[0].State != remotestorage.CopySegmentFinished || all[0].EndOffset != 9 {
				t.Fatalf("partition %d: %+v", p, all)
			}
		}
	}
	// As Kafka writes them: a null key, no headers, in the partition that its partitioner names.
	for n, l := range logs {
		_, err := batch.Each(l.bytes, func(h batch.Header, raw []byte) error {
			if h.NumRecords != 1 || h.IsLogAppendTime() || h.BaseTimestamp == 0 {
				t.Errorf("batch %+v", h)
			}
			return eachValue(h, raw, func(_ int64, v []byte) error {
				r, err := remotelog.Parse(v)
				if err != nil {
					return err
				}
				tp, err := partitionOf(r)
				if err == nil && remotelog.MetadataPartition(tp, 5) != int32(n) {
					t.Errorf("a record of %s in metadata partition %d", tp, n)
				}
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestConcurrentPublishesShareASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeRecordLog{block: make(chan struct{})}
		m := openMetadata(t, []*fakeRecordLog{log})
		var wg sync.WaitGroup
		publish := func(id byte) {
			wg.Go(func() {
				if err := m.Publish(context.Background(), segmentRecord(tpOf(0), id, 0, 9)); err != nil {
					t.Error(err)
				}
			})
		}
		publish(1)
		synctest.Wait() // the first is in its sync, alone
		for id := byte(2); id <= 50; id++ {
			publish(id)
		}
		synctest.Wait()
		close(log.block)
		wg.Wait()
		if n := log.syncs.Load(); n != 2 {
			t.Errorf("%d syncs for 1 and 49 publications, want 2", n)
		}
		if n := len(m.Index().Partition(tpOf(0)).All()); n != 50 {
			t.Errorf("%d segments are in the index", n)
		}
	})
}

func TestFailedSyncEndsPublishing(t *testing.T) {
	log := &fakeRecordLog{fail: errDisk}
	m := openMetadata(t, []*fakeRecordLog{log})
	err := m.Publish(context.Background(), segmentRecord(tpOf(0), 1, 0, 9))
	if !errors.Is(err, ErrMetadataFailed) || !errors.Is(err, errDisk) {
		t.Fatalf("error %v", err)
	}
	if m.Index().Partition(tpOf(0)) != nil {
		t.Fatal("a record that may not be durable was applied")
	}
	log.fail = nil
	if err := m.Publish(context.Background(), segmentRecord(tpOf(0), 2, 0, 9)); !errors.Is(err, ErrMetadataFailed) {
		t.Fatalf("after a failed sync: %v", err)
	}
}

// TestSyncsThatPass: that too many files were open for a while does not end publishing; that they stay so does, since then nobody knows what is durable.
func TestSyncsThatPass(t *testing.T) {
	for crowded, want := range map[int]error{1: nil, syncAttempts - 1: nil, syncAttempts: ErrMetadataFailed} {
		synctest.Test(t, func(t *testing.T) {
			log := &fakeRecordLog{crowded: crowded}
			m := openMetadata(t, []*fakeRecordLog{log})
			for id := byte(1); id <= 2; id++ {
				if err := m.Publish(context.Background(), segmentRecord(tpOf(0), id, 0, 9)); !errors.Is(err, want) {
					t.Errorf("%d syncs that pass, publication %d: %v, want %v", crowded, id, err, want)
				}
			}
		})
	}
}

func TestReplaySkipsWhatItDoesNotKnow(t *testing.T) {
	log := &fakeRecordLog{}
	for _, v := range [][]byte{{1, 99, 0}, []byte("garbage"), {}, remotelog.Append(nil, segmentRecord(tpOf(0), 1, 0, 9)), {2, 0, 0}} {
		if _, err := log.Append(batch.AppendSimple(nil, 1, []byte("a key"), v), 0); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	m, err := NewMetadataLog([]*fakeRecordLog{log}, remotelog.NewIndex(), MetadataOptions{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(m.Index().Partition(tpOf(0)).All()); n != 1 {
		t.Errorf("%d segments", n)
	}
	if n := strings.Count(out.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, out.String())
	}
}

func TestReplayOfACompressedBatch(t *testing.T) {
	raw := batch.AppendSimple(nil, 1, nil, remotelog.Append(nil, segmentRecord(tpOf(0), 1, 0, 9)))
	h, err := batch.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []int8{codec.Gzip, codec.Snappy, codec.LZ4, codec.Zstd} {
		packed, err := codec.Encode(nil, c, batch.Payload(raw))
		if err != nil {
			t.Fatal(err)
		}
		h.Attributes = int16(c)
		log := &fakeRecordLog{}
		if _, err := log.Append(batch.AppendHeader(nil, &h, packed), 0); err != nil {
			t.Fatal(err)
		}
		m := openMetadata(t, []*fakeRecordLog{log})
		if p := m.Index().Partition(tpOf(0)); p == nil || len(p.All()) != 1 {
			t.Errorf("codec %d: nothing was replayed", c)
		}
	}
}

func TestReplayFindsDamage(t *testing.T) {
	log := &fakeRecordLog{}
	if _, err := log.Append(batch.AppendSimple(nil, 1, nil, remotelog.Append(nil, segmentRecord(tpOf(0), 1, 0, 9))), 0); err != nil {
		t.Fatal(err)
	}
	log.bytes[80] ^= 1
	if _, err := NewMetadataLog([]*fakeRecordLog{log}, remotelog.NewIndex(), MetadataOptions{}); !errors.Is(err, batch.ErrCorrupt) {
		t.Fatalf("error %v", err)
	}
}

// goldenRecord is one line of a golden set's metadata.jsonl.
type goldenRecord struct {
	MetadataPartition int32  `json:"metadataPartition"`
	Value             string `json:"value"`
	Decoded           struct {
		Topic     string `json:"topic"`
		TopicID   string `json:"topicId"`
		Partition int32  `json:"partition"`
	} `json:"decoded"`
}

func readGolden(t *testing.T, path string) []goldenRecord {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []goldenRecord
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	for dec.More() {
		var r goldenRecord
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// goldenLogs holds a golden set's records as the metadata topic held them.
func goldenLogs(t *testing.T, records []goldenRecord) []*fakeRecordLog {
	t.Helper()
	logs := fakeRecordLogs(5)
	for _, r := range records {
		v, err := hex.DecodeString(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := logs[r.MetadataPartition].Append(batch.AppendSimple(nil, 1, nil, v), 0); err != nil {
			t.Fatal(err)
		}
	}
	return logs
}

func TestReplayOfGoldenRecords(t *testing.T) {
	sets, err := filepath.Glob(goldenDir(t, "*/metadata.jsonl"))
	if err != nil || len(sets) == 0 {
		t.Fatalf("no golden sets: %v", err)
	}
	for _, set := range sets {
		t.Run(filepath.Base(filepath.Dir(set)), func(t *testing.T) {
			var out strings.Builder
			records := readGolden(t, set)
			m, err := NewMetadataLog(goldenLogs(t, records), remotelog.NewIndex(), MetadataOptions{Logger: slog.New(slog.NewTextHandler(&out, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if out.Len() > 0 {
				t.Errorf("warnings:\n%s", out.String())
			}
			if len(records) > 0 && len(m.Index().Partitions()) == 0 {
				t.Error("nothing was replayed")
			}
		})
	}
}
