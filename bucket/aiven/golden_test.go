package aiven

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// prefixes of the golden sets; those not named have none.
var prefixes = map[string]string{"aiven/zstd": "tiered/golden-1/"}

func openDir(tb testing.TB, dir, prefix string) *bucket.Store {
	tb.Helper()
	s, err := file.Open(dir, file.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	s.Prefix = prefix
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func keysOf(tb testing.TB, s *golden.Set) map[string]*rsa.PrivateKey {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(s.Dir, "keys", "*.private.pem"))
	if err != nil {
		tb.Fatal(err)
	}
	keys := make(map[string]*rsa.PrivateKey)
	for _, f := range files {
		k, err := LoadKey(f)
		if err != nil {
			tb.Fatal(err)
		}
		keys[strings.TrimSuffix(filepath.Base(f), ".private.pem")] = k
	}
	return keys
}

func newManager(tb testing.TB, o Options) *Manager {
	tb.Helper()
	m, err := NewManager(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { checkIdle(tb, m) })
	return m
}

// checkIdle: once all readers are closed, memory is counted for idle chunks only.
func checkIdle(tb testing.TB, m *Manager) {
	tb.Helper()
	c := m.chunks
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum int64
	for _, k := range c.chunks {
		if k.refs != 0 || k.flying || k.idle == nil {
			tb.Errorf("chunk %d: %d references, flying %v", k.key.index, k.refs, k.flying)
		}
		if int64(cap(k.buf)) > k.opened {
			tb.Errorf("chunk %d takes %d bytes, of which %d are counted", k.key.index, cap(k.buf), k.opened)
		}
		sum += k.opened
	}
	if sum != c.used || c.used > c.limit || c.waiters.Len() != 0 || c.idle.Len() != len(c.chunks) {
		tb.Errorf("%d bytes counted, %d are there, of %d; %d waiters", c.used, sum, c.limit, c.waiters.Len())
	}
}

func goldenManager(tb testing.TB, s *golden.Set) *Manager {
	tb.Helper()
	return newManager(tb, Options{Store: openDir(tb, s.ObjectsDir(), prefixes[s.Name]), Keys: keysOf(tb, s)})
}

// source is one segment as the broker had it on its disk.
type source struct {
	Partition  int32 `json:"partition"`
	BaseOffset int64 `json:"base_offset"`
	NextOffset int64 `json:"next_base_offset"`
	ActiveTail bool  `json:"active_local_tail"`
	Log        *hash `json:"log"`
	Offset     *hash `json:"offset"`
	Timestamp  *hash `json:"timestamp"`
	Txn        *hash `json:"transaction"`
	Snapshot   *hash `json:"producerSnapshot"`
}

type hash struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// segments are those that the set's objects hold, with what they were made of.
func segments(tb testing.TB, s *golden.Set) map[remotestorage.UUID]*goldenSegment {
	tb.Helper()
	x := s.Index(tb)
	sources := golden.Lines[source](tb, s, "segments.jsonl")
	out := make(map[remotestorage.UUID]*goldenSegment)
	for _, tp := range x.Partitions() {
		for _, md := range x.Partition(tp).All() {
			if md.State != remotestorage.CopySegmentFinished {
				continue
			}
			for i := range sources {
				if sources[i].Partition == tp.Partition && sources[i].BaseOffset == md.StartOffset {
					out[md.ID] = &goldenSegment{md, sources[i]}
				}
			}
			if out[md.ID] == nil {
				tb.Errorf("%s at %d has no source", tp, md.StartOffset)
			}
		}
	}
	if len(out) < 10 {
		tb.Fatalf("%d segments", len(out))
	}
	return out
}

type goldenSegment struct {
	md     remotestorage.RemoteLogSegmentMetadata
	source source
}

func readAll(tb testing.TB, r io.ReadCloser, err error) []byte {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		tb.Fatal(err)
	}
	return b
}

func (h *hash) check(tb testing.TB, what string, b []byte) {
	tb.Helper()
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); int64(len(b)) != h.Size || got != h.SHA256 {
		tb.Errorf("%s: %d bytes %s, want %d bytes %s", what, len(b), got, h.Size, h.SHA256)
	}
}

