// Package bucket keeps remote log segments in an object store: a RemoteStorageManager over gocloud.dev/blob for servers, and a RemoteStorageFetcher
// for clients that have credentials of their own. Commands and programs import it together with the drivers they want (bucket/s3, bucket/gcs,
// bucket/azure, bucket/file); another layout's manager (bucket/aiven) builds on its Store. It starts no goroutines of its own.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Store is an opened bucket and what is known of its kind. Drivers fill it in.
type Store struct {
	Bucket *blob.Bucket
	// URL is the bucket without parameters: s3://name, gs://name, azblob://container, file:///dir. Locations begin with it, so it holds no secrets.
	URL string
	// Prefix is put before every object name as it is; empty, or ending in a slash.
	Prefix string
	// Sentinel gives the error of remotestorage that an SDK's error stands for, nil if it stands for none.
	Sentinel func(error) error
	// Sign makes a URL that opens key with GET. It returns the moment until which the URL really holds, which may be sooner than asked.
	Sign func(ctx context.Context, key string, expiry time.Duration) (signed string, until time.Time, err error)
	// NewChecksum follows one upload in parts of partSize; nil where the store tells nothing to compare with.
	NewChecksum func(partSize int64) Checksum
	// Sweep removes what interrupted uploads of keys that begin with prefix left and a listing does not show; nil where nothing can be left.
	Sweep func(ctx context.Context, prefix string) error
	// OnClose ends what the driver opened besides Bucket, such as idle connections; nil: nothing.
	OnClose func() error
}

// Checksum is fed an upload's bytes and then judges what the store says of the object.
type Checksum interface {
	io.Writer
	Check(*blob.Attributes) error
}

// Close closes the bucket and its idle connections.
func (s *Store) Close() error {
	err := s.Bucket.Close()
	if s.OnClose != nil {
		err = errors.Join(err, s.OnClose())
	}
	return err
}

// key is the object's whole name in the bucket.
func (s *Store) key(name string) string { return s.Prefix + name }

// place names an object in errors and locations.
func (s *Store) place(key string) string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return s.URL + "/" + key
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + key
	return u.String()
}

// Driver opens the URLs of one scheme. The package keeps no list of drivers: a program hands in those that it links.
type Driver struct {
	Scheme string
	// Open opens u, whose prefix parameter has been taken out. A parameter that it does not know is an error.
	Open func(ctx context.Context, u *url.URL) (*Store, error)
}

var (
	// ErrURL: a store's URL that cannot be understood; the text says what is wrong with it.
	ErrURL = errors.New("bad store URL")
	// ErrPrefix: a prefix that could leave its place.
	errPrefix = errors.New("a prefix has no leading slash, no empty part, no . and no ..")
)

// Open opens a store by its URL with one of drivers. Every scheme takes ?prefix=a/b, a folder within the bucket. Credentials never stand in the URL: each
// driver looks where its SDK usually looks.
func Open(ctx context.Context, rawURL string, drivers ...Driver) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		var ue *url.Error // its text repeats the URL, which may hold what somebody took for a place for secrets
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	if u.User != nil {
		return nil, fmt.Errorf("%w: %s://%s: credentials do not belong in the URL", ErrURL, u.Scheme, u.Host)
	}
	i := slices.IndexFunc(drivers, func(d Driver) bool { return d.Scheme == u.Scheme })
	if i < 0 {
		return nil, fmt.Errorf("%w: scheme %q: want one of %s", ErrURL, u.Scheme, schemes(drivers))
	}
	prefix, err := takePrefix(u)
	if err != nil {
		return nil, err
	}
	s, err := drivers[i].Open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("opening %s://%s%s: %w", u.Scheme, u.Host, u.Path, err)
	}
	s.Prefix = prefix
	return s, nil
}

func schemes(drivers []Driver) string {
	names := make([]string, len(drivers))
	for i, d := range drivers {
		names[i] = d.Scheme + "://"
	}
	return strings.Join(names, ", ")
}

// takePrefix takes the parameter prefix out of u.
func takePrefix(u *url.URL) (string, error) {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", fmt.Errorf("%w: parameters: %w", ErrURL, err)
	}
	prefix := strings.TrimSuffix(q.Get("prefix"), "/")
	q.Del("prefix")
	u.RawQuery = q.Encode()
	if prefix == "" {
		return "", nil
	}
	for part := range strings.SplitSeq(prefix, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\\\x00") {
			return "", fmt.Errorf("%w: prefix %q: %w", ErrURL, prefix, errPrefix)
		}
	}
	return prefix + "/", nil
}

// wrap adds the place to an error and makes it match the sentinel that it stands for. What the SDKs put into their texts may be a whole request URL: its
// query, where signatures are, is cut off. io.EOF itself is an end and no error; what only wraps it, a connection that was closed in place of an answer, is one.
func (s *Store) wrap(verb, key string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	e := &storeError{text: verb + " " + s.place(key) + ": " + withoutQueries(err.Error()), err: err}
	if s.Sentinel != nil {
		e.sentinel = s.Sentinel(err)
	}
	if e.sentinel == nil {
		e.sentinel = sentinelOf(err)
	}
	if errors.Is(e.sentinel, remotestorage.ErrNoBucket) {
		e.text = verb + " " + s.place(key) + ": " + remotestorage.ErrNoBucket.Error() + ": " + withoutQueries(err.Error())
	}
	return e
}

// sentinelOf trusts gocloud where its code is right whatever the driver.
func sentinelOf(err error) error {
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		return remotestorage.ErrNotFound
	case gcerrors.PermissionDenied:
		return remotestorage.ErrDenied
	}
	return nil
}

type storeError struct {
	text          string
	err, sentinel error
}

func (e *storeError) Error() string { return e.text }

func (e *storeError) Unwrap() []error {
	if e.sentinel == nil {
		return []error{e.err}
	}
	return []error{e.err, e.sentinel}
}

// withoutQueries cuts the query off every URL in a text.
func withoutQueries(text string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, "://")
		if i < 0 {
			return b.String() + text
		}
		end := i + strings.IndexAny(text[i:]+" ", " \t\r\n\"'<>`")
		if q := strings.IndexByte(text[i:end], '?'); q >= 0 {
			b.WriteString(text[:i+q] + "?...")
		} else {
			b.WriteString(text[:end])
		}
		text = text[end:]
	}
}
