package topics

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
)

// state is what a registry knows, in words.
func state(r *Registry) string {
	var out []string
	for _, t := range r.List() {
		out = append(out, fmt.Sprintf("%s %s %d %v", t.Name, t.ID, t.Partitions, t.Configs))
	}
	for _, t := range r.Deleting() {
		out = append(out, fmt.Sprintf("deleting %s %s", t.Name, t.ID))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// TestWhatFailedIsAsItWas fails each step of a change, the sync of the folder after the new name is there too, for once and from then on: what the registry says afterwards is what
// the next start finds. A topic whose deletion has failed goes on being written to, and must not be gone then; one that could not be made must not be there.
func TestWhatFailedIsAsItWas(t *testing.T) {
	for name, change := range map[string]func(*Registry) error{
		"create":    func(r *Registry) error { _, err := r.Create(Topic{Name: "new", Partitions: 1}); return err },
		"adopt":     func(r *Registry) error { _, err := r.Adopt(Topic{Name: "t_", Partitions: 1}); return err },
		"grow":      func(r *Registry) error { _, err := r.SetPartitions("t.", 4); return err },
		"configure": func(r *Registry) error { _, err := r.SetConfigs("t.", map[string]string{"a": "c"}); return err },
		"delete":    func(r *Registry) error { _, err := r.Delete("t."); return err },
	} {
		for _, forGood := range []bool{false, true} {
			for at, failed := int64(1), true; failed; at++ {
				var left, seen atomic.Int64
				mem := vfs.NewMem()
				mem.MkdirAll("/data", 0o755)
				faulty := atomicfile.WithFolders(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || left.Load() == 0 {
						return nil
					}
					if n := seen.Add(1); n == left.Load() || n > left.Load() && forGood {
						return errors.New("disk")
					}
					return nil
				})))
				r := open(t, faulty)
				if _, err := r.Create(Topic{Name: "t.", Partitions: 2, Configs: map[string]string{"a": "b"}}); err != nil {
					t.Fatal(err)
				}
				before := state(r)
				left.Store(at)
				err := change(r)
				failed = seen.Load() >= at
				left.Store(0)
				what := fmt.Sprintf("%s, write %d failed (for good: %v): %v", name, at, forGood, err)
				if err != nil && state(r) != before {
					t.Errorf("%s: %s, before it was %s", what, state(r), before)
				}
				if err == nil && state(r) == before {
					t.Errorf("%s: still %s", what, before)
				}
				next := open(t, mem)
				if now, then := state(r), state(next); now != then && !(forGood && err != nil && name != "delete") {
					t.Errorf("%s: %s, the next start finds %s", what, now, then)
				}
				if err == nil && !failed && name == "adopt" && !maps.Equal(next.folded, map[string]int{"t_": 2}) {
					t.Errorf("%s: %v", what, next.folded)
				}
			}
		}
	}
}

// TestLongFileIsDeleted: a topic whose file is as long as one may be can be deleted, and the next start reads its mark.
func TestLongFileIsDeleted(t *testing.T) {
	fs := vfs.NewMem()
	fs.MkdirAll("/data", 0o755)
	r := open(t, fs)
	if _, err := r.Create(Topic{Name: "t", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	fit, over := 0, maxFile
	for over-fit > 1 { // by halves, to the longest that is taken
		n := (fit + over) / 2
		if _, err := r.SetConfigs("t", map[string]string{"a": strings.Repeat("x", n)}); err != nil {
			over = n
		} else {
			fit = n
		}
	}
	if fit < maxFile-1000 {
		t.Fatalf("%d bytes fit", fit)
	}
	if _, err := r.SetConfigs("t", map[string]string{"a": strings.Repeat("x", fit)}); err != nil {
		t.Fatal(err)
	}
	if got, ok := open(t, fs).Get("t"); !ok || len(got.Configs["a"]) != fit {
		t.Errorf("the next start finds %d bytes", len(got.Configs["a"]))
	}
	if _, err := r.Delete("t"); err != nil {
		t.Fatal(err)
	}
	if next := open(t, fs); len(next.Deleting()) != 1 || len(next.List()) != 0 {
		t.Error("the next start does not find the deletion")
	}
}

// TestManyNames: to look whether a name is free takes no longer the more topics there are; each is looked at by its name alone.
func TestManyNames(t *testing.T) {
	r := &Registry{byName: map[string]*Topic{}, folded: map[string]int{}}
	add := func(n int) {
		for i := range n {
			name := fmt.Sprintf("topic.with_a.name-%d", i)
			if r.byName[name] == nil {
				r.byName[name] = &Topic{Name: name}
				r.folded[fold(name)]++
			}
		}
	}
	add(20_000)
	// A name that is looked at is folded, which allocates.
	if n := testing.AllocsPerRun(10, func() {
		if err := r.Check("a.name-of_its.own"); err != nil {
			t.Error(err)
		}
	}); n > 10 {
		t.Errorf("%.0f allocations among 20000 names", n)
	}
	if err := r.Check("topic_with.a_name-5"); !errors.Is(err, ErrCollision) {
		t.Error(err)
	}
}

// outOfDescriptors is a file system that opens no folder for once.
type outOfDescriptors struct {
	vfs.FS
	once bool
}

func (f *outOfDescriptors) OpenDir(name string) (vfs.File, error) {
	if f.once {
		f.once = false
		return nil, errors.New("too many open files")
	}
	return f.FS.OpenDir(name)
}

// TestForgottenInTheEnd: a deletion whose end has failed when the file was away already ends the next time: until it has, no other topic can have the name.
func TestForgottenInTheEnd(t *testing.T) {
	mem := vfs.NewMem()
	mem.MkdirAll("/data", 0o755)
	fs := &outOfDescriptors{FS: mem}
	r := open(t, fs)
	topic, err := r.Create(Topic{Name: "t", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Delete("t"); err != nil {
		t.Fatal(err)
	}
	fs.once = true
	if err := r.Forget(topic.ID); err == nil {
		t.Fatal("nothing failed")
	}
	if err := r.Forget(topic.ID); err != nil || len(r.Deleting()) != 0 {
		t.Errorf("the second time: %v, %d are being deleted", err, len(r.Deleting()))
	}
}
