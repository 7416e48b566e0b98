package partlog

import (
	"fmt"
	"testing"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/codec"
)

// BenchmarkAppendCompressed is a compressed batch that is kept as it comes.
func BenchmarkAppendCompressed(b *testing.B) {
	for _, c := range []int8{codec.Gzip, codec.Snappy, codec.LZ4, codec.Zstd} {
		b.Run(fmt.Sprintf("codec %d", c), func(b *testing.B) {
			l := benchLog(b)
			raw := inCodec(b, plain(16, epoch0.UnixMilli(), 1<<10).build(b), c)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Append(raw, Client); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// inCodec is an uncompressed batch, compressed.
func inCodec(t testing.TB, raw []byte, c int8) []byte {
	t.Helper()
	h, err := batch.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := codec.Encode(nil, c, batch.Payload(raw))
	if err != nil {
		t.Fatal(err)
	}
	h.Attributes = h.Attributes&^batch.CodecMask | int16(c)
	return batch.AppendHeader(nil, &h, payload)
}

// BenchmarkRecompress is a batch that gets its topic's codec, by what it comes with and what it gets.
func BenchmarkRecompress(b *testing.B) {
	for _, from := range []int8{codec.None, codec.Gzip, codec.Snappy, codec.LZ4, codec.Zstd} {
		for _, to := range []int8{codec.None, codec.Gzip, codec.Snappy, codec.LZ4, codec.Zstd} {
			if from == to {
				continue
			}
			b.Run(fmt.Sprintf("%d to %d", from, to), func(b *testing.B) {
				l := benchLog(b)
				c := l.Config()
				c.Recompress, c.Codec, c.Level = true, to, defaultLevel(to)
				l.SetConfig(c)
				plain := plain(16, epoch0.UnixMilli(), 1<<10).build(b)
				raw := inCodec(b, plain, from)
				b.SetBytes(int64(len(plain)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := l.Append(raw, Client); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func defaultLevel(c int8) int {
	return map[int8]int{codec.Gzip: -1, codec.LZ4: 9, codec.Zstd: 3}[c]
}
