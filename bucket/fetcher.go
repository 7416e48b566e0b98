package bucket

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// FetcherOptions say what a Fetcher may open.
type FetcherOptions struct {
	// Stores are those that the client was configured with. A location in none of them is not opened with credentials.
	Stores []*Store
	// Else opens the locations that are in none of Stores, for instance a httpfetcher.Fetcher for signed ones; nil: they are refused.
	Else remotestorage.RemoteStorageFetcher
}

// Fetcher opens unsigned locations with the client's own credentials.
type Fetcher struct {
	o FetcherOptions
}

var _ remotestorage.RemoteStorageFetcher = (*Fetcher)(nil)

// NewFetcher gives a fetcher over stores, which stay the caller's to close.
func NewFetcher(o FetcherOptions) *Fetcher { return &Fetcher{o: o} }

// FetchLogSegment opens [start, end) of the log object that the location names.
func (f *Fetcher) FetchLogSegment(ctx context.Context, l *remotestorage.Location, start, end int64) (io.ReadCloser, error) {
	s, key, err := f.find(l.RemoteLogSegmentLocation)
	if err != nil {
		return nil, err
	}
	if s != nil {
		return s.openRange(ctx, key, start, end)
	}
	if f.o.Else != nil {
		return f.o.Else.FetchLogSegment(ctx, l, start, end)
	}
	return nil, fmt.Errorf("location in none of the configured stores: %w", remotestorage.ErrUntrusted)
}

// find looks for the store that a location is in; a nil store means none.
func (f *Fetcher) find(location string) (*Store, string, error) {
	if location == "" {
		return nil, "", nil
	}
	u, err := url.Parse(location)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, "", fmt.Errorf("location is not a plain URI: %w", remotestorage.ErrUntrusted)
	}
	if path.Clean(u.Path) != u.Path {
		return nil, "", fmt.Errorf("location's path is not plain: %w", remotestorage.ErrUntrusted)
	}
	for _, s := range f.o.Stores {
		base, err := url.Parse(s.URL)
		if err != nil || base.Scheme != u.Scheme || base.Host != u.Host {
			continue
		}
		root := strings.TrimSuffix(base.Path, "/") + "/" + s.Prefix
		if strings.HasPrefix(u.Path, root) {
			return s, strings.TrimPrefix(u.Path, strings.TrimSuffix(base.Path, "/")+"/"), nil
		}
	}
	return nil, "", nil
}
