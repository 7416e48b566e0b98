package tier

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// BenchmarkReplay is a start over a metadata topic of 20,000 copied segments, two records each.
func BenchmarkReplay(b *testing.B) {
	const segments = 20_000
	log := &fakeRecordLog{}
	for n := range uint64(segments) {
		rec := segmentRecord(tpOf(int32(n%100)), 0, int64(n)*10, int64(n)*10+9)
		binary.BigEndian.PutUint64(rec.ID[:], n+1)
		up := update(rec.TopicIDPartition, 0, remotestorage.CopySegmentFinished)
		up.ID = rec.ID
		for _, r := range []remotelog.Record{rec, up} {
			if _, err := log.Append(batch.AppendSimple(nil, 1, nil, remotelog.Append(nil, r)), partlog.Internal); err != nil {
				b.Fatal(err)
			}
		}
	}
	whole := &wholeLog{fakeRecordLog: log}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewMetadataLog([]*wholeLog{whole}, remotelog.NewIndex(), MetadataOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*segments), "ns/record")
}

// wholeLog gives all of a log in one read, so that the fake's search for the offset is not what is measured.
type wholeLog struct{ *fakeRecordLog }

func (l *wholeLog) Read(offset int64, _ int, upTo int64, whole bool) (partlog.Data, error) {
	return l.fakeRecordLog.Read(offset, len(l.bytes), upTo, whole)
}

// BenchmarkPublish publishes to a real log on the disk of the temporary folder, from eight goroutines a processor: what group commit is for.
func BenchmarkPublish(b *testing.B) {
	tp := remotestorage.TopicIDPartition{TopicID: remotestorage.UUID{8}, Topic: "__remote_log_metadata"}
	c := partlog.DefaultConfig()
	c.RetentionMs = -1
	log, err := partlog.Open(partlog.Options{FS: vfs.Default, Dir: filepath.Join(b.TempDir(), tp.String()), TP: tp, Config: c})
	if err != nil {
		b.Fatal(err)
	}
	m, err := NewMetadataLog([]*partlog.Log{log}, remotelog.NewIndex(), MetadataOptions{})
	if err != nil {
		b.Fatal(err)
	}
	rec := segmentRecord(tpOf(0), 1, 0, 9)
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := m.Publish(context.Background(), rec); err != nil {
				b.Error(err)
				return
			}
		}
	})
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
}
