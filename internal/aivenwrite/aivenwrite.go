// Package aivenwrite writes segments in layout aiven as Aiven's tiered storage plug-in does (docs/format/aiven.md), so that tests and `rewind bench` have as much
// of it as they need without a JVM. It is written from the format, not from the reader in bucket/aiven, and shares no code with it.
//
// Tests and internal/bench import it; it is no way to store anybody's data. It starts no goroutines.
package aivenwrite

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha3"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Options are the plug-in's settings.
type Options struct {
	Store *bucket.Store
	// KeyPrefix is key.prefix, put before every name as it is, after the store's own prefix.
	KeyPrefix string
	// ChunkSize is chunk.size; 4 MiB if 0.
	ChunkSize int
	// Compress is compression.enabled.
	Compress bool
	// KeyID and Key are the key pair that data keys are encrypted with; Key nil: no encryption.
	KeyID string
	Key   *rsa.PublicKey
}

// Writer writes segments. It is not safe for concurrent use.
type Writer struct {
	o    Options
	zstd *zstd.Encoder
}

// New returns a Writer.
func New(o Options) (*Writer, error) {
	if o.ChunkSize == 0 {
		o.ChunkSize = 4 << 20
	}
	w := &Writer{o: o}
	if o.Compress {
		var err error
		if w.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// sealer encrypts chunks of one segment; nil: it leaves them as they are.
type sealer struct {
	aead    cipher.AEAD
	aad     []byte
	wrapped string
}

func (w *Writer) newSealer() (*sealer, error) {
	if w.o.Key == nil {
		return nil, nil
	}
	key, aad := make([]byte, 32), make([]byte, 32)
	rand.Read(key) // never fails
	rand.Read(aad)
	wrapped, err := rsa.EncryptOAEP(sha3.New512(), rand.Reader, w.o.Key, key, nil)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &sealer{aead: aead, aad: aad, wrapped: w.o.KeyID + ":" + base64.StdEncoding.EncodeToString(wrapped)}, err
}

func (s *sealer) seal(b []byte) []byte {
	if s == nil {
		return b
	}
	iv := make([]byte, 12, 12+len(b)+16)
	rand.Read(iv)
	return s.aead.Seal(iv, iv, b, s.aad)
}

// Write stores one segment: log, indexes, manifest.
func (w *Writer) Write(ctx context.Context, md remotestorage.RemoteLogSegmentMetadata, data remotestorage.LogSegmentData) error {
	s, err := w.newSealer()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s%s%s-%s/%d/%020d-%s", w.o.Store.Prefix, w.o.KeyPrefix, md.Topic, md.TopicID, md.Partition, md.StartOffset, md.ID)
	sizes, err := w.writeLog(ctx, name+".log", data.Log, s)
	if err != nil {
		return err
	}
	indexes, err := w.writeIndexes(ctx, name+".indexes", &data, s)
	if err != nil {
		return err
	}
	m := manifest{Version: "1", ChunkIndex: w.chunkIndex(data.Log.Size, sizes), SegmentIndexes: indexes, Compression: w.o.Compress}
	if s != nil {
		m.Encryption = &encryption{DataKey: s.wrapped, AAD: base64.StdEncoding.EncodeToString(s.aad)}
	}
	m.Metadata.ID.ID = md.ID.String()
	m.Metadata.ID.TopicIDPartition.TopicID = md.TopicID.String()
	m.Metadata.ID.TopicIDPartition.TopicPartition.Topic = md.Topic
	m.Metadata.ID.TopicIDPartition.TopicPartition.Partition = md.Partition
	m.Metadata.StartOffset, m.Metadata.EndOffset, m.Metadata.MaxTimestampMs = md.StartOffset, md.EndOffset, md.MaxTimestampMs
	b, err := json.Marshal(&m)
	if err != nil {
		return err
	}
	return w.o.Store.Bucket.WriteAll(ctx, name+".rsm-manifest", b, nil)
}

// writeLog gives the size of each chunk as stored.
func (w *Writer) writeLog(ctx context.Context, key string, f remotestorage.SegmentFile, s *sealer) (sizes []int, err error) {
	in, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer in.Close() // only read from
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a writer whose context has ended stores nothing
	out, err := w.o.Store.Bucket.NewWriter(ctx, key, nil)
	if err != nil {
		return nil, err
	}
	chunk, packed := make([]byte, w.o.ChunkSize), []byte(nil)
	for left := f.Size; left > 0; left -= int64(len(chunk)) {
		chunk = chunk[:min(int64(w.o.ChunkSize), left)]
		if _, err := io.ReadFull(in, chunk); err != nil {
			cancel()
			return nil, errors.Join(err, out.Close())
		}
		b := chunk
		if w.o.Compress {
			packed = w.zstd.EncodeAll(chunk, packed[:0])
			b = packed
		}
		b = s.seal(b)
		sizes = append(sizes, len(b))
		if _, err := out.Write(b); err != nil {
			cancel()
			return nil, errors.Join(err, out.Close())
		}
	}
	return sizes, out.Close()
}

func (w *Writer) writeIndexes(ctx context.Context, key string, data *remotestorage.LogSegmentData, s *sealer) (indexes, error) {
	var x indexes
	var all bytes.Buffer
	add := func(b []byte) index {
		i := index{Position: all.Len()}
		if len(b) > 0 {
			b = s.seal(b)
			i.Size = len(b)
			all.Write(b)
		}
		return i
	}
	for _, f := range []struct {
		file remotestorage.SegmentFile
		to   *index
	}{{data.OffsetIndex, &x.Offset}, {data.TimeIndex, &x.Timestamp}, {data.ProducerSnapshot, &x.ProducerSnapshot}} {
		b, err := readFile(f.file)
		if err != nil {
			return x, err
		}
		*f.to = add(b)
	}
	x.LeaderEpoch = add(data.LeaderEpochIndex)
	if data.Transaction != nil {
		b, err := readFile(*data.Transaction)
		if err != nil {
			return x, err
		}
		i := add(b)
		x.Transaction = &i
	}
	return x, w.o.Store.Bucket.WriteAll(ctx, key, all.Bytes(), nil)
}

func readFile(f remotestorage.SegmentFile) ([]byte, error) {
	if f.Open == nil {
		return nil, nil
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}
