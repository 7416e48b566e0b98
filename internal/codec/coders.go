package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Coders compress and decompress for many at once, into memory that the caller has measured out. They keep what is costly to make, one for each that is at work
// at a time; what has not been used for a while the garbage collector takes. The zero value is ready. They have no goroutines.
type Coders struct {
	readers  [Zstd + 1]sync.Pool // of *gzip.Reader, *lz4.Reader
	unzstd   lazy
	mu       sync.Mutex
	encoders map[setting]*sync.Pool // of encoder
}

type setting struct {
	codec int8
	level int
}

// lazy is a zstd decoder that is made when it is needed. Its DecodeAll serves many at once.
type lazy struct {
	once sync.Once
	d    *zstd.Decoder
	err  error
}

func (z *lazy) get() (*zstd.Decoder, error) {
	z.once.Do(func() {
		// The content is its own window: what a frame claims of it takes no memory. 128 MiB is the most that Kafka's clients read.
		z.d, z.err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(128<<20))
	})
	return z.d, z.err
}

// Decode appends the decompressed src to dst, whose capacity is all the memory that it takes for that: what Room says does. More than limit bytes, or more than
// there is room for, are ErrTooLarge. For None it gives src itself.
func (c *Coders) Decode(dst []byte, codec int8, src []byte, limit int64) ([]byte, error) {
	start := len(dst)
	out, err := c.decode(dst, codec, src, min(limit, int64(cap(dst)-start)))
	if err == nil && codec != None && int64(len(out)-start) > limit {
		return dst, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return out, err
}

func (c *Coders) decode(dst []byte, codec int8, src []byte, limit int64) ([]byte, error) {
	switch codec {
	case None:
		return src, nil
	case Snappy:
		return decodeSnappy(dst, src, int(limit))
	case Gzip, LZ4:
		return c.decodeStream(dst, codec, src)
	case Zstd:
		return c.decodeZstd(dst, src)
	}
	return dst, fmt.Errorf("%w: %d", ErrUnknown, codec)
}

// decodeZstd decodes only what there is room for whatever it turns out to be: the library does not tell a block that does not fit from one that is damaged.
func (c *Coders) decodeZstd(dst, src []byte) ([]byte, error) {
	if most := zstdMost(src); most > int64(cap(dst)-len(dst)) {
		return dst, fmt.Errorf("%w: up to %d bytes", ErrTooLarge, most)
	}
	z, err := c.unzstd.get()
	if err != nil {
		return dst, fmt.Errorf("starting zstd: %w", err)
	}
	if dst, err = z.DecodeAll(src, dst); err != nil {
		return dst, fmt.Errorf("%w: zstd: %w", ErrCorrupt, err)
	}
	return dst, nil
}

func (c *Coders) decodeStream(dst []byte, codec int8, src []byte) ([]byte, error) {
	if codec == LZ4 {
		var err error
		if src, err = lz4Frame(src); err != nil {
			return dst, err
		}
	}
	in := bytes.NewReader(src)
	pool := &c.readers[codec]
	var r io.Reader
	if codec == LZ4 {
		z, _ := pool.Get().(*lz4.Reader)
		if z == nil {
			z = lz4.NewReader(nil)
		}
		z.Reset(in)
		defer func() { z.Reset(nil); pool.Put(z) }()
		r = z
	} else {
		z, _ := pool.Get().(*gzip.Reader)
		if z == nil {
			z = new(gzip.Reader)
		}
		if err := z.Reset(in); err != nil {
			return dst, fmt.Errorf("%w: gzip: %w", ErrCorrupt, err)
		}
		defer pool.Put(z)
		r = z
	}
	return fill(dst, r)
}

// lz4Frame cuts src behind its first frame, as Kafka's clients do, who do not look at what is after it. They take no frame but one of independent blocks.
//
//	magic | flags, block size | content size int64, if flagged | header checksum | blocks | 0 int32 | content checksum int32, if flagged
//
// All is little endian. A block is its size int32, whose highest bit says that it is not compressed, its bytes, and a checksum int32 if that is flagged.
func lz4Frame(src []byte) ([]byte, error) {
	const (
		magic                                           = 0x184d2204
		independent, blockSums, contentSize, contentSum = 0x20, 0x10, 0x08, 0x04
	)
	le := binary.LittleEndian
	if len(src) < 7 || le.Uint32(src) != magic || src[4]&independent == 0 {
		return nil, fmt.Errorf("%w: lz4: no frame of independent blocks", ErrCorrupt)
	}
	flags, at := src[4], int64(7)
	if flags&contentSize != 0 {
		at += 8
	}
	for at+4 <= int64(len(src)) {
		size := le.Uint32(src[at:])
		at += 4
		if size == 0 {
			if flags&contentSum != 0 {
				at += 4
			}
			return src[:min(at, int64(len(src)))], nil
		}
		at += int64(size &^ (1 << 31))
		if flags&blockSums != 0 {
			at += 4
		}
	}
	return nil, fmt.Errorf("%w: lz4: the frame is cut off", ErrCorrupt)
}

// fill reads all of r into what is left of dst's capacity.
func fill(dst []byte, r io.Reader) ([]byte, error) {
	for {
		free := dst[len(dst):cap(dst)]
		var probe [1]byte
		if len(free) == 0 {
			free = probe[:]
		}
		n, err := r.Read(free)
		if n > 0 && len(dst) == cap(dst) {
			return dst, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, cap(dst))
		}
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
}

// Room is how much capacity Decode needs for src at the least, so that it can take what is at most limit bytes. With sure more would be of no use; else
// it is a guess, and what turns out to be larger may be tried again with more. It is the sender's word, and no more than limit and a MiB for
// zstd, whose blocks may be smaller than they could be.
func Room(codec int8, src []byte, limit int64) (room int64, sure bool) {
	switch codec {
	case None:
		return 0, true
	case Snappy:
		return min(limit, snappySize(src)), true
	case Zstd:
		return min(limit+zstdLoose, zstdMost(src)), true
	}
	guess := int64(len(src)) * usualRatio
	if said := int64(0); codec == Gzip && len(src) >= 4 {
		said = int64(binary.LittleEndian.Uint32(src[len(src)-4:]))
		guess = min(said, int64(len(src))*gzipRatio)
	}
	return min(limit, max(guess, leastGuess)), false
}

const (
	zstdBlock  = 128 << 10 // the most that a block of zstd grows to
	zstdLoose  = 8 * zstdBlock
	gzipRatio  = 1032 // no deflated stream grows more
	usualRatio = 8
	leastGuess = 64 << 10
)

// zstdMost is the most that the frames in src can grow to: with a content size that, else what each block could be at most. Where a frame is damaged, and the
// decoder will stop, it stops as well.
func zstdMost(src []byte) (most int64) {
	for len(src) > 0 {
		var h zstd.Header
		if h.Decode(src) != nil {
			return most
		}
		at := int64(h.HeaderSize)
		if h.Skippable {
			at += int64(h.SkippableSize)
		} else {
			blocks, end := zstdBlocks(src, at)
			if at = end; h.HasCheckSum {
				at += 4
			}
			if h.HasFCS && h.FrameContentSize < uint64(blocks) {
				blocks = int64(h.FrameContentSize)
			}
			most += blocks
		}
		if at >= int64(len(src)) {
			return most
		}
		src = src[at:]
	}
	return most
}

// zstdBlocks is the most that a frame's blocks can grow to, and where they end. A block is 3 bytes, little endian (bit 0 says that it is the last, bits 1 and 2 its
// kind, the rest its size), and its content.
func zstdBlocks(src []byte, at int64) (most, end int64) {
	for at+3 <= int64(len(src)) {
		head := uint32(src[at]) | uint32(src[at+1])<<8 | uint32(src[at+2])<<16
		size := int64(head >> 3)
		at += 3
		switch head >> 1 & 3 {
		case 0: // as it is
			most += size
			at += size
		case 1: // one byte, so many times
			most += size
			at++
		default:
			most += zstdBlock
			at += size
		}
		if head&1 != 0 {
			break
		}
	}
	return most, at
}

// snappySize is the sum of what the blocks say, as far as it may be true.
func snappySize(src []byte) (sum int64) {
	defer func() { sum = min(sum, int64(len(src))*snappyRatio) }()
	if !bytes.HasPrefix(src, xerialMagic) {
		n, _ := s2.DecodedLen(src)
		return int64(n)
	}
	_ = eachBlock(src, func(block []byte) error {
		n, err := s2.DecodedLen(block)
		sum += int64(n)
		return err
	})
	return sum
}

// encoder is a writer that can be used again.
type encoder interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// EncoderMemory is about what the codec takes for itself while it compresses, besides what it reads and writes.
func EncoderMemory(codec int8, level int) int64 {
	switch {
	case codec == Zstd && level >= 10:
		return 64 << 20
	case codec == Zstd && level >= 6:
		return 16 << 20
	case codec == None:
		return 0
	}
	return 4 << 20
}

// Encode appends src, compressed, to dst: at most limit bytes, more is ErrTooLarge. level is Kafka's number for that codec; snappy has none.
func (c *Coders) Encode(dst []byte, codec int8, level int, src []byte, limit int) ([]byte, error) {
	out := limited{b: dst, left: limit}
	switch codec {
	case None:
		_, err := out.Write(src)
		return out.b, err
	case Snappy:
		err := writeSnappy(&out, src)
		return out.b, err
	case Zstd:
		return c.encodeZstd(dst, level, src, limit)
	}
	pool, err := c.pool(setting{codec, level})
	if err != nil {
		return dst, err
	}
	e := pool.Get().(encoder)
	defer func() { e.Reset(nil); pool.Put(e) }()
	e.Reset(&out)
	_, err = e.Write(src)
	if err == nil {
		err = e.Close()
	}
	if err != nil {
		return dst, fmt.Errorf("compressing: %w", err)
	}
	return out.b, nil
}

func (c *Coders) encodeZstd(dst []byte, level int, src []byte, limit int) ([]byte, error) {
	pool, err := c.pool(setting{Zstd, level})
	if err != nil {
		return dst, err
	}
	e := pool.Get().(*zstd.Encoder)
	defer pool.Put(e)
	start := len(dst)
	dst = e.EncodeAll(src, dst)
	if len(dst)-start > limit {
		return dst, fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, len(dst)-start, limit)
	}
	return dst, nil
}