func eachSet(t *testing.T, fn func(t *testing.T, s *golden.Set)) {
	for _, s := range golden.AivenSets(t) {
		t.Run(strings.TrimPrefix(s.Name, "aiven/"), func(t *testing.T) { fn(t, s) })
	}
}

// TestGoldenObjects reads every log and every index that the plug-in wrote, and compares with the broker's own files.
func TestGoldenObjects(t *testing.T) {
	eachSet(t, func(t *testing.T, s *golden.Set) {
		m := goldenManager(t, s)
		ctx := t.Context()
		withTxn, without := 0, 0
		for _, g := range segments(t, s) {
			name := fmt.Sprintf("%s at %d", g.md.TopicIDPartition, g.md.StartOffset)
			r, err := m.FetchLogSegment(ctx, g.md, 0, int64(g.md.SegmentSizeInBytes))
			log := readAll(t, r, err)
			g.source.Log.check(t, name+" log", log)
			for kind, want := range map[remotestorage.IndexType]*hash{
				remotestorage.IndexOffset: g.source.Offset, remotestorage.IndexTimestamp: g.source.Timestamp, remotestorage.IndexProducerSnapshot: g.source.Snapshot,
				remotestorage.IndexTransaction: g.source.Txn,
			} {
				r, err := m.FetchIndex(ctx, g.md, kind)
				b := readAll(t, r, err)
				if want == nil && kind == remotestorage.IndexTransaction {
					without++
					want = &hash{SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
				} else if kind == remotestorage.IndexTransaction {
					withTxn++
				}
				want.check(t, fmt.Sprintf("%s %s index", name, kind), b)
			}
			r, err = m.FetchIndex(ctx, g.md, remotestorage.IndexLeaderEpoch)
			checkEpochs(t, s, g, readAll(t, r, err))
			again, err := m.FetchLogSegment(ctx, g.md, 0, 1<<40) // longer than the log
			if got := readAll(t, again, err); !bytes.Equal(got, log) {
				t.Errorf("%s: other bytes the second time", name)
			}
		}
		if withTxn == 0 || without == 0 {
			t.Errorf("%d segments with transaction index, %d without: the set should have both", withTxn, without)
		}
	})
}

// checkEpochs: the stored checkpoint is the part of the leader's that lies below the segment's end.
func checkEpochs(t *testing.T, s *golden.Set, g *goldenSegment, b []byte) {
	t.Helper()
	got, err := epoch.ParseCheckpoint(b)
	if err != nil {
		t.Errorf("leader epochs: %v", err)
		return
	}
	whole, err := io.ReadAll(s.Open(t, fmt.Sprintf("checkpoints/leader-epoch-checkpoint.%d", g.md.Partition)))
	if err != nil {
		t.Fatal(err)
	}
	all, err := epoch.ParseCheckpoint(whole)
	if err != nil {
		t.Fatal(err)
	}
	want := all[:0]
	for _, e := range all {
		if e.StartOffset <= g.md.EndOffset {
			want = append(want, e)
		}
	}
	// A log start that moved since has moved the first entry too.
	if len(got) != len(want) || got[len(got)-1].LeaderEpoch != want[len(want)-1].LeaderEpoch || len(got) > 1 && got[1] != want[1] {
		t.Errorf("%s at %d: leader epochs %v, want %v", g.md.TopicIDPartition, g.md.StartOffset, got, want)
	}
}

// TestRanges reads random ranges, many at once, and compares with the whole.
func TestRanges(t *testing.T) {
	eachSet(t, func(t *testing.T, s *golden.Set) {
		limits := []int64{1, 40_000, 1 << 20, 0} // also with next to no memory
		if testing.Short() {
			limits = []int64{40_000, 0}
		}
		for _, limit := range limits {
			m := newManager(t, Options{Store: openDir(t, s.ObjectsDir(), prefixes[s.Name]), Keys: keysOf(t, s), CacheBytes: limit, Parallelism: 3})
			for _, g := range segments(t, s) {
				r, err := m.FetchLogSegment(t.Context(), g.md, 0, int64(g.md.SegmentSizeInBytes))
				whole := readAll(t, r, err)
				var all sync.WaitGroup
				for i := range 8 {
					all.Go(func() { checkRanges(t, m, g, whole, uint64(i)) })
				}
				all.Wait()
			}
		}
	})
}

func checkRanges(t *testing.T, m *Manager, g *goldenSegment, whole []byte, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, uint64(g.md.StartOffset)))
	for range 5 {
		start := rnd.Int64N(int64(len(whole)))
		end := start + rnd.Int64N(int64(len(whole))-start+1)
		if rnd.IntN(3) == 0 {
			end = min(start+rnd.Int64N(3000), int64(len(whole)))
		}
		r, err := m.FetchLogSegment(t.Context(), g.md, start, end)
		if err != nil {
			t.Errorf("[%d, %d): %v", start, end, err)
			return
		}
		var got []byte
		stop := rnd.IntN(4) == 0 // and go away in the middle
		for buf := make([]byte, 1+rnd.IntN(20_000)); ; {
			n, err := r.Read(buf)
			got = append(got, buf[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Errorf("[%d, %d): %v", start, end, err)
				break
			}
			if stop && int64(len(got)) > (end-start)/2 {
				end = start + int64(len(got))
				break
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(got, whole[start:end]) {
			t.Errorf("[%d, %d): other bytes", start, end)
		}
	}
}

// TestRangeEdges: what internal/remote and locate may ask for.
func TestRangeEdges(t *testing.T) {
	eachSet(t, func(t *testing.T, s *golden.Set) {
		m := goldenManager(t, s)
		for _, g := range segments(t, s) {
			size := int64(g.md.SegmentSizeInBytes)
			for _, c := range []struct {
				start, end int64
				want       error
			}{{-1, 1, remotestorage.ErrRange}, {2, 1, remotestorage.ErrRange}, {size, size + 1, remotestorage.ErrRange}, {size + 5, size + 9, remotestorage.ErrRange}} {
				if _, err := m.FetchLogSegment(t.Context(), g.md, c.start, c.end); !errors.Is(err, c.want) {
					t.Errorf("[%d, %d): %v, want %v", c.start, c.end, err, c.want)
				}
			}
			for _, at := range []int64{0, 5, size} {
				r, err := m.FetchLogSegment(t.Context(), g.md, at, at)
				if b := readAll(t, r, err); len(b) != 0 {
					t.Errorf("%d bytes of an empty range", len(b))
				}
			}
			r, err := m.FetchLogSegment(t.Context(), g.md, size-1, size+100)
			if b := readAll(t, r, err); len(b) != 1 {
				t.Errorf("%d bytes of the last one", len(b))
			}
		}
	})
}

// TestGoldenManifests: what the plug-in wrote is what the page of the format says, down to the differences within one set.
func TestGoldenManifests(t *testing.T) {
	kinds := make(map[string]map[string]int)
	eachSet(t, func(t *testing.T, s *golden.Set) {
		m := goldenManager(t, s)
		kinds[s.Name] = make(map[string]int)
		for _, g := range segments(t, s) {
			seg, err := m.segment(t.Context(), g.md.RemoteLogSegmentID, g.md.StartOffset, nil)
			if err != nil {
				t.Fatal(err)
			}
			if seg.chunks.fileSize != int64(g.md.SegmentSizeInBytes) {
				t.Errorf("a log of %d bytes, want %d", seg.chunks.fileSize, g.md.SegmentSizeInBytes)
			}
			body, size, err := m.s.OpenRange(t.Context(), seg.key+logSuffix, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := body.Close(); err != nil {
				t.Error(err)
			}
			if size != seg.chunks.total() {
				t.Errorf("an object of %d bytes, want %d", size, seg.chunks.total())
			}
			kinds[s.Name][fmt.Sprintf("zstd %v key %q", seg.compressed, seg.manifest.key.id)]++
		}
	})
	for set, want := range map[string][]string{
		"aiven/plain": {`zstd false key ""`}, "aiven/zstd": {`zstd true key ""`}, "aiven/aes": {`zstd false key "key1"`},
		"aiven/zstd-aes": {`zstd true key "key1"`, `zstd true key "key2"`}, "aiven/mixed": {`zstd false key ""`, `zstd false key "key1"`, `zstd true key "key1"`},
	} {
		for _, w := range want {
			if kinds[set][w] == 0 {
				t.Errorf("%s: no segment with %s: %v", set, w, kinds[set])
			}
		}
		if len(kinds[set]) != len(want) {
			t.Errorf("%s: %v, want %v", set, kinds[set], want)
		}
	}
}

// TestGoldenCustomMetadata: what the plug-in recorded in the metadata topic names the objects that are there.
func TestGoldenCustomMetadata(t *testing.T) {
	seen := 0
	eachSet(t, func(t *testing.T, s *golden.Set) {
		m := goldenManager(t, s)
		for _, g := range segments(t, s) {
			c, err := parseCustomMetadata(g.md.CustomMetadata)
			if err != nil {
				t.Errorf("%x: %v", g.md.CustomMetadata, err)
				continue
			}
			if len(g.md.CustomMetadata) == 0 {
				continue
			}
			seen++
			var sum int64
			key := m.prefix + segmentName(g.md.RemoteLogSegmentID, g.md.StartOffset)
			for _, suffix := range []string{logSuffix, indexesSuffix, manifestSuffix} {
				body, size, err := m.s.OpenRange(t.Context(), key+suffix, 0, 1)
				if err != nil {
					t.Fatal(err)
				}
				if err := body.Close(); err != nil {
					t.Error(err)
				}
				sum += size
			}
			if c.remoteSize >= 0 && c.remoteSize != sum {
				t.Errorf("remote size %d, want %d", c.remoteSize, sum)
			}
			if base, ok := c.base(g.md.RemoteLogSegmentID); c.hasObject && (!ok || base != g.md.StartOffset || m.recordedKey(g.md.RemoteLogSegmentID, base, g.md.CustomMetadata) != key) {
				t.Errorf("key %q: base offset %d, %v", c.key, base, ok)
			}
		}
	})
	if seen == 0 {
		t.Error("no segment has any")
	}
}

// TestLocations: only what is neither compressed nor encrypted can be read by who has a URL alone.
func TestLocations(t *testing.T) {
	eachSet(t, func(t *testing.T, s *golden.Set) {
		plain, other := 0, 0
		for _, g := range segments(t, s) {
			m := goldenManager(t, s) // a fresh one: it must find the segment by its id
			custom := g.md.CustomMetadata
			l, err := m.RemoteLogSegmentLocation(t.Context(), g.md.RemoteLogSegmentID, custom)
			if err != nil {
				t.Fatal(err)
			}
			_, signErr := m.GetSignedRemoteLogSegmentLocation(t.Context(), g.md.RemoteLogSegmentID, custom)
			if !errors.Is(signErr, remotestorage.ErrNotSigned) {
				t.Errorf("a directory that does not sign: %v", signErr)
			}
			seg, _ := m.segments.Peek(g.md.ID)
			if seg.transformed() {
				other++
				if l != "" {
					t.Errorf("location %q of a transformed object", l)
				}
				continue
			}
			plain++
			if want := m.s.Place(prefixes[s.Name] + segmentName(g.md.RemoteLogSegmentID, g.md.StartOffset) + ".log"); l != want {
				t.Errorf("location %q, want %q", l, want)
			}
		}
		t.Logf("%d plain, %d not", plain, other)
	})
}

// TestManifestDescribesItself: a manifest repeats the metadata record, so that a bucket can be read without the metadata topic.
func TestManifestDescribesItself(t *testing.T) {
	s := golden.Load(t, "aiven/zstd-aes")
	for _, g := range segments(t, s) {
		var j struct {
			M struct {
				Start int64 `json:"startOffset"`
				End   int64 `json:"endOffset"`
			} `json:"remoteLogSegmentMetadata"`
		}
		name := "objects/" + segmentName(g.md.RemoteLogSegmentID, g.md.StartOffset) + manifestSuffix
		if err := json.NewDecoder(s.Open(t, name)).Decode(&j); err != nil || j.M.Start != g.md.StartOffset || j.M.End != g.md.EndOffset {
			t.Errorf("%s: %+v, %v", name, j, err)
		}
	}
}
