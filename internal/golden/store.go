package golden

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Store reads a set's objects through the interface that the resolver uses. It can only read. bucket.NewManager on a directory does the same and more; this one
// keeps tests of resolving free of it.
type Store struct{ Dir string }

var suffixes = map[remotestorage.IndexType]string{
	remotestorage.IndexOffset:           ".index",
	remotestorage.IndexTimestamp:        ".timeindex",
	remotestorage.IndexProducerSnapshot: ".snapshot",
	remotestorage.IndexTransaction:      ".txnindex",
	remotestorage.IndexLeaderEpoch:      ".leader_epoch_checkpoint",
}

// Path is the object's file; suffix is ".log" or that of an index.
func (s Store) Path(m *remotestorage.RemoteLogSegmentMetadata, suffix string) string {
	return filepath.Join(s.Dir, fmt.Sprintf("%s-%d-%s", m.Topic, m.Partition, m.TopicID), fmt.Sprintf("%020d-%s%s", m.StartOffset, m.ID, suffix))
}

// IndexSuffix is the suffix of an index's object.
func IndexSuffix(t remotestorage.IndexType) string { return suffixes[t] }

func (s Store) open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", remotestorage.ErrNotFound, filepath.Base(path))
	}
	return f, err
}

// FetchLogSegment implements remotestorage.RemoteStorageManager.
func (s Store) FetchLogSegment(_ context.Context, m remotestorage.RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error) {
	f, err := s.open(s.Path(&m, ".log"))
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || start >= st.Size() {
		return nil, errors.Join(remotestorage.ErrRange, err, f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, start, end-start), f}, nil
}

// FetchIndex implements remotestorage.RemoteStorageManager.
func (s Store) FetchIndex(_ context.Context, m remotestorage.RemoteLogSegmentMetadata, t remotestorage.IndexType) (io.ReadCloser, error) {
	f, err := s.open(s.Path(&m, suffixes[t]))
	if err != nil {
		return nil, err
	}
	return f, nil
}

var errReadOnly = errors.New("golden data is only read")

// CopyLogSegmentData implements remotestorage.RemoteStorageManager; it refuses.
func (s Store) CopyLogSegmentData(context.Context, remotestorage.RemoteLogSegmentMetadata, remotestorage.LogSegmentData) ([]byte, error) {
	return nil, errReadOnly
}

// DeleteLogSegmentData implements remotestorage.RemoteStorageManager; it refuses.
func (s Store) DeleteLogSegmentData(context.Context, remotestorage.RemoteLogSegmentMetadata) error {
	return errReadOnly
}

// GetSignedRemoteLogSegmentLocation implements remotestorage.RemoteStorageManager; it does not sign.
func (s Store) GetSignedRemoteLogSegmentLocation(context.Context, remotestorage.RemoteLogSegmentID, []byte) (remotestorage.SignedLocation, error) {
	return remotestorage.SignedLocation{}, remotestorage.ErrNotSigned
}

// RemoteLogSegmentLocation implements remotestorage.RemoteStorageManager.
func (s Store) RemoteLogSegmentLocation(_ context.Context, id remotestorage.RemoteLogSegmentID, _ []byte) (string, error) {
	return "golden://" + id.String(), nil
}
