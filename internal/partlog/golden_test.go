package partlog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/logdir"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// goldenLog is one partition that Apache Kafka wrote, copied where a test may write.
type goldenLog struct {
	set     *golden.Set
	p       golden.Partition
	options Options
	batches []golden.Batch
}

// eachGoldenLog runs fn on every partition that a golden set has the local folder of.
func eachGoldenLog(t *testing.T, fn func(t *testing.T, g goldenLog)) {
	ran := 0
	for _, set := range golden.KafkaSets(t) {
		if set.LocalDir(t) == "" {
			continue
		}
		batches := set.Batches(t)
		for _, p := range set.Facts(t).Partitions(t) {
			if set.LocalPartition(t, &p) == "" {
				continue
			}
			ran++
			t.Run(set.Name+"/"+p.String(), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "data")
				set.CopyLocal(t, dir)
				g := goldenLog{set: set, p: p, options: testOptions(vfs.Default)}
				for _, b := range batches {
					if b.Topic == p.Topic && b.Partition == p.TopicIDPartition.Partition {
						g.batches = append(g.batches, b)
					}
				}
				g.options.Dir = filepath.Join(dir, p.String())
				g.options.TP = p.TopicIDPartition
				g.options.Config = goldenConfig(p.Configs)
				key := logdir.TopicPartition{Topic: p.Topic, Partition: p.TopicIDPartition.Partition}
				g.options.RecoveryPoint = checkpoint(t, dir, logdir.RecoveryPointFile)[key]
				g.options.LogStartOffset = checkpoint(t, dir, logdir.LogStartFile)[key]
				g.options.Clean = true
				g.options.LeaderEpoch = p.Metadata.LeaderEpoch
				fn(t, g)
			})
		}
	}
	if ran < 15 {
		t.Fatalf("only %d golden partitions", ran)
	}
}

func goldenConfig(configs map[string]string) Config {
	c := DefaultConfig()
	c.TimestampAfterMaxMs, c.RemoteStorage = 1<<63-1, configs["remote.storage.enable"] == "true"
	for key, to := range map[string]*int{"internal.segment.bytes": &c.SegmentBytes, "segment.bytes": &c.SegmentBytes, "index.interval.bytes": &c.IndexIntervalBytes,
		"segment.index.bytes": &c.SegmentIndexBytes} {
		if v, err := strconv.Atoi(configs[key]); err == nil {
			*to = v
		}
	}
	return c
}

