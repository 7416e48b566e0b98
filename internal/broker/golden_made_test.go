package broker

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/logdir"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// TestGoldenTransactionsMadeHere: the history of b-txn, made by our own broker out of the same batches and markers, tiered by itself, is the same: the objects
// in the store byte for byte, and every answer.
func TestGoldenTransactionsMadeHere(t *testing.T) {
	set := golden.Load(t, "kafka/b-txn")
	source, facts := startGolden(t, set), set.Facts(t)
	rsm, store := directoryStore(t)
	dir := t.TempDir()
	d, err := logdir.Open(vfs.Default, dir, logdir.Options{NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	registerGolden(t, dir, facts)
	if err := d.MarkClean(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	made := startBroker(t, dir, withRSM(rsm), tieredKeys(), func(o *Options) { o.Config.MetadataPartitions = facts.MetadataPartitions })
	for _, p := range facts.Partitions(t) {
		log := made.partition(p.Topic, p.TopicIDPartition.Partition).log
		starts := segmentStarts(t, set, &p)
		for _, raw := range readAll(t, source.raw(t), &p) {
			if starts[firstBase(raw)] { // segment.ms was changed in the middle
				if err := log.Roll(); err != nil {
					t.Fatal(err)
				}
			}
			appendGolden(t, log, raw)
		}
	}
	for _, p := range facts.Partitions(t) {
		log := made.partition(p.Topic, p.TopicIDPartition.Partition).log
		for deadline := time.Now().Add(20 * time.Second); log.Offsets().LocalLogStart < p.LocalLogStartOffset; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s is not tiered as far as %d: %+v, %+v", p, p.LocalLogStartOffset, log.Offsets(), log.Stats())
			}
		}
		if o := log.Offsets(); o.LocalLogStart != p.LocalLogStartOffset || o.LastStable != p.LastStableOffset || o.HighWatermark != p.HighWatermark {
			t.Errorf("%s: %+v, want local start %d, LSO %d, HW %d", p, o, p.LocalLogStartOffset, p.LastStableOffset, p.HighWatermark)
		}
	}
	t.Run("objects", func(t *testing.T) { sameObjects(t, set.ObjectsDir(), store) })
	for name, check := range map[string]func(*testing.T, *golden.Set, *testBroker){
		"probes": goldenProbes, "aborted": goldenAborted, "batches": goldenBatches, "list offsets": goldenListOffsets, "epochs": goldenEpochs,
	} {
		t.Run(name, func(t *testing.T) { check(t, set, made) })
	}
}

// segmentStarts are where Apache Kafka's segments of a partition begin.
func segmentStarts(t *testing.T, set *golden.Set, p *golden.Partition) map[int64]bool {
	t.Helper()
	remote, err1 := filepath.Glob(filepath.Join(set.ObjectsDir(), p.String()+"-*", "*.log"))
	local, err2 := filepath.Glob(filepath.Join(set.Dir, "local", p.String(), "*.log"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	starts := map[int64]bool{}
	for _, path := range append(remote, local...) {
		base, err := strconv.ParseInt(filepath.Base(path)[:20], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		starts[base] = true
	}
	return starts
}

// appendGolden appends one batch as its producer, or the coordinator, did.
func appendGolden(t *testing.T, log *partlog.Log, raw []byte) {
	t.Helper()
	h, err := batch.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	at, origin := h.BaseOffset, partlog.Client
	batch.SetBaseOffset(raw, 0)
	batch.SetLeaderEpoch(raw, -1)
	if h.IsControl() {
		origin = partlog.Internal
		_ = batch.EachRecord(batch.Payload(raw), h.NumRecords, func(r *batch.Record) error {
			kind, epoch, err := batch.ParseControl(r)
			if err != nil {
				return err
			}
			if made := batch.AppendMarker(nil, h.MaxTimestamp, h.ProducerID, h.ProducerEpoch, kind == batch.ControlCommit, epoch); !bytes.Equal(made, raw) {
				t.Errorf("the marker at %d would be\n%x, is\n%x", at, made, raw)
			}
			return nil
		})
	}
	info, err := log.Append(raw, origin)
	if err != nil || info.BaseOffset != at || info.Duplicate {
		t.Fatalf("appended the batch at %d: %+v, %v", at, info, err)
	}
}

// sameObjects compares the objects of two stores, whose segments have ids of their own.
func sameObjects(t *testing.T, want, got string) {
	t.Helper()
	objects := func(dir string) map[string]string {
		found := map[string]string{}
		paths, err := filepath.Glob(filepath.Join(dir, "*", "*.*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			base, rest, _ := strings.Cut(filepath.Base(p), "-")
			found[filepath.Base(filepath.Dir(p))+"/"+base+filepath.Ext(rest)] = p
		}
		return found
	}
	var theirs, ours map[string]string
	for deadline := time.Now().Add(10 * time.Second); len(ours) < len(theirs) || theirs == nil; time.Sleep(20 * time.Millisecond) {
		theirs, ours = objects(want), objects(got)
		if time.Now().After(deadline) {
			break
		}
	}
	same := 0
	for name, path := range theirs {
		if ours[name] == "" {
			t.Errorf("%s is not in our store", name)
			continue
		}
		a, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(ours[name])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s: %d bytes differ from %d", name, len(b), len(a))
		} else {
			same++
		}
	}
	if len(ours) != len(theirs) {
		t.Errorf("%d objects, Apache Kafka has %d", len(ours), len(theirs))
	}
	t.Logf("%d objects are the same", same)
}
