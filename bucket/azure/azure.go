// Package azure opens containers of Azure Blob Storage: azblob://container. Credentials come from the environment: AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY
// or AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_CONNECTION_STRING, else what Azure's SDK finds (azidentity). Locations are signed (SAS) with the account's key; without
// one they are not.
//
// Programs import it together with package bucket. Its goroutines are the SDK's, within a call.
package azure

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Scheme of this driver's URLs.
const Scheme = "azblob"

// Driver opens azblob:// URLs. Parameters: storage_account, domain, protocol and localemu, instead of AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_DOMAIN,
// AZURE_STORAGE_PROTOCOL and AZURE_STORAGE_IS_LOCAL_EMULATOR.
func Driver() bucket.Driver { return bucket.Driver{Scheme: Scheme, Open: open} }

func open(ctx context.Context, u *url.URL) (*bucket.Store, error) {
	name, err := bucket.BucketName(u)
	if err != nil {
		return nil, err
	}
	o := azureblob.NewDefaultServiceURLOptions()
	if err := override(o, bucket.ParamsOf(u)); err != nil {
		return nil, err
	}
	transport := bucket.Transport()
	client, err := newClient(o, name, transport)
	if err != nil {
		return nil, err
	}
	b, err := azureblob.OpenBucket(ctx, client, nil)
	if err != nil {
		return nil, err
	}
	return &bucket.Store{
		Bucket:   b,
		URL:      Scheme + "://" + name,
		Sentinel: sentinel,
		Sign: func(_ context.Context, key string, expiry time.Duration) (string, time.Time, error) {
			return sign(client, key, expiry)
		},
		NewChecksum: func(int64) bucket.Checksum { return &checksum{Hash: md5.New()} },
		OnClose: func() error {
			transport.CloseIdleConnections()
			return nil
		},
	}, nil
}

func override(o *azureblob.ServiceURLOptions, p *bucket.Params) error {
	for _, v := range []struct {
		to   *string
		name string
	}{{&o.AccountName, "storage_account"}, {&o.StorageDomain, "domain"}, {&o.Protocol, "protocol"}} {
		if s := p.String(v.name); s != "" {
			if o.SASToken != "" {
				return fmt.Errorf("%w: parameter %s beside AZURE_STORAGE_SAS_TOKEN would send the token elsewhere", bucket.ErrURL, v.name)
			}
			*v.to = s
		}
	}
	o.IsLocalEmulator = p.Bool("localemu", o.IsLocalEmulator)
	if err := p.Done(); err != nil {
		return err
	}
	if o.AccountName == "" {
		return fmt.Errorf("%w: no storage account: give ?storage_account= or AZURE_STORAGE_ACCOUNT", bucket.ErrURL)
	}
	return nil
}

// newClient looks for credentials in gocloud's order, with a transport for many ranges at once.
func newClient(o *azureblob.ServiceURLOptions, name string, transport *http.Transport) (*container.Client, error) {
	service, err := azureblob.NewServiceURL(o)
	if err != nil {
		return nil, err
	}
	at, err := url.JoinPath(string(service), name)
	if err != nil {
		return nil, err
	}
	opts := &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: transport}}}
	connection := os.Getenv("AZURE_STORAGE_CONNECTION_STRING")
	if connection == "" {
		connection = os.Getenv("AZURE_STORAGEBLOB_CONNECTIONSTRING")
	}
	switch key := os.Getenv("AZURE_STORAGE_KEY"); {
	case key != "":
		cred, err := azblob.NewSharedKeyCredential(o.AccountName, key)
		if err != nil {
			return nil, errors.New("AZURE_STORAGE_KEY is not base64") // the SDK's error repeats a part of it
		}
		return container.NewClientWithSharedKeyCredential(at, cred, opts)
	case o.SASToken != "":
		return container.NewClientWithNoCredential(at, opts)
	case connection != "":
		return container.NewClientFromConnectionString(connection, name, opts)
	}
	cred, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return container.NewClient(at, cred, opts)
}

// sentinel: Azure says AuthenticationFailed, AuthorizationFailure and more of that kind, always as 401 or 403.
func sentinel(err error) error {
	var re *azcore.ResponseError
	if !errors.As(err, &re) {
		return nil
	}
	if re.ErrorCode == string(bloberror.ContainerNotFound) {
		return remotestorage.ErrNoBucket
	}
	switch re.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return remotestorage.ErrDenied
	case http.StatusNotFound:
		return remotestorage.ErrNotFound
	case http.StatusRequestedRangeNotSatisfiable:
		return remotestorage.ErrRange
	}
	return nil
}

// sign makes a SAS. It begins to hold at once: with a start time, as gocloud gives it, a store whose clock is a little behind refuses it.
func sign(client *container.Client, key string, expiry time.Duration) (string, time.Time, error) {
	until := time.Now().Add(expiry).Truncate(time.Second)
	signed, err := client.NewBlobClient(key).GetSASURL(sas.BlobPermissions{Read: true}, until, nil)
	if errors.Is(err, bloberror.MissingSharedKeyCredential) {
		return "", time.Time{}, fmt.Errorf("%w: the credentials are not the account's key", remotestorage.ErrNotSigned)
	}
	if err != nil {
		return "", time.Time{}, err
	}
	return signed, until, nil
}

// checksum is MD5, which Azure keeps for a blob that was put at once.
type checksum struct{ hash.Hash }

func (c *checksum) Check(a *blob.Attributes) error {
	if want := c.Sum(nil); len(a.MD5) > 0 && !bytes.Equal(a.MD5, want) {
		return fmt.Errorf("MD5 %x, sent %x", a.MD5, want)
	}
	return nil
}
