package storetest

import (
	"bytes"
	"crypto/rand"
	"io"
	mathrand "math/rand/v2"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Segment makes a segment of size bytes with every file that a segment can have. What is in the files is no Kafka data: a store does not look into them.
func Segment(topic string, base int64, size int) (remotestorage.RemoteLogSegmentMetadata, remotestorage.LogSegmentData) {
	txn := MemoryFile(Bytes(base+4, 68))
	md := remotestorage.RemoteLogSegmentMetadata{
		RemoteLogSegmentID: remotestorage.RemoteLogSegmentID{
			TopicIDPartition: remotestorage.TopicIDPartition{TopicID: ID(), Topic: topic, Partition: 3},
			ID:               ID(),
		},
		StartOffset:        base,
		EndOffset:          base + 99,
		SegmentSizeInBytes: int32(size),
	}
	return md, remotestorage.LogSegmentData{
		Log:              MemoryFile(Bytes(base, size)),
		OffsetIndex:      MemoryFile(Bytes(base+1, 800)),
		TimeIndex:        MemoryFile(Bytes(base+2, 1200)),
		ProducerSnapshot: MemoryFile(nil),
		Transaction:      &txn,
		LeaderEpochIndex: []byte("0\n1\n0 0\n"),
	}
}

// ID is a random id.
func ID() remotestorage.UUID {
	var id remotestorage.UUID
	rand.Read(id[:])
	return id
}

// Bytes are the same for the same seed.
func Bytes(seed int64, n int) []byte {
	b := make([]byte, n)
	src := mathrand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	_, _ = src.Read(b)
	return b
}

// MemoryFile is a file in memory.
func MemoryFile(b []byte) remotestorage.SegmentFile {
	return remotestorage.SegmentFile{
		Size: int64(len(b)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil },
	}
}
