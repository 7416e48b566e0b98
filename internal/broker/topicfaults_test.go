package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/topics"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// fault makes a disk fail every write from the n-th on, until it is mended. Writes are what makes, fills, renames or removes files and folders.
type fault struct{ at, seen atomic.Int64 }

func (f *fault) fs(v vfs.FS) vfs.FS {
	return errorfs.Wrap(v, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpRename, errorfs.OpRemove, errorfs.OpRemoveAll, errorfs.OpMkdirAll:
		default:
			return nil
		}
		if at := f.at.Load(); at > 0 && f.seen.Add(1) >= at {
			return errNoSpace
		}
		return nil
	}))
}

func (f *fault) begin(at int64) { f.seen.Store(0); f.at.Store(at) }

// end mends the disk, and tells whether anything failed.
func (f *fault) end() bool { at := f.at.Swap(0); return f.seen.Load() >= at }

// TestTopicIsMadeOnAFullDisk: a topic that could not be made for want of room is not there, and can be made when there is, whatever was done before the room ran out. The same
// goes for the topics that the broker makes for itself.
func TestTopicIsMadeOnAFullDisk(t *testing.T) {
	for at, failed := int64(1), true; failed; at++ {
		var f fault
		b := startBroker(t, "/node", withFS(f.fs(crashableFS(t))))
		b.createTopic(t, "other", 1)
		f.begin(at)
		_, err := b.createTopic2("t", 2)
		if failed = f.end(); failed != (err != nil) {
			t.Fatalf("write %d failed: %v, making the topic: %v", at, failed, err)
		}
		if failed {
			if _, err := b.createTopic2("t", 2); err != nil {
				t.Errorf("write %d failed: the topic cannot be made afterwards: %v", at, err)
				continue
			}
		}
		produceTo(t, b, 1, 3)
		if end := b.partition("t", 1).log.Offsets().LogEnd; end != 3 {
			t.Errorf("write %d failed: the log ends at %d", at, end)
		}
		f.begin(at)
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: "t", At: 1})
		_, err = b.groups.all()
		if f.end() && err == nil {
			t.Errorf("write %d failed, and groups are coordinated", at)
		}
		if err := b.admin(t).CommitAllOffsets(t.Context(), "g", offsets); err != nil {
			t.Errorf("write %d failed: offsets cannot be committed afterwards: %v", at, err)
		}
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("write %d failed: closing: %v", at, err)
		}
	}
}

