package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"gocloud.dev/blob"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/internal/layout"
	"github.com/rewind-kafka/rewind/internal/storedir"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *bucket.Store {
	t.Helper()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t *testing.T, s *bucket.Store, key, text string) {
	t.Helper()
	if err := s.Bucket.WriteAll(t.Context(), key, []byte(text), nil); err != nil {
		t.Fatal(err)
	}
}

// files lists what really lies in a directory, folders with a slash.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err != nil || rel == "." {
			return err
		}
		if d.IsDir() {
			rel += "/"
		}
		all = append(all, rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

func TestPlainFilesOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by", "open")
	s := open(t, dir)
	put(t, s, "t-0-x/00.log", "log")
	put(t, s, "t-0-x/00.log", "log again")
	put(t, s, "top", "")
	wantFiles(t, dir, "t-0-x/", "t-0-x/00.log", "top")
	if b, err := os.ReadFile(filepath.Join(dir, "t-0-x/00.log")); err != nil || string(b) != "log again" {
		t.Errorf("%q, %v", b, err)
	}
	if s.URL != "file://"+dir {
		t.Errorf("URL %s", s.URL)
	}
}

// TestGoldenStore: a folder that Apache Kafka's LocalTieredStorage wrote is read as it lies there.
func TestGoldenStore(t *testing.T) {
	dir, err := filepath.Abs("../../testdata/golden/kafka/b-txn/objects")
	if err != nil {
		t.Fatal(err)
	}
	m, err := bucket.NewManager(bucket.Options{Store: open(t, dir)})
	if err != nil {
		t.Fatal(err)
	}
	segments := 0
	for tp, err := range m.ListPartitions(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for s, err := range m.ListSegments(t.Context(), tp) {
			if err != nil {
				t.Fatal(err)
			}
			segments++
			checkGolden(t, dir, m, s)
		}
	}
	if segments == 0 {
		t.Error("no segments")
	}
}

