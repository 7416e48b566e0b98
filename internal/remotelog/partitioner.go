package remotelog

import (
	"encoding/binary"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// MetadataPartition tells which partition of `__remote_log_metadata` holds the records of tp. It must agree with Apache Kafka's
// RemoteLogMetadataTopicPartitioner, or brokers and readers look in different places.
func MetadataPartition(tp remotestorage.TopicIDPartition, partitions int32) int32 {
	lsb := int64(binary.BigEndian.Uint64(tp.TopicID[8:]))
	msb := int64(binary.BigEndian.Uint64(tp.TopicID[:8]))
	h := int32(1)
	h = 31*h + foldLong(lsb)
	h = 31*h + foldLong(msb)
	h = 31*h + tp.Partition
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(h))
	return int32(murmur2(b[:])&0x7fffffff) % partitions
}

// foldLong is Java's Long.hashCode.
func foldLong(x int64) int32 { return int32(uint64(x) ^ uint64(x)>>32) }

// murmur2 is Kafka's variant of MurmurHash2 (its seed is fixed), here for keys whose length is a multiple of four.
func murmur2(b []byte) uint32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b)
		k *= m
		k ^= k >> 24
		k *= m
		h *= m
		h ^= k
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