// TestTopicIsDeletedOnAFullDisk: a topic whose deletion could not be written down is as it was: it is read and written, its log start and its aborted transactions are known, also
// after a restart. One whose deletion was is gone.
func TestTopicIsDeletedOnAFullDisk(t *testing.T) {
	for at, failed := int64(1), true; failed; at++ {
		var f fault
		mem := crashableFS(t)
		b := startBroker(t, "/node", withFS(f.fs(mem)))
		b.createTopic(t, "t", 1)
		deleteRecordsTo(t, b, 0, 5)
		txn := b.client(t, kgo.TransactionalID("id"), kgo.DefaultProduceTopic("t"))
		if err := errors.Join(txn.BeginTransaction(), txn.ProduceSync(t.Context(), kgo.StringRecord("aborted")).FirstErr(), txn.EndTransaction(t.Context(), kgo.TryAbort)); err != nil {
			t.Fatal(err)
		}
		produceTo(t, b, 0, 3)
		f.begin(at)
		err := b.deleteTopic("t", remotestorage.UUID{})
		failed = f.end()
		check := func(what string) {
			t.Helper()
			what = fmt.Sprintf("write %d failed, deleting: %v; %s", at, err, what)
			if err == nil { // a later one is there
				if p := b.partition("t", 0); p == nil || p.log.Offsets().LogStart != 0 || p.log.Offsets().LogEnd != 2 {
					t.Errorf("%s: the later topic is not as it was", what)
				}
				return
			}
			p := b.partition("t", 0)
			if p == nil {
				t.Errorf("%s: the topic has no partition", what)
				return
			}
			if o := p.log.Offsets(); o.LogStart != 5 {
				t.Errorf("%s: the log begins at %d", what, o.LogStart)
			}
			cl := b.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			for _, r := range consume(t, cl, 3) {
				if string(r.Value) == "aborted" {
					t.Errorf("%s: an aborted record is read", what)
				}
			}
		}
		if err == nil {
			if b.partition("t", 0) != nil {
				t.Errorf("write %d failed, and the topic is there", at)
			}
			if _, err := b.createTopic2("t", 1); err != nil {
				t.Errorf("write %d failed: making a topic of the same name: %v", at, err)
			}
			produceTo(t, b, 0, 2)
		}
		check("at once")
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("write %d failed: closing: %v", at, err)
		}
		b = startBroker(t, "/node", withFS(mem))
		check("after a restart")
		if left := b.topics.Deleting(); len(left) > 0 {
			t.Errorf("write %d failed: still being deleted: %v", at, left)
		}
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// createTopic2 makes a topic without a client.
func (b *testBroker) createTopic2(name string, partitions int32) (topics.Topic, error) {
	return b.createTopicWith(name, partitions, nil)
}

func (b *testBroker) createTopicWith(name string, partitions int32, configs map[string]string) (topics.Topic, error) {
	return b.Broker.createTopic(topics.Topic{Name: name, Partitions: partitions, Configs: configs})
}

// TestTopicGrowsOnAFullDisk: partitions that could not be made are not there, for clients neither, and can be made when there is room.
func TestTopicGrowsOnAFullDisk(t *testing.T) {
	for at, failed := int64(1), true; failed; at++ {
		var f fault
		mem := crashableFS(t)
		b := startBroker(t, "/node", withFS(f.fs(mem)))
		b.createTopic(t, "t", 1)
		produceTo(t, b, 0, 3)
		check := func(what string, partitions int32) {
			t.Helper()
			known, _ := b.topics.Get("t")
			if n := len(b.logs.topic("t").parts); known.Partitions != partitions || n != int(partitions) {
				t.Errorf("write %d failed; %s: %d partitions are registered and %d open, want %d", at, what, known.Partitions, n, partitions)
			}
		}
		f.begin(at)
		err := b.growTopic("t", 3)
		if failed = f.end(); failed != (err != nil) {
			t.Fatalf("write %d failed: %v, growing: %v", at, failed, err)
		}
		if err != nil {
			check("at once", 1)
			if err := b.growTopic("t", 4); err != nil {
				t.Errorf("write %d failed: growing again: %v", at, err)
			}
			check("grown", 4)
		}
		if err := b.growTopic("t", 2); !errors.Is(err, errNotMore) {
			t.Errorf("to fewer than there are: %v", err)
		}
		want := int32(len(b.logs.topic("t").parts))
		produceTo(t, b, want-1, 2)
		if err := b.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		b = startBroker(t, "/node", withFS(mem))
		check("after a restart", want)
		if first, last := b.partition("t", 0).log.Offsets().LogEnd, b.partition("t", want-1).log.Offsets().LogEnd; first != 3 || last != 2 {
			t.Errorf("write %d failed: the logs end at %d and %d", at, first, last)
		}
		if err := b.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeletionThatCouldNotBeSynced: a topic whose deletion failed when its mark had its name already goes on taking records, and they are there after a restart. The mark stayed, and
// the next start took the topic away with all that had been confirmed since.
func TestDeletionThatCouldNotBeSynced(t *testing.T) {
	var broken atomic.Bool
	mem := crashableFS(t)
	b := startBroker(t, "/node", withFS(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && strings.HasSuffix(op.Path, "/topics") && broken.Swap(false) {
			return errors.New("disk")
		}
		return nil
	}))))
	b.createTopic(t, "t", 1)
	broken.Store(true)
	if _, err := b.admin(t).DeleteTopic(t.Context(), "t"); err == nil || broken.Load() {
		t.Fatalf("deleted: %v", err)
	}
	produceTo(t, b, 0, 3)
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, "/node", withFS(mem))
	if p := b.partition("t", 0); p == nil || p.log.Offsets().LogEnd != 3 {
		t.Error("the records are gone")
	}
}
