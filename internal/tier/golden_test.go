package tier

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// What every broker of the golden data said of its latest tiered offset (ListOffsets -5), from its records and its lineage alone: after deletions, unclean
// elections and restarts.
func TestCase17_HighestTieredIsWhatTheRealBrokerSaid(t *testing.T) {
	checked := 0
	for _, set := range golden.KafkaSets(t) {
		t.Run(filepath.Base(set.Dir), func(t *testing.T) {
			logs := goldenLogs(t, readGolden(t, filepath.Join(set.Dir, "metadata.jsonl")))
			m := openMetadata(t, logs)
			for _, p := range set.Facts(t).Partitions(t) {
				v := set.View(t, &p)
				offset, _, ok := m.memory.highest(p.TopicIDPartition, v.Lineage())
				if !ok {
					offset = -1
				}
				if offset != p.LatestTieredOffset {
					t.Errorf("%s: %d, the broker said %d; lineage %v", p.TopicIDPartition, offset, p.LatestTieredOffset, v.Lineage().Entries())
				}
				checked++
			}
		})
	}
	if checked < 10 {
		t.Errorf("%d partitions checked only", checked)
	}
}

// A log with the bytes of a real broker's, tiered by us: the metadata that we record of each segment is what that broker recorded, and the objects that do
// not depend on how the log was appended to are the same byte for byte.
func TestOurCopiesAreThoseOfTheRealBroker(t *testing.T) {
	compared := 0
	for _, set := range golden.KafkaSets(t) {
		for _, p := range set.Facts(t).Partitions(t) {
			theirs := wholeHistory(set.Index(t).Partition(p.TopicIDPartition))
			if len(theirs) == 0 {
				continue
			}
			t.Run(filepath.Base(set.Dir)+"/"+p.String(), func(t *testing.T) {
				compareCopies(t, set, p, theirs)
				compared += len(theirs)
			})
		}
	}
	if compared < 50 {
		t.Errorf("%d segments compared only", compared)
	}
}

// wholeHistory is a partition's finished segments if they follow on from each other from offset 0, without a second lineage.
func wholeHistory(p *remotelog.Partition) []remotestorage.RemoteLogSegmentMetadata {
	if p == nil {
		return nil
	}
	next := int64(0)
	all := p.All()
	for _, md := range all {
		if md.State != remotestorage.CopySegmentFinished || md.StartOffset != next {
			return nil
		}
		next = md.EndOffset + 1
	}
	return all
}

func compareCopies(t *testing.T, set *golden.Set, p golden.Partition, theirs []remotestorage.RemoteLogSegmentMetadata) {
	t.Helper()
	store := golden.Store{Dir: set.ObjectsDir()}
	dir := filepath.Join(t.TempDir(), p.String())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range theirs {
		b, err := os.ReadFile(store.Path(&theirs[i], ".log"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, segment.FileName(theirs[i].StartOffset, ".log")), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// What was not remote yet: transactions are decided there, and without it a gap at the end of the last segment could not be seen.
	local := set.LocalPartition(t, &p)
	if local == "" {
		t.Skip("no local log in the set")
	}
	for _, name := range golden.LocalFiles(t, local, ".log") {
		if base, _, ok := segment.ParseFileName(filepath.Base(name)); !ok || base <= theirs[len(theirs)-1].EndOffset {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lineage := set.View(t, &p).Lineage().Entries()
	if err := os.WriteFile(filepath.Join(dir, "leader-epoch-checkpoint"), epoch.AppendCheckpoint(nil, lineage), 0o644); err != nil {
		t.Fatal(err)
	}
	c := nodeConfig()
	c.IndexIntervalBytes = 1024
	log, err := partlog.Open(partlog.Options{Dir: dir, TP: p.TopicIDPartition, Config: c})
	if err != nil {
		t.Fatal(err)
	}
	ours := newMemStore()
	r := newRig(t, fakeRecordLogs(5), ours, Partition{TP: p.TopicIDPartition, Log: log})
	r.settle()
	all := r.segments(p.TopicIDPartition)
	if len(all) != len(theirs) {
		t.Fatalf("%d segments, the broker had %d", len(all), len(theirs))
	}
	for i, md := range all {
		want := theirs[i]
		compareObjects(t, store, ours, &want, &md)
		md.ID, md.BrokerID, md.EventTimestampMs, md.CustomMetadata = want.ID, want.BrokerID, want.EventTimestampMs, want.CustomMetadata
		if strings.HasPrefix(filepath.Base(set.Dir), "f-gaps") {
			// The broker's time index remembered a record that compaction had taken; the log's bytes, which is all we have here, do not.
			md.MaxTimestampMs = want.MaxTimestampMs
		}
		if !reflect.DeepEqual(md, want) {
			t.Errorf("segment %d\n got %s\nwant %s", want.StartOffset, describe(&remotelog.SegmentRecord{RemoteLogSegmentMetadata: md}), describe(&remotelog.SegmentRecord{RemoteLogSegmentMetadata: want}))
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func compareObjects(t *testing.T, theirs golden.Store, ours *memStore, want, md *remotestorage.RemoteLogSegmentMetadata) {
	t.Helper()
	for _, suffix := range []string{".log", ".txnindex", ".leader_epoch_checkpoint"} {
		wanted, err := os.ReadFile(theirs.Path(want, suffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		got, there := ours.get(objectName(md.ID, suffix))
		if there != (err == nil) || !bytes.Equal(got, wanted) {
			t.Errorf("%s of %d differs: %d bytes, the broker's has %d; there: %v\n%.300q\n%.300q", suffix, want.StartOffset, len(got), len(wanted), there, got, wanted)
		}
	}
}
