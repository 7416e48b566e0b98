package aiven

import (
	"context"
	"fmt"
	"strings"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// GetSignedRemoteLogSegmentLocation signs a GET of a log object that is neither compressed nor encrypted; ErrNotSigned for any other.
func (m *Manager) GetSignedRemoteLogSegmentLocation(ctx context.Context, id remotestorage.RemoteLogSegmentID, custom []byte) (remotestorage.SignedLocation, error) {
	s, err := m.find(ctx, id, custom)
	if err != nil {
		return remotestorage.SignedLocation{}, err
	}
	if s.transformed() {
		return remotestorage.SignedLocation{}, fmt.Errorf("%s is compressed or encrypted: %w", m.s.Place(s.key+logSuffix), remotestorage.ErrNotSigned)
	}
	return m.s.SignKey(ctx, s.key+logSuffix, m.o.URLExpiry)
}

// RemoteLogSegmentLocation is the URI of a log object that is neither compressed nor encrypted; "" for any other: it is read by whoever has manifest and key.
func (m *Manager) RemoteLogSegmentLocation(ctx context.Context, id remotestorage.RemoteLogSegmentID, custom []byte) (string, error) {
	s, err := m.find(ctx, id, custom)
	if err != nil || s.transformed() {
		return "", err
	}
	return m.s.Place(s.key + logSuffix), nil
}

// find gives a segment of which only the id is known. An object's name needs the base offset: it is known if the segment was read before, or may stand in the
// custom metadata; else the partition's folder is listed.
func (m *Manager) find(ctx context.Context, id remotestorage.RemoteLogSegmentID, custom []byte) (*segment, error) {
	if s, ok := m.segments.Peek(id.ID); ok {
		return s, nil
	}
	c, err := parseCustomMetadata(custom)
	if err == nil {
		if base, ok := c.base(id); ok {
			return m.segment(ctx, id, base, custom)
		}
	}
	dir := m.prefix + partitionDir(id.TopicIDPartition)
	for key, err := range m.s.Keys(ctx, dir) {
		if err != nil {
			return nil, err
		}
		if base, ok := baseOf(strings.TrimPrefix(key, dir), id.ID); ok {
			return m.segment(ctx, id, base, custom)
		}
	}
	return nil, fmt.Errorf("looking for segment %s in %s: %w", id, m.s.Place(dir), remotestorage.ErrNotFound)
}
