package topics

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func open(t *testing.T, fs vfs.FS) *Registry {
	t.Helper()
	r, err := Open(fs, "/data/topics")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"": false, ".": false, "..": false, "...": true, "a": true, "A.b_c-9": true, "a b": false, "a/b": false, "ü": false, "~": false,
		strings.Repeat("x", 249): true, strings.Repeat("x", 250): false,
	} {
		if err := CheckName(name); (err == nil) != ok || err != nil && !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestRegistry(t *testing.T) {
	fs := vfs.NewMem()
	fs.MkdirAll("/data", 0o755)
	r := open(t, fs)
	a, err := r.Create(Topic{Name: "a.b", Partitions: 3, Configs: map[string]string{"retention.ms": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(Topic{Name: "a.b", Partitions: 1}); !errors.Is(err, ErrExists) {
		t.Errorf("created twice: %v", err)
	}
	if _, err := r.Create(Topic{Name: "a_b", Partitions: 1}); !errors.Is(err, ErrCollision) {
		t.Errorf("a colliding name: %v", err)
	}
	if _, err := r.SetPartitions("a.b", 5); err != nil {
		t.Error(err)
	}
	if _, err := r.SetConfigs("a.b", map[string]string{"segment.ms": "2"}); err != nil {
		t.Error(err)
	}
	if _, err := r.SetPartitions("x", 5); !errors.Is(err, ErrUnknown) {
		t.Errorf("an unknown topic grew: %v", err)
	}
	for name, reg := range map[string]*Registry{"as it is": r, "read again": open(t, fs)} {
		got, ok := reg.ByID(a.ID)
		if !ok || got.Name != "a.b" || got.Partitions != 5 || !maps.Equal(got.Configs, map[string]string{"segment.ms": "2"}) {
			t.Errorf("%s: %+v", name, got)
		}
		got.Configs["x"] = "y" // a copy
		if again, _ := reg.Get("a.b"); len(again.Configs) != 1 {
			t.Errorf("%s: a caller changed the registry", name)
		}
	}
}

func TestDeletion(t *testing.T) {
	fs := vfs.NewMem()
	fs.MkdirAll("/data", 0o755)
	r := open(t, fs)
	old, _ := r.Create(Topic{Name: "t", Partitions: 1})
	if _, err := r.Delete("t"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Delete("t"); !errors.Is(err, ErrUnknown) {
		t.Errorf("deleted twice: %v", err)
	}
	fresh, err := r.Create(Topic{Name: "t", Partitions: 2})
	if err != nil || fresh.ID == old.ID {
		t.Fatalf("created again: %v, id %s", err, fresh.ID)
	}
	for name, reg := range map[string]*Registry{"as it is": r, "read again": open(t, fs)} {
		if d := reg.Deleting(); len(d) != 1 || d[0].ID != old.ID {
			t.Errorf("%s: deleting %v", name, d)
		}
		if got, ok := reg.Get("t"); !ok || got.ID != fresh.ID {
			t.Errorf("%s: the new topic is %+v", name, got)
		}
	}
	if err := r.Forget(old.ID); err != nil {
		t.Fatal(err)
	}
	if d := open(t, fs).Deleting(); len(d) != 0 {
		t.Errorf("after its end the deletion is still there: %v", d)
	}
}

// TestCrash loses power after each write of a history of changes: the registry then holds the state before or after the change under way.
func TestCrash(t *testing.T) {
	type step struct {
		name string
		do   func(*Registry) error
	}
	steps := []step{
		{"create", func(r *Registry) error { _, err := r.Create(Topic{Name: "t", Partitions: 1}); return err }},
		{"grow", func(r *Registry) error { _, err := r.SetPartitions("t", 4); return err }},
		{"configure", func(r *Registry) error { _, err := r.SetConfigs("t", map[string]string{"a": "b"}); return err }},
		{"delete", func(r *Registry) error { _, err := r.Delete("t"); return err }},
	}
	describe := func(r *Registry) string {
		t, ok := r.Get("t")
		switch {
		case len(r.Deleting()) > 0 && !ok:
			return "deleting"
		case !ok:
			return "none"
		case t.Configs["a"] == "b":
			return "configured"
		case t.Partitions == 4:
			return "grown"
		}
		return "created"
	}
	states := []string{"none", "created", "grown", "configured", "deleting"}
	mem := vfs.NewCrashableMem()
	mem.MkdirAll("/data", 0o755)
	if d, err := mem.OpenDir("/"); err != nil || d.Sync() != nil || d.Close() != nil {
		t.Fatal("syncing the root")
	}
	r := open(t, mem)
	for i, s := range steps {
		if err := s.do(r); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})
		if got := describe(open(t, clone)); got != states[i+1] {
			t.Errorf("power lost after %s was acknowledged: %s, want %s", s.name, got, states[i+1])
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"name":"t","id":"vYwHDGc7TXihIhAz3oD_IQ","partitions":3,"configs":{"a":"b"}}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got file
		if err := got.parse(b); err == nil && (got.Partitions < 1 || CheckName(got.Name) != nil) {
			t.Errorf("accepted %+v", got)
		}
	})
}
