package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Suite is what every store must pass.
func Suite(t *testing.T, s *Server) {
	store := s.Open(t, "rewind-suite")
	store.Prefix = "some/where/"
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *Server, st *bucket.Store)
	}{
		{"PutAndRead", putAndRead},
		{"Ranges", ranges},
		{"Missing", missing},
		{"Delete", deleteSegment},
		{"ListPaging", listPaging},
		{"Multipart", multipart},
		{"Checksum", checksum},
		{"LocalFileFails", localFileFails},
		{"Interrupted", interrupted},
		{"ConcurrentReaders", concurrentReaders},
		{"CloseEndsConnections", closeEndsConnections},
		{"Unsigned", unsigned},
		{"Signed", signed},
		{"SignedForged", signedForged},
		{"SignedExpired", signedExpired},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, s, store) })
	}
}

func manager(t *testing.T, st *bucket.Store, o bucket.Options) *bucket.Manager {
	t.Helper()
	o.Store = st
	m, err := bucket.NewManager(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func copySegment(t *testing.T, m *bucket.Manager, md *remotestorage.RemoteLogSegmentMetadata, data remotestorage.LogSegmentData) {
	t.Helper()
	custom, err := m.CopyLogSegmentData(t.Context(), *md, data)
	if err != nil {
		t.Fatal(err)
	}
	md.CustomMetadata = custom
}

func content(t *testing.T, f remotestorage.SegmentFile) []byte {
	t.Helper()
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, r)
}

func readAll(t *testing.T, r io.ReadCloser) []byte {
	t.Helper()
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}

func wantBytes(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes that differ from the %d that were put", what, len(got), len(want))
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	if err != nil && (strings.Contains(err.Error(), "ignature=") || strings.Contains(err.Error(), "sig=")) {
		t.Errorf("%s: the error repeats a signature: %v", what, err)
	}
}

func putAndRead(t *testing.T, _ *Server, st *bucket.Store) {
	m := manager(t, st, bucket.Options{})
	if err := m.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	md, data := Segment("put", 7, 100_000)
	copySegment(t, m, &md, data)
	copySegment(t, m, &md, data) // a retry of a copy whose answer was lost
	r, err := m.FetchLogSegment(t.Context(), md, 0, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	wantBytes(t, "log", readAll(t, r), content(t, data.Log))
	for index, want := range map[remotestorage.IndexType][]byte{
		remotestorage.IndexOffset:           content(t, data.OffsetIndex),
		remotestorage.IndexTimestamp:        content(t, data.TimeIndex),
		remotestorage.IndexProducerSnapshot: content(t, data.ProducerSnapshot),
		remotestorage.IndexTransaction:      content(t, *data.Transaction),
		remotestorage.IndexLeaderEpoch:      data.LeaderEpochIndex,
	} {
		r, err := m.FetchIndex(t.Context(), md, index)
		if err != nil {
			t.Fatalf("%v index: %v", index, err)
		}
		wantBytes(t, index.String()+" index", readAll(t, r), want)
	}
}

func ranges(t *testing.T, _ *Server, st *bucket.Store) {
	m := manager(t, st, bucket.Options{})
	md, data := Segment("ranges", 0, 5000)
	copySegment(t, m, &md, data)
	log := content(t, data.Log)
	for _, c := range []struct {
		start, end int64
		want       []byte
		err        error
	}{
		{0, 5000, log, nil},
		{0, 1, log[:1], nil},
		{4999, 5000, log[4999:], nil},
		{1234, 2345, log[1234:2345], nil},
		{17, 17, nil, nil},
		{4000, 9000, log[4000:], nil},
		{0, 1 << 40, log, nil},
		{5000, 6000, nil, remotestorage.ErrRange},
		{7000, 8000, nil, remotestorage.ErrRange},
		{-1, 10, nil, remotestorage.ErrRange},
		{20, 10, nil, remotestorage.ErrRange},
	} {
		what := fmt.Sprintf("bytes %d to %d", c.start, c.end)
		r, err := m.FetchLogSegment(t.Context(), md, c.start, c.end)
		if c.err != nil {
			wantErr(t, what, err, c.err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		wantBytes(t, what, readAll(t, r), c.want)
	}
}

func missing(t *testing.T, _ *Server, st *bucket.Store) {
	m := manager(t, st, bucket.Options{})
	md, data := Segment("missing", 0, 100)
	_, err := m.FetchLogSegment(t.Context(), md, 0, 100)
	wantErr(t, "log of a missing segment", err, remotestorage.ErrNotFound)
	_, err = m.FetchIndex(t.Context(), md, remotestorage.IndexOffset)
	wantErr(t, "index of a missing segment", err, remotestorage.ErrNotFound)
	if err := m.DeleteLogSegmentData(t.Context(), md); err != nil {
		t.Errorf("deleting a missing segment: %v", err)
	}
	_, err = m.GetSignedRemoteLogSegmentLocation(t.Context(), md.RemoteLogSegmentID, nil)
	wantErr(t, "location of a missing segment without custom metadata", err, remotestorage.ErrNotFound)
	data.Transaction = nil
	copySegment(t, m, &md, data)
	_, err = m.FetchIndex(t.Context(), md, remotestorage.IndexTransaction)
	wantErr(t, "absent transaction index", err, remotestorage.ErrNotFound)
}

func stored(t *testing.T, m *bucket.Manager, tp remotestorage.TopicIDPartition) []bucket.StoredSegment {
	t.Helper()
	var all []bucket.StoredSegment
	for s, err := range m.ListSegments(t.Context(), tp) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func deleteSegment(t *testing.T, _ *Server, st *bucket.Store) {
	m := manager(t, st, bucket.Options{})
	gone, data := Segment("delete", 0, 1000)
	stays := gone
	stays.ID, stays.StartOffset = ID(), 100
	copySegment(t, m, &gone, data)
	copySegment(t, m, &stays, data)
	for range 2 {
		if err := m.DeleteLogSegmentData(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		want := []bucket.StoredSegment{{RemoteLogSegmentID: stays.RemoteLogSegmentID, BaseOffset: 100, Size: 1000, Objects: 6}}
		if got := stored(t, m, gone.TopicIDPartition); !slices.Equal(got, want) {
			t.Fatalf("stored %+v, want %+v", got, want)
		}
	}
	if err := m.DeletePartition(t.Context(), gone.TopicIDPartition); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, m, gone.TopicIDPartition); len(got) != 0 {
		t.Errorf("stored %+v after the partition was deleted", got)
	}
}

// listPaging has more objects than a page of any store's listing.
func listPaging(t *testing.T, _ *Server, st *bucket.Store) {
	const n = 1050
	md, _ := Segment("paging", 0, 0)
	m := manager(t, st, bucket.Options{})
	put := func(i int) error {
		id := md.RemoteLogSegmentID
		id.ID = remotestorage.UUID{byte(i >> 8), byte(i)}
		key := fmt.Sprintf("%s%s-3-%s/%020d-%s.log", st.Prefix, id.Topic, id.TopicID, i, id.ID)
		return st.Bucket.WriteAll(t.Context(), key, []byte("x"), nil)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				if err := put(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	got := stored(t, m, md.TopicIDPartition)
	if len(got) != n {
		t.Fatalf("%d segments listed, want %d", len(got), n)
	}
	for i, s := range got {
		if s.BaseOffset != int64(i) || s.Size != 1 || s.Objects != 1 {
			t.Fatalf("segment %d: %+v", i, s)
		}
	}
	found := false
	for tp, err := range m.ListPartitions(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		found = found || tp == md.TopicIDPartition
	}
	if !found {
		t.Error("the partition is not listed")
	}
	last := md.RemoteLogSegmentID
	last.ID = remotestorage.UUID{byte((n - 1) >> 8), byte((n - 1) & 0xff)}
	location, err := m.RemoteLogSegmentLocation(t.Context(), last, nil)
	if err != nil || !strings.HasSuffix(location, fmt.Sprintf("%020d-%s.log", n-1, last.ID)) {
		t.Errorf("found by its id: %q, %v", location, err)
	}
}

func multipart(t *testing.T, _ *Server, st *bucket.Store) {
	m := manager(t, st, bucket.Options{PartSize: 5 << 20})
	md, data := Segment("multipart", 0, 17<<20+123)
	copySegment(t, m, &md, data)
	r, err := m.FetchLogSegment(t.Context(), md, 0, data.Log.Size)
	if err != nil {
		t.Fatal(err)
	}
	wantBytes(t, "log in parts", readAll(t, r), content(t, data.Log))
}

// twisted follows other bytes than those that were sent, so that the store's word must contradict it.
type twisted struct{ bucket.Checksum }

func (w twisted) Write(p []byte) (int, error) {
	q := bytes.Clone(p)
	if len(q) > 0 {
		q[0] ^= 1
	}
	return w.Checksum.Write(q)
}

// OnRecord is a slog.Handler that is called at each record, whatever is in it.
type OnRecord func()

func (OnRecord) Enabled(context.Context, slog.Level) bool { return true }

func (f OnRecord) Handle(context.Context, slog.Record) error {
	f()
	return nil
}

func (f OnRecord) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f OnRecord) WithGroup(string) slog.Handler      { return f }

// checksum: an object that is not what was sent is noticed, where the store tells a checksum.
func checksum(t *testing.T, s *Server, st *bucket.Store) {
	if st.NewChecksum == nil {
		t.Skip("this store tells no checksum")
	}
	wrong := *st
	wrong.NewChecksum = func(partSize int64) bucket.Checksum { return twisted{st.NewChecksum(partSize)} }
	sizes := []int{1000}
	if s.Kind == "s3" {
		sizes = append(sizes, 17<<20)
	}
	for _, size := range sizes {
		md, data := Segment("checksum", 0, size)
		data.OffsetIndex, data.TimeIndex, data.LeaderEpochIndex = MemoryFile(nil), MemoryFile(nil), nil
		data.Transaction = nil
		ctx, cancel := context.WithCancel(t.Context())
		m := manager(t, &wrong, bucket.Options{PartSize: 5 << 20, Logger: slog.New(OnRecord(cancel))}) // once is enough
		_, err := m.CopyLogSegmentData(ctx, md, data)
		cancel()
		wantErr(t, fmt.Sprintf("%d bytes", size), err, bucket.ErrNotWhole)
	}
}

// failing gives n bytes of b and then an error.
type failing struct {
	b   io.Reader
	err func() error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.b.Read(p)
	if errors.Is(err, io.EOF) {
		err = f.err()
	}
	return n, err
}

func cutFile(b []byte, at int, err func() error) remotestorage.SegmentFile {
	return remotestorage.SegmentFile{Size: int64(len(b)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(&failing{b: bytes.NewReader(b[:at]), err: err}), nil
	}}
}

// localFileFails: whatever is wrong with the local file, the object does not come to be under its name as if it were whole.
func localFileFails(t *testing.T, _ *Server, st *bucket.Store) {
	m := manager(t, st, bucket.Options{PartSize: 5 << 20})
	b, broken := Bytes(1, 12<<20), errors.New("disk is broken")
	for name, f := range map[string]remotestorage.SegmentFile{
		"read error":       cutFile(b, 11<<20, func() error { return broken }),
		"read error early": cutFile(b, 100, func() error { return broken }),
		"shorter":          cutFile(b, 11<<20, func() error { return io.EOF }),
		"longer":           {Size: 100, Open: MemoryFile(b).Open},
		"not opened":       {Size: 100, Open: func() (io.ReadCloser, error) { return nil, broken }},
	} {
		t.Run(name, func(t *testing.T) {
			md, data := Segment("local", 0, 0)
			data.Log = f
			if _, err := m.CopyLogSegmentData(t.Context(), md, data); err == nil {
				t.Fatal("copied")
			}
			_, err := m.FetchLogSegment(t.Context(), md, 0, 1)
			wantErr(t, "log", err, remotestorage.ErrNotFound)
			if err := m.DeleteLogSegmentData(t.Context(), md); err != nil {
				t.Fatal(err)
			}
			if got := stored(t, m, md.TopicIDPartition); len(got) != 0 {
				t.Errorf("stored %+v after it was deleted", got)
			}
		})
	}
}

// interrupted cancels a copy while parts are under way.
func interrupted(t *testing.T, s *Server, st *bucket.Store) {
	m := manager(t, st, bucket.Options{PartSize: 5 << 20})
	md, data := Segment("interrupted", 0, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := Bytes(1, 22<<20)
	data.Log = cutFile(b, 21<<20, func() error {
		cancel()
		return ctx.Err()
	})
	if _, err := m.CopyLogSegmentData(ctx, md, data); err == nil {
		t.Fatal("copied")
	}
	_, err := m.FetchLogSegment(t.Context(), md, 0, 1)
	wantErr(t, "log", err, remotestorage.ErrNotFound)
	if err := m.DeleteLogSegmentData(t.Context(), md); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, m, md.TopicIDPartition); len(got) != 0 {
		t.Errorf("stored %+v after it was deleted", got)
	}
	copySegment(t, m, &md, remotestorage.LogSegmentData{
		Log: MemoryFile(b), OffsetIndex: data.OffsetIndex, TimeIndex: data.TimeIndex, ProducerSnapshot: data.ProducerSnapshot, LeaderEpochIndex: data.LeaderEpochIndex,
	})
	r, err := m.FetchLogSegment(t.Context(), md, 0, int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	wantBytes(t, "log of the second copy", readAll(t, r), b)
}

func concurrentReaders(t *testing.T, _ *Server, st *bucket.Store) {
	const size = 1 << 20
	m := manager(t, st, bucket.Options{})
	md, data := Segment("readers", 0, size)
	copySegment(t, m, &md, data)
	log := content(t, data.Log)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for range 10 {
				start := rnd.Int64N(size)
				end := start + 1 + rnd.Int64N(size-start)
				r, err := m.FetchLogSegment(t.Context(), md, start, end)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(r)
				if err := errors.Join(err, r.Close()); err != nil {
					t.Error(err)
					return
				}
				wantBytes(t, "range", got, log[start:end])
			}
		})
	}
	wg.Wait()
}

// closeEndsConnections: a store that is opened anew in a process that runs on leaves nothing behind. Google's client hides its transport behind others: of that one we know only that
// idle connections end by themselves.
func closeEndsConnections(t *testing.T, s *Server, st *bucket.Store) {
	if s.Kind == "gs" {
		return
	}
	m := manager(t, st, bucket.Options{})
	md, data := Segment("closed", 0, 100_000)
	copySegment(t, m, &md, data)
	before := goleak.IgnoreCurrent()
	another, err := bucket.Open(t.Context(), s.url(s.Addr, "rewind-suite"), s.driver)
	if err != nil {
		t.Fatal(err)
	}
	another.Prefix = st.Prefix
	m = manager(t, another, bucket.Options{})
	var wg sync.WaitGroup
	for range 8 { // several connections
		wg.Go(func() {
			r, err := m.FetchLogSegment(t.Context(), md, 0, 100_000)
			if err != nil {
				t.Error(err)
				return
			}
			if n, err := io.Copy(io.Discard, r); err != nil || n != 100_000 {
				t.Error(n, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := another.Close(); err != nil {
		t.Error(err)
	}
	if err := goleak.Find(append(Leaks(), before)...); err != nil {
		t.Error(err)
	}
}
