package storedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// site is a place for a store and for what remembers its id.
type site struct {
	t                *testing.T
	base, path, file string
}

func newSite(t *testing.T) *site {
	base := t.TempDir()
	return &site{t: t, base: base, path: filepath.Join(base, "mnt", "store"), file: filepath.Join(base, "data", "store.id")}
}

func (s *site) must(errs ...error) {
	s.t.Helper()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) open(o Options) *Dir {
	s.t.Helper()
	d, err := Open(s.path, o)
	s.must(err)
	s.t.Cleanup(func() { _ = d.Close() })
	return d
}

func (s *site) writer() *Dir { s.t.Helper(); return s.open(Options{IDFile: s.file}) }

func (s *site) read(path string) string {
	s.t.Helper()
	b, err := os.ReadFile(path)
	s.must(err)
	return string(b)
}

func (s *site) names(dir string) string {
	s.t.Helper()
	entries, err := os.ReadDir(dir)
	s.must(err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func (s *site) root(d *Dir) *os.Root {
	s.t.Helper()
	root, err := d.Root()
	s.must(err)
	return root
}

// away wants the error of a directory that is not there, which nothing takes for that of an object that is not.
func (s *site) away(d *Dir, when, want string) {
	s.t.Helper()
	root, err := d.Root()
	if root != nil || !errors.Is(err, remotestorage.ErrNoBucket) || errors.Is(err, remotestorage.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		s.t.Fatalf("%s: %v, %v", when, root, err)
	}
	for _, want := range []string{s.path, want, "mounted?"} {
		if !strings.Contains(err.Error(), want) {
			s.t.Errorf("%s: %q is not in: %v", when, want, err)
		}
	}
}

func TestFirstUse(t *testing.T) {
	s := newSite(t)
	d := s.writer()
	s.must(s.root(d).WriteFile("x", nil, 0o644))
	id := s.read(s.file)
	if _, err := remotestorage.ParseUUID(strings.TrimSuffix(id, "\n")); err != nil || s.read(filepath.Join(s.path, MarkerName)) != id {
		t.Errorf("%q is remembered, the marker is %q: %v", id, s.read(filepath.Join(s.path, MarkerName)), err)
	}
	if got := s.names(s.path) + "; " + s.names(filepath.Dir(s.file)); got != MarkerName+" x; store.id" {
		t.Errorf("files: %s", got)
	}
	s.must(s.writer().Close())
	if s.read(s.file) != id || s.read(filepath.Join(s.path, MarkerName)) != id {
		t.Error("the id changed at the second start")
	}
	s.must(d.Close())
	if _, err := d.Root(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestAdopt: a store that has an id keeps it, whoever comes to it.
func TestAdopt(t *testing.T) {
	s := newSite(t)
	s.writer()
	id := s.read(s.file)
	s.file = filepath.Join(s.base, "other", "store.id")
	s.writer()
	if s.read(s.file) != id || s.read(filepath.Join(s.path, MarkerName)) != id {
		t.Errorf("id %q became %q", id, s.read(s.file))
	}
}

// TestInterruptedFirstUse: the marker comes first, so that what is remembered is there, and the next start goes on with it.
func TestInterruptedFirstUse(t *testing.T) {
	s := newSite(t)
	s.must(os.Symlink("nowhere", filepath.Dir(s.file))) // in the way of the data directory
	if d, err := Open(s.path, Options{IDFile: s.file}); err == nil {
		t.Fatalf("opened: %v", d)
	}
	id := s.read(filepath.Join(s.path, MarkerName))
	s.must(os.Remove(filepath.Dir(s.file)))
	s.writer()
	if s.read(s.file) != id {
		t.Errorf("%q is remembered, the marker was %q", s.read(s.file), id)
	}
}

func TestFirstUseFails(t *testing.T) {
	for name, prepare := range map[string]func(s *site){
		"a file at the path": func(s *site) { s.must(os.MkdirAll(filepath.Dir(s.path), 0o755), os.WriteFile(s.path, nil, 0o644)) },
		"a file above it":    func(s *site) { s.must(os.WriteFile(filepath.Dir(s.path), nil, 0o644)) },
		"a marker that is no": func(s *site) {
			s.must(os.MkdirAll(s.path, 0o755), os.WriteFile(filepath.Join(s.path, MarkerName), []byte("x\n"), 0o644))
		},
		"an id that is none": func(s *site) {
			s.must(os.MkdirAll(filepath.Dir(s.file), 0o755), os.WriteFile(s.file, []byte("half"), 0o644))
		},
		"an id that is long": func(s *site) {
			s.must(os.MkdirAll(filepath.Dir(s.file), 0o755), os.WriteFile(s.file, []byte(strings.Repeat("A", 1<<20)), 0o644))
		},
	} {
		s := newSite(t)
		prepare(s)
		if d, err := Open(s.path, Options{IDFile: s.file}); err == nil || d != nil {
			t.Errorf("%s: opened", name)
		}
	}
}

// replacements are what may lie at the path in place of the store.
var replacements = []struct {
	name, want string
	put        func(path string) error
}{
	{"nothing", "no such directory", func(string) error { return nil }},
	{"nothing, nor above it", "no such directory", func(path string) error { return os.RemoveAll(filepath.Dir(path)) }},
	{"a file", "not a directory", func(path string) error { return os.WriteFile(path, nil, 0o644) }},
	{"an empty directory", "no file " + MarkerName, func(path string) error { return os.Mkdir(path, 0o755) }},
	{"another store", "its id is", func(path string) error {
		d, err := Open(path, Options{IDFile: filepath.Join(path, ".other")})
		return errors.Join(err, d.Close())
	}},
	{"half a marker", "not a store's id", func(path string) error {
		return errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, MarkerName), []byte("AAAAAAAAAAAA"), 0o644))
	}},
	{"an empty marker", "not a store's id", func(path string) error {
		return errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, MarkerName), nil, 0o644))
	}},
}

