package remote

import (
	"fmt"
	"testing"
)

func TestReadsAllSegments(t *testing.T) {
	for _, c := range []struct {
		batches, size, chunk int
		cache, ahead         bool
		limit                int
	}{
		{3, 1000, 64 << 10, false, true, 1 << 20},
		{300, 1000, 64 << 10, false, true, 1 << 20},
		{300, 1000, 64 << 10, false, true, 1},
		{300, 1000, 64 << 10, false, false, 10000},
		{300, 1000, 64 << 10, true, true, 10000},
		{300, 1000, 64 << 10, true, false, 10000},
		{7, 150000, 64 << 10, false, true, 1 << 20},
		{7, 150000, 64 << 10, true, true, 1 << 20},
		{7, 150000, 64 << 10, false, false, 1 << 20},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := NewBudget(1 << 20)
			w := &world{segments: plainSegments(4, c.batches, c.size)}
			o := Options{Budget: b, ChunkSize: c.chunk, Parallelism: 4, ReadAhead: c.ahead}
			if c.cache {
				o.Cache = NewCache(b, 1<<19)
			}
			r := NewReader(o)
			for _, from := range []int64{0, 5, 10, 39} {
				p := r.Open(testTP, from, w.resolve)
				g := drain(t, p, c.limit)
				wantErr(t, g.err, ErrLocal)
				same(t, g.batches, w.want(from))
				p.Close()
			}
			r.Close()
			if c.cache {
				o.Cache.Close()
			}
			checkReturned(t, b)
		})
	}
}