func checkGolden(t *testing.T, dir string, m *bucket.Manager, s bucket.StoredSegment) {
	t.Helper()
	md := remotestorage.RemoteLogSegmentMetadata{RemoteLogSegmentID: s.RemoteLogSegmentID, StartOffset: s.BaseOffset}
	want, err := os.ReadFile(filepath.Join(dir, layout.ObjectName(s.RemoteLogSegmentID, s.BaseOffset, layout.Log)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.FetchLogSegment(t.Context(), md, 0, s.Size)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || string(got) != string(want) {
		t.Errorf("%s: %d bytes, %v", s.RemoteLogSegmentID, len(got), err)
	}
	for _, i := range []remotestorage.IndexType{remotestorage.IndexOffset, remotestorage.IndexTimestamp, remotestorage.IndexProducerSnapshot, remotestorage.IndexLeaderEpoch} {
		r, err := m.FetchIndex(t.Context(), md, i)
		if err != nil {
			t.Errorf("%s, %v index: %v", s.RemoteLogSegmentID, i, err)
			continue
		}
		_ = r.Close()
	}
	location, err := m.RemoteLogSegmentLocation(t.Context(), s.RemoteLogSegmentID, nil)
	if want := "file://" + filepath.Join(dir, layout.ObjectName(s.RemoteLogSegmentID, s.BaseOffset, layout.Log)); err != nil || location != want {
		t.Errorf("found by its id alone: %s, %v", location, err)
	}
}

// traced opens a store whose syncs are written down, and fail where fail says so.
func traced(t *testing.T, fail func(name string) error) (*bucket.Store, string, *[]string) {
	t.Helper()
	dir := t.TempDir()
	at, err := storedir.Open(dir, storedir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	trace := &[]string{}
	d := &directory{dir: at}
	d.fsync = func(f *os.File) error {
		name, err := filepath.Rel(dir, f.Name())
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, tempSuffix) {
			name = "temporary file"
		}
		*trace = append(*trace, name+" "+strings.Join(files(t, dir), " "))
		if err := fail(name); err != nil {
			return err
		}
		return f.Sync()
	}
	s := newStore(d, Options{})
	t.Cleanup(func() { _ = s.Close() })
	return s, dir, trace
}

// TestOrderOfSyncs: content before the name, the name before the answer, a new folder before that.
func TestOrderOfSyncs(t *testing.T) {
	s, _, trace := traced(t, func(string) error { return nil })
	put(t, s, "t-0/a.log", "x")
	put(t, s, "t-0/b.log", "x")
	if err := s.Bucket.Delete(t.Context(), "t-0/a.log"); err != nil {
		t.Fatal(err)
	}
	if err := s.Bucket.Delete(t.Context(), "t-0/b.log"); err != nil {
		t.Fatal(err)
	}
	for i, line := range *trace {
		if i == 0 || i == 3 { // the temporary name is random
			line = strings.Join(slices.DeleteFunc(strings.Fields(line), func(w string) bool { return strings.HasSuffix(w, tempSuffix) }), " ")
		}
		(*trace)[i] = line
	}
	want := []string{
		"temporary file t-0/",
		"t-0 t-0/ t-0/a.log",
		". t-0/ t-0/a.log",
		"temporary file t-0/ t-0/a.log",
		"t-0 t-0/ t-0/a.log t-0/b.log",
		"t-0 t-0/ t-0/b.log",
		"t-0 t-0/",
		". ",
	}
	if !slices.Equal(*trace, want) {
		t.Errorf("syncs:\n%s\nwant:\n%s", strings.Join(*trace, "\n"), strings.Join(want, "\n"))
	}
}

func TestFailedSyncIsAFailedWrite(t *testing.T) {
	broken := errors.New("disk is broken")
	for _, at := range []string{"temporary file", "t-0", "."} {
		s, dir, _ := traced(t, func(name string) error {
			if name == at {
				return broken
			}
			return nil
		})
		if err := s.Bucket.WriteAll(t.Context(), "t-0/a.log", []byte("x"), nil); !errors.Is(err, broken) {
			t.Errorf("%s: %v", at, err)
		}
		for _, f := range files(t, dir) {
			if strings.HasSuffix(f, tempSuffix) || at == "temporary file" && strings.HasSuffix(f, ".log") {
				t.Errorf("%s: %s stays", at, f)
			}
		}
		if at == "temporary file" {
			continue
		}
		// The folder was not taken for durable: the next write syncs it again.
		if err := s.Bucket.WriteAll(t.Context(), "t-0/a.log", []byte("x"), nil); !errors.Is(err, broken) {
			t.Errorf("%s, second write: %v", at, err)
		}
	}
}

func TestCancelledWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "t-0/a.log", "old")
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.Bucket.NewWriter(ctx, "t-0/a.log", &blob.WriterOptions{ContentType: contentType})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Close(); !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	wantFiles(t, dir, "t-0/", "t-0/a.log")
	if b, err := s.Bucket.ReadAll(t.Context(), "t-0/a.log"); err != nil || string(b) != "old" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestLeftoversOfACrash: temporary files are no objects, and go with the segment that they were to become.
func TestLeftoversOfACrash(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	m, err := bucket.NewManager(bucket.Options{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	id := remotestorage.RemoteLogSegmentID{TopicIDPartition: remotestorage.TopicIDPartition{Topic: "t"}, ID: remotestorage.UUID{1}}
	other := id
	other.ID = remotestorage.UUID{2}
	leave := func(id remotestorage.RemoteLogSegmentID) string {
		name := tempName(layout.ObjectName(id, 0, layout.Log))
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("half"), 0o644)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	leave(id)
	stays := leave(other)
	for s, err := range m.ListSegments(t.Context(), id.TopicIDPartition) {
		t.Errorf("listed: %+v, %v", s, err)
	}
	if err := m.DeleteLogSegmentData(t.Context(), remotestorage.RemoteLogSegmentMetadata{RemoteLogSegmentID: id}); err != nil {
		t.Fatal(err)
	}
	folder, _, _ := strings.Cut(stays, "/")
	wantFiles(t, dir, folder+"/", stays)
	if err := m.DeletePartition(t.Context(), id.TopicIDPartition); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, dir)
}

// TestFoldersComeAndGo: deletions remove the folders that they leave empty under writers, readers, listings and sweeps.
func TestFoldersComeAndGo(t *testing.T) {
	dir := t.TempDir()
	at, err := storedir.Open(dir, storedir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// Without syncs: the moments in which a folder goes are short, and come often only if nothing waits for a disk.
	d := &directory{dir: at, fsync: func(*os.File) error { return nil }}
	s := newStore(d, Options{})
	defer s.Close()
	var wg, writers sync.WaitGroup
	done := make(chan struct{})
	for w := range 16 {
		writers.Go(func() {
			for i := range 200 {
				key := fmt.Sprintf("a/b/t-%d/%d-%d", w%6, w, i)
				if err := s.Bucket.WriteAll(t.Context(), key, []byte(key), nil); err != nil {
					t.Error(err)
					return
				}
				if b, err := s.Bucket.ReadAll(t.Context(), key); err != nil || string(b) != key {
					t.Errorf("%s: %q, %v", key, b, err)
				}
				if err := s.Bucket.Delete(t.Context(), key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, look := range []func() error{
		func() error { return d.sweep(t.Context(), "a/b/t-0/x") },
		func() error {
			_, _, err := s.Bucket.ListPage(t.Context(), blob.FirstPageToken, 100, nil)
			return err
		},
	} {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := look(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(done)
	wg.Wait()
	wantFiles(t, dir)
}

// TestFileInTheWay: where no folder can be made the write fails, and does not try for ever.
func TestFileInTheWay(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, "t-0", "a file")
	if err := s.Bucket.WriteAll(t.Context(), "t-0/a.log", nil, nil); err == nil {
		t.Error("written below a file")
	}
}

// TestRemadeFolderIsSynced: a folder that goes and comes back while the write that first made it settles is not taken for synced by the one that made it again.
func TestRemadeFolderIsSynced(t *testing.T) {
	var s *bucket.Store
	var dir string
	var again *blob.Writer
	meddle := sync.OnceValue(func() error {
		err := errors.Join(os.Remove(filepath.Join(dir, "t-0", "a.log")), os.Remove(filepath.Join(dir, "t-0"))) // another process: ours would wait
		if err != nil {
			return err
		}
		if again, err = s.Bucket.NewWriter(t.Context(), "t-0/b.log", &blob.WriterOptions{ContentType: contentType}); err != nil {
			return err
		}
		_, err = again.Write([]byte("x"))
		return err
	})
	var trace *[]string
	s, dir, trace = traced(t, func(name string) error {
		if name != "." {
			return nil
		}
		return meddle()
	})
	put(t, s, "t-0/a.log", "x")
	*trace = nil
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(*trace); n == 0 || !strings.HasPrefix((*trace)[n-1], ". ") {
		t.Errorf("the folder that was made again is not synced into its parent: %q", *trace)
	}
}

func TestKeys(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "store"))
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "secret"), nil, 0o644), os.Symlink(dir, filepath.Join(dir, "store", "out"))); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"../secret", "/x", "a/../../secret", "a//b", "a/./b", ".hidden", "a/.hidden", "a/", "a\\b", "out/new"} {
		if err := s.Bucket.WriteAll(t.Context(), key, nil, nil); err == nil {
			t.Errorf("%q was written", key)
		}
		if _, err := s.Bucket.ReadAll(t.Context(), key); err == nil {
			t.Errorf("%q was read", key)
		}
	}
	if _, err := s.Bucket.ReadAll(t.Context(), "out/secret"); err == nil {
		t.Error("a link led out of the store")
	}
}

func TestURLs(t *testing.T) {
	dir := t.TempDir()
	for _, u := range []string{"file://" + dir, "file://localhost" + dir, "file://" + dir + "?prefix=a/b/"} {
		s, err := bucket.Open(t.Context(), u, Driver(Options{}))
		if err != nil {
			t.Errorf("%s: %v", u, err)
			continue
		}
		_ = s.Close()
	}
	for _, u := range []string{"file://host" + dir, "file:relative", "file://relative/dir", "file://" + dir + "?no_tmp_dir=true", "file://" + dir + "?prefix=../x", "file://" + dir + "?prefix=/x",
		"file://" + dir + "?prefix=a//b", "dir://x", (&url.URL{Scheme: "file", User: url.UserPassword("u", "p"), Path: dir}).String()} {
		if _, err := bucket.Open(t.Context(), u, Driver(Options{})); !errors.Is(err, bucket.ErrURL) {
			t.Errorf("%s: %v", u, err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.Open(t.Context(), "file://"+file, Driver(Options{})); err == nil {
		t.Error("a file was opened as a directory")
	}
}

func TestListing(t *testing.T) {
	s := open(t, t.TempDir())
	keys := []string{"a-1/x", "a.1", "a/1", "a/2/3", "a/2/4", "a0", "b"}
	for _, k := range keys {
		put(t, s, k, k)
	}
	list := func(prefix, delimiter string, page int) []string {
		var all []string
		token := blob.FirstPageToken
		for {
			objects, next, err := s.Bucket.ListPage(t.Context(), token, page, &blob.ListOptions{Prefix: prefix, Delimiter: delimiter})
			if err != nil {
				t.Fatal(err)
			}
			if len(objects) > page {
				t.Fatalf("%d objects on a page of %d", len(objects), page)
			}
			for _, o := range objects {
				all = append(all, o.Key)
			}
			if len(next) == 0 {
				return all
			}
			token = next
		}
	}
	for page := 1; page < 9; page++ {
		for _, c := range []struct {
			prefix, delimiter string
			want              []string
		}{
			{"", "", keys},
			{"a", "", keys[:6]},
			{"a/", "", []string{"a/1", "a/2/3", "a/2/4"}},
			{"a/2/4", "", []string{"a/2/4"}},
			{"a/2", "/", []string{"a/2/"}},
			{"", "/", []string{"a-1/", "a.1", "a/", "a0", "b"}},
			{"none/", "", nil},
			{"../", "", nil},
		} {
			if got := list(c.prefix, c.delimiter, page); !slices.Equal(got, c.want) {
				t.Errorf("prefix %q, delimiter %q, page %d: %q, want %q", c.prefix, c.delimiter, page, got, c.want)
			}
		}
	}
}

// TestFailedSyncOfAFolderIsForGood: of two who write into one folder the first is told that it could not be synced. The other one's name may be as lost, although the
// disk says nothing of that; so is that of a new folder beside it. Another folder is not concerned.
func TestFailedSyncOfAFolderIsForGood(t *testing.T) {
	broken := errors.New("disk is broken")
	for _, at := range []string{"t-0", "."} {
		failed := false
		s, _, _ := traced(t, func(name string) error {
			if name == at && !failed {
				failed = true
				return broken
			}
			return nil
		})
		write := func(key string) error { return s.Bucket.WriteAll(t.Context(), key, []byte("x"), nil) }
		for _, key := range []string{"t-0/a.log", "t-0/b.log"} {
			if err := write(key); !errors.Is(err, broken) {
				t.Errorf("syncing %s failed, and %s is written: %v", at, key, err)
			}
		}
		if err := write("t-1/a.log"); errors.Is(err, broken) != (at == ".") {
			t.Errorf("syncing %s failed, another folder: %v", at, err)
		}
	}
}
