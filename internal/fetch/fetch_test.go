package fetch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// part is a source with batches of given sizes.
type part struct {
	mu      sync.Mutex
	batches []int
	now     bool
	exact   bool // cuts the last batch at the limit, as a Kafka broker does
	wakes   map[int]func()
	subs    int
}

func (p *part) Available() (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, b := range p.batches {
		n += b
	}
	return n, p.now
}

func (p *part) Read(limit int, whole bool) wire.FetchPartition {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, b := range p.batches {
		if n+b > limit && !(whole && n == 0) {
			if p.exact {
				n = max(n, limit)
			}
			break
		}
		n += b
	}
	if n == 0 {
		return wire.FetchPartition{}
	}
	return wire.FetchPartition{Records: wire.Records{Bufs: [][]byte{make([]byte, n)}}}
}

func (p *part) Subscribe(wake func()) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wakes == nil {
		p.wakes = make(map[int]func())
	}
	p.subs++
	id := p.subs
	p.wakes[id] = wake
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.wakes, id)
	}
}

func (p *part) add(batches ...int) {
	p.mu.Lock()
	p.batches = append(p.batches, batches...)
	for _, w := range p.wakes {
		w()
	}
	p.mu.Unlock()
}

func (p *part) mustGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = true
}

func lens(out []wire.FetchPartition) []int {
	var n []int
	for i := range out {
		n = append(n, out[i].Records.Len())
	}
	return n
}

func TestSharing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		max    int
		parts  [][]int
		limits []int
		want   []int
	}{
		{"all fit", 1000, [][]int{{10, 10}, {20}}, []int{100, 100}, []int{20, 20}},
		{"each partition's limit", 1000, [][]int{{10, 10}, {20, 20, 20}}, []int{10, 45}, []int{10, 40}},
		{"the response's limit", 25, [][]int{{10, 10}, {10, 10}}, []int{100, 100}, []int{20, 0}},
		{"Case12: never above the response's limit", 30, [][]int{{20}, {20}, {10}}, []int{100, 100, 100}, []int{20, 0, 10}},
		{"Case13: the first batch is whole, others keep their limits", 15, [][]int{{}, {500, 500}, {10}}, []int{5, 5, 5}, []int{0, 500, 0}},
		{"Case13: only the first batch of the response", 1000, [][]int{{500}, {500}}, []int{5, 5}, []int{500, 0}},
		{"a limit of nothing", 0, [][]int{{10}, {10}}, []int{0, 0}, []int{10, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var parts []Part
			for _, b := range tc.parts {
				parts = append(parts, &part{batches: b})
			}
			got := lens(Collect(t.Context(), Limits{MinBytes: 1, MaxBytes: tc.max}, parts, tc.limits))
			for i := range tc.want {
				if got[i] != tc.want[i] {
					t.Fatalf("got %v, want %v", got, tc.want)
				}
			}
		})
	}
}

func TestWaiting(t *testing.T) {
	const wait = 10 * time.Second
	for _, tc := range []struct {
		name     string
		min      int
		limit    int
		change   func(p *part, cancel func()) // after a second
		want     int
		wantWait time.Duration
	}{
		{"nothing comes", 1, 100, nil, 0, wait},
		{"data comes", 1, 100, func(p *part, _ func()) { p.add(10) }, 10, time.Second},
		{"too little comes", 20, 100, func(p *part, _ func()) { p.add(10) }, 10, wait},
		{"as much as the partition may give is enough, not more than it", 20, 10, func(p *part, _ func()) { p.add(10, 10, 10) }, 10, wait},
		{"something must go out", 1000, 100, func(p *part, _ func()) { p.mustGo(); p.add(10) }, 10, time.Second},
		{"the client vanishes", 1, 100, func(_ *part, cancel func()) { cancel() }, 0, time.Second},
		{"no minimum", 0, 100, nil, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := &part{}
				if tc.change != nil {
					time.AfterFunc(time.Second, func() { tc.change(p, cancel) })
				}
				start := time.Now()
				got := Collect(ctx, Limits{MinBytes: tc.min, MaxBytes: 1000, MaxWait: wait}, []Part{&part{}, p}, []int{100, tc.limit})
				if n := got[1].Records.Len(); n != tc.want {
					t.Errorf("%d bytes, want %d", n, tc.want)
				}
				if waited := time.Since(start); waited != tc.wantWait {
					t.Errorf("waited %v, want %v", waited, tc.wantWait)
				}
				if len(p.wakes) != 0 {
					t.Errorf("%d subscriptions are left", len(p.wakes))
				}
			})
		})
	}
}

// TestCase29_NothingToReadIsAnAnswer: a fetch of no partition is answered at once.
func TestCase29_NothingToReadIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if got := Collect(t.Context(), Limits{MinBytes: 1, MaxBytes: 1, MaxWait: time.Hour}, nil, nil); len(got) != 0 {
			t.Errorf("got %d partitions", len(got))
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("waited %v", waited)
		}
	})
}

// TestReserve: what a response may take is asked for once, after the waiting, and with what there is.
func TestReserve(t *testing.T) {
	var asked []int
	reserve := func(want int) int { asked = append(asked, want); return 15 }
	parts := []Part{&part{batches: []int{10, 10}}, &part{batches: []int{10, 10}}}
	got := lens(Collect(t.Context(), Limits{MinBytes: 1, MaxBytes: 1000, Reserve: reserve}, parts, []int{100, 12}))
	if len(asked) != 1 || asked[0] != 32 {
		t.Errorf("asked for %v, want 32 once", asked)
	}
	if got[0] != 10 || got[1] != 0 {
		t.Errorf("got %v under a grant of 15", got)
	}
}
