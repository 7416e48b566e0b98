package members

import (
	"testing"
	"time"
)

func TestMayAssign(t *testing.T) {
	made := time.UnixMilli(1_750_000_000_000)
	a := Assignment{Epoch: 2, Made: made.UnixMilli()}
	for _, c := range []struct {
		after, interval time.Duration
		may             bool
	}{
		{0, time.Second, false},
		{999 * time.Millisecond, time.Second, false},
		{time.Second, time.Second, true},
		{0, 0, true},
		{-time.Millisecond, time.Second, true}, // the clock was set back
		{-24 * time.Hour, time.Second, true},
	} {
		if got := a.MayAssign(made.Add(c.after), c.interval); got != c.may {
			t.Errorf("%s after the last one, with an interval of %s: %v", c.after, c.interval, got)
		}
	}
}
