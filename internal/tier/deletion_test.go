package tier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestDeletionCutOffAtEveryStep(t *testing.T) {
	for _, power := range []bool{false, true} {
		for n := 1; ; n++ {
			log := tens(2, 0)
			p := Partition{TP: tpOf(0), Log: log}
			r := newRig(t, fakeRecordLogs(1), newMemStore(), p)
			r.settle()
			log.dropLocal(2)
			if err := log.AdvanceLogStart(15, "DeleteRecords"); err != nil {
				t.Fatal(err)
			}
			steps := 0
			r.store.point = func(string, string, bool) error {
				if steps++; steps >= n {
					return errors.New("cut off")
				}
				return nil
			}
			err := r.turn(p)
			r.store.point = nil
			if err == nil {
				if n != 13 {
					t.Fatalf("a deletion of %d steps", n-1)
				}
				break
			}
			if power {
				r = r.restart(p)
			}
			r.settle()
			requireWhole(t, r.store, r.segments(tpOf(0)))
			if all := r.segments(tpOf(0)); len(all) != 1 || all[0].StartOffset != 10 {
				t.Fatalf("segments %+v", all)
			}
			wantRecord(t, r, tpOf(0), copyStarted, copyFinished, copyStarted, copyFinished, deleteStarted, deleteFinished)
		}
	}
}

func TestTopicDeletion(t *testing.T) {
	for _, restart := range []bool{false, true} {
		log := tens(deletesPerTurn+3, 0)
		other := tens(2, 0)
		keep := Partition{TP: remotestorage.TopicIDPartition{TopicID: remotestorage.UUID{9}, Topic: "orders"}, Log: other}
		r := newRig(t, fakeRecordLogs(5), newMemStore(), Partition{TP: tpOf(0), Log: log}, keep)
		r.settle()
		if len(r.store.names()) != (deletesPerTurn+5)*5 {
			t.Fatalf("%d objects", len(r.store.names()))
		}
		r.setParts(keep)
		if restart {
			r = r.restart(keep)
			r.gone[topicID] = true
		} else {
			r.tier.DeleteTopic([]remotestorage.TopicIDPartition{tpOf(0)})
		}
		r.settle()
		if r.meta.Index().Partition(tpOf(0)) != nil {
			t.Error("the index still knows the topic")
		}
		if n := len(r.store.names()); n != 10 {
			t.Errorf("%d objects left, want those of the other topic", n)
		}
		requireWhole(t, r.store, r.segments(keep.TP))
		if rec := r.record(tpOf(0)); strings.Count(fmt.Sprint(rec), deleteFinished) != deletesPerTurn+3 {
			t.Errorf("records %v", rec)
		}
		// The records are replayed once more at the next start, and mean nothing any more.
		again := r.restart(keep)
		again.gone[topicID] = true
		again.settle()
		if again.meta.Index().Partition(tpOf(0)) != nil {
			t.Error("after a restart the index knows the topic again")
		}
	}
}

// A metadata topic taken over from a cluster names topics that this node never had. Only an owner's DeleteTopic takes them away, and that survives a restart.
func TestTopicsOfOtherBrokers(t *testing.T) {
	logs := fakeRecordLogs(1)
	m := openMetadata(t, logs)
	store := newMemStore()
	for id := byte(1); id <= 2; id++ {
		for _, rec := range []remotelog.Record{segmentRecord(tpOf(int32(id)), id, 0, 9), update(tpOf(int32(id)), id, remotestorage.CopySegmentFinished)} {
			if u, ok := rec.(*remotelog.UpdateRecord); ok {
				u.BrokerID = int32(id) // 1 is this broker
			}
			if err := m.Publish(context.Background(), rec); err != nil {
				t.Fatal(err)
			}
		}
		store.set(objectName(remotestorage.UUID{id}, ".log"), []byte("0123456789"))
	}
	r := newRig(t, logs, store)
	r.gone[topicID] = true
	r.settle()
	if n := len(store.names()); n != 2 || r.out.count("written by another broker") != 1 {
		t.Fatalf("%d objects are left of a topic that is not ours to delete; log:\n%s", n, r.out)
	}
	cut := 0
	store.point = func(string, string, bool) error {
		if cut++; cut > 3 {
			return errors.New("cut off")
		}
		return nil
	}
	r.tier.DeleteTopic([]remotestorage.TopicIDPartition{tpOf(2)})
	w, _ := r.tier.next()
	if err := r.tier.takeTurn(w); err == nil {
		t.Fatal("the store fails, the deletion did not")
	}
	r = r.restart()
	r.gone[topicID] = true
	r.settle()
	if names := r.store.names(); len(names) != 0 { // the deletion is recorded, and what is left of the topic is all ours
		t.Errorf("left are %v", names)
	}
}

