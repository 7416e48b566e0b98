package aivenwrite_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"testing"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/aiven"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/aivenwrite"
	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func open(t *testing.T, dir string) *bucket.Store {
	t.Helper()
	s, err := file.Open(dir, file.Options{})
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

// TestConvert: what Apache Kafka's LocalTieredStorage wrote, written anew, reads the same: each log, each index.
func TestConvert(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set := golden.Load(t, "kafka/b-txn")
	from, err := bucket.NewManager(bucket.Options{Store: open(t, set.ObjectsDir())})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]aivenwrite.Options{
		"plain": {}, "zstd": {Compress: true, ChunkSize: 10_000}, "aes": {Key: &key.PublicKey, KeyID: "k", ChunkSize: 10_000}, "both": {Compress: true, Key: &key.PublicKey, KeyID: "k", ChunkSize: 3000},
	} {
		t.Run(name, func(t *testing.T) {
			o.Store, o.KeyPrefix = open(t, t.TempDir()), "some/prefix-"
			w, err := aivenwrite.New(o)
			if err != nil {
				t.Fatal(err)
			}
			n, size, err := w.Convert(t.Context(), from)
			if err != nil || n == 0 || size == 0 {
				t.Fatalf("%d segments of %d bytes, %v", n, size, err)
			}
			to, err := aiven.NewManager(aiven.Options{Store: o.Store, KeyPrefix: o.KeyPrefix, Keys: map[string]*rsa.PrivateKey{"k": key}})
			if err != nil {
				t.Fatal(err)
			}
			x := set.Index(t)
			for _, tp := range x.Partitions() {
				for _, md := range x.Partition(tp).All() {
					if md.State == remotestorage.CopySegmentFinished {
						n--
						compare(t, from, to, md)
					}
				}
			}
			if n != 0 {
				t.Errorf("%d segments more than the metadata knows", n)
			}
		})
	}
}

func compare(t *testing.T, from, to remotestorage.RemoteStorageManager, md remotestorage.RemoteLogSegmentMetadata) {
	t.Helper()
	read := func(r io.ReadCloser, err error) []byte {
		if errors.Is(err, remotestorage.ErrNotFound) {
			return nil // a transaction index: aiven gives an empty one
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		return b
	}
	size := int64(md.SegmentSizeInBytes)
	if !bytes.Equal(read(from.FetchLogSegment(t.Context(), md, 0, size)), read(to.FetchLogSegment(t.Context(), md, 0, size))) {
		t.Errorf("%s at %d: another log", md.TopicIDPartition, md.StartOffset)
	}
	for kind := range remotestorage.IndexLeaderEpoch + 1 {
		if !bytes.Equal(read(from.FetchIndex(t.Context(), md, kind)), read(to.FetchIndex(t.Context(), md, kind))) {
			t.Errorf("%s at %d: another %s index", md.TopicIDPartition, md.StartOffset, kind)
		}
	}
}

// TestAppendLog: the batches are what a broker would accept, one after the other.
func TestAppendLog(t *testing.T) {
	log, next := aivenwrite.AppendLog(nil, 1000, 100_000, mathrand.New(mathrand.NewPCG(1, 2)))
	at := int64(1000)
	n, err := batch.Each(log, func(h batch.Header, raw []byte) error {
		if _, err := batch.Parse(raw); err != nil {
			return err
		}
		if h.BaseOffset != at {
			t.Errorf("a batch at %d, want %d", h.BaseOffset, at)
		}
		at = h.LastOffset() + 1
		return batch.EachRecord(batch.Payload(raw), h.NumRecords, func(r *batch.Record) error {
			if len(r.Value) < 500 || len(r.Value) > 2000 {
				t.Errorf("a value of %d bytes", len(r.Value))
			}
			return nil
		})
	})
	if err != nil || n != len(log) || at != next || n < 100_000 {
		t.Errorf("%d bytes of %d, offsets up to %d of %d, %v", n, len(log), at, next, err)
	}
	if binary.BigEndian.Uint64(log) != 1000 {
		t.Error("base offset")
	}
}
