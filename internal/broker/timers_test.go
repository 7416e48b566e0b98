package broker

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTimers holds the heap to a plain map.
func TestTimers(t *testing.T) {
	start := time.UnixMilli(0)
	rapid.Check(t, func(t *rapid.T) {
		var have timers
		want := map[string]time.Time{}
		now := start
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				id := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id")
				at := now.Add(time.Duration(rapid.IntRange(-3, 9).Draw(t, "in")) * time.Second)
				ok := rapid.Bool().Draw(t, "ok")
				have.set(id, at, ok)
				if delete(want, id); ok {
					want[id] = at
				}
			},
			"pass": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "seconds")) * time.Second)
				due := have.due(now)
				slices.Sort(due)
				var expect []string
				for id, at := range want {
					if !at.After(now) {
						expect = append(expect, id)
						delete(want, id)
					}
				}
				if slices.Sort(expect); !slices.Equal(due, expect) {
					t.Fatalf("due: %v, want %v", due, expect)
				}
			},
			"": func(t *rapid.T) {
				at, ok := have.next()
				if ok != (len(want) > 0) {
					t.Fatalf("next: %t with %d timers", ok, len(want))
				}
				for id, w := range want {
					if w.Before(at) {
						t.Fatalf("next is %s, but %s is due %s", at, id, w)
					}
				}
			},
		})
	})
}
