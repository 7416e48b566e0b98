package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"gocloud.dev/blob"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func environment(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
}

func TestURLs(t *testing.T) {
	environment(t)
	for raw, want := range map[string]string{
		"s3://bkt?region=eu-west-1":                                                          "https://bkt.s3.eu-west-1.amazonaws.com/k?",
		"s3://bkt.with.dots?region=eu-west-1":                                                "https://s3.eu-west-1.amazonaws.com/bkt.with.dots/k?",
		"s3://bkt?region=eu-west-1&accelerate=true":                                          "https://bkt.s3-accelerate.amazonaws.com/k?",
		"s3://bkt?endpoint=http://127.0.0.1:9000":                                            "http://127.0.0.1:9000/bkt/k?",
		"s3://bkt?endpoint=https://minio.example":                                            "https://bkt.minio.example/k?",
		"s3://bkt?endpoint=https://minio.example&s3ForcePathStyle=true":                      "https://minio.example/bkt/k?",
		"s3://bkt?endpoint=http://127.0.0.1:9000&s3ForcePathStyle=true&region=x&prefix=some": "http://127.0.0.1:9000/bkt/k?",
		"s3://bkt?region=r&checksums=false&ssetype=AES256":                                   "https://bkt.s3.r.amazonaws.com/k?",
	} {
		s, err := bucket.Open(t.Context(), raw, Driver())
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		signed, until, err := s.Sign(t.Context(), "k", time.Minute)
		if err != nil || !strings.HasPrefix(signed, want) {
			t.Errorf("%s: signed as %s, %v", raw, signed, err)
		}
		if left := time.Until(until); left > time.Minute || left < 55*time.Second {
			t.Errorf("%s: ends in %v", raw, left)
		}
		if !strings.HasPrefix(s.URL, "s3://bkt") || strings.Contains(s.URL, "?") {
			t.Errorf("%s: URL %s", raw, s.URL)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, raw := range []string{"s3://b", "s3://", "s3:///b", "s3://b/folder", "s3://b:80", "s3://bkt?region=r&regoin=x", "s3://bkt?endpoint=minio:9000", "s3://bkt?endpoint=ftp://x",
		"s3://bkt?endpoint=http://u:p@x", "s3://bkt?region=r&s3ForcePathStyle=maybe"} {
		if _, err := bucket.Open(t.Context(), raw, Driver()); !errors.Is(err, bucket.ErrURL) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestSignatureEndsWithTheCredentials: a location is not promised for longer than temporary credentials live.
func TestSignatureEndsWithTheCredentials(t *testing.T) {
	expires := time.Now().Add(90 * time.Second)
	provider := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "key", SessionToken: "token", CanExpire: true, Expires: expires}, nil
	})
	d := &driver{client: s3.New(s3.Options{Region: "r", Credentials: provider}), credentials: provider, name: "b"}
	if _, until, err := d.sign(t.Context(), "k", 10*time.Minute); err != nil || !until.Equal(expires) {
		t.Errorf("until %v, %v, want %v", until, err, expires)
	}
	if _, until, err := d.sign(t.Context(), "k", time.Minute); err != nil || !until.Before(expires) {
		t.Errorf("until %v, %v", until, err)
	}
}

func httpError(status int) error {
	return &awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: errors.New("x")}}
}

func TestSentinels(t *testing.T) {
	code := func(c string) error { return &smithy.GenericAPIError{Code: c} }
	for _, c := range []struct {
		err, want error
	}{
		{httpError(401), remotestorage.ErrDenied}, {httpError(403), remotestorage.ErrDenied}, {httpError(404), remotestorage.ErrNotFound}, {httpError(416), remotestorage.ErrRange},
		{httpError(500), nil}, {httpError(503), nil}, {errors.New("reset"), nil},
		{code("NoSuchKey"), remotestorage.ErrNotFound}, {code("NoSuchBucket"), remotestorage.ErrNoBucket}, {code("InvalidRange"), remotestorage.ErrRange},
		{code("AccessDenied"), remotestorage.ErrDenied}, {code("ExpiredToken"), remotestorage.ErrDenied}, {code("SignatureDoesNotMatch"), remotestorage.ErrDenied},
		{code("SlowDown"), nil}, {code("InternalError"), nil},
	} {
		if got := sentinel(fmt.Errorf("wrapped: %w", c.err)); !errors.Is(got, c.want) || c.want == nil && got != nil {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestChecksum(t *testing.T) {
	b := bytes.Repeat([]byte("0123456789"), 100)
	for _, c := range []struct {
		name, etag string
		n          int
		ok         bool
	}{
		// Computed by another implementation of MD5, from the whole and from the sums of the parts.
		{"whole", `"427008b3fe192f663d665f56cd75716c"`, 1000, true},
		{"whole, cut", `"427008b3fe192f663d665f56cd75716c"`, 999, false},
		{"parts", `"258108a5174f1ab3c3273477da43ffd2-4"`, 1000, true},
		{"parts, cut", `"258108a5174f1ab3c3273477da43ffd2-4"`, 999, false},
		{"parts of another size", `"427008b3fe192f663d665f56cd75716c-7"`, 1000, true},
		{"empty", `"d41d8cd98f00b204e9800998ecf8427e"`, 0, true},
		{"no MD5", `"abc"`, 1000, true},
		{"none", "", 1000, true},
	} {
		sum := newChecksum(300)
		_, _ = sum.Write(b[:c.n])
		if err := sum.Check(&blob.Attributes{ETag: c.etag}); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// However the bytes come, they make the same sums.
	one, many := newChecksum(300).(*checksum), newChecksum(300).(*checksum)
	_, _ = one.Write(b)
	for i := range b {
		_, _ = many.Write(b[i : i+1])
	}
	if !bytes.Equal(one.partSums, many.partSums) || one.partCount != 3 || many.partCount != 3 || one.inPart != 100 {
		t.Errorf("%d and %d parts", one.partCount, many.partCount)
	}
}

func TestCannotList(t *testing.T) {
	for status, want := range map[int]bool{403: true, 405: true, 501: true, 404: false, 500: false, 503: false} {
		if cannotList(httpError(status)) != want {
			t.Errorf("%d: %v", status, !want)
		}
	}
	if cannotList(&url.Error{Op: "Get", Err: errors.New("refused")}) {
		t.Error("a network error was taken for a store that cannot list")
	}
}
