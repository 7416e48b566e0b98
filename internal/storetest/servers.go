package storetest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"google.golang.org/api/option"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/azure"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/bucket/gcs"
	bs3 "github.com/rewind-kafka/rewind/bucket/s3"
	"github.com/rewind-kafka/rewind/internal/fileserver"
)

// Server is a store that runs.
type Server struct {
	Kind string // s3, azblob, gs, file
	// Addr is host:port; for file that of its HTTP front.
	Addr string
	// Dir is the directory of a file store.
	Dir string
	// ChecksSignatures is false for an emulator that serves whatever URL it is given.
	ChecksSignatures bool

	driver bucket.Driver
	url    func(addr, name string) string
	create func(t testing.TB, name string)
}

// Names of the S3 server's only user.
const (
	AccessKey = "rewind-test"
	SecretKey = "rewind-test-secret"
)

// Drivers of all stores.
func Drivers() []bucket.Driver {
	return []bucket.Driver{bs3.Driver(), gcs.Driver(), azure.Driver(), file.Driver(file.Options{})}
}

// URL makes a bucket of that name and gives the store's URL for --store.
func (s *Server) URL(t testing.TB, name string) string {
	t.Helper()
	s.create(t, name)
	return s.url(s.Addr, name)
}

// URLVia is URL with another address in it, that of a proxy before the server. The bucket must be there.
func (s *Server) URLVia(addr, name string) string { return s.url(addr, name) }

// Open makes a bucket of that name and opens it until the test ends.
func (s *Server) Open(t testing.TB, name string) *bucket.Store {
	t.Helper()
	return s.OpenURL(t, s.URL(t, name))
}

// OpenURL opens a URL of this server, with parameters added as the test likes.
func (s *Server) OpenURL(t testing.TB, rawURL string) *bucket.Store {
	t.Helper()
	st, err := bucket.Open(context.Background(), rawURL, s.driver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// S3 starts a real S3 server. It sets the environment that the AWS SDK reads, so the test cannot be parallel to others.
func S3(t testing.TB) *Server {
	t.Helper()
	bin, dir := Peer(t, "bin", "versitygw"), t.TempDir()
	addr := start(t, "versitygw", func(port int) *exec.Cmd {
		c := exec.Command(bin, "-addr", "127.0.0.1:"+strconv.Itoa(port), "-dir", dir)
		c.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
		return c
	})
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": SecretKey, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "us-east-1",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		setenv(t, name, value)
	}
	client := S3Client(addr)
	return &Server{
		Kind: "s3", Addr: addr, ChecksSignatures: true, driver: bs3.Driver(),
		url: func(addr, name string) string {
			return "s3://" + name + "?region=us-east-1&s3ForcePathStyle=true&endpoint=" + url.QueryEscape("http://"+addr)
		},
		create: func(t testing.TB, name string) {
			t.Helper()
			if _, err := client.CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: aws.String(name)}); err != nil {
				t.Fatalf("making bucket %s: %v", name, err)
			}
		},
	}
}

// S3Client is the SDK's client for a server that S3 started.
func S3Client(addr string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String("http://" + addr), Region: "us-east-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
	})
}

func setenv(t testing.TB, name, value string) {
	if value != "" {
		t.Setenv(name, value)
		return
	}
	t.Setenv(name, "") // remembers what was there
	os.Unsetenv(name)
}

// Azurite's account, made up for each process.
const azureAccount = "rewindtest"

