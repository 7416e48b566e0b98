package aiven

import (
	"container/list"
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// segmentCacheBytes is what manifests in memory take at most: some thousands of segments with the plug-in's chunk size.
const segmentCacheBytes = 16 << 20

// segment is what reading one segment needs to know; it never changes.
type segment struct {
	*manifest
	id   remotestorage.UUID
	base int64
	key  string      // of its objects in the bucket, without the suffix
	aead cipher.AEAD // nil: not encrypted
}

// open opens one encrypted chunk in place, and gives b as it is if the segment is not encrypted.
func (s *segment) open(b []byte) ([]byte, error) {
	if s.aead == nil {
		return b, nil
	}
	if len(b) < sealSize {
		return nil, io.ErrUnexpectedEOF
	}
	return s.aead.Open(b[nonceSize:nonceSize], b[:nonceSize], b[nonceSize:], s.aad)
}

// segment gives a segment with its manifest read and its key opened, out of the cache if it was seen before.
func (m *Manager) segment(ctx context.Context, id remotestorage.RemoteLogSegmentID, base int64, custom []byte) (*segment, error) {
	s, fetch, err := m.segments.get(ctx, id.ID)
	if err != nil || !fetch {
		return s, err
	}
	s, err = m.loadSegment(ctx, id, base, custom)
	m.segments.put(id.ID, s)
	return s, err
}

// loadSegment looks where the configuration says, and then where the metadata record says: the plug-in's prefix may have been another one in the past.
func (m *Manager) loadSegment(ctx context.Context, id remotestorage.RemoteLogSegmentID, base int64, custom []byte) (*segment, error) {
	key := m.prefix + segmentName(id, base)
	s, err := m.readSegment(ctx, id.ID, key)
	if other := m.recordedKey(id, base, custom); errors.Is(err, remotestorage.ErrNotFound) && other != "" && other != key {
		found, otherErr := m.readSegment(ctx, id.ID, other)
		if !errors.Is(otherErr, remotestorage.ErrNotFound) {
			s, err = found, otherErr // the segment is there, whether or not it can be read
		}
	}
	if errors.Is(err, remotestorage.ErrNotFound) {
		return nil, fmt.Errorf("%w: the segment was deleted, or the plug-in's key.prefix is not %q, or its segment.format is iceberg, which is not read", err, m.prefix)
	}
	if err != nil {
		return nil, err
	}
	s.base = base
	return s, nil
}

// recordedKey is where the custom metadata says that the objects are; "" if it does not.
func (m *Manager) recordedKey(id remotestorage.RemoteLogSegmentID, base int64, custom []byte) string {
	c, err := parseCustomMetadata(custom)
	if err != nil || !c.hasPrefix && !c.hasObject {
		return ""
	}
	prefix, name := m.prefix, segmentName(id, base)
	if c.hasPrefix {
		prefix = m.s.Prefix + c.prefix
		if m.o.KeyPrefix == "" { // the store's prefix is the plug-in's
			prefix = c.prefix
		}
	}
	if c.hasObject {
		name = c.key
	}
	return prefix + name
}

// readSegment reads a manifest; one that makes no sense is read a second time, as it may have been damaged on its way.
func (m *Manager) readSegment(ctx context.Context, id remotestorage.UUID, key string) (*segment, error) {
	object := key + manifestSuffix
	for try := 0; ; try++ {
		b, err := m.readManifest(ctx, key)
		if err != nil {
			return nil, err
		}
		parsed, err := parseManifest(b, id)
		switch {
		case errors.Is(err, remotestorage.ErrUnsupported):
			return nil, fmt.Errorf("%s: %w", m.s.Place(object), err)
		case err != nil && try == 0:
			m.o.Logger.Warn("manifest makes no sense, reading it once more", "object", m.s.Place(object), "err", err)
			continue
		case err != nil:
			return nil, fmt.Errorf("%s: %w: %w", m.s.Place(object), remotestorage.ErrDamaged, err)
		}
		s := &segment{manifest: parsed, id: id, key: key}
		if parsed.encrypted {
			if s.aead, err = parsed.key.open(m.o.Keys); err != nil {
				return nil, fmt.Errorf("%s: %w", m.s.Place(object), err)
			}
		}
		return s, nil
	}
}

func (m *Manager) readManifest(ctx context.Context, key string) ([]byte, error) {
	body, size, err := m.openRange(ctx, key, manifestSuffix, 0, maxManifest)
	if errors.Is(err, remotestorage.ErrRange) {
		return nil, fmt.Errorf("%s: %w: it is empty", m.s.Place(key+manifestSuffix), remotestorage.ErrDamaged)
	}
	if err != nil {
		return nil, err
	}
	defer body.Close() // only read from: its error says nothing that the bytes do not
	if size > maxManifest {
		return nil, fmt.Errorf("%s: %w: %d bytes", m.s.Place(key+manifestSuffix), errTooLarge, size)
	}
	return io.ReadAll(body)
}

// segmentCache keeps segments, the least recently used going first. Several callers that want the same one share one fetch, which runs on the first one's
// goroutine; should that one fail, the next fetches for itself.
type segmentCache struct {
	capacity int64

	mu      sync.Mutex
	size    int64
	entries map[remotestorage.UUID]*list.Element // of *segment
	recent  list.List                            // front: used last
	flights map[remotestorage.UUID]chan struct{} // closed when the fetch has ended, either way
}

// get gives the segment, or makes the caller fetch it: then it must call put.
func (c *segmentCache) get(ctx context.Context, id remotestorage.UUID) (s *segment, fetch bool, err error) {
	for {
		c.mu.Lock()
		if e, ok := c.entries[id]; ok {
			c.recent.MoveToFront(e)
			c.mu.Unlock()
			return e.Value.(*segment), false, nil
		}
		flight, ok := c.flights[id]
		if !ok {
			c.flights[id] = make(chan struct{})
			c.mu.Unlock()
			return nil, true, nil
		}
		c.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// put ends a fetch; s is nil if it failed.
func (c *segmentCache) put(id remotestorage.UUID, s *segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.flights[id])
	delete(c.flights, id)
	if s == nil || s.weight() > c.capacity {
		return
	}
	c.entries[id] = c.recent.PushFront(s)
	c.size += s.weight()
	for c.size > c.capacity {
		old := c.recent.Remove(c.recent.Back()).(*segment)
		delete(c.entries, old.id)
		c.size -= old.weight()
	}
}

// known gives a segment only if it is there.
func (c *segmentCache) known(id remotestorage.UUID) *segment {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[id]; ok {
		return e.Value.(*segment)
	}
	return nil
}
