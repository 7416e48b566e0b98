package tier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	copyStarted    = "COPY_SEGMENT_STARTED"
	copyFinished   = "COPY_SEGMENT_FINISHED"
	deleteStarted  = "DELETE_SEGMENT_STARTED"
	deleteFinished = "DELETE_SEGMENT_FINISHED"
)

func tens(n int, from int64) *fakeLog {
	l := newFakeLog()
	for i := range int64(n) {
		l.add(from+i*10, from+i*10+9, 100, 1000+i)
	}
	return l
}

func wantRecord(t *testing.T, r *rig, tp remotestorage.TopicIDPartition, want ...string) {
	t.Helper()
	if got := r.record(tp); !slices.Equal(got, want) {
		t.Errorf("records\n got %v\nwant %v", got, want)
	}
}

func TestCopyIsRecordedOnBothSidesOfTheObjects(t *testing.T) {
	log := tens(2, 0)
	store := newMemStore()
	r := newRig(t, fakeRecordLogs(5), store, Partition{TP: tpOf(0), Log: log})
	puts := 0
	store.point = func(op, object string, after bool) error {
		puts++
		// At every moment of a copy its start is on stable storage, its end is not even written, and nothing may go locally.
		var logs []*fakeRecordLog
		for _, l := range r.logs {
			logs = append(logs, l.clone())
		}
		all := openMetadata(t, logs).Index().Partition(tpOf(0)).All()
		last := all[len(all)-1]
		if !strings.HasPrefix(object, last.ID.String()) || last.State != remotestorage.CopySegmentStarted {
			t.Errorf("%s %s: recorded is %s in %s", op, object, last.ID, last.State)
		}
		if h := log.highestRemote(); h >= last.StartOffset {
			t.Errorf("local files up to %d may go while %d is being copied", h, last.StartOffset)
		}
		return nil
	}
	r.settle()
	if puts != 20 {
		t.Errorf("%d steps of puts, want 20", puts)
	}
	wantRecord(t, r, tpOf(0), copyStarted, copyFinished, copyStarted, copyFinished)
	if h := log.highestRemote(); h != 19 {
		t.Errorf("highest remote offset is %d", h)
	}
	requireWhole(t, store, r.segments(tpOf(0)))
	md := r.segments(tpOf(0))[1]
	if md.StartOffset != 10 || md.EndOffset != 19 || md.SegmentSizeInBytes != 100 || md.MaxTimestampMs != 1001 || md.BrokerID != 1 || !md.TxnIndexEmpty ||
		string(md.CustomMetadata) != "custom of "+md.ID.String() || !slices.Equal(md.SegmentLeaderEpochs, []remotestorage.EpochStart{{LeaderEpoch: 0, StartOffset: 10}}) {
		t.Errorf("metadata %+v", md)
	}
	if got, _ := store.get(objectName(md.ID, ".leader_epoch_checkpoint")); string(got) != "0\n1\n0 0\n" {
		t.Errorf("epoch checkpoint %q", got)
	}
}

func TestTxnIndexEmptyTellsTheTruth(t *testing.T) {
	log := tens(2, 0)
	log.segments[1].Data.Transaction = &remotestorage.SegmentFile{Size: 3, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("txn")), nil }}
	log.segments[1].TxnIndexEmpty = false
	r := newRig(t, fakeRecordLogs(1), newMemStore(), Partition{TP: tpOf(0), Log: log})
	r.settle()
	all := r.segments(tpOf(0))
	if !all[0].TxnIndexEmpty || all[1].TxnIndexEmpty {
		t.Errorf("%+v", all)
	}
	requireWhole(t, r.store, all)
}

func TestCopyDisabled(t *testing.T) {
	log := tens(2, 0)
	p := Partition{TP: tpOf(0), Log: log, CopyDisabled: true}
	r := newRig(t, fakeRecordLogs(1), newMemStore(), p)
	r.settle()
	if names := r.store.names(); len(names) != 0 {
		t.Fatalf("copied %v", names)
	}
	p.CopyDisabled = false
	r.setParts(p)
	r.tier.scan(true)
	r.settle()
	p.CopyDisabled, p.Retention = true, &Retention{Ms: 0, Bytes: -1}
	r.setParts(p)
	r.tier.scan(true)
	r.settle()
	if names := r.store.names(); len(names) != 0 {
		t.Errorf("retention did not delete %v", names)
	}
}