// A topic that exists but is not listed (its folder could not be opened) keeps its history.
func TestUnlistedPartitionIsNotDeleted(t *testing.T) {
	r := newRig(t, fakeRecordLogs(1), newMemStore(), Partition{TP: tpOf(0), Log: tens(2, 0)})
	r.settle()
	r = r.restart()
	r.settle()
	if len(r.segments(tpOf(0))) != 2 || len(r.store.names()) != 10 {
		t.Errorf("%d segments, %d objects", len(r.segments(tpOf(0))), len(r.store.names()))
	}
}

func TestRemoteStorageSwitchedOff(t *testing.T) {
	for _, restart := range []bool{false, true} {
		log := tens(4, 0)
		p := Partition{TP: tpOf(0), Log: log}
		r := newRig(t, fakeRecordLogs(1), newMemStore(), p)
		r.settle()
		log.dropLocal(2)
		p.RemoteOff = true
		if restart {
			r = r.restart(p)
		} else {
			r.setParts(p)
			if err := r.tier.DisableRemote(tpOf(0)); err != nil {
				t.Fatal(err)
			}
			if o := log.Offsets(); o.LogStart != 20 {
				t.Errorf("log start is %d when DisableRemote returns", o.LogStart)
			}
		}
		r.settle()
		if o := log.Offsets(); o.LogStart != 20 || log.highestRemote() != -1 {
			t.Errorf("log start %d, highest remote %d", o.LogStart, log.highestRemote())
		}
		if len(r.store.names()) != 0 {
			t.Errorf("left in the store: %v", r.store.names())
		}
		// Switched on again, what is still local is copied anew, though its offsets were remote once.
		p.RemoteOff = false
		r.setParts(p)
		r.settle()
		if all := r.segments(tpOf(0)); len(all) != 2 || all[0].StartOffset != 20 || log.highestRemote() != 39 {
			t.Errorf("after switching on: %+v, highest %d", all, log.highestRemote())
		}
	}
}

// A log whose configuration does not have remote storage, without the word that its remote part may go, is left alone.
func TestLogWithoutRemoteStorageIsLeftAlone(t *testing.T) {
	log := tens(3, 0)
	p := Partition{TP: tpOf(0), Log: log}
	r := newRig(t, fakeRecordLogs(1), newMemStore(), p)
	r.settle()
	log.dropLocal(2)
	log.noRemote, log.offsets.LogStart = true, 20 // where its first file begins
	for _, r := range []*rig{r, r.restart(p)} {
		r.settle()
		if len(r.store.names()) != 15 || len(r.segments(tpOf(0))) != 3 {
			t.Errorf("left are %v", r.store.names())
		}
	}
}

func TestHighestTieredStaysWhenRetentionDeletes(t *testing.T) {
	log := tens(3, 0)
	p := Partition{TP: tpOf(0), Log: log}
	r := newRig(t, fakeRecordLogs(1), newMemStore(), p)
	if _, _, ok := r.tier.HighestTiered(p); ok {
		t.Error("something is tiered before anything was")
	}
	r.settle()
	log.dropLocal(3)
	p.Retention = &Retention{Ms: 0, Bytes: -1}
	r.setParts(p)
	r.tier.scan(true)
	r.settle()
	if len(r.store.names()) != 0 || log.Offsets().LogStart != 30 {
		t.Fatalf("log start %d, objects %v", log.Offsets().LogStart, r.store.names())
	}
	for _, r := range []*rig{r, r.restart(p)} {
		if o, e, ok := r.tier.HighestTiered(p); o != 29 || e != 0 || !ok {
			t.Errorf("highest tiered is %d, %d, %v", o, e, ok)
		}
	}
}

// The log start that retention moved is not lost with the checkpoint that would have held it: the deletions are recorded.
func TestLostLogStartIsFoundFromRecordedDeletions(t *testing.T) {
	log := tens(4, 0)
	p := Partition{TP: tpOf(0), Log: log}
	r := newRig(t, fakeRecordLogs(1), newMemStore(), p)
	r.settle()
	log.dropLocal(3)
	p.Retention = &Retention{Ms: -1, Bytes: 250}
	r.setParts(p)
	r.tier.scan(true)
	r.settle()
	if log.Offsets().LogStart != 10 {
		t.Fatalf("log start %d", log.Offsets().LogStart)
	}
	log.offsets.LogStart = 0 // the checkpoint is older
	p.Retention = nil
	r = r.restart(p)
	r.settle()
	if o := log.Offsets(); o.LogStart != 10 || o.LocalLogStart != 30 {
		t.Errorf("after a crash: log start %d, local start %d", o.LogStart, o.LocalLogStart)
	}
}
