package broker

import (
	"github.com/rewind-kafka/rewind/internal/codec"
	"github.com/rewind-kafka/rewind/internal/config"
)

// anyRecord is the default of max.decompressed.message.bytes: no record is larger, so that batches need not be opened to know.
const anyRecord = 2147483639

// compressionOf is what a topic's configuration says of the codec that its logs keep clients' batches in. recompress is false for the producers' own.
func compressionOf(t *config.Topic) (recompress bool, c int8, level, maxRecord int) {
	if t.MaxDecompressedBytes < anyRecord {
		maxRecord = t.MaxDecompressedBytes
	}
	switch t.CompressionType {
	case "uncompressed":
		return true, codec.None, 0, maxRecord
	case "gzip":
		return true, codec.Gzip, t.GzipLevel, maxRecord
	case "snappy":
		return true, codec.Snappy, 0, maxRecord
	case "lz4":
		return true, codec.LZ4, t.LZ4Level, maxRecord
	case "zstd":
		return true, codec.Zstd, t.ZstdLevel, maxRecord
	}
	return false, codec.None, 0, maxRecord
}