// pool finds the encoders of a setting. There are few settings: levels are checked when they are configured.
func (c *Coders) pool(s setting) (*sync.Pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.encoders[s]; p != nil {
		return p, nil
	}
	first, err := newEncoder(s) // so that New below cannot fail
	if err != nil {
		return nil, err
	}
	p := &sync.Pool{New: func() any { e, _ := newEncoder(s); return e }}
	p.Put(first)
	if c.encoders == nil {
		c.encoders = make(map[setting]*sync.Pool)
	}
	c.encoders[s] = p
	return p, nil
}

func newEncoder(s setting) (any, error) {
	switch s.codec {
	case Gzip:
		z, err := gzip.NewWriterLevel(nil, s.level)
		if err != nil {
			return nil, fmt.Errorf("starting gzip: %w", err)
		}
		return z, nil
	case LZ4:
		z := lz4.NewWriter(nil)
		if err := z.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.CompressionLevelOption(lz4Level(s.level))); err != nil {
			return nil, fmt.Errorf("starting lz4: %w", err)
		}
		return z, nil
	case Zstd:
		z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(s.level)), zstd.WithZeroFrames(true))
		if err != nil {
			return nil, fmt.Errorf("starting zstd: %w", err)
		}
		return z, nil
	}
	return nil, fmt.Errorf("%w: %d", ErrUnknown, s.codec)
}

// lz4Default is the level that means the fast compressor, as in Kafka; all others are of the thorough one.
const lz4Default = 9

func lz4Level(level int) lz4.CompressionLevel {
	levels := [...]lz4.CompressionLevel{lz4.Level1, lz4.Level2, lz4.Level3, lz4.Level4, lz4.Level5, lz4.Level6, lz4.Level7, lz4.Level8, lz4.Level9}
	if level == lz4Default {
		return lz4.Fast
	}
	return levels[min(max(level, 1), len(levels))-1]
}

// limited appends what is written until there is too much of it.
type limited struct {
	b    []byte
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, fmt.Errorf("%w: %d bytes more than there is room for", ErrTooLarge, len(p)-l.left)
	}
	l.b = append(l.b, p...)
	l.left -= len(p)
	return len(p), nil
}
