package aiven

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"

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
	return m.segments.Load(ctx, id.ID, func() (*segment, int64, error) {
		s, err := m.loadSegment(ctx, id, base, custom)
		if err != nil {
			return nil, 0, err
		}
		return s, s.weight(), nil
	})
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
