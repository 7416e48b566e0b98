package broker

import (
	"testing"
	"time"
)

// A lock that comes while locks are being looked at, and ends later than those that are due, is looked at in its time.
func TestLockThatComesDuringALook(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1_800_000_000+s), 0) }
	for _, c := range []struct {
		name               string
		before, during     []int
		found, want        int // 0: none
		wakesDuring, wakes bool
	}{
		{"nothing", nil, nil, 0, 0, false, false},
		{"what was known", []int{5}, nil, 5, 5, false, true},
		{"a later one beside what was due", []int{1}, []int{9}, 0, 9, true, true},
		{"an earlier one than was found", []int{1}, []int{3}, 7, 3, true, true},
		{"a later one than was found", []int{1}, []int{9}, 7, 7, true, true},
		{"two", nil, []int{9, 4}, 0, 4, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newLockClock()
			woken := func() bool {
				select {
				case <-k.kick:
					return true
				default:
					return false
				}
			}
			for _, s := range c.before {
				k.dueAt(at(s))
			}
			if woken() != c.wakes {
				t.Errorf("woken by %v: %v", c.before, !c.wakes)
			}
			k.begin()
			for _, s := range c.during {
				k.dueAt(at(s))
			}
			var found, want time.Time
			if c.found > 0 {
				found = at(c.found)
			}
			if c.want > 0 {
				want = at(c.want)
			}
			if got := k.end(found); !got.Equal(want) {
				t.Errorf("the next look is at %v, want %v", got, want)
			}
			if woken() != c.wakesDuring {
				t.Errorf("woken by %v: %v", c.during, !c.wakesDuring)
			}
		})
	}
}
