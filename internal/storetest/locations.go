package storetest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/httpfetcher"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func unsigned(t *testing.T, _ *Server, st *bucket.Store) {
	m := manager(t, st, bucket.Options{})
	md, data := Segment("unsigned", 42, 3000)
	copySegment(t, m, &md, data)
	location, err := m.RemoteLogSegmentLocation(t.Context(), md.RemoteLogSegmentID, md.CustomMetadata)
	if err != nil {
		t.Fatal(err)
	}
	f := bucket.NewFetcher(bucket.FetcherOptions{Stores: []*bucket.Store{st}})
	r, err := f.FetchLogSegment(t.Context(), &remotestorage.Location{RemoteLogSegmentLocation: location}, 1000, 2000)
	if err != nil {
		t.Fatal(err)
	}
	wantBytes(t, "range", readAll(t, r), content(t, data.Log)[1000:2000])
	for _, l := range []string{"", "s3://somebody-elses/x", location[:strings.Index(location, "some/where/")] + "elsewhere/x.log", location + "?versionId=1",
		strings.Replace(location, "some/where/", "some/where/../../", 1)} {
		_, err := f.FetchLogSegment(t.Context(), &remotestorage.Location{RemoteLogSegmentLocation: l}, 0, 1)
		wantErr(t, l, err, remotestorage.ErrUntrusted)
	}
}

// signedURL copies a segment and signs it; the URL is opened by the fetcher that clients use.
func signedURL(t *testing.T, s *Server, st *bucket.Store, expiry time.Duration) (*httpfetcher.Fetcher, *remotestorage.Location, []byte) {
	t.Helper()
	m := manager(t, st, bucket.Options{URLExpiry: expiry})
	md, data := Segment("signed", 5, 20_000)
	copySegment(t, m, &md, data)
	l, err := m.GetSignedRemoteLogSegmentLocation(t.Context(), md.RemoteLogSegmentID, md.CustomMetadata)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(time.UnixMilli(l.ExpiryMs)); left > expiry || left < expiry-5*time.Second {
		t.Errorf("signed for %v, ends in %v", expiry, left)
	}
	f, err := httpfetcher.New(httpfetcher.Options{AllowedHosts: []string{s.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, &remotestorage.Location{SignedRemoteLogSegmentLocation: l.URL, SignedLocationExpiryMs: l.ExpiryMs}, content(t, data.Log)
}

func signed(t *testing.T, s *Server, st *bucket.Store) {
	f, l, log := signedURL(t, s, st, time.Minute)
	for _, c := range [][2]int64{{0, 20_000}, {0, 1}, {7777, 12_345}, {19_999, 20_000}, {15_000, 90_000}} {
		r, err := f.FetchLogSegment(t.Context(), l, c[0], c[1])
		if err != nil {
			t.Fatal(err)
		}
		wantBytes(t, fmt.Sprint(c), readAll(t, r), log[c[0]:min(c[1], 20_000)])
	}
	_, err := f.FetchLogSegment(t.Context(), l, 20_000, 20_001)
	wantErr(t, "past the end", err, remotestorage.ErrRange)

	m := manager(t, st, bucket.Options{})
	md, _ := Segment("signed", 5, 0)
	none, err := m.GetSignedRemoteLogSegmentLocation(t.Context(), md.RemoteLogSegmentID, []byte{'R', 1, 0, 0, 0, 0, 0, 0, 0, 5})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.FetchLogSegment(t.Context(), &remotestorage.Location{SignedRemoteLogSegmentLocation: none.URL}, 0, 1)
	wantErr(t, "missing object", err, remotestorage.ErrNotFound)
}

func signedForged(t *testing.T, s *Server, st *bucket.Store) {
	if !s.ChecksSignatures {
		t.Skip("this emulator checks no signatures")
	}
	f, l, _ := signedURL(t, s, st, time.Minute)
	for name, forge := range map[string]func(string) string{
		"other object": func(u string) string { return strings.Replace(u, ".log?", ".index?", 1) },
		"signature": func(u string) string {
			for _, p := range []string{"ignature=", "sig="} {
				if i := strings.LastIndex(u, p); i >= 0 {
					i += len(p) + 5
					for strings.Contains(u[i-2:i+1], "%") {
						i++ // another character of an escape like %2B would be no signature at all, which Azurite answers with an error of its own
					}
					c := byte('A')
					if u[i] == c {
						c = 'B'
					}
					return u[:i] + string(c) + u[i+1:]
				}
			}
			return u
		},
		"no signature": func(u string) string { return u[:strings.Index(u, "?")] },
	} {
		_, err := f.FetchLogSegment(t.Context(), &remotestorage.Location{SignedRemoteLogSegmentLocation: forge(l.SignedRemoteLogSegmentLocation)}, 0, 10)
		if name == "no signature" && errors.Is(err, remotestorage.ErrNotFound) {
			continue // Azure does not tell an anonymous request what is there
		}
		wantErr(t, name, err, remotestorage.ErrDenied)
	}
	if s.Kind == "azblob" {
		return // a SAS is for reading, HEAD included
	}
	resp, err := http.Head(l.SignedRemoteLogSegmentLocation)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("HEAD with a URL signed for GET: %s", resp.Status)
	}
}

func signedExpired(t *testing.T, s *Server, st *bucket.Store) {
	if !s.ChecksSignatures {
		t.Skip("this emulator checks no signatures")
	}
	f, l, _ := signedURL(t, s, st, 2*time.Second)
	deadline := time.Now().Add(30 * time.Second)
	for {
		r, err := f.FetchLogSegment(t.Context(), l, 0, 10)
		if err != nil {
			wantErr(t, "expired", err, remotestorage.ErrDenied)
			return
		}
		readAll(t, r)
		if time.Now().After(deadline) {
			t.Fatal("still open half a minute later")
		}
		time.Sleep(100 * time.Millisecond) // the clock is the store's
	}
}