// A copy that was cut off at any step, by a failure or by a loss of power, leaves nothing behind once there is a next start.
func TestCutOffAtEveryStep(t *testing.T) {
	for _, partial := range []bool{false, true} {
		for _, power := range []bool{false, true} {
			for n := 1; ; n++ {
				log := tens(1, 0)
				store := newMemStore()
				store.partial = partial
				r := newRig(t, fakeRecordLogs(1), store, Partition{TP: tpOf(0), Log: log})
				steps := 0
				store.point = func(string, string, bool) error {
					if steps++; steps >= n {
						return errors.New("cut off")
					}
					return nil
				}
				err := r.turn(Partition{TP: tpOf(0), Log: log})
				if err == nil {
					if n != 11 {
						t.Fatalf("a copy of %d steps", n-1)
					}
					break
				}
				if log.highestRemote() != -1 {
					t.Fatal("a segment whose copy failed may go")
				}
				store.point = nil
				if power {
					r = r.restart(Partition{TP: tpOf(0), Log: log})
				}
				r.settle()
				requireWhole(t, r.store, r.segments(tpOf(0)))
				wantRecord(t, r, tpOf(0), copyStarted, deleteStarted, deleteFinished, copyStarted, copyFinished)
				if log.highestRemote() != 9 {
					t.Fatalf("highest remote offset %d", log.highestRemote())
				}
			}
		}
	}
}