// Azure starts Azurite. It sets the environment that the Azure driver reads.
func Azure(t testing.TB) *Server {
	t.Helper()
	main := Peer(t, "azurite", "node_modules", "azurite", "dist", "src", "blob", "main.js")
	key := "cmV3aW5kLXRlc3Qta2V5LXRoYXQtaXMtb25seS1mb3ItdGVzdHM="
	dir := t.TempDir()
	addr := start(t, "azurite", func(port int) *exec.Cmd {
		c := exec.Command("node", main, "--blobHost", "127.0.0.1", "--blobPort", strconv.Itoa(port), "--location", dir,
			"--silent", "--disableTelemetry", "--skipApiVersionCheck")
		c.Env = append(os.Environ(), "AZURITE_ACCOUNTS="+azureAccount+":"+key)
		return c
	})
	for name, value := range map[string]string{
		"AZURE_STORAGE_ACCOUNT": azureAccount, "AZURE_STORAGE_KEY": key, "AZURE_STORAGE_SAS_TOKEN": "", "AZURE_STORAGE_CONNECTION_STRING": "",
		"AZURE_STORAGEBLOB_CONNECTIONSTRING": "", "AZURE_STORAGE_DOMAIN": "", "AZURE_STORAGE_PROTOCOL": "", "AZURE_STORAGE_IS_CDN": "", "AZURE_STORAGE_IS_LOCAL_EMULATOR": "",
	} {
		setenv(t, name, value)
	}
	cred, err := azblob.NewSharedKeyCredential(azureAccount, key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := azblob.NewClientWithSharedKeyCredential("http://"+addr+"/"+azureAccount, cred, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Server{
		Kind: "azblob", Addr: addr, ChecksSignatures: true, driver: azure.Driver(),
		url: func(addr, name string) string {
			return "azblob://" + name + "?protocol=http&localemu=true&domain=" + url.QueryEscape(addr)
		},
		create: func(t testing.TB, name string) {
			t.Helper()
			if _, err := client.CreateContainer(context.Background(), name, nil); err != nil {
				t.Fatalf("making container %s: %v", name, err)
			}
		},
	}
}

// GCS starts the emulator of Google Cloud Storage, and makes a key to sign with.
func GCS(t testing.TB) *Server {
	t.Helper()
	bin := Peer(t, "bin", "fake-gcs-server")
	addr := start(t, "fake-gcs-server", func(port int) *exec.Cmd {
		p := strconv.Itoa(port)
		return exec.Command(bin, "-port", p, "-public-host", "127.0.0.1:"+p)
	})
	setenv(t, "STORAGE_EMULATOR_HOST", "")
	keyPath := filepath.Join(t.TempDir(), "key.pem")
	writeKey(t, keyPath)
	client, err := storage.NewClient(context.Background(), option.WithEndpoint("http://"+addr+"/storage/v1/"), option.WithoutAuthentication())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &Server{
		Kind: "gs", Addr: addr, driver: gcs.Driver(),
		url: func(addr, name string) string {
			return "gs://" + name + "?access_id=test@example.com&private_key_path=" + url.QueryEscape(keyPath) + "&endpoint=" + url.QueryEscape("http://"+addr)
		},
		create: func(t testing.TB, name string) {
			t.Helper()
			if err := client.Bucket(name).Create(context.Background(), "test", nil); err != nil {
				t.Fatalf("making bucket %s: %v", name, err)
			}
		},
	}
}

func writeKey(t testing.TB, path string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// File makes a directory store that an HTTP front signs for. It holds one store: the bucket's name is not used.
func File(t testing.TB) *Server {
	t.Helper()
	dir := t.TempDir()
	key, err := fileserver.LoadKey(filepath.Join(t.TempDir(), "location.key"))
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(front.Close)
	base, err := url.Parse(front.URL + "/segments")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := fileserver.NewSigner(key, base, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	h, err := fileserver.NewHandler(dir, "", signer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	handler = h
	return &Server{
		Kind: "file", Addr: base.Host, Dir: dir, ChecksSignatures: true, driver: file.Driver(file.Options{Sign: signer.Sign}),
		url:    func(string, string) string { return "file://" + dir },
		create: func(testing.TB, string) {},
	}
}

// Each runs a test against every store.
func Each(t *testing.T, run func(t *testing.T, s *Server)) {
	for _, store := range []struct {
		name  string
		start func(testing.TB) *Server
	}{{"file", File}, {"s3", S3}, {"azure", Azure}, {"gcs", GCS}} {
		t.Run(store.name, func(t *testing.T) { run(t, store.start(t)) })
	}
}
