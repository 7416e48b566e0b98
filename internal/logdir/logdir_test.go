package logdir

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func mustOpen(t *testing.T, fs vfs.FS, o Options) *Dir {
	t.Helper()
	d, err := Open(fs, "/data", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestCleanAndUncleanStops(t *testing.T) {
	fs := vfs.NewMem()
	for i, x := range []struct {
		markClean, wantClean bool
		epoch                int32
	}{{true, true, 0}, {false, true, 0}, {true, false, 1}, {true, true, 1}, {false, true, 1}, {false, false, 2}} {
		d := mustOpen(t, fs, Options{ClusterID: "c", NodeID: 3})
		if d.Clean() != x.wantClean || d.LeaderEpoch() != x.epoch {
			t.Errorf("run %d: clean %v, epoch %d", i, d.Clean(), d.LeaderEpoch())
		}
		if m := d.Meta(); m.ClusterID != "c" || m.NodeID != 3 || len(m.DirectoryID) != 22 {
			t.Errorf("run %d: %+v", i, m)
		}
		if x.markClean {
			if err := d.MarkClean(); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCrashWhileOpening: whenever power fails while a cleanly stopped directory is opened, the next run sees a stop that was clean, or one that was not
// with a higher epoch.
func TestCrashWhileOpening(t *testing.T) {
	mem := vfs.NewCrashableMem()
	d := mustOpen(t, mem, Options{})
	if err := errors.Join(d.MarkClean(), d.Close()); err != nil {
		t.Fatal(err)
	}
	before := mem.CrashClone(vfs.CrashCloneCfg{})
	again := mustOpen(t, mem, Options{})
	if !again.Clean() {
		t.Fatal("the stop was clean")
	}
	if d := mustOpen(t, before, Options{}); !d.Clean() || d.Meta() != again.Meta() {
		t.Error("what MarkClean wrote was not durable")
	}
	if d := mustOpen(t, mem.CrashClone(vfs.CrashCloneCfg{}), Options{}); d.Clean() || d.LeaderEpoch() != 1 {
		t.Errorf("crash after opening: clean %v, epoch %d", d.Clean(), d.LeaderEpoch())
	}
}

func TestLockAndForeign(t *testing.T) {
	fs := vfs.NewMem()
	d := mustOpen(t, fs, Options{ClusterID: "c", NodeID: 3})
	if _, err := Open(fs, "/data", Options{}); !errors.Is(err, ErrLocked) {
		t.Errorf("second opening: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{ClusterID: "other"}, {NodeID: 4}} {
		if _, err := Open(fs, "/data", o); !errors.Is(err, ErrForeign) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	mustOpen(t, fs, Options{}) // what failed gave the lock back
}

func TestPartitions(t *testing.T) {
	fs := vfs.NewMem()
	d := mustOpen(t, fs, Options{})
	id := remotestorage.UUID{1, 2, 3}
	for _, p := range []int32{2, 10, 0} {
		path, err := d.CreatePartition(remotestorage.TopicIDPartition{TopicID: id, Topic: "a-b.c", Partition: p})
		if err != nil || path != d.PartitionPath("a-b.c", p) {
			t.Fatal(path, err)
		}
	}
	if _, err := d.CreatePartition(remotestorage.TopicIDPartition{TopicID: id, Topic: "a-b.c", Partition: 2}); err != nil {
		t.Errorf("once more: %v", err)
	}
	if _, err := d.CreatePartition(remotestorage.TopicIDPartition{TopicID: remotestorage.UUID{9}, Topic: "a-b.c", Partition: 2}); !errors.Is(err, ErrForeign) {
		t.Errorf("with another topic id: %v", err)
	}
	for _, name := range []string{"a-b.c-1.0123-delete", "topics", "x-01", "noindex"} {
		if err := fs.MkdirAll(fs.PathJoin("/data", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	list, err := d.Partitions()
	var got []int32
	for _, f := range list {
		if f.Topic != "a-b.c" || f.TopicID != id {
			t.Errorf("%+v", f)
		}
		got = append(got, f.Partition)
	}
	if err != nil || !slices.Equal(got, []int32{0, 2, 10}) {
		t.Errorf("%v, %v", got, err)
	}
	if err := d.RemoveDeleted(); err != nil {
		t.Fatal(err)
	}
	if names, err := fs.List("/data"); err != nil || slices.Contains(names, "a-b.c-1.0123-delete") || !slices.Contains(names, "x-01") {
		t.Errorf("%v, %v", names, err)
	}
}

func TestCheckpoints(t *testing.T) {
	fs := vfs.NewMem()
	d := mustOpen(t, fs, Options{})
	want := map[TopicPartition]int64{{"t", 0}: 5, {"t", 1}: 0, {"__x", 3}: 1 << 60}
	for _, f := range []struct {
		read  func() (map[TopicPartition]int64, error)
		write func(map[TopicPartition]int64) error
	}{{d.RecoveryPoints, d.WriteRecoveryPoints}, {d.LogStartOffsets, d.WriteLogStartOffsets}, {d.HighWatermarks, d.WriteHighWatermarks}} {
		if m, err := f.read(); err != nil || len(m) != 0 {
			t.Errorf("before: %v, %v", m, err)
		}
		if err := f.write(want); err != nil {
			t.Fatal(err)
		}
		if m, err := f.read(); err != nil || !maps.Equal(m, want) {
			t.Errorf("%v, %v", m, err)
		}
	}
}

func TestGoldenFiles(t *testing.T) {
	n := 0
	for _, s := range golden.KafkaSets(t) {
		dir := s.LocalDir(t)
		if dir == "" {
			continue
		}
		b := read(t, filepath.Join(dir, MetaPropertiesFile))
		m, err := ParseMeta(b)
		if err != nil || m.ClusterID == "" || m.DirectoryID == "" {
			t.Errorf("%s: %+v, %v", s.Name, m, err)
		}
		if again, err := ParseMeta(AppendMeta(nil, m)); err != nil || again != m {
			t.Errorf("%s: %+v, %v", s.Name, again, err)
		}
		for _, name := range []string{RecoveryPointFile, LogStartFile, HighWatermarkFile} {
			b := read(t, filepath.Join(dir, name))
			m, err := ParseOffsets(b)
			if err != nil || len(AppendOffsets(nil, m)) != len(b) {
				t.Errorf("%s: %s: %v, %v", s.Name, name, m, err)
			}
			n += len(m)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*", PartitionMetadataFile))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b := read(t, f)
			id, err := ParsePartitionMetadata(b)
			if err != nil || !bytes.Equal(AppendPartitionMetadata(nil, id), bytes.TrimSpace(b)) {
				t.Errorf("%s: %v, %v", f, id, err)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d checkpoint entries seen", n)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParsersRefuse(t *testing.T) {
	for _, s := range []string{"", "0\n", "1\n0\n", "0\n1\n", "0\n1\nt 0\n", "0\n1\nt 0 x\n", "0\n1\nt -1 5\n", "0\n1\nt 0 -5\n", "0\n0\nt 0 5\n"} {
		if m, err := ParseOffsets([]byte(s)); !errors.Is(err, ErrMalformed) {
			t.Errorf("offsets %q: %v, %v", s, m, err)
		}
	}
	for _, s := range []string{"", "version=1", "version=2\nnode.id=1", "version=1\nnode.id=x", "version"} {
		if m, err := ParseMeta([]byte(s)); !errors.Is(err, ErrMalformed) {
			t.Errorf("meta %q: %v, %v", s, m, err)
		}
	}
	for _, s := range []string{"", "version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "version: 0", "version: 0\ntopic_id: short"} {
		if id, err := ParsePartitionMetadata([]byte(s)); !errors.Is(err, ErrMalformed) {
			t.Errorf("partition.metadata %q: %v, %v", s, id, err)
		}
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte("0\n1\nt 0 5\n"))
	f.Add([]byte("#\nnode.id=1\ndirectory.id=x\nversion=1\ncluster.id=y\n"))
	f.Add([]byte("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := ParseOffsets(b); err == nil {
			if again, err := ParseOffsets(AppendOffsets(nil, m)); err != nil || !maps.Equal(m, again) {
				t.Fatalf("%v became %v, %v", m, again, err)
			}
		}
		_, _ = ParseMeta(b)
		if id, err := ParsePartitionMetadata(b); err == nil {
			if again, err := ParsePartitionMetadata(AppendPartitionMetadata(nil, id)); err != nil || again != id {
				t.Fatalf("%v became %v, %v", id, again, err)
			}
		}
	})
}

// TestMoveAway: a folder of the longest name that a topic can have finds another that a file system takes.
func TestMoveAway(t *testing.T) {
	fsys := vfs.NewMem()
	path := fsys.PathJoin("data", strings.Repeat("x", 249)+"-0")
	if err := fsys.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	gone, err := MoveAway(fsys, path)
	if name := fsys.PathBase(gone); err != nil || len(name) > 255 || !strings.HasSuffix(name, "-delete") {
		t.Errorf("%q, %v", name, err)
	}
	if names, err := fsys.List("data"); err != nil || len(names) != 1 || names[0] != fsys.PathBase(gone) {
		t.Errorf("%v, %v", names, err)
	}
}
