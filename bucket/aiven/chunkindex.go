package aiven

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/klauspost/compress/zstd"
)

const (
	// maxChunks bounds the memory of one segment's index. The plug-in's default makes 256 chunks of 4 MiB of a segment of 1 GiB.
	maxChunks = 1 << 20
	// maxChunk is the largest chunk, opened or as stored, that is read: it is held in memory whole.
	maxChunk = 256 << 20
)

// chunkIndex maps the bytes of the log to those of the stored object. Chunk i holds the log's bytes from i times the chunk size on; the stored chunks follow each
// other without a gap.
type chunkIndex struct {
	fileSize  int64 // of the log
	chunkSize int64 // of a chunk of the log, but the last
	count     int
	// Stored sizes: all alike but the last, or, if ends is not nil, each of its own.
	storedSize, lastStored int64
	ends                   []uint32 // where each stored chunk ends
}

// chunkIndexJSON is the manifest's chunkIndex.
type chunkIndexJSON struct {
	Type                      string  `json:"type"`
	OriginalChunkSize         *int64  `json:"originalChunkSize"`
	OriginalFileSize          *int64  `json:"originalFileSize"`
	TransformedChunkSize      *int64  `json:"transformedChunkSize"`
	FinalTransformedChunkSize *int64  `json:"finalTransformedChunkSize"`
	TransformedChunks         *string `json:"transformedChunks"`
}

func parseChunkIndex(j *chunkIndexJSON) (chunkIndex, error) {
	var x chunkIndex
	for _, f := range []struct {
		name string
		from *int64
		to   *int64
		min  int64
	}{{"originalChunkSize", j.OriginalChunkSize, &x.chunkSize, 1}, {"originalFileSize", j.OriginalFileSize, &x.fileSize, 0}} {
		if err := takeSize(f.name, f.from, f.to, f.min); err != nil {
			return x, err
		}
	}
	count := (x.fileSize + x.chunkSize - 1) / x.chunkSize
	if count > maxChunks {
		return x, fmt.Errorf("%w: %d chunks of %d bytes: more than %d are not read", errTooLarge, count, x.chunkSize, maxChunks)
	}
	if x.count = int(count); x.count > 0 && x.original(0) > maxChunk {
		return x, fmt.Errorf("%w: chunks of %d bytes: more than %d are not read", errTooLarge, x.original(0), maxChunk)
	}
	switch j.Type {
	case "fixed":
		return x, x.fixed(j)
	case "variable":
		return x, x.variable(j)
	}
	return x, fmt.Errorf("%w: chunk index of type %q", errUnknown, j.Type)
}

// takeSize takes one of the manifest's numbers, all of which are Java ints.
func takeSize(name string, from *int64, to *int64, least int64) error {
	if from == nil {
		return fmt.Errorf("%s is missing", name)
	}
	if *from < least || *from > math.MaxInt32 {
		return fmt.Errorf("%s is %d", name, *from)
	}
	*to = *from
	return nil
}

func (x *chunkIndex) fixed(j *chunkIndexJSON) error {
	if err := takeSize("transformedChunkSize", j.TransformedChunkSize, &x.storedSize, 0); err != nil {
		return err
	}
	return takeSize("finalTransformedChunkSize", j.FinalTransformedChunkSize, &x.lastStored, 0)
}

// variable unpacks the list of stored sizes.
func (x *chunkIndex) variable(j *chunkIndexJSON) error {
	if j.TransformedChunks == nil {
		return fmt.Errorf("transformedChunks is missing")
	}
	packed, err := base64.StdEncoding.DecodeString(*j.TransformedChunks)
	if err != nil {
		return fmt.Errorf("transformedChunks: %w", err)
	}
	b, err := unpackSizes(packed, x.count)
	if err != nil {
		return fmt.Errorf("transformedChunks: %w", err)
	}
	if x.ends, err = parseSizes(b, x.count); err != nil {
		return fmt.Errorf("transformedChunks: %w", err)
	}
	return nil
}

// unpackSizes decompresses the list; for count chunks it has a largest possible size.
func unpackSizes(packed []byte, count int) ([]byte, error) {
	limit := 4 + 4 + 1 + 4*max(count, 1)
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(packed, make([]byte, 0, limit))
}

// parseSizes reads the list and gives where each chunk ends: int32 count; the only size as int32, or int32 base, width in bytes, count-1 numbers to add to the
// base, and the last size as int32.
func parseSizes(b []byte, want int) ([]uint32, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("%d bytes", len(b))
	}
	count := int64(int32(binary.BigEndian.Uint32(b)))
	b = b[4:]
	if want == 0 && count <= 1 { // nothing to read
		return []uint32{}, nil
	}
	if count != int64(want) {
		return nil, fmt.Errorf("%d chunks, want %d by the sizes of file and chunk", count, want)
	}
	ends := make([]uint32, 0, want)
	var at int64
	add := func(size int64) error {
		at += size
		if size <= 0 || size > maxChunk || at > math.MaxInt32 {
			return fmt.Errorf("chunk %d has %d bytes", len(ends), size)
		}
		ends = append(ends, uint32(at))
		return nil
	}
	if want > 1 {
		if len(b) < 5 {
			return nil, fmt.Errorf("list is cut off")
		}
		base, width := int64(int32(binary.BigEndian.Uint32(b))), int(b[4])
		b = b[5:]
		if width < 1 || width > 4 || len(b) != (want-1)*width+4 {
			return nil, fmt.Errorf("%d bytes for %d numbers of width %d", len(b), want-1, width)
		}
		for range want - 1 {
			if err := add(base + bigEndian(b[:width])); err != nil {
				return nil, err
			}
			b = b[width:]
		}
	}
	if len(b) != 4 {
		return nil, fmt.Errorf("%d bytes at the list's end, want 4", len(b))
	}
	return ends, add(int64(int32(binary.BigEndian.Uint32(b))))
}

func bigEndian(b []byte) int64 {
	var v int64
	for _, c := range b {
		v = v<<8 | int64(c)
	}
	return v
}

// original is the size of chunk i in the log.
func (x *chunkIndex) original(i int) int64 {
	if i == x.count-1 {
		return x.fileSize - int64(i)*x.chunkSize
	}
	return x.chunkSize
}

// stored is where chunk i lies in the object.
func (x *chunkIndex) stored(i int) (start, end int64) {
	if x.ends != nil {
		if i > 0 {
			start = int64(x.ends[i-1])
		}
		return start, int64(x.ends[i])
	}
	start = int64(i) * x.storedSize
	if i == x.count-1 {
		return start, start + x.lastStored
	}
	return start, start + x.storedSize
}

// total is the object's size.
func (x *chunkIndex) total() int64 {
	if x.count == 0 {
		return 0
	}
	_, end := x.stored(x.count - 1)
	return end
}

// check compares stored sizes with what they can be: without compression they are known.
func (x *chunkIndex) check(compressed, encrypted bool) error {
	seal := int64(0)
	if encrypted {
		seal = sealSize
	}
	if compressed && x.ends == nil {
		return fmt.Errorf("chunks are compressed, and their sizes are not listed")
	}
	step := 1
	if x.ends == nil {
		step = max(1, x.count-1) // the first and the last
	}
	for i := 0; i < x.count; i += step {
		start, end := x.stored(i)
		if n := end - start; compressed && n <= seal || !compressed && n != x.original(i)+seal {
			return fmt.Errorf("chunk %d of %d bytes is stored in %d bytes", i, x.original(i), n)
		}
	}
	return nil
}
