package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// memStore is a store in memory whose every object operation can be watched and made to fail. Objects are named <segment id>.<suffix>.
type memStore struct {
	// point is called before and after each object is written or removed; its error fails the operation there. Set it before use.
	point func(op, object string, after bool) error
	// partial leaves a cut object behind when point fails before a write, as a store without atomic writes would.
	partial bool

	mu      sync.Mutex
	objects map[string][]byte
	copies  int // begun
}

func newMemStore() *memStore { return &memStore{objects: map[string][]byte{}} }

// clone is the store as it is now, without faults.
func (s *memStore) clone() *memStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newMemStore()
	c.objects = maps.Clone(s.objects) // objects are never changed in place
	return c
}

func (s *memStore) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

func (s *memStore) get(name string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.objects[name]
	return b, ok
}

func (s *memStore) at(op, object string, after bool) error {
	if s.point == nil {
		return nil
	}
	return s.point(op, object, after)
}

func objectName(id remotestorage.UUID, suffix string) string { return id.String() + suffix }

func (s *memStore) CopyLogSegmentData(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, d remotestorage.LogSegmentData) ([]byte, error) {
	s.mu.Lock()
	s.copies++
	s.mu.Unlock()
	files := []struct {
		suffix string
		f      *remotestorage.SegmentFile
	}{
		{".log", &d.Log}, {".index", &d.OffsetIndex}, {".timeindex", &d.TimeIndex}, {".snapshot", &d.ProducerSnapshot}, {".txnindex", d.Transaction},
	}
	for _, f := range files {
		if f.f == nil {
			continue
		}
		if err := s.putFile(ctx, objectName(md.ID, f.suffix), *f.f); err != nil {
			return nil, err
		}
	}
	if err := s.put(ctx, objectName(md.ID, ".leader_epoch_checkpoint"), d.LeaderEpochIndex); err != nil {
		return nil, err
	}
	return []byte("custom of " + md.ID.String()), nil
}

func (s *memStore) putFile(ctx context.Context, name string, f remotestorage.SegmentFile) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	if int64(len(b)) != f.Size {
		return fmt.Errorf("%s: read %d bytes, want %d", name, len(b), f.Size)
	}
	return s.put(ctx, name, b)
}

func (s *memStore) put(ctx context.Context, name string, b []byte) error {
	if err := s.at("put", name, false); err != nil {
		if s.partial {
			s.set(name, b[:len(b)/2])
		}
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.set(name, b)
	return s.at("put", name, true)
}

func (s *memStore) set(name string, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[name] = bytes.Clone(b)
}

func (s *memStore) DeleteLogSegmentData(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata) error {
	for _, suffix := range []string{".log", ".index", ".timeindex", ".snapshot", ".txnindex", ".leader_epoch_checkpoint"} {
		name := objectName(md.ID, suffix)
		if err := s.at("delete", name, false); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		delete(s.objects, name)
		s.mu.Unlock()
		if err := s.at("delete", name, true); err != nil {
			return err
		}
	}
	return nil
}

func (s *memStore) FetchLogSegment(_ context.Context, md remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	b, ok := s.get(objectName(md.ID, ".log"))
	if !ok {
		return nil, remotestorage.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(b[min(start, int64(len(b))):min(end, int64(len(b)))])), nil
}

func (s *memStore) FetchIndex(context.Context, remotestorage.RemoteLogSegmentMetadata, remotestorage.IndexType) (io.ReadCloser, error) {
	return nil, errors.New("not needed here")
}

func (s *memStore) GetSignedRemoteLogSegmentLocation(context.Context, remotestorage.RemoteLogSegmentID, []byte) (remotestorage.SignedLocation, error) {
	return remotestorage.SignedLocation{}, remotestorage.ErrNotSigned
}

func (s *memStore) RemoteLogSegmentLocation(context.Context, remotestorage.RemoteLogSegmentID, []byte) (string, error) {
	return "", nil
}

// requireWhole fails unless the store holds exactly the objects of the finished segments, each of them whole.
func requireWhole(t *testing.T, s *memStore, segments []remotestorage.RemoteLogSegmentMetadata) {
	t.Helper()
	want := map[string]bool{}
	for _, md := range segments {
		if md.State != remotestorage.CopySegmentFinished {
			t.Errorf("segment %s is left in state %s", md.ID, md.State)
			continue
		}
		for _, suffix := range []string{".log", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"} {
			want[objectName(md.ID, suffix)] = true
			if _, ok := s.get(objectName(md.ID, suffix)); !ok {
				t.Errorf("segment %s is recorded, but its %s is not in the store", md.ID, suffix)
			}
		}
		if !md.TxnIndexEmpty {
			want[objectName(md.ID, ".txnindex")] = true
		}
		if b, _ := s.get(objectName(md.ID, ".log")); int64(len(b)) != int64(md.SegmentSizeInBytes) {
			t.Errorf("segment %s: log of %d bytes, recorded are %d", md.ID, len(b), md.SegmentSizeInBytes)
		}
	}
	for _, name := range s.names() {
		if !want[name] {
			t.Errorf("orphan object %s", name)
		}
	}
}
