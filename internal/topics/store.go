package topics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"maps"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	suffix      = ".json"
	fileVersion = 1
	// maxFile bounds one topic's file. The mark of a deletion is a little longer than the file that it is of, which must not keep a topic from being deleted.
	maxFile  = 4 << 20
	markRoom = 64
)

// file is a topic as it lies on disk.
type file struct {
	Version    int               `json:"version"`
	Name       string            `json:"name"`
	ID         string            `json:"id"`
	Partitions int32             `json:"partitions"`
	Internal   bool              `json:"internal,omitempty"`
	Deleting   bool              `json:"deleting,omitempty"`
	Configs    map[string]string `json:"configs,omitempty"`
}

// Open reads the registry in dir, which is made if it is not there.
func Open(fs vfs.FS, dir string) (*Registry, error) {
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making topic registry %s: %w", dir, err)
	}
	if err := atomicfile.SyncDir(fs, fs.PathDir(dir)); err != nil {
		return nil, err
	}
	r := &Registry{fs: fs, dir: dir, byName: map[string]*Topic{}, folded: map[string]int{}, byID: map[remotestorage.UUID]*Topic{}, deleting: map[remotestorage.UUID]*Topic{}, left: map[remotestorage.UUID]bool{}}
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("listing topic registry %s: %w", dir, err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue // a file aside that was never renamed, or nothing of ours
		}
		if err := r.load(name); err != nil {
			return nil, err
		}
	}
	return r, r.finishDeletes()
}

// finishDeletes takes topics away whose deletion was marked, but whose own file a crash left behind.
func (r *Registry) finishDeletes() error {
	for id := range r.deleting {
		t := r.byID[id]
		if t == nil {
			continue
		}
		if err := r.remove(t.Name + suffix); err != nil {
			return err
		}
		r.outLocked(t)
	}
	return nil
}

func (r *Registry) load(name string) error {
	path := r.fs.PathJoin(r.dir, name)
	f, err := parseFile(r.fs, path)
	if err != nil {
		return fmt.Errorf("reading topic file %s: %w", path, err)
	}
	id, err := remotestorage.ParseUUID(f.ID)
	if err != nil {
		return fmt.Errorf("reading topic file %s: %w", path, err)
	}
	t := &Topic{Name: f.Name, ID: id, Partitions: f.Partitions, Configs: f.Configs, Internal: f.Internal}
	if f.Deleting {
		r.deleting[id] = t
		return nil
	}
	if name != t.Name+suffix {
		return fmt.Errorf("topic file %s is about topic %q", path, t.Name)
	}
	r.inLocked(t)
	return nil
}

func parseFile(fs vfs.FS, path string) (file, error) {
	var f file
	in, err := fs.Open(path)
	if err != nil {
		return f, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxFile+markRoom+1))
	if err != nil {
		return f, err
	}
	if len(b) > maxFile+markRoom {
		return f, fmt.Errorf("longer than %d bytes", maxFile+markRoom)
	}
	return f, f.parse(b)
}

func (f *file) parse(b []byte) error {
	if err := json.Unmarshal(b, f); err != nil {
		return err
	}
	if f.Version != fileVersion {
		return fmt.Errorf("version %d, want %d", f.Version, fileVersion)
	}
	if f.Partitions < 1 {
		return fmt.Errorf("%d partitions", f.Partitions)
	}
	return CheckName(f.Name)
}

// Create adds a topic. A zero ID gets a new one, which is returned with the topic.
func (r *Registry) Create(t Topic) (Topic, error) {
	r.write.Lock()
	defer r.write.Unlock()
	if err := r.Check(t.Name); err != nil {
		return Topic{}, err
	}
	return r.add(t)
}

// Adopt adds a topic whose logs were found without a file: data that another Kafka wrote. Name collisions are let through, they exist already.
func (r *Registry) Adopt(t Topic) (Topic, error) {
	r.write.Lock()
	defer r.write.Unlock()
	if err := r.Check(t.Name); err != nil && !errors.Is(err, ErrCollision) {
		return Topic{}, err
	}
	return r.add(t)
}

