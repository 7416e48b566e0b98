package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Names that no topic has count for what they take: whoever makes them up gets no session for more of them than the cache may remember.
func TestLongNamesCount(t *testing.T) {
	const length, slots = 32_000, 10
	c := NewCache(slots)
	fetch := func(id, epoch int32, from, to int) *Fetch {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.SessionID, req.SessionEpoch = 12, id, epoch
		for i := from; i < to; i++ {
			topic := kmsg.NewFetchRequestTopic()
			topic.Topic = fmt.Sprint(i, strings.Repeat("n", length))
			topic.Partitions = append(topic.Partitions, kmsg.NewFetchRequestTopicPartition())
			req.Topics = append(req.Topics, topic)
		}
		f, code := c.Apply(req)
		if code != 0 {
			t.Fatalf("error %d", code)
		}
		return f
	}
	some := false
	for s := range slots {
		first := fetch(0, 0, 0, 20)
		for epoch := int32(1); first.SessionID != 0 && c.sessions[first.SessionID] != nil && epoch < int32(s); epoch++ {
			fetch(first.SessionID, epoch, 20*int(epoch), 20*int(epoch)+20)
		}
		kept := 0
		for _, s := range c.sessions {
			for k := range s.parts {
				kept += len(k.topic)
			}
		}
		some = some || kept > 0
		if most := slots * maxPartitionsPerSlot * 256; kept > most {
			t.Fatalf("after %d sessions %d bytes of names are kept, at most %d were to be", s, kept, most)
		}
	}
	if !some {
		t.Error("nothing is kept at all")
	}
	for _, s := range c.sessions {
		c.removeLocked(s)
	}
	if c.partitions != 0 {
		t.Errorf("%d are left of none", c.partitions)
	}
}
