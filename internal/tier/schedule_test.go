package tier

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// With the store away nothing is lost and nobody waits; with it back everything goes on. Both are said once.
func TestStoreAwayAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		var away atomic.Bool
		away.Store(true)
		store.point = func(string, string, bool) error {
			if away.Load() {
				return errors.New("connection refused")
			}
			return nil
		}
		var parts []Partition
		for n := range int32(8) {
			parts = append(parts, Partition{TP: tpOf(n), Log: tens(3, 0)})
		}
		reg := prometheus.NewRegistry()
		r := newRigWith(t, fakeRecordLogs(5), store, Options{Registerer: reg}, parts...)
		r.tier.Start()
		time.Sleep(10 * time.Minute)
		if n := r.out.count("level=WARN"); n != 1 {
			t.Errorf("%d warnings in an episode of 10 minutes:\n%s", n, r.out)
		}
		// Half of 30 s at least between two attempts of a partition, after the first few: about 40 each at most.
		if n := store.copies; n < 8 || n > 8*60 {
			t.Errorf("%d attempts", n)
		}
		if n := len(r.segments(tpOf(0))); n != 1 {
			t.Errorf("%d segments are begun, want 1", n)
		}
		if got := r.tier.episode.size(); got != 8 {
			t.Errorf("%d partitions are failing", got)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := r.out.count("level=WARN") + r.out.count("tiering goes on"); n != 2 {
			t.Errorf("log:\n%s", r.out)
		}
		for _, p := range parts {
			if len(r.segments(p.TP)) != 3 {
				t.Errorf("%s: %+v", p.TP, r.segments(p.TP))
			}
		}
		if b, n := r.tier.lag(); b != 0 || n != 0 {
			t.Errorf("lag %d bytes, %d segments", b, n)
		}
		if got := testutil.ToFloat64(r.tier.metrics.copiedSegments); got != 24 {
			t.Errorf("copied_segments_total is %v", got)
		}
		if n, err := testutil.GatherAndCount(reg); err != nil || n < 7 {
			t.Errorf("%d series, %v", n, err)
		}
		r.tier.Close()
	})
}

// A store that takes a request and never answers does not hold a partition for ever; one that is slow but moves is left alone.
func TestStalledStoreIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		stalls := 2
		store.point = func(op, object string, after bool) error {
			if op == "put" && !after && strings.HasSuffix(object, ".timeindex") && stalls > 0 {
				stalls--
				time.Sleep(150 * time.Second)
			}
			return nil
		}
		r := newRig(t, fakeRecordLogs(1), store, Partition{TP: tpOf(0), Log: tens(1, 0)})
		r.tier.Start()
		time.Sleep(20 * time.Minute)
		r.tier.Close()
		requireWhole(t, store, r.segments(tpOf(0)))
		if r.out.count("store slow") != 1 || stalls != 0 {
			t.Errorf("%d stalls left, log:\n%s", stalls, r.out)
		}
		wantRecord(t, r, tpOf(0), copyStarted, deleteStarted, deleteFinished, copyStarted, deleteStarted, deleteFinished, copyStarted, copyFinished)
	})
}

// One partition with a long backlog does not keep the others waiting: they take turns.
func TestTurnsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		running, most := atomic.Int64{}, atomic.Int64{}
		store.point = func(op, object string, after bool) error {
			if !strings.HasSuffix(object, ".log") {
				return nil
			}
			if !after {
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Second)
			} else {
				running.Add(-1)
			}
			return nil
		}
		parts := []Partition{{TP: tpOf(0), Log: tens(100, 0)}}
		for n := int32(1); n < 10; n++ {
			parts = append(parts, Partition{TP: tpOf(n), Log: tens(1, 0)})
		}
		r := newRigWith(t, fakeRecordLogs(5), store, Options{Parallelism: 2}, parts...)
		r.tier.Start()
		time.Sleep(8 * time.Second) // two at a time: ten turns in five seconds
		for n := int32(1); n < 10; n++ {
			if len(r.segments(tpOf(n))) != 1 {
				t.Errorf("partition %d is still waiting", n)
			}
		}
		time.Sleep(2 * time.Minute)
		if n := len(r.segments(tpOf(0))); n != 100 {
			t.Errorf("the backlog has come to %d", n)
		}
		r.tier.Close()
		if most.Load() != 2 {
			t.Errorf("%d copies at once", most.Load())
		}
	})
}

func TestKickNeedsNoInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := tens(1, 0)
		r := newRigWith(t, fakeRecordLogs(1), newMemStore(), Options{Interval: time.Hour}, Partition{TP: tpOf(0), Log: log})
		r.tier.Start()
		synctest.Wait()
		if log.highestRemote() != 9 {
			t.Errorf("after the start: %d", log.highestRemote())
		}
		log.add(10, 19, 100, 1)
		synctest.Wait()
		if log.highestRemote() != 9 {
			t.Errorf("without a kick: %d", log.highestRemote())
		}
		r.tier.Kick(tpOf(0))
		synctest.Wait()
		if log.highestRemote() != 19 {
			t.Errorf("after a kick: %d", log.highestRemote())
		}
		r.tier.Close()
	})
}

// A topic deleted in the middle of a copy: the copy is cut off, and nothing of it stays, even if the partition is unlisted before DeleteTopic is called.
func TestTopicDeletedDuringACopy(t *testing.T) {
	for _, unlistFirst := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := newMemStore()
			store.point = func(op, object string, after bool) error {
				if op == "put" {
					time.Sleep(time.Second)
				}
				return nil
			}
			r := newRig(t, fakeRecordLogs(1), store, Partition{TP: tpOf(0), Log: tens(5, 0)})
			r.tier.Start()
			time.Sleep(3*time.Second + time.Millisecond)
			r.setParts()
			if unlistFirst {
				r.tier.Kick(tpOf(0))
				synctest.Wait()
			}
			r.tier.DeleteTopic([]remotestorage.TopicIDPartition{tpOf(0)})
			time.Sleep(time.Minute)
			r.tier.Close()
			if names := store.names(); len(names) != 0 {
				t.Errorf("left are %v", names)
			}
			wantRecord(t, r, tpOf(0), copyStarted, deleteStarted, deleteFinished)
			if n := len(r.tier.tasks); n != 0 {
				t.Errorf("%d tasks are left", n)
			}
			if r.out.count("WARN") != 0 {
				t.Errorf("a deletion is no failure of the store:\n%s", r.out)
			}
		})
	}
}

// Close does not wait for a store that takes its time, and leaves nothing that the next start does not clean.
func TestCloseDuringACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemStore()
		store.point = func(op, object string, after bool) error {
			if op == "put" && !after {
				time.Sleep(time.Second)
			}
			return nil
		}
		log := tens(2, 0)
		p := Partition{TP: tpOf(0), Log: log}
		r := newRig(t, fakeRecordLogs(1), store, p)
		r.tier.Start()
		time.Sleep(2500 * time.Millisecond)
		began := time.Now()
		r.tier.Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %s, the object under way takes half a second more", took)
		}
		if n := len(store.names()); n != 2 {
			t.Errorf("%d objects, want the two that were whole", n)
		}
		if r.out.count("WARN") != 0 {
			t.Errorf("a stop is no failure of the store:\n%s", r.out)
		}
		r.tier.Kick(tpOf(0)) // harmless
		r.tier.DeleteTopic([]remotestorage.TopicIDPartition{tpOf(0)})
		r = r.restart(p)
		r.settle()
		requireWhole(t, r.store, r.segments(tpOf(0)))
		if log.highestRemote() != 19 {
			t.Errorf("highest remote %d", log.highestRemote())
		}
	})
}

// A local file that cannot be read is not the store's fault, and is said so.
func TestLocalFailureIsNamed(t *testing.T) {
	log := tens(1, 0)
	log.segments[0].Data.Log.Open = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("short")), nil }
	r := newRig(t, fakeRecordLogs(1), newMemStore(), Partition{TP: tpOf(0), Log: log})
	err := r.turn(Partition{TP: tpOf(0), Log: log})
	if !errors.Is(err, io.ErrUnexpectedEOF) || reasonOf(err) != reasonLocal {
		t.Errorf("error %v, reason %s", err, reasonOf(err))
	}
}

func TestCopyIsLogged(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRigWith(t, fakeRecordLogs(1), newMemStore(), Options{Registerer: reg}, Partition{TP: tpOf(0), Log: tens(2, 0)})
	r.settle()
	if n := r.out.count(`level=INFO msg="segment copied" partition=orders-0 base=`); n != 2 || r.out.count("base=10 end=19 bytes=100\n") != 1 {
		t.Errorf("%d lines:\n%s", n, r.out)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.GetName(), "copy_lag") && !strings.Contains(f.GetHelp(), "last turn") {
			t.Errorf("%s: %s", f.GetName(), f.GetHelp())
		}
	}
}
