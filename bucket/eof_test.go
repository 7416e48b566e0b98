package bucket_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/s3"
	"github.com/rewind-kafka/rewind/internal/storetest"
)

// TestConnectionsClosed: an error of a connection that was closed in place of an answer wraps io.EOF. It is neither the end of a list, of which nothing was seen, nor may
// it bring the request's URL into the error's text.
func TestConnectionsClosed(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	closing := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer closing.Close()
	s, err := bucket.Open(t.Context(), "s3://b?region=r&endpoint="+closing.URL, s3.Driver())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := newManager(t, s, bucket.Options{})
	md, _ := storetest.Segment("t", 0, 1)
	var listed, partitions, keys error
	for _, listed = range m.ListSegments(t.Context(), md.TopicIDPartition) {
	}
	for _, partitions = range m.ListPartitions(t.Context()) {
	}
	for _, keys = range s.Keys(t.Context(), "") {
	}
	_, opened := m.FetchIndex(t.Context(), md, 0)
	_, named := m.RemoteLogSegmentLocation(t.Context(), md.RemoteLogSegmentID, nil)
	for what, err := range map[string]error{
		"segments": listed, "partitions": partitions, "keys": keys, "index": opened, "location": named, "deletion": m.DeleteLogSegmentData(t.Context(), md),
		"deletion of all": m.DeletePartition(t.Context(), md.TopicIDPartition),
	} {
		if err == nil || !strings.Contains(err.Error(), "s3://b") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
