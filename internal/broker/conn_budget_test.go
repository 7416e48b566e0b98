package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/sharesession"
	"github.com/rewind-kafka/rewind/internal/wire"
)

// TestWaitingHoldsNoBudget: a request that waits for data, or for others, does not keep others' large frames from being read while it waits.
func TestWaitingHoldsNoBudget(t *testing.T) {
	const large = 150 << 10
	b := startBroker(t, t.TempDir(), shareKeys("group.initial.rebalance.delay.ms", "120000"))
	b.createTopic(t, "t", 1)
	b.configureGroup(t, "g", earliest)
	m := b.member(t, "g", "m", "t").join(t)
	pad := func(tags *kmsg.Tags) { tags.Set(1000, make([]byte, large)) }
	const wait = 100_000 // milliseconds
	fetch := fetchOf("t", 0)
	fetch.MaxWaitMillis, fetch.MinBytes = wait, 1
	pad(&fetch.UnknownTags)
	share := m.shareFetchOf(wait * time.Millisecond)
	pad(&share.UnknownTags)
	crowded := b.member(t, "g", "one too many", "t").shareFetchOf(wait * time.Millisecond)
	pad(&crowded.UnknownTags)
	join := joinRequest("j", "", "")
	join.SetVersion(3)
	join.SessionTimeoutMillis = 120_000
	join.Protocols[0].Metadata = make([]byte, large)
	for i, req := range []kmsg.Request{fetch, share, join, crowded} {
		t.Run(fmt.Sprint(i, kmsg.NameForKey(req.Key())), func(t *testing.T) {
			all := b.server.limits.queuedBytes
			if err := b.server.frames.Acquire(t.Context(), all-large*3/2); err != nil { // room for one
				t.Fatal(err)
			}
			defer b.server.frames.Release(all - large*3/2)
			if req == kmsg.Request(crowded) {
				for n := 0; b.shares.sessions.Open(sharesession.Key{Group: "g", Member: fmt.Sprint(n)}, 1<<40, nil) == nil; n++ {
				}
			}
			c := m.c
			if req != kmsg.Request(share) {
				c = b.raw(t)
			}
			c.id++
			c.SetDeadline(time.Now().Add(60 * time.Second))
			if _, err := c.Write(wire.AppendRequest(nil, req, c.id, nil)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // so that it is there first, as a rule
			produced := make(chan error, 1)
			go func() {
				p := b.raw(t)
				p.id++
				p.SetDeadline(time.Now().Add(20 * time.Second))
				if _, err := p.Write(wire.AppendRequest(nil, produceRequest(9, acksLeader, "other", make([]byte, large)), p.id, nil)); err != nil {
					produced <- err
					return
				}
				_, err := wire.ReadFrame(p, 1<<20, nil)
				produced <- err
			}()
			if err := <-produced; err != nil {
				t.Errorf("a producer was not served meanwhile: %v", err)
			}
		})
	}
}
