package httpfetcher

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// BenchmarkRange reads ranges of 4 MiB from a server in the same process, as chunks are filled.
func BenchmarkRange(b *testing.B) {
	const size = 4 << 20
	object := make([]byte, 64<<20)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(object))
	}))
	defer s.Close()
	f, err := New(Options{AllowedHosts: []string{"127.0.0.1"}})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	l := signed(s.URL + "/k?sig=1")
	b.SetBytes(size)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		buf := make([]byte, size)
		for at := int64(0); pb.Next(); at = (at + size) % (60 << 20) {
			r, err := f.FetchLogSegment(b.Context(), l, at, at+size)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.ReadFull(r, buf); err != nil {
				b.Error(err)
			}
			_ = r.Close()
		}
	})
}
