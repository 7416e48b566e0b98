package aiven

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// eachObject goes through all golden objects of one kind.
func eachObject(tb testing.TB, suffix string, fn func(path string, b []byte)) {
	tb.Helper()
	n := 0
	for _, s := range golden.AivenSets(tb) {
		err := filepath.WalkDir(s.ObjectsDir(), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) {
				return err
			}
			b, err := os.ReadFile(path)
			n++
			fn(path, b)
			return err
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	if n == 0 {
		tb.Fatal("no objects")
	}
}

// idIn is the segment's id, by the name of an object.
func idIn(tb testing.TB, path, suffix string) remotestorage.UUID {
	tb.Helper()
	name := strings.TrimSuffix(filepath.Base(path), suffix)
	id, err := remotestorage.ParseUUID(name[len(name)-idLength:])
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

// checkChunks: the chunks cover log and object without gap and overlap.
func checkChunks(t *testing.T, x *chunkIndex) {
	var original, at int64
	for i := range x.count {
		start, end := x.stored(i)
		if start != at || end < start || x.original(i) <= 0 || x.original(i) > maxChunk || int64(i)*x.chunkSize != original {
			t.Fatalf("chunk %d of %d: stored in [%d, %d), %d bytes at %d", i, x.count, start, end, x.original(i), original)
		}
		at, original = end, original+x.original(i)
	}
	if original != x.fileSize || at != x.total() {
		t.Fatalf("%d bytes of a log of %d, %d of an object of %d", original, x.fileSize, at, x.total())
	}
}

func FuzzManifest(f *testing.F) {
	seeds := 0
	eachObject(f, manifestSuffix, func(path string, b []byte) {
		if m, err := parseManifest(b, idIn(f, path, manifestSuffix)); err != nil {
			f.Errorf("%s: %v", path, err)
		} else if m.chunks.count == 0 {
			f.Errorf("%s: no chunks", path)
		}
		if seeds++; seeds%10 == 0 {
			f.Add(b)
		}
	})
	f.Add([]byte(`{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":1,"originalFileSize":0,"transformedChunkSize":0,"finalTransformedChunkSize":0},` +
		`"segmentIndexes":{"offset":{"position":0,"size":0},"timestamp":{"position":0,"size":0},"producerSnapshot":{"position":0,"size":0},"leaderEpoch":{"position":0,"size":0},"transaction":null},"compression":false}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b, remotestorage.UUID{})
		if err != nil {
			return
		}
		checkChunks(t, &m.chunks)
		for _, r := range m.indexes {
			if r.position < 0 || r.size < 0 || r.size > maxIndex+sealSize {
				t.Fatalf("index %+v", r)
			}
		}
	})
}

func FuzzChunkSizes(f *testing.F) {
	for _, s := range []string{"00000000", "0000000100000005", "00000002000000050100" + "00000007", "00000003" + "00000100" + "02" + "00010203" + "00000001", "ffffffff"} {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, int32(2))
	}
	f.Fuzz(func(t *testing.T, b []byte, count int32) {
		if count < 0 || int(count) > len(b) {
			count = int32(len(b))
		}
		ends, err := parseSizes(b, int(count))
		if err != nil {
			return
		}
		if len(ends) != int(count) {
			t.Fatalf("%d sizes, want %d", len(ends), count)
		}
		checkChunks(t, &chunkIndex{fileSize: int64(count), chunkSize: 1, count: int(count), ends: ends})
	})
}

// FuzzPackedSizes: a small frame can claim to be a large one.
func FuzzPackedSizes(f *testing.F) {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(z.EncodeAll([]byte{0, 0, 0, 1, 0, 0, 0, 5}, nil))
	f.Add(z.EncodeAll(make([]byte, 10<<20), nil))
	f.Fuzz(func(t *testing.T, packed []byte) {
		b, err := unpackSizes(packed, 10)
		if err == nil && len(b) > 4+4+1+4*10 {
			t.Fatalf("%d bytes", len(b))
		}
	})
}

func FuzzCustomMetadata(f *testing.F) {
	for _, s := range []string{"", "00", "020002c801020404666f6f", "010002c801", "0101050568657921", "01ffffffff0f00"} {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseCustomMetadata(b)
		if err == nil && len(c.prefix)+len(c.key) > len(b) {
			t.Fatalf("%+v of %d bytes", c, len(b))
		}
		c.base(remotestorage.RemoteLogSegmentID{})
	})
}

// FuzzIndexBlob reads an index out of an object of any bytes.
func FuzzIndexBlob(f *testing.F) {
	store := newFakeStore()
	m, md, _ := written(f, store.store(f), 1000, 1000, false, true, 0, 1)
	f.Add(store.objects[keyOf(&md, indexesSuffix)])
	f.Add([]byte(nil))
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		store.mu.Lock()
		store.objects[keyOf(&md, indexesSuffix)] = b
		store.mu.Unlock()
		r, err := m.FetchIndex(context.Background(), md, remotestorage.IndexOffset)
		if err != nil {
			return
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != "offset" {
			t.Fatalf("%q, %v", got, err)
		}
	})
}

// FuzzChunk opens chunks of any bytes: never more comes out than the manifest says, nothing hangs, and memory is counted as before.
func FuzzChunk(f *testing.F) {
	store := newFakeStore()
	m, md, log := written(f, store.store(f), 3000, 1000, true, false, 0, 1)
	good := store.objects[keyOf(&md, logSuffix)]
	f.Add(good)
	f.Add(bytes.Repeat([]byte{0}, len(good)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > len(good) {
			b = b[:len(good)]
		}
		store.mu.Lock()
		store.objects[keyOf(&md, logSuffix)] = append(bytes.Clone(b), good[len(b):]...)
		store.mu.Unlock()
		m.chunks.forgetIdle()
		r, err := m.FetchLogSegment(context.Background(), md, 0, int64(len(log)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err == nil && len(got) != len(log) {
			t.Fatalf("%d bytes, want %d", len(got), len(log))
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		checkIdle(t, m)
	})
}