func (r *Registry) add(t Topic) (Topic, error) {
	if t.ID.IsZero() {
		t.ID = remotestorage.RandomUUID()
	}
	kept := t.clone()
	if err := r.save(&kept, false); err != nil {
		return Topic{}, errors.Join(err, r.takeBack(kept.Name+suffix))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inLocked(&kept)
	r.version++
	return kept.clone(), nil
}

// SetPartitions changes the number of partitions.
func (r *Registry) SetPartitions(name string, n int32) (Topic, error) {
	return r.change(name, func(t *Topic) { t.Partitions = n })
}

// SetConfigs replaces the overrides.
func (r *Registry) SetConfigs(name string, configs map[string]string) (Topic, error) {
	return r.change(name, func(t *Topic) { t.Configs = maps.Clone(configs) })
}

func (r *Registry) change(name string, f func(*Topic)) (Topic, error) {
	r.write.Lock()
	defer r.write.Unlock()
	t, ok := r.Get(name)
	if !ok {
		return Topic{}, fmt.Errorf("%w: %s", ErrUnknown, name)
	}
	before := t.clone()
	f(&t)
	if err := r.save(&t, false); err != nil {
		r.putBack(&before)
		return Topic{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Partitions != before.Partitions {
		r.version++
	}
	r.byName[name], r.byID[t.ID] = &t, &t
	return t.clone(), nil
}

// Delete begins a deletion: the topic is gone from here on, also after a crash. Forget ends it.
func (r *Registry) Delete(name string) (Topic, error) {
	r.write.Lock()
	defer r.write.Unlock()
	t, ok := r.Get(name)
	if !ok {
		return Topic{}, fmt.Errorf("%w: %s", ErrUnknown, name)
	}
	// The mark lies under another name, so that the topic can be created again before the deletion has ended. A crash between the two steps leaves
	// both files; Open then finishes the deletion.
	if err := r.save(&t, true); err != nil {
		if back := r.takeBack(deletingName(t.ID)); back == nil {
			return Topic{}, err
		}
		// The mark is there, for the next start if for nobody else, and cannot be taken back: records that the topic were given until then would go with it.
	}
	// From here on the topic is gone, whatever becomes of its own file: Open would finish the deletion, and to say that it has failed would let the topic be written to
	// until then.
	rerr := r.remove(t.Name + suffix)
	r.mu.Lock()
	defer r.mu.Unlock()
	if rerr != nil {
		r.left[t.ID] = true
	}
	r.outLocked(&t)
	r.version++
	r.deleting[t.ID] = &t
	return t.clone(), nil
}

// Forget ends a deletion.
func (r *Registry) Forget(id remotestorage.UUID) error {
	r.write.Lock()
	defer r.write.Unlock()
	r.mu.RLock()
	t, left := r.deleting[id], r.left[id]
	own := t != nil && left && r.byName[t.Name] == nil // else a later topic of the name has taken the file
	r.mu.RUnlock()
	if t == nil {
		return nil
	}
	if own {
		if err := r.remove(t.Name + suffix); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return err // without the mark the file would bring the topic back
		}
	}
	// It is away already where the folder could not be synced the last time. Should it come back with a crash, the next start ends the deletion.
	if err := r.remove(deletingName(id)); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.deleting, id)
	delete(r.left, id)
	return nil
}

// deletingName has a `~`, which no topic's name can have.
func deletingName(id remotestorage.UUID) string { return "~deleting-" + id.String() + suffix }

func (r *Registry) save(t *Topic, deleting bool) error {
	b, err := json.MarshalIndent(file{
		Version: fileVersion, Name: t.Name, ID: t.ID.String(), Partitions: t.Partitions, Internal: t.Internal, Deleting: deleting, Configs: t.Configs,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding topic %s: %w", t.Name, err)
	}
	name, most := t.Name+suffix, maxFile
	if deleting {
		name, most = deletingName(t.ID), maxFile+markRoom
	}
	if len(b) >= most { // the next start would not read it
		return fmt.Errorf("writing topic %s: %d bytes, %d are allowed", t.Name, len(b), most)
	}
	// The name aside is not the longer one: a topic's name may take all that a file's name can hold.
	path := r.fs.PathJoin(r.dir, name)
	if err := atomicfile.ReplaceVia(r.fs, path, strings.TrimSuffix(path, suffix)+atomicfile.Suffix, append(b, '\n')); err != nil {
		return fmt.Errorf("writing topic file %s: %w", path, err)
	}
	return nil
}

// takeBack removes a file that was not there before, after an error that may have come when it had its name already: the next start would find what has not happened here. It
// is an error if the file is there and stays.
func (r *Registry) takeBack(name string) error {
	path := r.fs.PathJoin(r.dir, name)
	if there, err := atomicfile.Exists(r.fs, path); err == nil && !there {
		return nil
	}
	if err := r.fs.Remove(path); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("taking topic file %s back: %w", name, err)
	}
	return nil
}

// putBack writes a topic's file as it was, after such an error, as far as it can: what fails now, or cannot be told, is the error that there was.
func (r *Registry) putBack(t *Topic) {
	f, err := parseFile(r.fs, r.fs.PathJoin(r.dir, t.Name+suffix))
	if err == nil && (f.Partitions != t.Partitions || !maps.Equal(f.Configs, t.Configs)) {
		_ = r.save(t, false)
	}
}

func (r *Registry) remove(name string) error {
	if err := r.fs.Remove(r.fs.PathJoin(r.dir, name)); err != nil {
		return fmt.Errorf("removing topic file %s: %w", name, err)
	}
	return atomicfile.SyncDir(r.fs, r.dir)
}
