// Package s3 opens S3 buckets and those of stores that speak like it: s3://bucket?region=eu-west-1. Credentials come from where the AWS SDK looks: the
// environment, the shared files, the instance.
//
// Programs import it together with package bucket. Its goroutines are the SDK's, within a call.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"gocloud.dev/blob/s3blob"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Scheme of this driver's URLs.
const Scheme = "s3"

// Driver opens s3:// URLs. Parameters:
//
//	region, profile      as for the SDK, instead of AWS_REGION and AWS_PROFILE
//	endpoint             address of an S3-compatible store
//	s3ForcePathStyle     bucket name in the path; the default is true at an endpoint that is an IP address or localhost
//	accelerate           S3 Transfer Acceleration
//	checksums            false for stores that do not understand the SDK's checksums
//	ssetype, kmskeyid    server side encryption of what is written: AES256, aws:kms, aws:kms:dsse
func Driver() bucket.Driver { return bucket.Driver{Scheme: Scheme, Open: open} }

type settings struct {
	region, profile        string
	endpoint               *url.URL
	pathStyle, accelerate  bool
	checksums              bool
	sseType, kmsKey, store string
}

func parse(u *url.URL) (settings, error) {
	var s settings
	var err error
	if s.store, err = bucket.BucketName(u); err != nil {
		return s, err
	}
	p := bucket.ParamsOf(u)
	s.region, s.profile = p.String("region"), p.String("profile")
	if s.endpoint, err = bucket.Endpoint(p.String("endpoint")); err != nil {
		return s, err
	}
	s.pathStyle = p.Bool("s3ForcePathStyle", s.endpoint != nil && isAddress(s.endpoint.Hostname()))
	s.accelerate = p.Bool("accelerate", false)
	s.checksums = p.Bool("checksums", true)
	s.sseType, s.kmsKey = p.String("ssetype"), p.String("kmskeyid")
	return s, p.Done()
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

func open(ctx context.Context, u *url.URL) (*bucket.Store, error) {
	s, err := parse(u)
	if err != nil {
		return nil, err
	}
	cfg, err := s.config(ctx)
	if err != nil {
		return nil, err
	}
	conns := &connections{}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		// The last change to the SDK's client: it has its own dialler by now.
		if c, ok := o.HTTPClient.(*awshttp.BuildableClient); ok {
			o.HTTPClient = c.WithTransportOptions(bucket.Tune, conns.track)
		}
		o.UsePathStyle = s.pathStyle
		o.UseAccelerate = s.accelerate
		o.DisableLogOutputChecksumValidationSkipped = true // a range has no checksum: a line on standard error for each would be one too many
		if s.endpoint != nil {
			o.BaseEndpoint = aws.String(s.endpoint.String())
		}
	})
	b, err := s3blob.OpenBucket(ctx, client, s.store, &s3blob.Options{
		EncryptionType:             types.ServerSideEncryption(s.sseType),
		KMSEncryptionID:            s.kmsKey,
		RequestChecksumCalculation: cfg.RequestChecksumCalculation,
	})
	if err != nil {
		return nil, err
	}
	d := &driver{client: client, credentials: cfg.Credentials, name: s.store}
	return &bucket.Store{
		Bucket:      b,
		URL:         Scheme + "://" + s.store,
		Sentinel:    sentinel,
		Sign:        d.sign,
		NewChecksum: newChecksum,
		Sweep:       d.sweep,
		OnClose:     conns.close,
	}, nil
}

func (s settings) config(ctx context.Context) (aws.Config, error) {
	opts := []func(*config.LoadOptions) error{config.WithHTTPClient(awshttp.NewBuildableClient())}
	if s.region != "" {
		opts = append(opts, config.WithRegion(s.region))
	}
	if s.profile != "" {
		opts = append(opts, config.WithSharedConfigProfile(s.profile))
	}
	if !s.checksums {
		opts = append(opts, config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
			config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired))
	}
	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return cfg, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		if s.endpoint == nil {
			return cfg, fmt.Errorf("%w: no region: give ?region= or AWS_REGION", bucket.ErrURL)
		}
		cfg.Region = "us-east-1" // compatible stores want some region in the signature, mostly this one
	}
	return cfg, nil
}

// sentinel looks at the HTTP status and the code: gocloud knows only some of them.
func sentinel(err error) error {
	var api smithy.APIError
	if errors.As(err, &api) {
		switch code := api.ErrorCode(); {
		case code == "NoSuchBucket":
			return remotestorage.ErrNoBucket
		case code == "NoSuchKey", code == "NotFound":
			return remotestorage.ErrNotFound
		case code == "InvalidRange":
			return remotestorage.ErrRange
		case strings.HasPrefix(code, "Expired"), code == "AccessDenied", code == "InvalidAccessKeyId", code == "SignatureDoesNotMatch", code == "InvalidToken":
			return remotestorage.ErrDenied
		}
	}
	var re *awshttp.ResponseError
	if errors.As(err, &re) {
		switch re.HTTPStatusCode() {
		case http.StatusUnauthorized, http.StatusForbidden:
			return remotestorage.ErrDenied
		case http.StatusNotFound:
			return remotestorage.ErrNotFound
		case http.StatusRequestedRangeNotSatisfiable:
			return remotestorage.ErrRange
		}
	}
	return nil
}

type driver struct {
	client      *s3.Client
	credentials aws.CredentialsProvider
	name        string
}

// sign presigns a GET. A URL signed with temporary credentials ends with them.
func (d *driver) sign(ctx context.Context, key string, expiry time.Duration) (string, time.Time, error) {
	until := time.Now().Add(expiry).Truncate(time.Second)
	req, err := s3.NewPresignClient(d.client, s3.WithPresignExpires(expiry)).
		PresignGetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(d.name), Key: aws.String(key)})
	if err != nil {
		return "", time.Time{}, err
	}
	if d.credentials != nil {
		c, err := d.credentials.Retrieve(ctx)
		if err != nil {
			return "", time.Time{}, fmt.Errorf("credentials: %w", err)
		}
		if c.CanExpire && c.Expires.Before(until) {
			until = c.Expires
		}
	}
	return req.URL, until, nil
}

// sweep aborts multipart uploads that were cut off: their parts are stored, and paid for, until somebody does. A store that has no such listing, or does not
// let us see it, is left alone.
func (d *driver) sweep(ctx context.Context, prefix string) error {
	pages := s3.NewListMultipartUploadsPaginator(d.client, &s3.ListMultipartUploadsInput{Bucket: aws.String(d.name), Prefix: aws.String(prefix)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			if cannotList(err) {
				return nil
			}
			return err
		}
		for _, up := range page.Uploads {
			if !strings.HasPrefix(aws.ToString(up.Key), prefix) {
				continue
			}
			_, err := d.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: aws.String(d.name), Key: up.Key, UploadId: up.UploadId})
			if err != nil && !errors.Is(sentinel(err), remotestorage.ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

func cannotList(err error) bool {
	var re *awshttp.ResponseError
	if !errors.As(err, &re) {
		return false
	}
	switch re.HTTPStatusCode() {
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}
