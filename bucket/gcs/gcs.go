// Package gcs opens buckets of Google Cloud Storage: gs://bucket. Credentials are Application Default Credentials, as everywhere in Google's SDK; signing works
// with a service account's key, or through IAM where the account may sign.
//
// Programs import it together with package bucket. Its goroutines are the SDK's.
package gcs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"net/http"
	"net/url"
	"os"
	"time"

	"cloud.google.com/go/storage"
	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Scheme of this driver's URLs.
const Scheme = "gs"

// Driver opens gs:// URLs. Parameters:
//
//	endpoint                      address of an emulator; STORAGE_EMULATOR_HOST (host:port) does the same for the whole process
//	anonymous                     no credentials
//	access_id, private_key_path   sign with this account and its key (PEM), whatever the credentials are
func Driver() bucket.Driver { return bucket.Driver{Scheme: Scheme, Open: open} }

type settings struct {
	store, accessID string
	key             []byte
	endpoint        *url.URL
	anonymous       bool
}

func parse(u *url.URL) (settings, error) {
	var s settings
	var err error
	if s.store, err = bucket.BucketName(u); err != nil {
		return s, err
	}
	p := bucket.ParamsOf(u)
	if s.endpoint, err = bucket.Endpoint(p.String("endpoint")); err != nil {
		return s, err
	}
	s.anonymous = p.Bool("anonymous", s.endpoint != nil)
	s.accessID = p.String("access_id")
	keyPath := p.String("private_key_path")
	if err := p.Done(); err != nil {
		return s, err
	}
	if (s.accessID == "") != (keyPath == "") {
		return s, fmt.Errorf("%w: access_id and private_key_path go together", bucket.ErrURL)
	}
	if keyPath != "" {
		if s.key, err = os.ReadFile(keyPath); err != nil {
			return s, fmt.Errorf("private key: %w", err)
		}
	}
	return s, nil
}

func open(ctx context.Context, u *url.URL) (*bucket.Store, error) {
	s, err := parse(u)
	if err != nil {
		return nil, err
	}
	var opts []option.ClientOption
	if s.anonymous {
		opts = append(opts, option.WithoutAuthentication())
	}
	if s.endpoint != nil {
		opts = append(opts, option.WithEndpoint(s.endpoint.String()+"/storage/v1/"))
	}
	client, err := storage.NewClient(ctx, opts...)
	if err != nil {
		return nil, err
	}
	b, err := gcsblob.OpenBucket(ctx, nil, s.store, &gcsblob.Options{Client: client})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	d := &driver{s: s, bucket: client.Bucket(s.store)}
	return &bucket.Store{
		Bucket:      b,
		URL:         Scheme + "://" + s.store,
		Sentinel:    sentinel,
		Sign:        d.sign,
		OnClose:     client.Close, // which does not reach the transport's idle connections: they end after 90 s
		NewChecksum: func(int64) bucket.Checksum { return &checksum{Hash32: crc32.New(crc32.MakeTable(crc32.Castagnoli))} },
	}, nil
}

func sentinel(err error) error {
	if errors.Is(err, storage.ErrBucketNotExist) {
		return remotestorage.ErrNoBucket
	}
	if errors.Is(err, storage.ErrObjectNotExist) {
		return remotestorage.ErrNotFound
	}
	var ge *googleapi.Error
	if !errors.As(err, &ge) {
		return nil
	}
	switch ge.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return remotestorage.ErrDenied
	case http.StatusNotFound:
		return remotestorage.ErrNotFound
	case http.StatusRequestedRangeNotSatisfiable:
		return remotestorage.ErrRange
	}
	return nil
}

type driver struct {
	s      settings
	bucket *storage.BucketHandle
}

// sign makes a V4 URL. gocloud's would be V2, which Google advises against, and https at an emulator.
func (d *driver) sign(_ context.Context, key string, expiry time.Duration) (string, time.Time, error) {
	until := time.Now().Add(expiry).Truncate(time.Second)
	o := &storage.SignedURLOptions{
		Method:         http.MethodGet,
		Expires:        until,
		Scheme:         storage.SigningSchemeV4,
		GoogleAccessID: d.s.accessID,
		PrivateKey:     d.s.key,
	}
	if d.s.endpoint != nil {
		o.Hostname = d.s.endpoint.Host
		o.Insecure = d.s.endpoint.Scheme == "http"
	} else if os.Getenv("STORAGE_EMULATOR_HOST") != "" {
		o.Insecure = true
	}
	signed, err := d.bucket.SignedURL(key, o)
	if err != nil {
		if d.s.accessID == "" {
			return "", time.Time{}, fmt.Errorf("%w: %w", remotestorage.ErrNotSigned, err)
		}
		return "", time.Time{}, err
	}
	return signed, until, nil
}

// checksum is CRC-32C, which Cloud Storage keeps for every object.
type checksum struct{ hash.Hash32 }

func (c *checksum) Check(a *blob.Attributes) error {
	var o storage.ObjectAttrs
	if !a.As(&o) {
		return nil
	}
	if want := c.Sum32(); o.CRC32C != want {
		return fmt.Errorf("CRC-32C %x, sent %x", binary.BigEndian.AppendUint32(nil, o.CRC32C), binary.BigEndian.AppendUint32(nil, want))
	}
	return nil
}
