package locate_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// damaged is a golden partition whose store a test has damaged.
type damaged struct {
	*bench
	dir string
}

// damage copies the store of b-txn and changes the objects with a suffix of partition txn-0.
func damage(t *testing.T, suffix string, change func(path string)) *damaged {
	t.Helper()
	s := golden.Load(t, "kafka/b-txn")
	d := &damaged{dir: t.TempDir()}
	s.CopyObjects(t, d.dir)
	x := s.Index(t)
	for _, p := range s.Facts(t).Partitions(t) {
		if p.String() == "txn-0" {
			d.bench = &bench{set: s, p: p, view: s.View(t, &p), index: x, tiered: p.LatestTieredOffset}
		}
	}
	d.resolver = d.fresh(true)
	hit := 0
	err := filepath.WalkDir(d.dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, suffix) && strings.HasPrefix(filepath.Base(filepath.Dir(path)), "txn-0-") {
			hit++
			change(path)
		}
		return err
	})
	if err != nil || hit == 0 {
		t.Fatalf("%d objects changed, %v", hit, err)
	}
	return d
}

// fresh is a resolver with an empty cache.
func (d *damaged) fresh(txnKnown bool) *locate.Resolver {
	return locate.New(locate.Options{RSM: golden.Store{Dir: d.dir}, Index: d.index, TxnIndexEmptyKnown: txnKnown})
}

