package aiven

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// damaged is a set whose objects a test may break.
type damaged struct {
	dir  string
	set  *golden.Set
	keys map[string]*rsa.PrivateKey
	g    *goldenSegment // one segment with several chunks and a transaction index
	log  slog.Handler
}

func breakable(t *testing.T, name string) *damaged {
	t.Helper()
	s := golden.Load(t, name)
	d := &damaged{dir: t.TempDir(), set: s, keys: keysOf(t, s)}
	s.CopyObjects(t, d.dir)
	for _, g := range segments(t, s) {
		if g.source.Txn != nil && (d.g == nil || g.md.StartOffset < d.g.md.StartOffset || g.md.StartOffset == d.g.md.StartOffset && g.md.Partition < d.g.md.Partition) {
			d.g = g
		}
	}
	return d
}

func (d *damaged) path(suffix string) string {
	return filepath.Join(d.dir, filepath.FromSlash(prefixes[d.set.Name]+keyOf(&d.g.md, suffix)))
}

func (d *damaged) edit(t *testing.T, suffix string, change func([]byte) []byte) (before []byte) {
	t.Helper()
	before, err := os.ReadFile(d.path(suffix))
	if err != nil {
		t.Fatal(err)
	}
	// Renamed into place: a GET that is under way goes on reading what it opened.
	aside := filepath.Join(d.dir, "aside")
	if err := os.WriteFile(aside, change(bytes.Clone(before)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, d.path(suffix)); err != nil {
		t.Fatal(err)
	}
	return before
}

func (d *damaged) manager(t *testing.T) *Manager {
	t.Helper()
	o := Options{Store: openDir(t, d.dir, prefixes[d.set.Name]), Keys: d.keys}
	if d.log != nil {
		o.Logger = slog.New(d.log)
	}
	return newManager(t, o)
}

// read reads the whole log.
func (d *damaged) read(t *testing.T, m *Manager) ([]byte, error) {
	t.Helper()
	r, err := m.FetchLogSegment(t.Context(), d.g.md, 0, int64(d.g.md.SegmentSizeInBytes))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

func wantError(t *testing.T, err, is error, texts ...string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Errorf("%v, want %v", err, is)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

// TestManifestErrors: each names the object, and says what to do where something can be done.
func TestManifestErrors(t *testing.T) {
	replace := func(old, new string) func([]byte) []byte {
		return func(b []byte) []byte {
			out := bytes.Replace(b, []byte(old), []byte(new), 1)
			if bytes.Equal(out, b) {
				panic("nothing replaced: " + old)
			}
			return out
		}
	}
	for _, c := range []struct {
		name   string
		change func([]byte) []byte
		is     error
		text   string
	}{
		{"newer version", replace(`"version":"1"`, `"version":"2"`), remotestorage.ErrUnsupported, "manifest version 2; this program reads version 1"},
		{"newer version with other fields", func([]byte) []byte { return []byte(`{"version":"2","chunkIndex":"none"}`) }, remotestorage.ErrUnsupported, "manifest version 2"},
		{"a number as version", replace(`"version":"1"`, `"version":1`), remotestorage.ErrUnsupported, "manifest version 1"},
		{"no version", replace(`"version":"1",`, ``), remotestorage.ErrDamaged, "version is missing"},
		{"iceberg", func([]byte) []byte { return []byte("PFA1 and so on") }, remotestorage.ErrUnsupported, "segment.format=iceberg"},
		{"cut off", func(b []byte) []byte { return b[:len(b)/2] }, remotestorage.ErrDamaged, "unexpected end"},
		{"empty", func([]byte) []byte { return nil }, remotestorage.ErrDamaged, "empty"},
		{"huge", func([]byte) []byte { return make([]byte, maxManifest+1) }, remotestorage.ErrUnsupported, "too large"},
		{"of another segment", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"id":"`), []byte(`"id":"x`)) }, remotestorage.ErrDamaged, "it describes segment"},
		{"no indexes", replace(`"segmentIndexes"`, `"segmentindices"`), remotestorage.ErrDamaged, "segmentIndexes is missing"},
		{"transaction not said", replace(`"transaction"`, `"trans"`), remotestorage.ErrDamaged, "transaction is missing"},
		{"unknown chunk index", replace(`"type":"variable"`, `"type":"rolling"`), remotestorage.ErrUnsupported, `type "rolling"`},
		{"chunk index of the other type", replace(`"type":"variable"`, `"type":"fixed"`), remotestorage.ErrDamaged, "transformedChunkSize is missing"},
		{"another file size", replace(`"originalFileSize":1`, `"originalFileSize":9`), remotestorage.ErrDamaged, "chunks, want"},
		{"too many chunks", replace(`"originalChunkSize":10000,"originalFileSize":1`, `"originalChunkSize":1,"originalFileSize":21`), remotestorage.ErrUnsupported, "too large"},
		{"data key", replace(`"dataKey":"key1:`, `"dataKey":"`), remotestorage.ErrDamaged, "data key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := breakable(t, "aiven/zstd-aes")
			d.edit(t, manifestSuffix, c.change)
			m := d.manager(t)
			_, err := d.read(t, m)
			wantError(t, err, c.is, c.text, keyOf(&d.g.md, manifestSuffix))
			_, err = m.FetchIndex(t.Context(), d.g.md, remotestorage.IndexOffset)
			wantError(t, err, c.is, c.text)
			_, err = m.RemoteLogSegmentLocation(t.Context(), d.g.md.RemoteLogSegmentID, nil)
			wantError(t, err, c.is)
		})
	}
}

// TestMissingObjects: what is gone is ErrNotFound, and the manifest's error says where else the mistake may be.
func TestMissingObjects(t *testing.T) {
	for _, suffix := range []string{manifestSuffix, logSuffix, indexesSuffix} {
		d := breakable(t, "aiven/zstd-aes")
		if err := os.Remove(d.path(suffix)); err != nil {
			t.Fatal(err)
		}
		m := d.manager(t)
		_, logErr := d.read(t, m)
		_, indexErr := m.FetchIndex(t.Context(), d.g.md, remotestorage.IndexOffset)
		if suffix != indexesSuffix {
			wantError(t, logErr, remotestorage.ErrNotFound, keyOf(&d.g.md, suffix))
		}
		if suffix != logSuffix {
			wantError(t, indexErr, remotestorage.ErrNotFound, keyOf(&d.g.md, suffix))
		}
		if suffix == manifestSuffix {
			wantError(t, logErr, remotestorage.ErrNotFound, "key.prefix", "iceberg")
		}
	}
	d := breakable(t, "aiven/zstd")
	m := newManager(t, Options{Store: openDir(t, d.dir, "tiered/golden-2/")})
	_, err := d.read(t, m)
	wantError(t, err, remotestorage.ErrNotFound, `"tiered/golden-2/"`)
	_, err = m.RemoteLogSegmentLocation(t.Context(), d.g.md.RemoteLogSegmentID, nil)
	wantError(t, err, remotestorage.ErrNotFound)
}

// TestKeys: a key that is missing, or another one under the same id, is told from damage.
func TestKeys(t *testing.T) {
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	d := breakable(t, "aiven/zstd-aes")
	right := d.keys["key1"]
	d.keys = map[string]*rsa.PrivateKey{"key2": right}
	_, err = d.read(t, d.manager(t))
	wantError(t, err, ErrKey, `"key1"`, "not configured", keyOf(&d.g.md, manifestSuffix))
	wantError(t, err, remotestorage.ErrDenied)
	d.keys = map[string]*rsa.PrivateKey{"key1": other}
	_, err = d.read(t, d.manager(t))
	wantError(t, err, ErrKey, `"key1"`, "not the one", keyOf(&d.g.md, manifestSuffix))
	d.keys = map[string]*rsa.PrivateKey{"key1": right}
	if _, err := d.read(t, d.manager(t)); err != nil {
		t.Error(err)
	}
}

// TestDamagedChunk: chunks before it are delivered, then an error names chunk and object. Bytes that were damaged on their way only cost a second GET.
func TestDamagedChunk(t *testing.T) {
	for _, set := range []string{"aiven/aes", "aiven/zstd", "aiven/zstd-aes"} {
		t.Run(set, func(t *testing.T) {
			d := breakable(t, set)
			seg, err := d.manager(t).segment(t.Context(), d.g.md.RemoteLogSegmentID, d.g.md.StartOffset, nil)
			if err != nil {
				t.Fatal(err)
			}
			at, _ := seg.chunks.stored(2)
			whole := d.edit(t, logSuffix, func(b []byte) []byte { b[at+1] ^= 0x10; return b })
			got, err := d.read(t, d.manager(t))
			wantError(t, err, remotestorage.ErrDamaged, "chunk 2,", keyOf(&d.g.md, logSuffix))
			if want := 2 * seg.chunks.chunkSize; int64(len(got)) != want {
				t.Errorf("%d bytes before the damage, want %d", len(got), want)
			}
			if !errors.Is(err, remote.ErrDamaged) {
				t.Error("internal/remote does not see damage in it")
			}
			warned := 0
			d.log = onLog(func(slog.Record) {
				warned++
				d.edit(t, logSuffix, func([]byte) []byte { return whole })
			})
			got, err = d.read(t, d.manager(t))
			if err != nil || warned != 1 {
				t.Errorf("%v, after %d warnings", err, warned)
			}
			d.g.source.Log.check(t, "log", got)
		})
	}
}

// onLog is called with each log line.
type onLog func(slog.Record)

func (f onLog) Enabled(context.Context, slog.Level) bool { return true }
func (f onLog) Handle(_ context.Context, r slog.Record) error {
	f(r)
	return nil
}
func (f onLog) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f onLog) WithGroup(string) slog.Handler      { return f }

// TestDamagedInTransit: manifest and index likewise.
func TestDamagedInTransit(t *testing.T) {
	for _, suffix := range []string{manifestSuffix, indexesSuffix} {
		d := breakable(t, "aiven/zstd-aes")
		whole := d.edit(t, suffix, func(b []byte) []byte { b[0] ^= 1; return b })
		warned := 0
		d.log = onLog(func(slog.Record) {
			warned++
			d.edit(t, suffix, func([]byte) []byte { return whole })
		})
		r, err := d.manager(t).FetchIndex(t.Context(), d.g.md, remotestorage.IndexOffset)
		d.g.source.Offset.check(t, "offset index", readAll(t, r, err))
		if warned != 1 {
			t.Errorf("%s: %d warnings", suffix, warned)
		}
	}
}

func TestDamagedIndex(t *testing.T) {
	for name, c := range map[string]struct {
		change func([]byte) []byte
		text   string
	}{
		"flipped": {func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, "transaction index, bytes"},
		"cut":     {func(b []byte) []byte { return b[:len(b)-1] }, "an index should end at"},
		"short":   {func(b []byte) []byte { return b[:10] }, "range outside"},
		"empty":   {func([]byte) []byte { return nil }, "range outside"},
	} {
		t.Run(name, func(t *testing.T) {
			d := breakable(t, "aiven/zstd-aes")
			d.edit(t, indexesSuffix, c.change)
			_, err := d.manager(t).FetchIndex(t.Context(), d.g.md, remotestorage.IndexTransaction)
			wantError(t, err, remotestorage.ErrDamaged, c.text, keyOf(&d.g.md, indexesSuffix))
		})
	}
	if _, err := breakable(t, "aiven/aes").manager(t).FetchIndex(t.Context(), remotestorage.RemoteLogSegmentMetadata{}, 7); err == nil {
		t.Error("an index type that does not exist")
	}
}

// TestCutObject: an object that is shorter than its manifest says is damage at once, whichever chunk is wanted, and not an end.
func TestCutObject(t *testing.T) {
	for _, set := range []string{"aiven/aes", "aiven/zstd", "aiven/zstd-aes"} {
		for _, keep := range []int{0, 1, 50_000} {
			d := breakable(t, set)
			d.edit(t, logSuffix, func(b []byte) []byte { return b[:keep] })
			_, err := d.read(t, d.manager(t))
			wantError(t, err, remotestorage.ErrDamaged, keyOf(&d.g.md, logSuffix), "by its manifest")
		}
	}
	// An untransformed object gives what is there, as the interface says; the reader behind it knows how much it wanted.
	d := breakable(t, "aiven/plain")
	d.edit(t, logSuffix, func(b []byte) []byte { return b[:100] })
	if got, err := d.read(t, d.manager(t)); err != nil || len(got) != 100 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestReaderSeesDamage: through internal/locate and internal/remote damage ends in an error at once, with partition, offset and object, and not in tries until the
// deadline; so do a missing key and a format that is not known.
func TestReaderSeesDamage(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, d *damaged)
		is     error
	}{
		"chunk":    {func(t *testing.T, d *damaged) { d.edit(t, logSuffix, func(b []byte) []byte { b[5] ^= 1; return b }) }, remote.ErrDamaged},
		"cut":      {func(t *testing.T, d *damaged) { d.edit(t, logSuffix, func(b []byte) []byte { return b[:100] }) }, remote.ErrDamaged},
		"manifest": {func(t *testing.T, d *damaged) { d.edit(t, manifestSuffix, func(b []byte) []byte { return b[:100] }) }, remote.ErrDamaged},
		"version": {func(t *testing.T, d *damaged) {
			d.edit(t, manifestSuffix, func(b []byte) []byte { return bytes.Replace(b, []byte(`"1"`), []byte(`"9"`), 1) })
		}, remotestorage.ErrUnsupported},
		"key": {func(_ *testing.T, d *damaged) { delete(d.keys, "key1") }, ErrKey},
		"gone": {func(t *testing.T, d *damaged) {
			if err := os.Remove(d.path(logSuffix)); err != nil {
				t.Fatal(err)
			}
		}, remotestorage.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			d := breakable(t, "aiven/zstd-aes")
			c.damage(t, d)
			x := d.set.Index(t)
			r := locate.New(locate.Options{RSM: d.manager(t), Index: x})
			view := &golden.View{Epochs: epoch.New([]remotestorage.EpochStart{{}})}
			reader := remote.NewReader(remote.Options{ReadAhead: true, Deadline: time.Hour})
			defer reader.Close()
			p := reader.Open(d.g.md.TopicIDPartition, d.g.md.StartOffset, func(ctx context.Context, offset int64, _ error) (remote.Range, error) {
				return r.Resolve(ctx, d.g.md.TopicIDPartition, view, offset, true)
			})
			defer p.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			wantError(t, p.Wait(ctx, 1), c.is, d.g.md.ID.String())
		})
	}
}

func TestOptions(t *testing.T) {
	s := openDir(t, t.TempDir(), "")
	for _, o := range []Options{{}, {Store: &bucket.Store{}}, {Store: s, URLExpiry: -1}, {Store: s, CacheBytes: -1}, {Store: s, Parallelism: -1}, {Store: s, Keys: map[string]*rsa.PrivateKey{"k": nil}}} {
		if _, err := NewManager(o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	m := newManager(t, Options{Store: s})
	if err := m.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := m.CopyLogSegmentData(t.Context(), remotestorage.RemoteLogSegmentMetadata{}, remotestorage.LogSegmentData{}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("copying: %v", err)
	}
	if err := m.DeleteLogSegmentData(t.Context(), remotestorage.RemoteLogSegmentMetadata{}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("deleting: %v", err)
	}
}

func TestLoadKey(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		block *pem.Block
		want  string
	}{
		"pkcs8":     {&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}, ""},
		"pkcs1":     {&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}, ""},
		"public":    {&pem.Block{Type: "PUBLIC KEY", Bytes: public}, `"PUBLIC KEY", want PRIVATE KEY`},
		"encrypted": {&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: pkcs8}, "password"},
		"old style": {&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"DEK-Info": "x"}}, "password"},
		"rubbish":   {&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}, "asn1"},
	} {
		path := filepath.Join(t.TempDir(), "key.pem")
		if err := os.WriteFile(path, pem.EncodeToMemory(c.block), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := LoadKey(path)
		if c.want == "" && (err != nil || !got.Equal(key)) {
			t.Errorf("%s: %v", name, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %v, want %q and the file's name", name, err, c.want)
		}
	}
	if _, err := LoadKey(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestSigned: an untransformed object is signed under its own name, found by custom metadata, or by listing.
func TestSigned(t *testing.T) {
	s := golden.Load(t, "aiven/plain")
	sign := func(_ context.Context, key string, expiry time.Duration) (string, time.Time, error) {
		return "signed:" + key, time.UnixMilli(expiry.Milliseconds()), nil
	}
	for _, g := range segments(t, s) {
		store, err := file.Open(s.ObjectsDir(), file.Options{Sign: sign})
		if err != nil {
			t.Fatal(err)
		}
		m := newManager(t, Options{Store: store, URLExpiry: 7 * time.Minute})
		for range 2 { // the second time it is known
			l, err := m.GetSignedRemoteLogSegmentLocation(t.Context(), g.md.RemoteLogSegmentID, g.md.CustomMetadata)
			if err != nil || l.URL != "signed:"+keyOf(&g.md, logSuffix) || l.ExpiryMs != 7*60*1000 {
				t.Errorf("%+v, %v", l, err)
			}
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	e := golden.Load(t, "aiven/aes")
	store, err := file.Open(e.ObjectsDir(), file.Options{Sign: sign})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m := newManager(t, Options{Store: store, Keys: keysOf(t, e)})
	for _, g := range segments(t, e) {
		if _, err := m.GetSignedRemoteLogSegmentLocation(t.Context(), g.md.RemoteLogSegmentID, g.md.CustomMetadata); !errors.Is(err, remotestorage.ErrNotSigned) {
			t.Errorf("%v", err)
		}
	}
}

// TestPrefixes: they are joined as they are, and the one in a record's custom metadata finds what an older configuration wrote.
func TestPrefixes(t *testing.T) {
	for _, c := range []struct{ store, key string }{{"", ""}, {"", "no-slash-"}, {"", "a/b/c/"}, {"", "a//b"}, {"rewind/", "x"}, {"tiered/", ""}} {
		f := newFakeStore()
		s := f.store(t)
		s.Prefix = c.store
		_, md, log := written(t, s, 100*kib, 16*kib, true, false, 0, 1)
		for key, b := range maps.Clone(f.objects) { // where the plug-in would have put them
			delete(f.objects, key)
			f.objects[c.store+c.key+strings.TrimPrefix(key, c.store)] = b
		}
		m := newManager(t, Options{Store: s, KeyPrefix: c.key})
		r, err := m.FetchLogSegment(t.Context(), md, 0, int64(len(log)))
		if !bytes.Equal(readAll(t, r, err), log) {
			t.Errorf("%+v: other bytes", c)
		}
		if _, err := m.RemoteLogSegmentLocation(t.Context(), md.RemoteLogSegmentID, nil); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	f := newFakeStore()
	s := f.store(t)
	s.Prefix = "old/"
	_, md, log := written(t, s, 100*kib, 16*kib, true, false, 0, 1)
	s.Prefix = "new/"
	md.CustomMetadata = append([]byte{1, tagObjectPrefix, 5, 5}, "old/"...)
	m := newManager(t, Options{Store: s})
	r, err := m.FetchLogSegment(t.Context(), md, 0, int64(len(log)))
	if !bytes.Equal(readAll(t, r, err), log) {
		t.Error("other bytes")
	}
	// What is wrong there is told: it is no segment that was deleted.
	f.onGet = func(context.Context, string, []byte) (io.Reader, error) { return nil, errBroken }
	_, err = newManager(t, Options{Store: s}).FetchLogSegment(t.Context(), md, 0, int64(len(log)))
	wantError(t, err, errBroken, "old/")
	f.onGet = func(_ context.Context, _ string, b []byte) (io.Reader, error) {
		return bytes.NewReader(bytes.Repeat([]byte("x"), len(b))), nil
	}
	_, err = newManager(t, Options{Store: s}).FetchLogSegment(t.Context(), md, 0, int64(len(log)))
	wantError(t, err, remotestorage.ErrDamaged, "old/")
}
