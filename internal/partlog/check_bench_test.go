package partlog

import (
	"fmt"
	"testing"

	"github.com/rewind-kafka/rewind/internal/codec"
)

// BenchmarkCheck is what an append does before it takes the lock, for batches that are kept as they come.
func BenchmarkCheck(b *testing.B) {
	for _, c := range []int8{codec.None, codec.Zstd} {
		for _, size := range []int{100, 1 << 10} {
			b.Run(fmt.Sprintf("codec %d 16x%d", c, size), func(b *testing.B) {
				l := benchLog(b)
				raw := inCodec(b, plain(16, epoch0.UnixMilli(), size).build(b), c)
				conf := l.config.Load()
				var room [1]checked
				b.ReportAllocs()
				for b.Loop() {
					if _, err := l.check(raw, Client, conf, room[:0]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