func checkpoint(t *testing.T, dir, name string) map[logdir.TopicPartition]int64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	m, err := logdir.ParseOffsets(b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (g *goldenLog) checkAll(t *testing.T, l *Log) {
	t.Helper()
	o := l.Offsets()
	want := Offsets{LogStart: g.p.LogStartOffset, LocalLogStart: g.p.LocalLogStartOffset, HighWatermark: g.p.HighWatermark, LastStable: g.p.LastStableOffset,
		LogEnd: g.p.HighWatermark, Recovery: g.p.HighWatermark}
	if o != want {
		t.Errorf("offsets %+v, want %+v", o, want)
	}
	g.checkBatches(t, l)
	g.checkProbes(t, l)
	g.checkTimestamps(t, l)
	for _, e := range g.p.OffsetForLeaderEpoch {
		if epoch, end := l.Epochs().EndOffsetFor(e.Asked, o.LogEnd); e.Error == 0 && (epoch != e.LeaderEpoch || end != e.EndOffset) {
			t.Errorf("epoch %d ends (%d, %d), want (%d, %d)", e.Asked, epoch, end, e.LeaderEpoch, e.EndOffset)
		}
	}
}

func (g *goldenLog) checkBatches(t *testing.T, l *Log) {
	t.Helper()
	var got []string
	for _, b := range readAll(t, l) {
		sum := sha256.Sum256(b)
		got = append(got, hex.EncodeToString(sum[:]))
	}
	var want []string
	for _, b := range g.batches {
		if b.LastOffset >= l.Offsets().LocalLogStart {
			want = append(want, b.SHA256)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("batches differ: got %d, want %d", len(got), len(want))
	}
}

// checkProbes repeats the fetches that were answered from the local log.
func (g *goldenLog) checkProbes(t *testing.T, l *Log) {
	t.Helper()
	o := l.Offsets()
	n := 0
	for _, f := range append(g.set.Probes(t), g.set.AbortedFetches(t)...) {
		if f.Topic != g.p.Topic || f.Partition != g.p.TopicIDPartition.Partition || f.PartitionError != 0 || f.FetchOffset < o.LocalLogStart {
			continue
		}
		n++
		upTo, read := o.HighWatermark, l.Read
		if f.Isolation == 1 {
			upTo, read = o.LastStable, l.ReadCommitted
		}
		d, err := read(f.FetchOffset, int(min(f.PartitionMaxBytes, f.FetchMaxBytes)), upTo, true)
		if err != nil {
			t.Errorf("fetch at %d: %v", f.FetchOffset, err)
			continue
		}
		sum := sha256.New()
		for _, b := range d.Records.Bufs {
			sum.Write(b)
		}
		if d.Records.Len() != f.RecordsBytes || f.RecordsSHA256 != "" && hex.EncodeToString(sum.Sum(nil)) != f.RecordsSHA256 {
			t.Errorf("fetch at %d, limit %d, isolation %d: %d bytes, want %d", f.FetchOffset, f.PartitionMaxBytes, f.Isolation, d.Records.Len(), f.RecordsBytes)
		}
		if f.Isolation == 1 && d.Records.Len() > 0 {
			checkAborted(t, &f, d.Aborted)
		}
		if d.Records.Release != nil {
			d.Records.Release()
		}
	}
	if n == 0 && o.HighWatermark > o.LocalLogStart {
		t.Log("no probes of the local log in this set")
	}
}

// checkAborted: Apache Kafka may list more than is needed, never less.
func checkAborted(t *testing.T, f *golden.Fetch, got []wire.AbortedTransaction) {
	t.Helper()
	for _, a := range got {
		if !slices.Contains(f.Aborted, golden.Aborted{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}) {
			t.Errorf("fetch at %d: aborted %+v, Kafka said %+v", f.FetchOffset, a, f.Aborted)
		}
	}
	for _, a := range f.Aborted {
		needed := a.FirstOffset <= *f.LastOffset
		if needed && !slices.Contains(got, wire.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}) {
			t.Errorf("fetch at %d: no aborted %+v, Kafka said %+v", f.FetchOffset, a, f.Aborted)
		}
	}
}

func (g *goldenLog) checkTimestamps(t *testing.T, l *Log) {
	t.Helper()
	start := l.Offsets().LocalLogStart
	for _, q := range g.p.ListOffsetsByTimestamp {
		want := q.Uncommitted
		if want.Error != 0 || want.Offset >= 0 && want.Offset < start {
			continue
		}
		offset, ts, epoch, ok, err := l.OffsetForTimestamp(q.Query)
		if err != nil || ok != (want.Offset >= 0) || offset != want.Offset || ts != want.Timestamp || epoch != want.LeaderEpoch {
			t.Errorf("timestamp %d: %d at %d epoch %d (%v), want %+v", q.Query, offset, ts, epoch, err, want)
		}
	}
	if want := g.p.ListOffsetsSpecial["-3"].Uncommitted; want.Error == 0 && want.Offset >= start {
		offset, ts, epoch, ok, err := l.MaxTimestamp()
		if err != nil || !ok || offset != want.Offset || ts != want.Timestamp || epoch != want.LeaderEpoch {
			t.Errorf("max timestamp: %d at %d epoch %d (%v), want %+v", offset, ts, epoch, err, want)
		}
	}
}

func TestGoldenOpensClean(t *testing.T) {
	eachGoldenLog(t, func(t *testing.T, g goldenLog) {
		before := listing(t, g.options.Dir)
		l := mustOpen(t, g.options)
		g.checkAll(t, l)
		mustClose(t, l)
		if after := listing(t, g.options.Dir); !slices.Equal(before, after) {
			t.Errorf("opening and closing changed the folder:\n%v\n%v", before, after)
		}
	})
}

// TestGoldenRecovers loses everything but the logs and the epochs, and must come to the same indexes, byte for byte, as Apache Kafka wrote.
func TestGoldenRecovers(t *testing.T) {
	same, other := 0, 0
	eachGoldenLog(t, func(t *testing.T, g goldenLog) {
		kept := map[string][]byte{}
		for _, suffix := range []string{".index", ".timeindex", ".txnindex"} {
			for _, f := range golden.LocalFiles(t, g.options.Dir, suffix) {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				kept[f] = b
				if err := os.Remove(f); err != nil {
					t.Fatal(err)
				}
			}
		}
		g.options.Clean, g.options.RecoveryPoint = false, 0
		l := mustOpen(t, g.options)
		g.checkAll(t, l)
		for f, want := range kept {
			got, err := os.ReadFile(f)
			switch {
			case err != nil && len(want) > 0:
				t.Error(err)
			case bytes.Equal(got, want):
				same++
			case strings.HasSuffix(f, ".txnindex"):
				t.Errorf("%s differs", f)
			case g.set.Name == "kafka/c-epochs":
				// Its broker was stopped and started again and again, and counts its index interval anew from there.
				other++
			default:
				t.Errorf("%s differs:\n%x\n%x", filepath.Base(f), got, want)
			}
		}
	})
	t.Logf("%d index files are the same, %d differ", same, other)
}

// TestGoldenAppend goes on writing where Apache Kafka stopped.
func TestGoldenAppend(t *testing.T) {
	eachGoldenLog(t, func(t *testing.T, g goldenLog) {
		l := mustOpen(t, g.options)
		end := l.Offsets().LogEnd
		b := plain(3, 1_795_990_000_000, 100).build(t)
		if info := mustAppend(t, l, b); info.BaseOffset != end {
			t.Fatalf("appended at %d, want %d", info.BaseOffset, end)
		}
		g.options.RecoveryPoint = mustClose(t, l)
		l = mustOpen(t, g.options)
		all := readAll(t, l)
		if !bytes.Equal(all[len(all)-1], b) {
			t.Error("the batch is not there after reopening")
		}
		if h, err := batch.ParseHeader(b); err != nil || h.LeaderEpoch != l.LeaderEpoch() {
			t.Errorf("epoch %d, want %d (%v)", h.LeaderEpoch, l.LeaderEpoch(), err)
		}
	})
}

func listing(t *testing.T, dir string) (files []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		files = append(files, e.Name()+" "+hex.EncodeToString(sum[:4]))
	}
	slices.SortFunc(files, cmp.Compare[string])
	return files
}
