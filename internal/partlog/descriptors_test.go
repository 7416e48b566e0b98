package partlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
)

// starved is a file system that finds no descriptor for so many openings from one on.
type starved struct {
	from, openings int // from 0: never
	seen           int
	hit            *errorfs.Op // the first that was refused
	refused        int
}

func (s *starved) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpOpen, errorfs.OpOpenDir, errorfs.OpList, errorfs.OpRemoveAll:
	default:
		return nil
	}
	s.seen++
	if s.from == 0 || s.seen < s.from || s.seen >= s.from+s.openings {
		return nil
	}
	if s.hit == nil {
		s.hit = &op
	}
	s.refused++
	return syscall.EMFILE
}

func (s *starved) String() string { return "starved" }

func (s *starved) where() string {
	if s.hit == nil {
		return "nowhere"
	}
	return fmt.Sprintf("opening %d (%d on %s) and %d more", s.from, s.hit.Kind, s.hit.Path, s.refused-1)
}

// shortages are the ways of being short in turn: one opening fails; as many as are tried; and so many that whatever is done next is refused too.
var shortages = []int{1, triesToOpen, 3 * triesToOpen}

// TestOutOfFilesAtEachOpening lets every opening of a history find no descriptor, in turn. That is never the end of a log: what Append took is there, what Sync
// confirmed survives a power failure, the rest was a storage error, and once there are descriptors again everything goes on.
func TestOutOfFilesAtEachOpening(t *testing.T) {
	for _, openings := range shortages {
		for _, neighbour := range []bool{false, true} { // one that has a file to give
			t.Run(fmt.Sprintf("%d, neighbour %t", openings, neighbour), func(t *testing.T) {
				from := 1
				for outOfFilesHistory(t, &starved{from: from, openings: openings}, neighbour) {
					from++
				}
				if from < 100 {
					t.Errorf("only %d openings", from)
				}
			})
		}
	}
}

// outOfFilesHistory tells whether an opening was refused.
func outOfFilesHistory(t *testing.T, s *starved, neighbour bool) bool {
	t.Helper()
	mem := vfs.NewCrashableMem()
	if err := errors.Join(mem.MkdirAll("data", 0o755), atomicfile.SyncDir(mem, "/")); err != nil {
		t.Fatal(err)
	}
	files := NewFiles(8)
	if neighbour {
		o := testOptions(vfs.NewMem())
		o.Files = files
		mustAppend(t, mustOpen(t, o), plain(1, epoch0.UnixMilli(), 10).build(t))
	}
	o := testOptions(errorfs.Wrap(mem, s))
	o.Files, o.Config.SegmentBytes = files, 1500
	l, err := Open(o)
	if err != nil {
		if !outOfFiles(err) {
			t.Fatal(err)
		}
		s.from = 0
		l = mustOpen(t, o) // nothing was left that is in the way
		s.from = 1
	}
	sent, synced := starvedHistory(t, l, s)
	s.from = 0
	if err := l.Err(); err != nil {
		t.Fatalf("%s: the log has failed: %v", s.where(), err)
	}
	checkAfterFailure(t, mem.CrashClone(vfs.CrashCloneCfg{}), sent, synced, false, l, s.where())
	sameBatches(t, readAll(t, l), sent)
	b := plain(1, epoch0.UnixMilli(), 10).build(t)
	mustAppend(t, l, b)
	sent = append(sent, b)
	if err := errors.Join(l.Sync(t.Context(), l.Offsets().LogEnd), l.Flush(t.Context())); err != nil {
		t.Fatalf("%s: syncing after it: %v", s.where(), err)
	}
	checkAfterFailure(t, mem.CrashClone(vfs.CrashCloneCfg{}), sent, len(sent), false, l, s.where())
	mustClose(t, l)
	checkAfterFailure(t, mem.CrashClone(vfs.CrashCloneCfg{}), sent, len(sent), true, l, s.where())
	return s.hit != nil
}

