package tier

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/bucket/s3"
	"github.com/rewind-kafka/rewind/internal/layout"
	"github.com/rewind-kafka/rewind/internal/storedir"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// childEnv makes the test binary a node that lives in the folder it names until it kills itself.
const (
	childEnv = "REWIND_TIER_TEST_CHILD"
	seedEnv  = "REWIND_TIER_TEST_SEED"
	storeEnv = "REWIND_TIER_TEST_STORE"
	// roundsEnv is for whoever wants more of them than a run of all tests has time for.
	roundsEnv = "REWIND_TIER_TEST_ROUNDS"
)

// runChild appends, copies, retains and deletes, telling on standard output what it has promised, and dies by SIGKILL at a random write to the disk or at a
// random time: nothing of it gets to clean up.
func runChild() {
	var seed uint64
	if _, err := fmt.Sscan(os.Getenv(seedEnv), &seed); err != nil {
		log.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	var left atomic.Int64
	left.Store(rng.Int64N(1500))
	if rng.IntN(3) == 0 {
		left.Store(1 << 40)
		time.AfterFunc(time.Duration(rng.Int64N(int64(400*time.Millisecond))), die)
	}
	disk := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && left.Add(-1) == 0 {
			die()
		}
		return nil
	}))
	dir := os.Getenv(childEnv)
	store, closeStore, err := openStore(os.Getenv(storeEnv), "")
	if err != nil {
		log.Fatal(err)
	}
	defer closeStore()
	n, err := openNode(disk, filepath.Join(dir, "data"), store)
	if err != nil {
		log.Fatal(err)
	}
	m := model{tell: func(m model) { fmt.Printf("%d %d\n", m.acked, m.legal) }}
	m.set(n.log.Offsets().LogEnd, n.log.Offsets().LogStart)
	for {
		if err := script(n, &m, 6, rng); err != nil {
			log.Fatal(err)
		}
	}
}

func die() {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		log.Fatal(err)
	}
	select {}
}

// openStore opens a store, and if it is a directory remembers its id in idFile unless that is empty.
func openStore(url, idFile string) (*bucket.Manager, func(), error) {
	s, err := bucket.Open(context.Background(), url, file.Driver(file.Options{IDFile: idFile}), s3.Driver())
	if err != nil {
		return nil, nil, err
	}
	m, err := bucket.NewManager(bucket.Options{Store: s})
	if err != nil {
		return nil, nil, err
	}
	return m, func() { _ = s.Close() }, nil
}

// rounds is how often a node dies.
func rounds(t *testing.T, n int) int {
	t.Helper()
	if s := os.Getenv(roundsEnv); s != "" {
		if _, err := fmt.Sscan(s, &n); err != nil {
			t.Fatal(err)
		}
	} else if testing.Short() {
		n = min(n, 4)
	}
	return n
}

func TestKilledAtRandomPoints(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	killAtRandomPoints(t, "file://"+dir, rounds(t, 10), func() map[string]int64 { return filesIn(t, dir) })
}

// killAtRandomPoints kills a tiering node again and again, and after each death checks what it had promised, lets the next start clean up, and checks that
// the store holds exactly what is recorded.
func killAtRandomPoints(t *testing.T, url string, rounds int, objects func() map[string]int64) {
	t.Helper()
	dir := t.TempDir()
	m := model{}
	for round := range rounds {
		m = liveAndDie(t, dir, url, uint64(round), m)
		store, closeStore, err := openStore(url, "")
		if err != nil {
			t.Fatal(err)
		}
		n, err := openNode(vfs.Default, filepath.Join(dir, "data"), store)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := n.check(store, m); err != nil {
			t.Fatalf("round %d, before recovery: %v\n%s", round, err, n.out)
		}
		if err := n.settle(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		requireExactly(t, objects(), n.tier.segments(tpOf(0)))
		if err := n.check(store, m); err != nil {
			t.Fatalf("round %d, after recovery: %v", round, err)
		}
		m.acked, m.legal = n.log.Offsets().LogEnd, max(m.legal, n.log.Offsets().LogStart)
		if round%2 == 0 { // else the next child finds what two crashes in a row leave
			if err := n.close(); err != nil {
				t.Fatal(err)
			}
		}
		closeStore()
		t.Logf("round %d: %d acknowledged, log %+v, %d remote segments", round, m.acked, n.log.Offsets(), len(n.tier.segments(tpOf(0))))
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

// liveAndDie runs a child to its death and returns what it had promised.
func liveAndDie(t *testing.T, dir, url string, seed uint64, m model) model {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir, storeEnv+"="+url, fmt.Sprintf("%s=%d", seedEnv, seed))
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var acked, legal int64
		// A line that the death has cut off promises nothing.
		if n, _ := fmt.Sscanf(lines.Text()+"\n", "%d %d\n", &acked, &legal); n == 2 {
			m.acked, m.legal = max(m.acked, acked), max(m.legal, legal)
		}
	}
	err = cmd.Wait()
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
		t.Fatalf("the child did not die as it should: %v\n%s", err, errs.String())
	}
	return m
}

// filesIn are the files under a folder with their sizes, temporary ones included, but not the id of a store.
func filesIn(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	files := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if name != storedir.MarkerName {
			files[name] = info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// requireExactly fails unless the objects are exactly those of these segments, each of them finished.
func requireExactly(t *testing.T, objects map[string]int64, segments []remotestorage.RemoteLogSegmentMetadata) {
	t.Helper()
	for _, md := range segments {
		if md.State != remotestorage.CopySegmentFinished {
			t.Errorf("segment %s is left in state %s", md.ID, md.State)
		}
		suffixes := []layout.Suffix{layout.Log, layout.OffsetIndex, layout.TimeIndex, layout.ProducerSnapshot, layout.LeaderEpoch}
		if !md.TxnIndexEmpty {
			suffixes = append(suffixes, layout.TransactionIndex)
		}
		for _, s := range suffixes {
			name := layout.ObjectName(md.RemoteLogSegmentID, md.StartOffset, s)
			size, ok := objects[name]
			delete(objects, name)
			if !ok {
				t.Errorf("%s is recorded, but not there", name)
			} else if s == layout.Log && size != int64(md.SegmentSizeInBytes) {
				t.Errorf("%s has %d bytes, recorded are %d", name, size, md.SegmentSizeInBytes)
			}
		}
	}
	for name := range objects {
		t.Errorf("orphan %s", name)
	}
}
