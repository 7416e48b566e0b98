package bucket

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"

	"github.com/rewind-kafka/rewind/internal/layout"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestUploadGivesUp: a store that is away for longer is left to the caller, who has other partitions to see to.
func TestUploadGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory(t)
		if err := s.Bucket.Close(); err != nil {
			t.Fatal(err)
		}
		m, err := NewManager(Options{Store: s})
		if err != nil {
			t.Fatal(err)
		}
		tries := 0
		f := remotestorage.SegmentFile{Size: 3, Open: func() (io.ReadCloser, error) {
			tries++
			return io.NopCloser(bytes.NewReader([]byte("abc"))), nil
		}}
		if err := m.upload(t.Context(), remotestorage.RemoteLogSegmentMetadata{}, layout.Log, f); err == nil {
			t.Error("an upload to a closed bucket succeeded")
		}
		if tries != uploadTries {
			t.Errorf("%d tries, want %d", tries, uploadTries)
		}
	})
}