// starvedHistory appends, syncs, rolls, reads and falls idle, and gives the batches that Append took and how many of them Sync confirmed.
func starvedHistory(t *testing.T, l *Log, s *starved) (sent [][]byte, synced int) {
	t.Helper()
	ctx := context.Background()
	expect := func(what string, err error) {
		t.Helper()
		if err != nil && (!errors.Is(err, ErrStorage) || !outOfFiles(err)) {
			t.Fatalf("%s: %s: %v", s.where(), what, err)
		}
	}
	take := func(b []byte, origin Origin) {
		t.Helper()
		_, err := l.Append(b, origin)
		expect("append", err)
		if err == nil {
			sent = append(sent, bytes.Clone(b))
		}
	}
	for i := range 30 {
		take(plain(1+i%3, epoch0.UnixMilli(), 100).build(t), Client)
		if i%3 == 0 {
			err := l.Sync(ctx, l.Offsets().LogEnd)
			expect("sync", err)
			if err == nil {
				synced = len(sent)
			}
		}
		if i%10 == 5 {
			s := plain(1, epoch0.UnixMilli(), 10)
			s.pid, s.epoch, s.seq, s.transactional = int64(i), 0, 0, true
			take(s.build(t), Client)
			take(marker(int64(i), 0, false, 0, epoch0.UnixMilli()), Internal)
		}
		if i%10 == 9 {
			for range 2 {
				expect("releasing", l.ReleaseIdle())
			}
			err := l.Flush(ctx)
			expect("flush", err)
			_, err = l.ApplyRetention(epoch0)
			expect("retention", err)
			l.Tierable()
		}
		o := l.Offsets()
		d, err := l.Read(o.LogEnd/2, 500, o.LogEnd, true)
		expect("read", err)
		if err == nil && d.Records.Release != nil {
			d.Records.Release()
		}
		d, err = l.ReadCommitted(o.LogEnd/2, 500, o.LastStable, true)
		expect("read of what is committed", err)
		if err == nil && d.Records.Release != nil {
			d.Records.Release()
		}
		_, _, _, _, err = l.OffsetForTimestamp(epoch0.UnixMilli())
		expect("timestamps", err)
	}
	return sent, synced
}

// TestOutOfFilesWhileOpening: a log that cannot be opened for want of descriptors is not taken for an empty or a damaged one.
func TestOutOfFilesWhileOpening(t *testing.T) {
	for _, openings := range shortages {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, clean %t", openings, clean), func(t *testing.T) {
				for from := 1; ; from++ {
					s := &starved{openings: openings}
					o := testOptions(errorfs.Wrap(vfs.NewMem(), s))
					l := mustOpen(t, o)
					want := fill(t, l, 30, 200)
					o.RecoveryPoint, o.Clean = mustClose(t, l), clean
					s.from = s.seen + from
					l, err := Open(o)
					s.from = 0
					if err != nil && !outOfFiles(err) {
						t.Fatalf("%s: %v", s.where(), err)
					}
					if err != nil {
						l = mustOpen(t, o)
					}
					sameBatches(t, readAll(t, l), want)
					mustClose(t, l)
					if s.hit == nil {
						break
					}
				}
			})
		}
	}
}

// TestOutOfFilesWhileCompacting: a compaction that finds no descriptor at any of its openings changes nothing of what the table is, and the next one is whole.
func TestOutOfFilesWhileCompacting(t *testing.T) {
	for _, openings := range shortages {
		t.Run(fmt.Sprint(openings), func(t *testing.T) {
			from := 1
			for outOfFilesCompaction(t, &starved{openings: openings}, from) {
				from++
			}
			if from < 30 {
				t.Errorf("only %d openings", from)
			}
		})
	}
}

func outOfFilesCompaction(t *testing.T, s *starved, from int) bool {
	t.Helper()
	mem, c := vfs.NewMem(), &clock{now: epoch0}
	o := compactOptions(errorfs.Wrap(mem, s), c)
	l := mustOpen(t, o)
	fillKeys(t, l, rand.New(rand.NewPCG(1, 2)), 30, map[int64]int32{})
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	want := latest(records(t, l))
	s.from = s.seen + from
	err := l.Compact(t.Context())
	s.from = 0
	if (err != nil) != (s.hit != nil) && s.openings > 1 || err != nil && !outOfFiles(err) {
		t.Fatalf("%s: compacting: %v", s.where(), err)
	}
	if err := l.Err(); err != nil {
		t.Fatalf("%s: the log has failed: %v", s.where(), err)
	}
	if got := latest(records(t, l)); !maps.Equal(got, want) {
		t.Fatalf("%s: the table differs:\n%v\n%v", s.where(), got, want)
	}
	if err := l.Compact(t.Context()); err != nil {
		t.Fatalf("%s: compacting again: %v", s.where(), err)
	}
	after := records(t, l)
	checkCompacted(t, l, after)
	o.RecoveryPoint, o.Clean = mustClose(t, l), true
	if got := records(t, mustOpen(t, o)); !slices.Equal(got, after) || !maps.Equal(latest(got), want) {
		t.Fatalf("%s: other records after reopening", s.where())
	}
	return s.hit != nil
}

