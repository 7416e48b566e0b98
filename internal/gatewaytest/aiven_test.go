package gatewaytest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/aiven"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/aivenwrite"
	"github.com/rewind-kafka/rewind/internal/clientdrivers"
	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/metadatatopic"
)

// newKey makes a key pair, and the file of its private half.
func newKey(t *testing.T) (key *rsa.PrivateKey, path string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "private.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return key, path
}

// asAiven writes a cluster's store anew as Aiven's plug-in would have, chunks small enough for several in a segment, and gives the folder.
func asAiven(t *testing.T, c *clustertest.Cluster, o aivenwrite.Options) (dir string) {
	t.Helper()
	dir = t.TempDir()
	open := func(dir string) *bucket.Store {
		s, err := file.Open(dir, file.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	from, err := bucket.NewManager(bucket.Options{Store: open(c.Store())})
	if err != nil {
		t.Fatal(err)
	}
	o.Store, o.ChunkSize = open(dir), 3000
	w, err := aivenwrite.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if n, size, err := w.Convert(t.Context(), from); err != nil || n < 10 || size < 50_000 {
		t.Fatalf("%d segments of %d bytes, %v", n, size, err)
	}
	return dir
}

func fileURL(dir string) string { return (&url.URL{Scheme: "file", Path: dir}).String() }

// Segments of Aiven's layout through the gateway, for clients with and without the library, and with the library alone: compressed and encrypted ones are read by who resolves,
// for a location of them helps nobody; the others are given as locations.
func TestAiven(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a real Apache Kafka")
	}
	c := clustertest.Start(t, clustertest.Options{})
	c.Load(t, "past", 2, "lz4", 200)
	c.LoadTransactions(t, "txn", 1)
	want := map[string][][]*kgo.Record{"past": c.Records(t, "past", true), "txn": c.Records(t, "txn", true)}
	key, keyFile := newKey(t)
	const known = "remote.log.txn.index.empty.known=true"
	// read gives how many bytes of history the brokers have read for it.
	read := func(t *testing.T, topic string, seeds []string, opts ...kgo.Opt) int64 {
		t.Helper()
		before := c.Meters(t, topic)
		if d := clustertest.Difference(want[topic], c.Read(t, seeds, topic, true, opts...)); d != "" {
			t.Errorf("%s: %s", topic, d)
		}
		return c.Meters(t, topic).Since(before).RemoteBytes
	}
	layouts := map[string]aivenwrite.Options{
		"plain": {}, "zstd": {Compress: true}, "AES": {KeyID: "one", Key: &key.PublicKey}, "zstd and AES": {Compress: true, KeyID: "one", Key: &key.PublicKey},
	}
	for name, o := range layouts {
		dir := asAiven(t, c, o)
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, c, clustertest.Login{Protocol: clustertest.Plaintext}, known, "store="+fileURL(dir), "store.layout=aiven", "store.encryption.keys=one="+keyFile)
			for topic := range want {
				had := g.history(t)
				if n := read(t, topic, []string{g.addr}); n > 0 && topic != "txn" || g.history(t) == had { // a transaction that ends in the brokers' log is theirs
					t.Errorf("%s: the brokers have read %d bytes of history, the gateway %v", topic, n, g.history(t)-had)
				}
			}
			d := clientdrivers.Dialer(t, rewind.Options{AllowedRoots: []string{dir}})
			had := g.history(t)
			read(t, "past", []string{g.addr}, kgo.Dialer(d.DialContext))
			direct, through := d.Stats().DirectBytes, g.history(t)-had
			if transformed := o.Compress || o.Key != nil; transformed && (direct > 0 || through == 0) || !transformed && (direct == 0 || through > 0) {
				t.Errorf("with the library: %d bytes by location, %v through the gateway", direct, through)
			}
			if n := d.Stats().Fallbacks; n > 0 || g.metrics(t, "rewind_gateway_fallbacks_total") > 0 {
				t.Errorf("fell back %d times, the gateway %v times", n, g.metrics(t, "rewind_gateway_fallbacks_total"))
			}
			g.check(t)
		})
		t.Run(name+" with the library alone", func(t *testing.T) {
			d := clientdrivers.Dialer(t, rewind.Options{Resolver: aivenResolver(t, c, dir, key)})
			if n := read(t, "past", c.Seeds(clustertest.Plaintext), kgo.Dialer(d.DialContext)); n > 0 || d.Stats().DirectBytes == 0 || d.Stats().Fallbacks > 0 {
				t.Errorf("the brokers have read %d bytes of history; %+v", n, d.Stats())
			}
		})
	}
	other, otherFile := newKey(t)
	dir := asAiven(t, c, layouts["zstd and AES"])
	for name, keys := range map[string]string{"wrong key": "one=" + otherFile, "no such key": "two=" + keyFile} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, c, clustertest.Login{Protocol: clustertest.Plaintext}, known, "store="+fileURL(dir), "store.layout=aiven", "store.encryption.keys="+keys)
			if n := read(t, "past", []string{g.addr}); n == 0 || g.history(t) > 0 {
				t.Errorf("the brokers have read %d bytes of history, the gateway %v", n, g.history(t))
			}
			if n := g.metrics(t, "rewind_gateway_fallbacks_total", `reason="denied"`); n < 2 {
				t.Errorf("fell back %v times", n)
			}
			log := string(g.Logs.End())
			told := 0
			for line := range strings.Lines(log) {
				if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
					told++
				}
			}
			// Once for each partition.
			if n := strings.Count(log, "reading through the broker for a while"); n != 2 || told > 2 || !strings.Contains(log, "key") || !strings.Contains(log, "rsm-manifest") {
				t.Errorf("told %d times, %d lines in all:\n%s", n, told, log)
			}
		})
	}
	t.Run("wrong key with the library alone", func(t *testing.T) {
		d := clientdrivers.Dialer(t, rewind.Options{Resolver: aivenResolver(t, c, dir, other)})
		if n := read(t, "past", c.Seeds(clustertest.Plaintext), kgo.Dialer(d.DialContext)); n == 0 || d.Stats().DirectBytes > 0 || d.Stats().Fallbacks == 0 {
			t.Errorf("the brokers have read %d bytes of history; %+v", n, d.Stats())
		}
	})
}

func aivenResolver(t *testing.T, c *clustertest.Cluster, dir string, key *rsa.PrivateKey) *metadatatopic.Resolver {
	t.Helper()
	store, err := file.Open(dir, file.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	m, err := aiven.NewManager(aiven.Options{Store: store, Keys: map[string]*rsa.PrivateKey{"one": key}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := metadatatopic.New(t.Context(), metadatatopic.Options{Seeds: c.Seeds(clustertest.Plaintext), Storage: m, TxnIndexEmptyKnown: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}
