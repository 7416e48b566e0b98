package history

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// allowed says what may be read here, from one moment to the next.
type allowed struct {
	mu    sync.Mutex
	asked map[string]int
	rule  func(topic string) bool
}

func (a *allowed) allow(topic string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked[topic]++
	return a.rule(topic)
}

func (a *allowed) set(rule func(topic string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rule = rule
}

// Where upstream says where history lies, the kill switch and a topic that is left out take effect with the next fetch all the same, whether clients call topics by their names or by
// their ids, and the reader that is open ends.
func TestAllowLocated(t *testing.T) {
	for _, version := range []int16{11, 12, 13, 18} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			b := newFakeBroker(t)
			p, other := b.topic("history", 1).parts[0], b.topic("other", 1).parts[0]
			for _, p := range []*fakePart{p, other} {
				b.history(p, 1, 100, 10, 1000)
			}
			a := &allowed{asked: make(map[string]int)}
			d := newDialer(t, dialOptions{RemoteMaxPartitionFetchBytes: 20_000, Change: func(h *Options) { h.Allow = a.allow }})
			c := dialRaw(t, d, b)
			next := map[*fakePart]int64{}
			for i, step := range []struct {
				rule    func(string) bool
				p       *fakePart
				located bool
			}{
				{func(string) bool { return true }, p, true},
				{func(string) bool { return true }, p, true},
				{func(string) bool { return false }, p, false},
				{func(string) bool { return false }, other, false},
				{func(topic string) bool { return topic == "history" }, p, true},
				{func(topic string) bool { return topic == "history" }, other, false},
				{func(topic string) bool { return topic == "other" }, other, true},
				{func(topic string) bool { return topic == "other" }, p, false},
				{func(string) bool { return true }, p, true},
			} {
				a.set(step.rule)
				before := d.Stats()
				res := c.fetch(version, 10*time.Second, at(step.p, next[step.p]))
				n := nextOf(t, res[0])
				if n <= next[step.p] {
					t.Fatalf("fetch %d: nothing came, error %d", i, res[0].ErrorCode)
				}
				next[step.p] = n
				after := d.Stats()
				if direct := after.DirectBytes > before.DirectBytes; direct != step.located {
					t.Errorf("fetch %d: read directly: %t", i, direct)
				}
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			for topic := range a.asked {
				if topic != "history" && topic != "other" {
					t.Errorf("it was asked of topic %q", topic)
				}
			}
		})
	}
}
