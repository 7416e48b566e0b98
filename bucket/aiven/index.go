package aiven

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// FetchIndex opens one index, whole, as it was on the broker's disk. A segment without aborted transactions has an empty transaction index: its manifest says so.
func (m *Manager) FetchIndex(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) (io.ReadCloser, error) {
	if t < 0 || int(t) >= indexTypes {
		return nil, fmt.Errorf("index type %d is not known", int8(t))
	}
	s, err := m.segment(ctx, md.RemoteLogSegmentID, md.StartOffset, md.CustomMetadata)
	if err != nil {
		return nil, err
	}
	r := s.indexes[t]
	if r.size == 0 {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	key := s.key + indexesSuffix
	for try := 0; ; try++ {
		b, err := m.readIndex(ctx, s.key, r)
		if err != nil {
			return nil, err
		}
		b, err = s.open(b)
		if err == nil {
			return io.NopCloser(bytes.NewReader(b)), nil
		}
		if try == 1 {
			return nil, fmt.Errorf("%s index, bytes %d to %d of %s: %w: %w", t, r.position, r.position+r.size, m.s.Place(key), remotestorage.ErrDamaged, err)
		}
		m.o.Logger.Warn("index cannot be opened, reading it once more", "object", m.s.Place(key), "index", t.String(), "err", err)
	}
}

func (m *Manager) readIndex(ctx context.Context, key string, r indexRange) ([]byte, error) {
	body, size, err := m.openRange(ctx, key, indexesSuffix, r.position, r.position+r.size)
	if errors.Is(err, remotestorage.ErrRange) {
		return nil, fmt.Errorf("%w: %w", remotestorage.ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	defer body.Close() // only read from: its error says nothing that the bytes do not
	if size < r.position+r.size {
		return nil, fmt.Errorf("%s: %w: it has %d bytes, and an index should end at %d", m.s.Place(key+indexesSuffix), remotestorage.ErrDamaged, size, r.position+r.size)
	}
	b := make([]byte, r.size)
	_, err = io.ReadFull(body, b)
	return b, err
}
