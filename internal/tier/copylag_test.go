package tier

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCopyLagLets is Apache Kafka's rule, case by case.
func TestCopyLagLets(t *testing.T) {
	now := time.UnixMilli(1000)
	for _, c := range []struct {
		lag           CopyLag
		maxMs, behind int64
		want          bool
	}{
		{CopyLag{}, 1000, 0, true},
		{CopyLag{0, -1}, 1000, 0, true}, // the default
		{CopyLag{500, 0}, 1000, 0, true},
		{CopyLag{-1, -1}, 0, 1 << 40, false},
		{CopyLag{500, -1}, 501, 1 << 40, false},
		{CopyLag{500, -1}, 500, 0, true},
		{CopyLag{500, -1}, 1001, 0, true},
		{CopyLag{-1, 100}, 0, 99, false},
		{CopyLag{-1, 100}, 1000, 100, true},
		{CopyLag{500, 100}, 501, 99, false},
		{CopyLag{500, 100}, 500, 99, true},
		{CopyLag{500, 100}, 501, 100, true},
	} {
		if got := c.lag.lets(c.maxMs, c.behind, now); got != c.want {
			t.Errorf("%+v, newest record at %d, %d bytes behind: %t", c.lag, c.maxMs, c.behind, got)
		}
	}
}

// copied counts the segments of a partition that are in the store after a turn.
func copied(t *testing.T, r *rig, p Partition) int {
	t.Helper()
	if _, err := r.tier.maintain(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return len(r.segments(p.TP))
}

// TestCopyLagHoldsBack: segments are copied in their order, each once it is let; a change of the configuration counts for the next turn; a gauge tells of all that are
// not in the store.
func TestCopyLagHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog()
		for i := range int64(5) {
			log.add(i*10, i*10+9, 100, time.Now().UnixMilli()-4000+i*1000) // of size 100, a second apart
		}
		log.active = 50
		p := Partition{TP: tpOf(0), Log: log, CopyLag: CopyLag{Ms: 60_000, Bytes: 250}}
		r := newRig(t, fakeRecordLogs(1), newMemStore(), p)
		r.tier.scan(true)
		if n := copied(t, r, p); n != 3 { // 250 bytes lie behind the third
			t.Errorf("%d segments by size, want 3", n)
		}
		if bytes, n := r.tier.lag(); bytes != 200 || n != 2 {
			t.Errorf("the gauges say %d bytes, %d segments", bytes, n)
		}
		p.CopyLag.Bytes = 1 << 40
		time.Sleep(59*time.Second + 500*time.Millisecond)
		if n := copied(t, r, p); n != 4 {
			t.Errorf("%d segments after 59.5 seconds, want 4", n)
		}
		time.Sleep(500 * time.Millisecond)
		if n := copied(t, r, p); n != 5 {
			t.Errorf("%d segments after a minute, want 5", n)
		}
	})
}

// TestCopyLagIsLookedAtAgain: nothing but time brings the rest to the store.
func TestCopyLagIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog()
		for i := range int64(3) {
			log.add(i*10, i*10+9, 100, time.Now().UnixMilli())
		}
		p := Partition{TP: tpOf(0), Log: log, CopyLag: CopyLag{Ms: 600_000, Bytes: -1}}
		r := newRig(t, fakeRecordLogs(1), newMemStore(), p)
		r.tier.Start()
		defer r.tier.Close()
		time.Sleep(599 * time.Second)
		synctest.Wait()
		if n := len(r.segments(p.TP)); n != 0 {
			t.Errorf("%d segments too early", n)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if n := len(r.segments(p.TP)); n != 3 {
			t.Errorf("%d segments in time, want 3", n)
		}
	})
}

// TestCopyLagAndRetention: what is held back expires like any other, so a lag as long as the retention copies nothing that is deleted at once.
func TestCopyLagAndRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newFakeLog()
		for i := range int64(3) {
			log.add(i*10, i*10+9, 100, time.Now().UnixMilli()+i*1000)
		}
		p := Partition{TP: tpOf(0), Log: log, Retention: &Retention{Ms: 60_000, Bytes: -1}, CopyLag: CopyLag{Ms: 60_000, Bytes: -1}}
		r := newRig(t, fakeRecordLogs(1), newMemStore(), p)
		time.Sleep(61 * time.Second)
		if n := copied(t, r, p); n != 0 {
			t.Errorf("%d segments were copied", n)
		}
		if o := log.Offsets(); o.LogStart != 20 {
			t.Errorf("log start %d, want 20", o.LogStart)
		}
	})
}
