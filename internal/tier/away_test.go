package tier

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestDirectoryStoreAway: while the store's directory is away, or an empty one lies in its place, nothing is recorded as copied or as deleted, neither by the node
// that saw it go nor by one that starts without it. When it is back all that was due is done, and no object is left.
func TestDirectoryStoreAway(t *testing.T) {
	for _, c := range []struct {
		name    string
		replace func(dir string) error
	}{
		{"missing", func(string) error { return nil }},
		{"not mounted", func(dir string) error { return os.Mkdir(dir, 0o755) }},
	} {
		t.Run(c.name, func(t *testing.T) { storeAway(t, c.replace) })
	}
}

type awayNode struct {
	*node
	t     *testing.T
	dir   string
	close func()
}

func (a *awayNode) must(errs ...error) {
	a.t.Helper()
	if err := errors.Join(errs...); err != nil {
		a.t.Fatal(err)
	}
}

func (a *awayNode) start() {
	a.t.Helper()
	store, closeStore, err := openStore("file://"+filepath.Join(a.dir, "store"), filepath.Join(a.dir, "data", "store.id"))
	a.must(err)
	a.node, err = openNode(vfs.Default, filepath.Join(a.dir, "data"), store)
	a.must(err)
	a.close = func() {
		a.t.Helper()
		a.must(a.node.close())
		closeStore()
	}
}

// states are how many segments are recorded in each state.
func (a *awayNode) states() map[remotestorage.SegmentState]int {
	n := map[remotestorage.SegmentState]int{}
	for _, md := range a.tier.segments(a.part.TP) {
		n[md.State]++
	}
	return n
}

func (a *awayNode) fill(m *model, segments int) {
	a.t.Helper()
	for range segments {
		a.must(m.append(a.log), m.append(a.log), a.log.Roll())
	}
}

// fails wants what an operator is told to be that the store is away, and that nothing of the segments is recorded but that it was begun.
func (a *awayNode) fails(what string, do func() error) {
	a.t.Helper()
	before := a.states()
	err := do()
	var store *StoreError
	if !errors.As(err, &store) || reasonOf(err) != reasonNoBucket || !strings.Contains(err.Error(), "mounted?") {
		a.t.Fatalf("%s: %v", what, err)
	}
	after := a.states()
	total := func(n map[remotestorage.SegmentState]int) (all int) {
		for _, k := range n {
			all += k
		}
		return all
	}
	if after[remotestorage.CopySegmentFinished] > before[remotestorage.CopySegmentFinished] || total(after) < total(before) {
		a.t.Fatalf("%s: segments by state were %v, are %v", what, before, after)
	}
}

func (a *awayNode) maintain() error {
	_, err := a.tier.maintain(context.Background(), a.part)
	return err
}

func (a *awayNode) purge() error {
	_, err := a.tier.purge(context.Background(), a.part, true)
	return err
}

func storeAway(t *testing.T, replace func(dir string) error) {
	a := &awayNode{t: t, dir: t.TempDir()}
	store := filepath.Join(a.dir, "store")
	a.start()
	m := &model{}
	a.fill(m, 5)
	a.must(a.settle())
	if n := a.states(); n[remotestorage.CopySegmentFinished] != 5 || len(n) != 1 {
		t.Fatalf("segments by state: %v", n)
	}

	a.must(os.Rename(store, store+".away"), replace(store))
	a.fill(m, 2)
	a.fails("copying", a.maintain)
	for _, who := range []string{"the node that saw it go", "a node that starts without it"} {
		if who != "the node that saw it go" {
			a.close()
			a.start()
		}
		a.fails(who+", clearing up behind a copy", a.maintain)
		_, err := a.log.ApplyRetention(time.Now())
		a.must(err)
		if o := a.log.Offsets(); o.LocalLogStart > 10 || o.LogStart > 4 {
			t.Fatalf("%s: uncopied offsets were deleted: %+v", who, o)
		}
		_, err = a.log.DeleteRecords(4)
		a.must(err)
		a.fails(who+", deleting segments", a.maintain)
		a.fails(who+", deleting the topic", a.purge)
	}
	if entries, _ := os.ReadDir(store); len(entries) > 0 {
		t.Errorf("in the wrong directory: %v", entries)
	}

	a.must(os.RemoveAll(store), os.Rename(store+".away", store))
	a.must(a.purge())
	if n := a.states(); len(n) != 0 {
		t.Errorf("after the deletion, segments by state: %v", n)
	}
	if left := filesIn(t, store); len(left) != 0 {
		t.Errorf("after the deletion: %v", left)
	}
	a.close()
}
