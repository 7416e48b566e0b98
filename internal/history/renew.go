package history

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// renewalFloor is the least time between two renewals of one location, however near its end is.
	renewalFloor = 5 * time.Second
	// maxRenewalMargin: a signature is renewed when a fifth of its life is left, or this.
	maxRenewalMargin = time.Minute
)

// locatedSource reads a segment by its location and renews the signature before it ends.
type locatedSource struct {
	q      *locator
	open   remotestorage.RemoteStorageFetcher
	offset int64 // one in the segment, to ask by

	mu       sync.Mutex
	location *remotestorage.Location
	received time.Time
	renewed  time.Time // last try
}

func (s *locatedSource) set(l *remotestorage.Location) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.location, s.received, s.renewed = l, time.Now(), time.Now()
}

// ReadRange opens a range. A signature near its end is renewed first; if that fails the old one is tried.
func (s *locatedSource) ReadRange(ctx context.Context, start, end int64) (io.ReadCloser, error) {
	if old := s.due(time.Now()); old != nil {
		s.renew(ctx, old)
	}
	s.mu.Lock()
	l := s.location
	s.mu.Unlock()
	rc, err := s.open.FetchLogSegment(ctx, l, start, end)
	if err != nil {
		return nil, unsigned{err, l.SignedRemoteLogSegmentLocation}
	}
	return rc, nil
}

// unsigned keeps a signed URL that a fetcher of the user's has put into its error out of the text.
type unsigned struct {
	error
	secret string
}

func (e unsigned) Unwrap() error { return e.error }

func (e unsigned) Error() string {
	if e.secret == "" {
		return e.error.Error()
	}
	return strings.ReplaceAll(e.error.Error(), e.secret, "(signed location)")
}

// due returns the location if it is to be renewed now, by this caller: others go on with it meanwhile.
func (s *locatedSource) due(now time.Time) *remotestorage.Location {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.location
	if l.SignedRemoteLogSegmentLocation == "" || l.SignedLocationExpiryMs < 0 {
		return nil
	}
	expiry := time.UnixMilli(l.SignedLocationExpiryMs)
	margin := min(expiry.Sub(s.received)/5, maxRenewalMargin)
	if now.Before(expiry.Add(-margin)) || now.Sub(s.renewed) < renewalFloor {
		return nil
	}
	s.renewed = now
	return l
}

func (s *locatedSource) renew(ctx context.Context, old *remotestorage.Location) {
	l, _, err := s.q.ask(ctx, s.askBy(old), LocationRenewed)
	if err != nil || l.RemoteLogSegmentID != old.RemoteLogSegmentID {
		// The old signature may hold a while yet. Once the store refuses it the reader asks again, and acts on the answer.
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.location, s.received = l, time.Now()
}

// askBy is an offset of the segment: the client's, if it has got there, for the log start may have passed the one that was asked by first.
func (s *locatedSource) askBy(l *remotestorage.Location) int64 {
	p := s.q.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.want.FetchOffset; at > s.offset && at <= l.LastOffset {
		return at
	}
	return s.offset
}
