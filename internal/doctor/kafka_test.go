package doctor_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/aiven"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/aivenwrite"
	"github.com/rewind-kafka/rewind/internal/clustertest"
	"github.com/rewind-kafka/rewind/internal/doctor"
	"github.com/rewind-kafka/rewind/internal/upstream"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openDir opens a directory in layout kafka.
func openDir(t *testing.T, dir string) remotestorage.RemoteStorageManager {
	t.Helper()
	return manager(t, openStore(t, dir, file.Options{}))
}

func manager(t *testing.T, s *bucket.Store) remotestorage.RemoteStorageManager {
	t.Helper()
	m, err := bucket.NewManager(bucket.Options{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func openStore(t *testing.T, dir string, o file.Options) *bucket.Store {
	t.Helper()
	s, err := bucket.Open(t.Context(), "file://"+dir, file.Driver(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// examine runs a doctor and shows what it says if the test fails.
func examine(t *testing.T, o doctor.Options) *doctor.Report {
	t.Helper()
	rep, err := doctor.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			var out strings.Builder
			if err := rep.WriteText(&out); err != nil {
				t.Error(err)
			}
			t.Logf("\n%s", &out)
		}
	})
	return rep
}

// want fails unless a finding of that level and check has the texts in what it says, and, for a problem, in what to do.
func want(t *testing.T, rep *doctor.Report, l doctor.Level, check string, texts ...string) {
	t.Helper()
	for _, f := range rep.Findings {
		if f.Level == l && f.Check == check && !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(f.What+" "+f.Do, s) }) {
			return
		}
	}
	t.Errorf("no %s %q with %q", l, check, texts)
}

func only(t *testing.T, rep *doctor.Report, levels ...doctor.Level) {
	t.Helper()
	for _, f := range rep.Findings {
		if !slices.Contains(levels, f.Level) {
			t.Errorf("%s %s: %s", f.Level, f.Check, f.What)
		}
	}
}

// TestApacheKafka examines a real cluster without security, well and ill.
func TestApacheKafka(t *testing.T) {
	c := clustertest.Start(t, clustertest.Options{})
	c.Load(t, "history", 2, "zstd", 300)
	c.CreateTiered(t, "bare", 1, map[string]string{"remote.storage.enable": "", "local.retention.ms": "", "local.retention.bytes": ""})
	c.CreateTiered(t, "young", 1, nil)
	starts := c.Offsets(t, "history", clustertest.LocalStart)
	ends := c.Offsets(t, "history", clustertest.Latest)
	commit(t, c, "readers", "history", []int64{7, starts[1]})
	base := doctor.Options{Seeds: c.Seeds(clustertest.Plaintext), Store: "file://" + c.Store(), Layout: "kafka", Patience: time.Minute}
	before := filesIn(t, c.Store())

	t.Run("healthy", func(t *testing.T) {
		o := base
		o.Topics, o.Group, o.Storage = []string{"history"}, "readers", openDir(t, c.Store())
		rep := examine(t, o)
		only(t, rep, doctor.OK)
		for _, check := range []string{"cluster", "protocol", "tiering", "topic history", "store", "metadata topic", "segments", "locations", "layout", "acls", "group"} {
			want(t, rep, doctor.OK, check)
		}
		want(t, rep, doctor.OK, "upstream", "as Apache Kafka does")
		if len(rep.Partitions) != 2 {
			t.Fatalf("partitions: %+v", rep.Partitions)
		}
		first, second := rep.Partitions[0], rep.Partitions[1]
		if first.From != "store" || first.Committed != 7 || first.StoreOffsets != starts[0]-7 || first.LastTiered != starts[0]-1 || first.HighWatermark != ends[0] || first.StoreSegments < 2 {
			t.Errorf("%+v", first)
		}
		if bytes := sizeOf(t, c.Store(), "history-0-*/*.log"); first.StoreBytes > bytes || first.StoreBytes < bytes*9/10 {
			t.Errorf("%d bytes to be read, of %d in the store", first.StoreBytes, bytes)
		}
		if second.From != "broker" || second.StoreOffsets != 0 || !strings.Contains(second.Why, "own disks") {
			t.Errorf("%+v", second)
		}
	})
	t.Run("nothing named", func(t *testing.T) {
		rep := examine(t, base)
		want(t, rep, doctor.OK, "topics", "2 of 3 topics are tiered", "history, young")
		want(t, rep, doctor.Warning, "store", "--store")
		want(t, rep, doctor.Warning, "topic young", "nothing is read from the store yet")
		if rep.Worst() != doctor.Warning {
			t.Errorf("worst is %s", rep.Worst())
		}
	})
	t.Run("not tiered", func(t *testing.T) {
		o := base
		o.Topics, o.Storage = []string{"bare"}, openDir(t, c.Store())
		rep := examine(t, o)
		want(t, rep, doctor.Problem, "topic bare", "not tiered", "remote.storage.enable=true")
	})
	t.Run("no such topic", func(t *testing.T) {
		o := base
		o.Topics = []string{"histroy"}
		want(t, examine(t, o), doctor.Problem, "topic histroy", "does not exist")
	})
	t.Run("no such group", func(t *testing.T) {
		o := base
		o.Group = "nobody"
		rep := examine(t, o)
		want(t, rep, doctor.Warning, "group", "nobody")
		want(t, rep, doctor.OK, "topics", "2 of 3 topics are tiered")
	})
	t.Run("another store", func(t *testing.T) {
		o := base
		o.Topics, o.Storage = []string{"history"}, openDir(t, t.TempDir())
		rep := examine(t, o)
		want(t, rep, doctor.Problem, "segments", "history-0", "--store")
		want(t, rep, doctor.Warning, "layout", "peer.SlowTieredStorage")
		if p := rep.Partitions[0]; p.From != "broker" || p.StoreBytes != 0 {
			t.Errorf("%+v", p)
		}
	})
	t.Run("no store", func(t *testing.T) {
		o := base
		o.Topics, o.StorageErr = []string{"history"}, errors.New("no such bucket")
		rep := examine(t, o)
		want(t, rep, doctor.Problem, "store", "no such bucket")
		if p := rep.Partitions[0]; p.From != "broker" || p.StoreBytes != 0 || !strings.Contains(p.Why, "cannot be opened") {
			t.Errorf("%+v", p)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		damaged := t.TempDir()
		if err := os.CopyFS(damaged, os.DirFS(c.Store())); err != nil {
			t.Fatal(err)
		}
		flip(t, damaged, "history-1-*/*.log")
		o := base
		o.Topics, o.Storage = []string{"history"}, openDir(t, damaged)
		rep := examine(t, o)
		want(t, rep, doctor.Problem, "segments", "history-1", "--layout")
		want(t, rep, doctor.OK, "segments", "in each of 1 partitions")
	})
	t.Run("layout aiven", func(t *testing.T) {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		store := openStore(t, dir, file.Options{})
		w, err := aivenwrite.New(aivenwrite.Options{Store: store, KeyPrefix: "tiered/", Compress: true, KeyID: "k1", Key: &key.PublicKey})
		if err != nil {
			t.Fatal(err)
		}
		from, err := bucket.NewManager(bucket.Options{Store: openStore(t, c.Store(), file.Options{})})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.Convert(t.Context(), from); err != nil {
			t.Fatal(err)
		}
		o := base
		o.Topics, o.Store, o.Layout = []string{"history"}, "file://"+dir, "aiven"
		manager := func(prefix string, keys map[string]*rsa.PrivateKey) remotestorage.RemoteStorageManager {
			t.Helper()
			m, err := aiven.NewManager(aiven.Options{Store: store, KeyPrefix: prefix, Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		o.Storage = manager("tiered/", map[string]*rsa.PrivateKey{"k1": key})
		rep := examine(t, o)
		only(t, rep, doctor.OK)
		want(t, rep, doctor.OK, "segments", "in each of 2 partitions")
		want(t, rep, doctor.OK, "layout", "writes layout aiven")
		o.Storage = manager("tiered/", nil)
		want(t, examine(t, o), doctor.Problem, "segments", "k1", "--key ID=FILE")
		o.Storage = manager("", map[string]*rsa.PrivateKey{"k1": key})
		want(t, examine(t, o), doctor.Problem, "segments", "--prefix")
		o.Storage, o.Layout = openDir(t, dir), "kafka"
		want(t, examine(t, o), doctor.Problem, "segments", "--layout")
	})
	t.Run("looking changes nothing", func(t *testing.T) {
		if after := filesIn(t, c.Store()); !slices.Equal(before, after) {
			t.Errorf("the store had %d files, and has %d: %v", len(before), len(after), after)
		}
	})
}

func commit(t *testing.T, c *clustertest.Cluster, group, topic string, offsets []int64) {
	t.Helper()
	var all kadm.Offsets
	for p, at := range offsets {
		all.AddOffset(topic, int32(p), at, -1)
	}
	if err := clustertest.Retried(t.Context(), func(ctx context.Context) error { return c.Admin().CommitAllOffsets(ctx, group, all) }); err != nil {
		t.Fatal(err)
	}
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	return files
}

func sizeOf(t *testing.T, dir, pattern string) (n int64) {
	t.Helper()
	for _, f := range glob(t, dir, pattern) {
		s, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		n += s.Size()
	}
	return n
}

// flip damages a byte in the middle of the first batch of each file.
func flip(t *testing.T, dir, pattern string) {
	t.Helper()
	for _, f := range glob(t, dir, pattern) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		b[100] ^= 1
		if err := os.Chmod(f, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func filesIn(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSecurity examines a cluster with authentication and ACLs as principals that may do more and less.
func TestSecurity(t *testing.T) {
	c := clustertest.Start(t, clustertest.Options{Secure: true, ACLs: true})
	c.Load(t, "history", 1, "none", 200)
	ca := c.Authority().CertFile
	sasl := func(p clustertest.Protocol, user, password string) string {
		s := fmt.Sprintf("security.protocol=%s\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=%q password=%q;\n", p, user, password)
		if p == clustertest.SASLTLS {
			s += "ssl.truststore.type=PEM\nssl.truststore.location=" + ca + "\n"
		}
		return s
	}
	options := func(t *testing.T, p clustertest.Protocol, properties string) doctor.Options {
		t.Helper()
		client, err := upstream.Parse([]byte(properties))
		if err != nil {
			t.Fatal(err)
		}
		return doctor.Options{Seeds: c.Seeds(p), Client: client, Topics: []string{"history"}, Storage: openDir(t, c.Store()), Store: "file://" + c.Store(), Layout: "kafka"}
	}
	for _, l := range []struct {
		name       string
		protocol   clustertest.Protocol
		properties string
		text       string // of the problem
	}{
		{"no TLS on a TLS port", clustertest.TLS, "", "TLS"},
		{"TLS on a plain port", clustertest.Plaintext, "security.protocol=SSL\nssl.truststore.location=" + ca, "does not speak TLS"},
		{"no SASL on a SASL port", clustertest.SASL, "", "SASL"},
		{"SASL on a plain port", clustertest.Plaintext, sasl(clustertest.SASL, clustertest.Alice, "x"), "does not authenticate by SASL"},
		{"wrong password", clustertest.SASL, sasl(clustertest.SASL, clustertest.Alice, "wrong-secret"), "authentication failed"},
		{"unknown authority", clustertest.SASLTLS, strings.Replace(sasl(clustertest.SASLTLS, clustertest.Alice, "x"), "ssl.truststore.location="+ca, "", 1), "truststore"},
		{"certificate demanded", clustertest.MutualTLS, "security.protocol=SSL\nssl.truststore.location=" + ca, "client certificate"},
	} {
		t.Run(l.name, func(t *testing.T) {
			rep := examine(t, options(t, l.protocol, l.properties))
			want(t, rep, doctor.Problem, "cluster", l.text)
			for _, f := range rep.Findings {
				if strings.Contains(f.What+f.Do, "wrong-secret") {
					t.Errorf("the password is told: %+v", f)
				}
			}
		})
	}
	t.Run("by certificate alone", func(t *testing.T) {
		_, _, _, store := c.Authority().Issue(t, clustertest.Admin)
		rep := examine(t, options(t, clustertest.MutualTLS, "security.protocol=SSL\nssl.truststore.location="+ca+"\nssl.keystore.location="+store))
		want(t, rep, doctor.Problem, "client certs", "SASL")
	})
	for _, m := range clustertest.Mechanisms {
		t.Run("admin by "+string(m), func(t *testing.T) {
			o := options(t, clustertest.SASLTLS, properties(c, clustertest.Login{Protocol: clustertest.SASLTLS, Mechanism: m}))
			o.Group = "nobody" // the cluster has no topic of offsets before the first of these questions
			o.Patience = time.Minute
			rep := examine(t, o)
			// It waits some seconds for the coordinator, and on a busy machine the cluster may take longer to have one.
			for end := time.Now().Add(2 * time.Minute); !slices.ContainsFunc(rep.Findings, func(f doctor.Finding) bool { return f.Check == "group" && f.Level == doctor.Warning }) && time.Now().Before(end); {
				rep = examine(t, o)
			}
			want(t, rep, doctor.Warning, "group", "group nobody has committed no offsets")
			want(t, rep, doctor.OK, "segments", "history")
			want(t, rep, doctor.OK, "cluster", string(m)+" as admin")
		})
	}
	alice := sasl(clustertest.SASLTLS, clustertest.Alice, clustertest.Password(clustertest.Alice))
	t.Run("alice without rights", func(t *testing.T) {
		rep := examine(t, options(t, clustertest.SASLTLS, alice))
		want(t, rep, doctor.Problem, "topic history", "--allow-principal User:alice --operation Describe --topic history")
		want(t, rep, doctor.Problem, "metadata topic", "--allow-principal User:alice --operation Read --operation Describe --topic __remote_log_metadata")
		want(t, rep, doctor.Warning, "tiering", "DescribeConfigs")
		want(t, rep, doctor.Warning, "acls", "--operation Describe --cluster")
	})
	c.AllowAll(t, kadm.NewACLs().Allow("User:alice").AllowHosts("*").Topics("__remote_log_metadata").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpDescribe))
	t.Run("metadata topic only described", func(t *testing.T) {
		rep := examine(t, options(t, clustertest.SASLTLS, alice))
		want(t, rep, doctor.Problem, "metadata topic", "Read on topic __remote_log_metadata is missing")
	})
	c.AllowAll(t, kadm.NewACLs().Allow("User:alice").AllowHosts("*").Topics("__remote_log_metadata").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead))
	c.AllowAll(t, kadm.NewACLs().Allow("User:alice").AllowHosts("*").Topics("history").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpDescribe))
	t.Run("alice with what the gateway needs", func(t *testing.T) {
		rep := examine(t, options(t, clustertest.SASLTLS, alice))
		only(t, rep, doctor.OK, doctor.Warning)
		want(t, rep, doctor.OK, "metadata topic")
		want(t, rep, doctor.OK, "segments", "history")
	})
	c.AllowAll(t, kadm.NewACLs().Allow("User:bob").AllowHosts("10.1.2.3").Topics("__").ResourcePatternType(kadm.ACLPatternPrefixed).Operations(kadm.OpRead))
	t.Run("what ACLs do not see through a gateway", func(t *testing.T) {
		rep := examine(t, options(t, clustertest.SASLTLS, properties(c, clustertest.Login{Protocol: clustertest.SASLTLS, Mechanism: clustertest.Plain})))
		want(t, rep, doctor.Warning, "acls", "User:bob from 10.1.2.3")
		want(t, rep, doctor.Warning, "acls", "User:alice, User:bob may read __remote_log_metadata")
	})
}

// properties are those of a Java client, as one has them in a file.
func properties(c *clustertest.Cluster, l clustertest.Login) string {
	var s strings.Builder
	for k, v := range l.JavaProperties(c.Authority().CertFile) {
		fmt.Fprintf(&s, "%s=%s\n", k, v)
	}
	return s.String()
}

// TestNobody: a cluster that is not there is said soon.
func TestNobody(t *testing.T) {
	rep := examine(t, doctor.Options{Seeds: []string{"127.0.0.1:1"}})
	want(t, rep, doctor.Problem, "cluster", "nobody listens")
	if len(rep.Findings) != 1 {
		t.Errorf("%d findings", len(rep.Findings))
	}
	if _, err := doctor.Run(context.Background(), doctor.Options{}); err == nil {
		t.Error("no error without brokers")
	}
}
