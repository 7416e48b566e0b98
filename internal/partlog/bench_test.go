package partlog

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func benchLog(b *testing.B) *Log {
	b.Helper()
	o := testOptions(vfs.Default)
	o.Dir = b.TempDir() + "/t-0"
	o.Config = DefaultConfig()
	o.Config.TimestampAfterMaxMs = 1<<63 - 1
	o.Config.SegmentBytes = 256 << 20
	return mustOpen(b, o)
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("16x%d", size), func(b *testing.B) {
			l := benchLog(b)
			raw := plain(16, epoch0.UnixMilli(), size).build(b)
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

func BenchmarkAppendSync(b *testing.B) {
	l := benchLog(b)
	raw := plain(16, epoch0.UnixMilli(), 1<<10).build(b)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(p *testing.PB) {
		mine := append([]byte(nil), raw...)
		for p.Next() {
			info, err := l.Append(mine, Client)
			if err == nil {
				err = l.Sync(context.Background(), info.LastOffset+1)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	l := benchLog(b)
	raw := plain(16, epoch0.UnixMilli(), 1<<10).build(b)
	for range 4000 {
		mustAppend(b, l, raw)
	}
	end := l.Offsets().LogEnd
	b.Run("sequential 1MiB", func(b *testing.B) {
		b.ReportAllocs()
		at := int64(0)
		for b.Loop() {
			d, err := l.Read(at, 1<<20, end, true)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(d.Records.Len()))
			d.Records.Release()
			if at = d.NextOffset; at == end {
				at = 0
			}
		}
	})
	b.Run("random 1 batch", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			d, err := l.Read(int64(i)*7919%end, 1, end, true)
			if err != nil {
				b.Fatal(err)
			}
			d.Records.Release()
		}
	})
}

// BenchmarkOpenClean opens one idle partition with some segments; times 10,000 it is how long a node with that many needs.
func BenchmarkOpenClean(b *testing.B) {
	o := testOptions(vfs.Default)
	o.Dir, o.Files = b.TempDir()+"/t-0", NewFiles(100)
	l := mustOpen(b, o)
	fill(b, l, 50, 100)
	o.RecoveryPoint, o.Clean = mustClose(b, l), true
	b.ReportAllocs()
	for b.Loop() {
		l, err := Open(o)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
