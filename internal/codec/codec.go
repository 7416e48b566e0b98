// Package codec compresses and decompresses the records of a batch with the codecs that Kafka has. The log uses it to look inside batches for
// timestamps and keys, to write batches anew when it compacts, and to give them another codec where a topic asks for one. Other data on its way from producer
// to consumer never passes it.
package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The codecs, as the low bits of a batch's attributes say them.
const (
	None   = 0
	Gzip   = 1
	Snappy = 2
	LZ4    = 3
	Zstd   = 4
)

var (
	// ErrUnknown: the attributes name a codec that does not exist.
	ErrUnknown = errors.New("unknown compression codec")
	// ErrTooLarge: the data grows above the limit when decompressed.
	ErrTooLarge = errors.New("decompressed data is too large")
	// ErrCorrupt: the data is not what the codec writes.
	ErrCorrupt = errors.New("compressed data is corrupt")
)

// Xerial framing, which Kafka's Java clients put around snappy: the magic, then two versions, then blocks with their sizes.
var (
	xerialMagic  = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}
	xerialHeader = append(bytes.Clone(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1)
)

const (
	xerialBlock = 32 << 10
	snappyRatio = 64 // a copy of 64 bytes takes at least two
)

// Decoder decompresses. It keeps what is costly to make; the zero value is ready. Not safe for concurrent use.
type Decoder struct{ zstd *zstd.Decoder }

// Close gives back what the decoder keeps. It may be used again afterwards.
func (d *Decoder) Close() {
	if d.zstd != nil {
		d.zstd.Close()
		d.zstd = nil
	}
}

// Decode appends the decompressed src to dst. More than limit bytes are ErrTooLarge: a small batch can claim to be a huge one.
// For None it gives src itself, uncopied.
func (d *Decoder) Decode(dst []byte, codec int8, src []byte, limit int) ([]byte, error) {
	var r io.Reader
	switch codec {
	case None:
		return src, nil
	case Snappy:
		return decodeSnappy(dst, src, limit)
	case Gzip:
		z, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return dst, fmt.Errorf("%w: gzip: %w", ErrCorrupt, err)
		}
		r = z
	case LZ4:
		if frame, err := lz4Frame(src); err == nil { // what is appended is looked at like that, and must not be refused later
			src = frame
		}
		r = lz4.NewReader(bytes.NewReader(src))
	case Zstd:
		if err := d.resetZstd(src); err != nil {
			return dst, err
		}
		r = d.zstd
	default:
		return dst, fmt.Errorf("%w: %d", ErrUnknown, codec)
	}
	return readAll(dst, r, limit)
}

func (d *Decoder) resetZstd(src []byte) (err error) {
	if d.zstd == nil {
		// One window is all that is ever held: frames that ask for more than producers use are refused.
		d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return fmt.Errorf("starting zstd: %w", err)
		}
	}
	if err := d.zstd.Reset(bytes.NewReader(src)); err != nil {
		return fmt.Errorf("%w: zstd: %w", ErrCorrupt, err)
	}
	return nil
}

func readAll(dst []byte, r io.Reader, limit int) ([]byte, error) {
	start := len(dst)
	for {
		if len(dst)-start > limit {
			return dst, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
		}
		if len(dst) == cap(dst) {
			dst = append(dst, 0)[:len(dst)]
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			if len(dst)-start > limit {
				return dst, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
			}
			return dst, nil
		}
		if err != nil {
			return dst, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
}

func decodeSnappy(dst, src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return decodeBlock(dst, src, limit)
	}
	err := eachBlock(src, func(block []byte) (err error) {
		before := len(dst)
		dst, err = decodeBlock(dst, block, limit)
		limit -= len(dst) - before
		return err
	})
	return dst, err
}

// eachBlock calls fn for each block in xerial framing. Several streams may follow on one another, each with a header.
func eachBlock(src []byte, fn func(block []byte) error) error {
	for len(src) > 0 {
		if bytes.HasPrefix(src, xerialMagic[:4]) { // as a size it would be negative
			if !bytes.HasPrefix(src, xerialMagic) || len(src) < len(xerialHeader) {
				return fmt.Errorf("%w: snappy framing is cut off", ErrCorrupt)
			}
			src = src[len(xerialHeader):]
			continue
		}
		if len(src) < 4 {
			return fmt.Errorf("%w: snappy block size is cut off", ErrCorrupt)
		}
		n := int64(binary.BigEndian.Uint32(src))
		src = src[4:]
		if n > int64(len(src)) {
			return fmt.Errorf("%w: snappy block of %d bytes, %d are there", ErrCorrupt, n, len(src))
		}
		if err := fn(src[:n]); err != nil {
			return err
		}
		src = src[n:]
	}
	return nil
}

func decodeBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	if err != nil {
		return dst, fmt.Errorf("%w: snappy: %w", ErrCorrupt, err)
	}
	// A block that claims more is lying, and is refused before memory is taken for it.
	if int64(n) > int64(len(src))*snappyRatio {
		return dst, fmt.Errorf("%w: snappy: %d bytes out of %d", ErrCorrupt, n, len(src))
	}
	if n > limit {
		return dst, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, n, limit)
	}
	out, err := s2.Decode(dst[len(dst):cap(dst)], src)
	if err != nil {
		return dst, fmt.Errorf("%w: snappy: %w", ErrCorrupt, err)
	}
	if n <= cap(dst)-len(dst) {
		return dst[:len(dst)+n], nil // decoded in its place
	}
	return append(dst, out...), nil
}

// Encode appends src, compressed, to dst. Snappy gets the framing of the Java clients, which every consumer reads.
func Encode(dst []byte, codec int8, src []byte) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	var w io.WriteCloser
	switch codec {
	case None:
		return append(dst, src...), nil
	case Snappy:
		err := writeSnappy(buf, src)
		return buf.Bytes(), err
	case Gzip:
		w = gzip.NewWriter(buf)
	case LZ4:
		z := lz4.NewWriter(buf)
		if err := z.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
			return dst, fmt.Errorf("starting lz4: %w", err)
		}
		w = z
	case Zstd:
		z, err := zstd.NewWriter(buf, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return dst, fmt.Errorf("starting zstd: %w", err)
		}
		w = z
	default:
		return dst, fmt.Errorf("%w: %d", ErrUnknown, codec)
	}
	_, err := w.Write(src)
	if err := errors.Join(err, w.Close()); err != nil {
		return dst, fmt.Errorf("compressing: %w", err)
	}
	return buf.Bytes(), nil
}

// writeSnappy writes src in the framing of the Java clients.
func writeSnappy(w io.Writer, src []byte) error {
	_, err := w.Write(xerialHeader)
	block := make([]byte, 4, 4+s2.MaxEncodedLen(min(len(src), xerialBlock)))
	for err == nil && len(src) > 0 {
		n := min(len(src), xerialBlock)
		out := s2.EncodeSnappy(block[4:cap(block)], src[:n])
		binary.BigEndian.PutUint32(block, uint32(len(out)))
		_, err = w.Write(block[:4+len(out)])
		src = src[n:]
	}
	return err
}