// TestFullDiskNeedsNoDescriptor: a write that failed is taken back with the file that is open.
func TestFullDiskNeedsNoDescriptor(t *testing.T) {
	short := &starved{openings: 1 << 30}
	full := &failing{kind: func(k errorfs.OpKind) bool { return k == errorfs.OpFileWriteAt }}
	o := testOptions(errorfs.Wrap(errorfs.Wrap(vfs.Default, full), short))
	o.Dir = t.TempDir() + "/t-0"
	l := mustOpen(t, o)
	want := fill(t, l, 3, 50)
	full.at, short.from = full.ops+1, 1
	if _, err := l.Append(plain(1, epoch0.UnixMilli(), 10).build(t), Client); !errors.Is(err, ErrStorage) {
		t.Fatalf("append on a full disk: %v", err)
	}
	short.from = 0
	want = append(want, fill(t, l, 3, 50)...)
	sameBatches(t, readAll(t, l), want)
	o.RecoveryPoint, o.Clean = mustClose(t, l), true
	sameBatches(t, readAll(t, mustOpen(t, o)), want)
}

// TestWritersAreBounded: many logs that are appended to by many at once keep no more files open than they may and are in use, and lose nothing.
func TestWritersAreBounded(t *testing.T) {
	const many, limit, appenders, rounds = 120, 16, 4, 3
	before := openFiles()
	files := NewFiles(limit)
	dir := t.TempDir()
	logs := make([]*Log, many)
	sent := make([][][]byte, many)
	for i := range logs {
		o := testOptions(vfs.Default)
		o.Dir, o.Files = fmt.Sprintf("%s/t-%d", dir, i), files
		logs[i] = mustOpen(t, o)
	}
	most := 0
	for range rounds {
		var wg sync.WaitGroup
		for a := range appenders {
			wg.Go(func() {
				for i := a; i < many; i += appenders {
					b := plain(1, epoch0.UnixMilli(), 100).build(t)
					if _, err := logs[i].Append(b, Client); err != nil {
						t.Error(err)
						return
					}
					sent[i] = append(sent[i], b)
					if i%3 == 0 {
						if err := logs[i].Sync(t.Context(), logs[i].Offsets().LogEnd); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		most = max(most, openFiles()-before)
	}
	if writers, readers := files.Open(); writers > files.maxWriters()+appenders || readers > limit {
		t.Errorf("%d writers and %d readers, of %d", writers, readers, limit)
	}
	if most > limit+2*appenders {
		t.Errorf("%d files were open, %d may be", most, limit)
	}
	for i, l := range logs {
		sameBatches(t, readAll(t, l), sent[i])
		mustClose(t, l)
	}
	if writers, _ := files.Open(); writers != 0 {
		t.Errorf("%d writers after all have closed", writers)
	}
	if err := files.Close(); err != nil {
		t.Error(err)
	}
	if now := openFiles(); now > before {
		t.Errorf("%d files are open still", now-before)
	}
}

// TestGivingWayConfirmsNothing: a log that closed its file, by itself or for another one, has synced its records, but not yet the name of the file that they are
// in.
func TestGivingWayConfirmsNothing(t *testing.T) {
	for name, give := range map[string]func(l *Log) error{
		"idle": func(l *Log) error { return errors.Join(l.ReleaseIdle(), l.ReleaseIdle()) },
		"for another one": func(l *Log) error {
			if !l.giveWay() {
				return errors.New("it does not give way")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			if err := errors.Join(mem.MkdirAll("data", 0o755), atomicfile.SyncDir(mem, "/")); err != nil {
				t.Fatal(err)
			}
			o := testOptions(mem)
			l := mustOpen(t, o)
			want := fill(t, l, 3, 100)
			if err := l.Roll(); err != nil {
				t.Fatal(err)
			}
			want = append(want, fill(t, l, 1, 100)...) // in a file whose name nothing has synced yet
			if err := give(l); err != nil {
				t.Fatal(err)
			}
			if err := l.Sync(t.Context(), l.Offsets().LogEnd); err != nil {
				t.Fatal(err)
			}
			o.FS = mem.CrashClone(vfs.CrashCloneCfg{})
			sameBatches(t, readAll(t, mustOpen(t, o)), want)
		})
	}
}

// TestGivingWayWhileSyncing: appends, syncs and giving way at the same time; every confirmed batch survives a power failure at the end.
func TestGivingWayWhileSyncing(t *testing.T) {
	mem := vfs.NewCrashableMem()
	if err := errors.Join(mem.MkdirAll("data", 0o755), atomicfile.SyncDir(mem, "/")); err != nil {
		t.Fatal(err)
	}
	o := testOptions(mem)
	l := mustOpen(t, o)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				l.giveWay()
				time.Sleep(100 * time.Microsecond) // not too often to append at all
			}
		}
	})
	var sent [][]byte
	for range 300 {
		b := plain(1, epoch0.UnixMilli(), 50).build(t)
		mustAppend(t, l, b)
		sent = append(sent, b)
		if err := l.Sync(t.Context(), l.Offsets().LogEnd); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	o.FS = mem.CrashClone(vfs.CrashCloneCfg{})
	sameBatches(t, readAll(t, mustOpen(t, o)), sent)
}