// TestAway takes the directory away, puts something in its place, and brings it back, under an open Dir and under one that is opened meanwhile.
func TestAway(t *testing.T) {
	for _, c := range replacements {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			running := s.writer()
			before := s.root(running)
			s.must(before.WriteFile("object", []byte("x"), 0o644))
			away := filepath.Join(s.base, "away")
			s.must(os.Rename(s.path, away), c.put(s.path))
			started := s.writer()
			for _, d := range []*Dir{running, started} {
				s.away(d, "away", c.want)
				if _, err := d.Root(); !strings.Contains(err.Error(), "remove "+s.file) {
					t.Errorf("what to do is not said: %v", err)
				}
			}
			if c.name == "nothing" {
				if _, err := os.Stat(s.path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the directory was made: %v", err)
				}
			}
			if c.name == "an empty directory" && s.names(s.path) != "" {
				t.Errorf("in the wrong place: %s", s.names(s.path))
			}
			s.must(os.RemoveAll(s.path), os.MkdirAll(filepath.Dir(s.path), 0o755), os.Rename(away, s.path))
			for _, d := range []*Dir{running, started} {
				if b, err := s.root(d).ReadFile("object"); err != nil || string(b) != "x" {
					t.Errorf("back: %q, %v", b, err)
				}
			}
		})
	}
}

// TestMovedElsewhere: the marker goes along with a copy of the directory, which then takes its place.
func TestMovedElsewhere(t *testing.T) {
	s := newSite(t)
	d := s.writer()
	before := s.root(d)
	copied := filepath.Join(s.base, "copy")
	s.must(os.CopyFS(copied, os.DirFS(s.path)), os.WriteFile(filepath.Join(copied, "new"), nil, 0o644))
	s.must(os.Rename(s.path, s.path+".old"), os.Rename(copied, s.path))
	if _, err := s.root(d).Stat("new"); err != nil {
		t.Errorf("the copy: %v", err)
	}
	if _, err := before.Stat("."); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the old directory is still open: %v", err)
	}
}

