package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"

	"gocloud.dev/blob"

	"github.com/rewind-kafka/rewind/internal/layout"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// StoredSegment is what the store has under one segment's id. Without a log it is a copy that was cut off.
type StoredSegment struct {
	remotestorage.RemoteLogSegmentID
	BaseOffset int64
	// Size is the log object's; -1 if there is none.
	Size int64
	// Objects is the number of the segment's objects.
	Objects int
}

// ListSegments goes through a partition's segments in the store, by base offset. Names that are not of the layout are passed over.
func (m *Manager) ListSegments(ctx context.Context, tp remotestorage.TopicIDPartition) iter.Seq2[StoredSegment, error] {
	return func(yield func(StoredSegment, error) bool) {
		var at StoredSegment
		for o, err := range m.objects(ctx, layout.PartitionDir(tp)+"/") {
			if err != nil {
				yield(StoredSegment{}, err)
				return
			}
			if o.RemoteLogSegmentID != at.RemoteLogSegmentID || o.BaseOffset != at.BaseOffset {
				if at.Objects > 0 && !yield(at, nil) {
					return
				}
				at = StoredSegment{RemoteLogSegmentID: o.RemoteLogSegmentID, BaseOffset: o.BaseOffset, Size: -1}
			}
			at.Objects++
			if o.Suffix == layout.Log {
				at.Size = o.size
			}
		}
		if at.Objects > 0 {
			yield(at, nil)
		}
	}
}

// ListPartitions goes through the partitions that have a folder in the store.
func (m *Manager) ListPartitions(ctx context.Context) iter.Seq2[remotestorage.TopicIDPartition, error] {
	return func(yield func(remotestorage.TopicIDPartition, error) bool) {
		list := m.s.Bucket.List(&blob.ListOptions{Prefix: m.s.Prefix, Delimiter: "/"})
		for {
			o, err := list.Next(ctx)
			if err == io.EOF { // an error that wraps it is none of the list's end
				return
			}
			if err != nil {
				yield(remotestorage.TopicIDPartition{}, m.s.wrap("listing", m.s.Prefix, err))
				return
			}
			tp, err := layout.ParsePartitionDir(strings.TrimSuffix(strings.TrimPrefix(o.Key, m.s.Prefix), "/"))
			if !o.IsDir || err != nil {
				continue
			}
			if !yield(tp, nil) {
				return
			}
		}
	}
}

type listedObject struct {
	layout.Object
	key  string
	size int64
}

// objects lists the layout's objects whose name begins with prefix.
func (m *Manager) objects(ctx context.Context, prefix string) iter.Seq2[listedObject, error] {
	return func(yield func(listedObject, error) bool) {
		list := m.s.Bucket.List(&blob.ListOptions{Prefix: m.s.key(prefix)})
		for {
			o, err := list.Next(ctx)
			if err == io.EOF { // an error that wraps it is none of the list's end
				return
			}
			if err != nil {
				yield(listedObject{}, m.s.wrap("listing", m.s.key(prefix), err))
				return
			}
			parsed, err := layout.ParseObject(strings.TrimPrefix(o.Key, m.s.Prefix))
			if err != nil {
				continue
			}
			if !yield(listedObject{Object: parsed, key: o.Key, size: o.Size}, nil) {
				return
			}
		}
	}
}

// DeleteLogSegmentData removes every object of the segment, and what an interrupted upload of it left. It lists by the segment's id, so it also clears a copy
// that was cut off anywhere.
func (m *Manager) DeleteLogSegmentData(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata) error {
	return m.deleteAll(ctx, layout.SegmentName(md.RemoteLogSegmentID, md.StartOffset)+".")
}

// DeletePartition removes every object of a partition: what is left when a topic is deleted. The caller sees to it that nothing is being copied there.
func (m *Manager) DeletePartition(ctx context.Context, tp remotestorage.TopicIDPartition) error {
	return m.deleteAll(ctx, layout.PartitionDir(tp)+"/")
}

func (m *Manager) deleteAll(ctx context.Context, prefix string) error {
	if m.s.Sweep != nil {
		if err := m.s.Sweep(ctx, m.s.key(prefix)); err != nil {
			return m.s.wrap("clearing interrupted uploads of", m.s.key(prefix), err)
		}
	}
	var keys []string // all names first: a listing that is being deleted from may skip some
	for o, err := range m.objects(ctx, prefix) {
		if err != nil {
			return err // a bucket that is not there too: "nothing to delete" may be a wrong name
		}
		keys = append(keys, o.key)
		if len(keys) == deleteRound {
			if err := m.deleteKeys(ctx, keys); err != nil {
				return err
			}
			return m.deleteAll(ctx, prefix)
		}
	}
	return m.deleteKeys(ctx, keys)
}

// deleteRound bounds the names held at once.
const deleteRound = 10_000

func (m *Manager) deleteKeys(ctx context.Context, keys []string) error {
	for _, key := range keys {
		err := m.s.wrap("deleting", key, m.s.Bucket.Delete(ctx, key))
		if err != nil && !errors.Is(err, remotestorage.ErrNotFound) {
			return err
		}
	}
	return nil
}

// logKey names the log object of a segment of which only the id is known: by custom metadata that this package wrote, else by looking through the
// partition's folder.
func (m *Manager) logKey(ctx context.Context, id remotestorage.RemoteLogSegmentID, customMetadata []byte) (string, error) {
	base, ok := layout.ParseCustomMetadata(customMetadata)
	if !ok {
		base, ok = m.bases.get(id.ID)
	}
	if !ok {
		var err error
		if base, err = m.findBase(ctx, id); err != nil {
			return "", err
		}
	}
	return m.s.key(layout.ObjectName(id, base, layout.Log)), nil
}

func (m *Manager) findBase(ctx context.Context, id remotestorage.RemoteLogSegmentID) (int64, error) {
	for o, err := range m.objects(ctx, layout.PartitionDir(id.TopicIDPartition)+"/") {
		if err != nil {
			return 0, err
		}
		if o.Suffix == layout.Log {
			m.bases.put(o.ID, o.BaseOffset)
		}
		if o.ID == id.ID {
			m.bases.put(o.ID, o.BaseOffset)
			return o.BaseOffset, nil
		}
	}
	return 0, fmt.Errorf("looking for segment %s in %s: %w", id, m.s.place(m.s.Prefix), remotestorage.ErrNotFound)
}

// baseCache remembers base offsets that a listing showed. A segment's name never changes, so nothing in it grows old.
type baseCache struct {
	mu    sync.Mutex
	bases map[remotestorage.UUID]int64
}

const maxBases = 1 << 16

func (c *baseCache) get(id remotestorage.UUID) (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	base, ok := c.bases[id]
	return base, ok
}

func (c *baseCache) put(id remotestorage.UUID, base int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bases == nil || len(c.bases) >= maxBases {
		c.bases = make(map[remotestorage.UUID]int64)
	}
	c.bases[id] = base
}