func remove(t *testing.T) func(string) {
	return func(path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func truncate(t *testing.T, by int64) func(string) {
	return func(path string) {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, max(0, st.Size()-by)); err != nil {
			t.Fatal(err)
		}
	}
}

func scramble(t *testing.T) func(string) {
	return func(path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b {
			b[i] ^= 0xa5
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// same checks that a damaged store still gives every batch, list and record by timestamp as the whole one does.
func (d *damaged) same(t *testing.T) {
	t.Helper()
	whole := locate.New(locate.Options{RSM: golden.Store{Dir: d.set.ObjectsDir()}, Index: d.index, TxnIndexEmptyKnown: true})
	for offset := d.view.Start; offset <= d.tiered; offset += 3 {
		want, err := whole.Resolve(ctx, d.p.TopicIDPartition, d.view, offset, true)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.resolver.Resolve(ctx, d.p.TopicIDPartition, d.view, offset, true)
		if err != nil {
			t.Fatalf("offset %d: %v", offset, err)
		}
		if !reflect.DeepEqual(got.Aborted, want.Aborted) || got.LastOffset != want.LastOffset {
			t.Fatalf("offset %d: %v up to %d, want %v up to %d", offset, got.Aborted, got.LastOffset, want.Aborted, want.LastOffset)
		}
		if a, b := readRange(t, &got), readRange(t, &want); !reflect.DeepEqual(a, b) {
			t.Fatalf("offset %d: %d batches, want %d", offset, len(a), len(b))
		}
	}
	for _, q := range d.p.ListOffsetsByTimestamp {
		o, ts, _, ok, err := d.resolver.OffsetForTimestamp(ctx, d.p.TopicIDPartition, d.view, q.Query)
		if err != nil || ok && (o != q.Uncommitted.Offset || ts != q.Uncommitted.Timestamp) || !ok && q.Uncommitted.Offset <= d.tiered && q.Uncommitted.Offset >= 0 {
			t.Fatalf("timestamp %d: offset %d, %v, %v, want %d", q.Query, o, ok, err, q.Uncommitted.Offset)
		}
	}
}

// TestDamagedWithoutEffect: as in Apache Kafka, and for a missing offset or time index better than its error -1: the log has all that they say.
func TestDamagedWithoutEffect(t *testing.T) {
	for _, suffix := range []string{".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"} {
		t.Run("no "+suffix, func(t *testing.T) { damage(t, suffix, remove(t)).same(t) })
		t.Run("empty "+suffix, func(t *testing.T) { damage(t, suffix, truncate(t, 1<<20)).same(t) })
		t.Run("cut "+suffix, func(t *testing.T) { damage(t, suffix, truncate(t, 1)).same(t) })
	}
	for _, suffix := range []string{".index", ".snapshot"} {
		t.Run("scrambled "+suffix, func(t *testing.T) { damage(t, suffix, scramble(t)).same(t) })
	}
}

// TestDamagedTransactionIndex: Apache Kafka hands aborted records to a read_committed consumer here. With us it is an error that names the
// object, for the segment itself and for those before it whose markers lie there. read_uncommitted goes on.
func TestDamagedTransactionIndex(t *testing.T) {
	for name, change := range map[string]func(string){
		"missing": remove(t), "empty": truncate(t, 1<<20), "cut": truncate(t, 5), "scrambled": scramble(t),
	} {
		t.Run(name, func(t *testing.T) {
			d := damage(t, segment.TxnIndexSuffix, change)
			failed := 0
			for offset := d.view.Start; offset <= d.tiered; offset++ {
				if _, err := d.resolver.Resolve(ctx, d.p.TopicIDPartition, d.view, offset, false); err != nil {
					t.Fatalf("uncommitted, offset %d: %v", offset, err)
				}
				rng, err := d.resolver.Resolve(ctx, d.p.TopicIDPartition, d.view, offset, true)
				if err == nil {
					m, _ := d.index.Partition(d.p.TopicIDPartition).Get(rng.ID.ID)
					if !m.TxnIndexEmpty {
						t.Fatalf("offset %d: a list of %d out of an index that is damaged", offset, len(rng.Aborted))
					}
					continue
				}
				failed++
				var place *remote.PlaceError
				if !errors.Is(err, remote.ErrDamaged) || !errors.As(err, &place) || !strings.HasSuffix(place.Object, segment.TxnIndexSuffix) {
					t.Fatalf("offset %d: %v, want %v with the object's name", offset, err, remote.ErrDamaged)
				}
			}
			if failed == 0 {
				t.Error("nothing failed")
			}
		})
	}
}

// TestUnknownWriterOfTransactionIndex: a writer that may not set TxnIndexEmpty leaves it open whether a missing index is lost. The broker knows.
func TestUnknownWriterOfTransactionIndex(t *testing.T) {
	d := damage(t, segment.TxnIndexSuffix, remove(t))
	_, err := d.fresh(false).Resolve(ctx, d.p.TopicIDPartition, d.view, 0, true)
	if !errors.Is(err, locate.ErrUndecided) || !errors.Is(err, remote.ErrLocal) || errors.Is(err, remote.ErrDamaged) {
		t.Errorf("%v, want %v", err, locate.ErrUndecided)
	}
}

// TestDamagedLog: a missing or cut log is the reader's to notice; a lookup by timestamp that needs it says so.
func TestDamagedLog(t *testing.T) {
	d := damage(t, segment.LogSuffix, remove(t))
	if _, _, _, _, err := d.resolver.OffsetForTimestamp(ctx, d.p.TopicIDPartition, d.view, 0); !errors.Is(err, remotestorage.ErrNotFound) {
		t.Errorf("by timestamp: %v, want %v", err, remotestorage.ErrNotFound)
	}
	reader := newReader(t, 4<<20)
	p := d.open(reader, 0, false)
	defer p.Close()
	if err := wait(t, p, 1); !errors.Is(err, remotestorage.ErrNotFound) {
		t.Errorf("reading: %v, want %v", err, remotestorage.ErrNotFound)
	}

	cut := damage(t, segment.LogSuffix, truncate(t, 100))
	q := cut.open(reader, 0, false)
	defer q.Close()
	for {
		if err := wait(t, q, 1); err != nil {
			var place *remote.PlaceError
			if !errors.Is(err, remote.ErrDamaged) || !errors.As(err, &place) {
				t.Errorf("a cut log: %v, want %v with its place", err, remote.ErrDamaged)
			}
			break
		}
		data, err := q.Read(1<<20, true, false)
		if err == nil && data.Records.Release != nil {
			data.Records.Release()
		}
	}
}

// TestFlippedByte: a lookup by timestamp does not answer out of a batch whose CRC is wrong.
func TestFlippedByte(t *testing.T) {
	d := damage(t, segment.LogSuffix, func(path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[batch.HeaderSize+2] ^= 1
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	})
	var place *remote.PlaceError
	if _, _, _, _, err := d.resolver.OffsetForTimestamp(ctx, d.p.TopicIDPartition, d.view, 0); !errors.Is(err, batch.ErrCorrupt) || !errors.Is(err, remote.ErrDamaged) || !errors.As(err, &place) || place.Offset != 0 {
		t.Errorf("%v, want %v with its place", err, batch.ErrCorrupt)
	}
}

// TestAnotherTimeOfDeletion replays the metadata as it was at other times: before the deletions of e-deleted, and between them.
func TestAnotherTimeOfDeletion(t *testing.T) {
	s := golden.Load(t, "kafka/e-deleted")
	for file, objects := range map[string]string{
		"metadata-before-deletes.jsonl": "objects-before-deletes", "metadata-after-deleterecords.jsonl": "objects-after-deleterecords", "metadata.jsonl": "objects",
	} {
		x := s.IndexFile(t, file)
		store := golden.Store{Dir: filepath.Join(s.Dir, objects)}
		checked := 0
		for _, tp := range x.Partitions() {
			for _, m := range x.Partition(tp).All() {
				if m.State != remotestorage.CopySegmentFinished {
					continue
				}
				st, err := os.Stat(store.Path(&m, segment.LogSuffix))
				if errors.Is(err, os.ErrNotExist) && tp.Topic != "deleted" {
					continue // the other topics' objects were not kept for each time
				}
				if err != nil || st.Size() != int64(m.SegmentSizeInBytes) {
					t.Errorf("%s: finished segment %s: %v", file, m.RemoteLogSegmentID, err)
				}
				checked++
			}
		}
		if checked == 0 {
			t.Errorf("%s: no finished segment", file)
		}
	}
}
