package azure

import (
	"crypto/md5"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"gocloud.dev/blob"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func environment(t *testing.T, set map[string]string) {
	for _, name := range []string{"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING",
		"AZURE_STORAGEBLOB_CONNECTIONSTRING", "AZURE_STORAGE_DOMAIN", "AZURE_STORAGE_PROTOCOL", "AZURE_STORAGE_IS_CDN", "AZURE_STORAGE_IS_LOCAL_EMULATOR"} {
		t.Setenv(name, set[name])
	}
}

func TestSigning(t *testing.T) {
	for _, c := range []struct {
		env       map[string]string
		url, want string
		err       error
	}{
		{map[string]string{"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": "a2V5"}, "azblob://c", "https://acc.blob.core.windows.net/c/dir%2Fk?", nil},
		{map[string]string{"AZURE_STORAGE_KEY": "a2V5"}, "azblob://c?storage_account=acc&domain=127.0.0.1:1&protocol=http&localemu=true", "http://127.0.0.1:1/acc/c/dir%2Fk?", nil},
		{map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5;EndpointSuffix=core.windows.net"}, "azblob://c",
			"https://acc.blob.core.windows.net/c/dir%2Fk?", nil},
		{map[string]string{"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=secret"}, "azblob://c", "", remotestorage.ErrNotSigned},
	} {
		environment(t, c.env)
		s, err := bucket.Open(t.Context(), c.url, Driver())
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		signed, until, err := s.Sign(t.Context(), "dir/k", time.Minute)
		if !errors.Is(err, c.err) || !strings.HasPrefix(signed, c.want) {
			t.Errorf("%s: signed as %s, %v", c.url, signed, err)
		}
		if c.err == nil && (!strings.Contains(signed, "sp=r&") || strings.Contains(signed, "st=") || time.Until(until) > time.Minute) {
			t.Errorf("%s: signed as %s until %v", c.url, signed, until)
		}
		if s.URL != "azblob://c" {
			t.Errorf("URL %s", s.URL)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBadURLs(t *testing.T) {
	environment(t, nil)
	for _, raw := range []string{"azblob://c", "azblob://", "azblob://c/x?storage_account=a", "azblob://c?storage_account=a&key=x", "azblob://c?storage_account=a&localemu=maybe"} {
		if _, err := bucket.Open(t.Context(), raw, Driver()); !errors.Is(err, bucket.ErrURL) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	environment(t, map[string]string{"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=secret"})
	if _, err := bucket.Open(t.Context(), "azblob://c?domain=evil.example", Driver()); !errors.Is(err, bucket.ErrURL) {
		t.Errorf("a URL that would send the token elsewhere: %v", err)
	}
	environment(t, map[string]string{"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_KEY": "not base64: secret"})
	if _, err := bucket.Open(t.Context(), "azblob://c", Driver()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a bad key: %v", err)
	}
}

func TestSentinels(t *testing.T) {
	for status, want := range map[int]error{401: remotestorage.ErrDenied, 403: remotestorage.ErrDenied, 404: remotestorage.ErrNotFound, 416: remotestorage.ErrRange, 409: nil, 500: nil, 503: nil} {
		err := fmt.Errorf("wrapped: %w", &azcore.ResponseError{StatusCode: status, ErrorCode: "AuthorizationFailure"})
		if got := sentinel(err); !errors.Is(got, want) || want == nil && got != nil {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
	if got := sentinel(&azcore.ResponseError{StatusCode: 404, ErrorCode: "ContainerNotFound"}); got != remotestorage.ErrNoBucket {
		t.Errorf("no container: %v", got)
	}
	if got := sentinel(errors.New("reset")); got != nil {
		t.Errorf("reset: %v", got)
	}
}

func TestChecksum(t *testing.T) {
	c := &checksum{Hash: md5.New()}
	_, _ = c.Write([]byte("0123456789"))
	sum := md5.Sum([]byte("0123456789"))
	for _, a := range []*blob.Attributes{{}, {MD5: sum[:]}} {
		if err := c.Check(a); err != nil {
			t.Error(err)
		}
	}
	sum[0]++
	if err := c.Check(&blob.Attributes{MD5: sum[:]}); err == nil {
		t.Error("another MD5 passed")
	}
}