// What another writer left half done is cleaned too: it is in the records like our own.
func TestLeftoversOfAnotherWriter(t *testing.T) {
	logs := fakeRecordLogs(1)
	m := openMetadata(t, logs)
	store := newMemStore()
	for id := byte(1); id <= 3; id++ {
		rec := segmentRecord(tpOf(0), id, 0, 9)
		rec.BrokerID = 7
		if err := m.Publish(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
		store.set(objectName(rec.ID, ".log"), []byte("half"))
	}
	for _, s := range []remotestorage.SegmentState{remotestorage.CopySegmentFinished, remotestorage.DeleteSegmentStarted} {
		if err := m.Publish(context.Background(), update(tpOf(0), 2, s)); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, logs, store, Partition{TP: tpOf(0), Log: newFakeLog()})
	r.settle()
	if names := store.names(); len(names) != 0 || len(r.segments(tpOf(0))) != 0 {
		t.Errorf("left are %v and %v", names, r.segments(tpOf(0)))
	}
}

// A restart finds two starts, that of the log and that of its local part, and keeps both (K15351).
func TestCase14_RestartKeepsLogStartAndLocalStart(t *testing.T) {
	log := tens(4, 0)
	p := Partition{TP: tpOf(0), Log: log}
	r := newRig(t, fakeRecordLogs(1), newMemStore(), p)
	r.settle()
	log.dropLocal(3)
	r = r.restart(p)
	r.settle()
	if o := log.Offsets(); o.LogStart != 0 || o.LocalLogStart != 30 {
		t.Errorf("after a restart: log start %d, local start %d", o.LogStart, o.LocalLogStart)
	}
	if len(r.segments(tpOf(0))) != 4 {
		t.Error("history was deleted")
	}
}

// Overlapping copies of one range, from a retried upload, are one range (K15168): retention counts it once, copying goes on behind it.
func TestCase16_OverlappingCopiesCountOnce(t *testing.T) {
	logs := fakeRecordLogs(1)
	m := openMetadata(t, logs)
	for id := byte(1); id <= 4; id++ {
		rec := segmentRecord(tpOf(0), id, 0, 9)
		rec.SegmentSizeInBytes = 100
		if err := m.Publish(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
		if err := m.Publish(context.Background(), update(tpOf(0), id, remotestorage.CopySegmentFinished)); err != nil {
			t.Fatal(err)
		}
	}
	log := tens(3, 0)
	r := newRig(t, logs, newMemStore(), Partition{TP: tpOf(0), Log: log, Retention: &Retention{Ms: -1, Bytes: 300}})
	r.settle()
	if o := log.Offsets(); o.LogStart != 0 {
		t.Errorf("300 bytes were cut to 300, and the log start moved to %d", o.LogStart)
	}
	if log.highestRemote() != 29 || len(r.segments(tpOf(0))) != 6 {
		t.Errorf("highest %d, %d segments", log.highestRemote(), len(r.segments(tpOf(0))))
	}
}

// After an unclean election the copies reach past the point where the new leader's epoch began (K15241). What counts as copied ends there, and the
// new leader's segments are copied from there.
func TestCase17_CopiedOffsetIsClampedToTheEpochsEnd(t *testing.T) {
	logs := fakeRecordLogs(1)
	m := openMetadata(t, logs)
	for i, r := range [][2]int64{{0, 39}, {40, 79}} {
		if err := m.Publish(context.Background(), segmentRecord(tpOf(0), byte(i+1), r[0], r[1])); err != nil {
			t.Fatal(err)
		}
		if err := m.Publish(context.Background(), update(tpOf(0), byte(i+1), remotestorage.CopySegmentFinished)); err != nil {
			t.Fatal(err)
		}
	}
	// The new leader had epoch 0 up to 50 only.
	log := newFakeLog(remotestorage.EpochStart{LeaderEpoch: 0, StartOffset: 0}, remotestorage.EpochStart{LeaderEpoch: 2, StartOffset: 51})
	log.add(0, 29, 100, 1)
	log.add(30, 50, 100, 1)
	log.add(51, 69, 100, 1)
	log.add(70, 90, 100, 1)
	p := Partition{TP: tpOf(0), Log: log}
	r := newRig(t, logs, newMemStore(), p)
	r.tier.scan(false)
	if o, e, ok := r.tier.HighestTiered(p); o != 50 || e != 0 || !ok {
		t.Errorf("highest tiered before copying: %d, epoch %d, %v", o, e, ok)
	}
	if log.highestRemote() != 50 {
		t.Errorf("local files up to %d may go, the lineage's copies end at 50", log.highestRemote())
	}
	r.settle()
	var copied []string
	for _, md := range r.segments(tpOf(0)) {
		copied = append(copied, fmt.Sprintf("%d-%d %v", md.StartOffset, md.EndOffset, md.SegmentLeaderEpochs))
	}
	want := []string{"0-39 [{0 0}]", "40-79 [{0 40}]", "51-69 [{2 51}]", "70-90 [{2 70}]"}
	if !slices.Equal(copied, want) {
		t.Errorf("segments %v, want %v", copied, want)
	}
	if o, e, ok := r.tier.HighestTiered(p); o != 90 || e != 2 || !ok {
		t.Errorf("highest tiered: %d, epoch %d, %v", o, e, ok)
	}
	if log.highestRemote() != 90 {
		t.Errorf("highest remote %d", log.highestRemote())
	}
}

func TestNewIDIsAsKafkaMakesThem(t *testing.T) {
	seen := map[remotestorage.UUID]bool{}
	for range 1000 {
		id := remotestorage.RandomUUID()
		if id.String()[0] == '-' || id[6]>>4 != 4 || id[8]>>6 != 2 || seen[id] {
			t.Fatalf("id %s", id)
		}
		seen[id] = true
	}
}

func TestReasons(t *testing.T) {
	store := func(err error) error { return &StoreError{Op: opCopy, Err: err} }
	for _, c := range []struct {
		err  error
		want string
	}{
		{store(errors.New("connection refused")), reasonAway},
		{store(context.DeadlineExceeded), reasonSlow},
		{store(fmt.Errorf("%w: x", errStalled)), reasonSlow},
		{store(fmt.Errorf("writing: %w", syscall.ENOSPC)), reasonFull},
		{store(remotestorage.ErrDenied), reasonDenied},
		{store(fmt.Errorf("writing: %w", remotestorage.ErrNoBucket)), reasonNoBucket},
		{store(remotestorage.ErrNotFound), reasonAway},
		{store(fmt.Errorf("%w: x", errLocal)), reasonLocal},
		{errDisk, reasonLocal},
		{errors.Join(nil, store(syscall.ENOSPC)), reasonFull},
	} {
		if got := reasonOf(c.err); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
	}
}
