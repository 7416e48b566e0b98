package history

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestNothingLongIsKept: no topic can have a name so long, and no client has such a rack. They would be kept with each partition, so the connection is the broker's, or is ended if it was read for
// before.
func TestNothingLongIsKept(t *testing.T) {
	b := newFakeBroker(t)
	p := b.topic("live", 1).parts[0]
	b.append(p, batchOf(0, 0, 1, 10))
	d := newDialer(t, dialOptions{})
	for name, c := range map[string]struct {
		change func(*kmsg.FetchRequest)
		kept   bool
	}{
		"the longest name": {func(r *kmsg.FetchRequest) { r.Topics[1].Topic = strings.Repeat("n", maxTopicName) }, true},
		"a longer name":    {func(r *kmsg.FetchRequest) { r.Topics[1].Topic = strings.Repeat("n", maxTopicName+1) }, false},
		"a long rack":      {func(r *kmsg.FetchRequest) { r.Rack = strings.Repeat("r", maxRack) }, true},
		"a longer rack":    {func(r *kmsg.FetchRequest) { r.Rack = strings.Repeat("r", maxRack+1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			req := fetchOf(12, time.Second, at(p, 0), at(p, 0))
			req.Topics[1].Topic = "other"
			c.change(req)
			first, second := dialRaw(t, d, b), dialRaw(t, d, b)
			second.fetch(12, time.Second, at(p, 0))
			before := d.Stats().Fetches
			for range 2 {
				first.send(req)
				if r := first.receive(req).(*kmsg.FetchResponse); len(r.Topics) != 2 || r.Topics[1].Partitions[0].ErrorCode != 3 && r.Topics[1].Topic != "other" {
					t.Fatalf("%d topics", len(r.Topics))
				}
			}
			if got := d.Stats().Fetches - before; c.kept != (got > 0) {
				t.Errorf("%d fetches were looked at", got)
			}
			second.send(req)
			if n, err := second.conn.Read(make([]byte, 1)); c.kept != (err == nil) {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
}
