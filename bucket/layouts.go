package bucket

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"gocloud.dev/blob"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// What follows is for packages that read another layout out of a Store (bucket/aiven). They name objects by their whole key, prefix included.

// Ping tells whether the bucket is there and answers.
func (s *Store) Ping(ctx context.Context) error {
	ok, err := s.Bucket.IsAccessible(ctx)
	if err != nil {
		return s.wrap("reaching", "", err)
	}
	if !ok {
		return fmt.Errorf("reaching %s: %w", s.URL, remotestorage.ErrNoBucket)
	}
	return nil
}

// OpenRange opens the bytes [start, end) of an object, and tells the whole object's size. A shorter object gives what is there; ErrRange if that is nothing. A
// body that is cut off ends in io.ErrUnexpectedEOF.
func (s *Store) OpenRange(ctx context.Context, key string, start, end int64) (body io.ReadCloser, size int64, err error) {
	if start < 0 || end <= start {
		return nil, 0, fmt.Errorf("reading %s: bytes %d to %d: %w", s.place(key), start, end, remotestorage.ErrRange)
	}
	return s.openSized(ctx, key, start, end)
}

// Place is the object's URI, which names it in errors and locations.
func (s *Store) Place(key string) string { return s.place(key) }

// SignKey makes a URL that opens an object without credentials; ErrNotSigned where the store cannot.
func (s *Store) SignKey(ctx context.Context, key string, expiry time.Duration) (remotestorage.SignedLocation, error) {
	if s.Sign == nil {
		return remotestorage.SignedLocation{}, fmt.Errorf("%s: %w", s.URL, remotestorage.ErrNotSigned)
	}
	signed, until, err := s.Sign(ctx, key, expiry)
	if err != nil {
		return remotestorage.SignedLocation{}, s.wrap("signing", key, err)
	}
	return remotestorage.SignedLocation{URL: signed, ExpiryMs: until.UnixMilli()}, nil
}

// Keys goes through the keys that begin with prefix, in their order.
func (s *Store) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		list := s.Bucket.List(&blob.ListOptions{Prefix: prefix})
		for {
			o, err := list.Next(ctx)
			if err == io.EOF { // an error that wraps it is none of the list's end
				return
			}
			if err != nil {
				yield("", s.wrap("listing", prefix, err))
				return
			}
			if !yield(o.Key, nil) {
				return
			}
		}
	}
}