// TestForgotten: with the remembered id removed, whatever lies at the path is the store.
func TestForgotten(t *testing.T) {
	s := newSite(t)
	s.must(s.writer().Close())
	old := s.read(s.file)
	s.must(os.RemoveAll(s.path), os.Remove(s.file))
	s.root(s.writer())
	if s.read(s.file) == old {
		t.Error("the new store has the old one's id")
	}
}

// TestNoIdentity: without a file for the id none is made. The directory is the one at the path, but never one with another id than the first.
func TestNoIdentity(t *testing.T) {
	s := newSite(t)
	plain := s.open(Options{})
	if s.names(s.path) != "" {
		t.Errorf("made: %s", s.names(s.path))
	}
	s.must(os.Rename(s.path, s.path+".1"))
	s.away(plain, "moved", "no such directory")
	s.must(os.Mkdir(s.path, 0o755))
	s.root(plain)
	s.must(os.Remove(s.path))
	s.writer() // gives one an id
	s.root(plain)
	s.must(os.Rename(s.path, s.path+".2"), os.Mkdir(s.path, 0o755))
	s.away(plain, "one without an id after one with", "no file")
	s.must(os.Remove(s.path), os.Rename(s.path+".2", s.path))
	s.root(plain)
}

// TestReadOnly makes nothing, waits for the directory and for the id, and follows when another one is remembered.
func TestReadOnly(t *testing.T) {
	s := newSite(t)
	d := s.open(Options{IDFile: s.file, ReadOnly: true})
	s.away(d, "before the first use", "no such directory")
	if names := s.names(s.base); names != "" {
		t.Errorf("made: %s", names)
	}
	s.must(s.writer().Close())
	s.root(d)
	s.must(os.Rename(s.path, s.path+".old"), os.Mkdir(s.path, 0o755))
	s.away(d, "replaced", "no file")
	if _, err := d.Root(); strings.Contains(err.Error(), "remove") {
		t.Errorf("a reader cannot know what to do: %v", err)
	}
	late := s.open(Options{IDFile: s.file, ReadOnly: true})
	s.away(late, "replaced before the start", "no file")
	s.must(os.Remove(s.file))
	s.must(s.writer().Close())
	s.root(d)
	s.root(late)
}

// TestConcurrentFirstUse: brokers that begin with one store at the same time agree on its id.
func TestConcurrentFirstUse(t *testing.T) {
	s := newSite(t)
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			file := filepath.Join(s.base, "data", string(rune('a'+i)), "store.id")
			d, err := Open(s.path, Options{IDFile: file})
			if err != nil {
				t.Error(err)
				return
			}
			defer d.Close()
			if b, err := os.ReadFile(file); err != nil {
				t.Error(err)
			} else {
				ids[i] = string(b)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Errorf("ids %q", ids)
		}
	}
	if s.names(s.path) != MarkerName {
		t.Errorf("left behind: %s", s.names(s.path))
	}
}

// TestConcurrentUse swaps the store with an empty directory under many operations: none is given the empty one, and in the end it is there.
func TestConcurrentUse(t *testing.T) {
	s := newSite(t)
	d := s.writer()
	s.must(s.root(d).WriteFile("object", nil, 0o644))
	empty := filepath.Join(s.base, "empty")
	s.must(os.Mkdir(empty, 0o755))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				root, err := d.Root()
				if err != nil {
					if !errors.Is(err, remotestorage.ErrNoBucket) {
						t.Error(err)
					}
					continue
				}
				if _, err := root.Stat("object"); err != nil && !errors.Is(err, fs.ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	for range 200 {
		s.must(os.Rename(s.path, s.path+".away"), os.Rename(empty, s.path))
		s.must(os.Rename(s.path, empty), os.Rename(s.path+".away", s.path))
	}
	close(done)
	wg.Wait()
	s.root(d)
}
