package history

import (
	"testing"
	"time"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// A broker that says nothing any more, on a connection that is up, is no broker without news: the client's connection ends, as it would end it itself did it talk to the broker. Not so
// one on which something else may be what the broker is waiting with.
func TestABrokerThatFallsSilent(t *testing.T) {
	for name, slow := range map[string]bool{"fetches only": false, "joins a group": true, "is throttled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFakeBroker(t)
			topic := b.topic("live", 2)
			p, past := topic.parts[0], topic.parts[1]
			b.append(p, batchOf(0, 0, 1, 10))
			b.history(past, 1, 100, 10, 1000)
			d := newDialer(t, dialOptions{RemoteMaxPartitionFetchBytes: 1})
			d.h.patience = 4 * time.Second // a loaded machine is silent for a while, too
			longest := time.Minute
			if slow {
				longest = 7 * time.Second
			}
			c := dialRaw(t, d, b)
			c.fetch(17, 100*time.Millisecond, at(p, 1))
			switch conn := d.only(t); name {
			case "joins a group":
				conn.Wants(11, 5)
			case "is throttled":
				conn.mu.Lock()
				conn.throttledLocked(60_000)
				conn.throttle = 0
				conn.mu.Unlock()
			}
			frozen := make(chan struct{})
			b.set(func() { b.frozen = frozen })
			began := time.Now()
			for time.Since(began) < longest {
				if _, err := c.conn.Write(wire.AppendRequest(nil, fetchOf(17, 100*time.Millisecond, at(p, 1)), 9, nil)); err != nil {
					break
				}
				if _, err := wire.ReadFrame(c.conn, 1<<20, nil); err != nil {
					break
				}
			}
			b.set(func() { b.frozen = nil })
			close(frozen)
			if took := time.Since(began); slow != (took >= longest) || took < time.Second {
				t.Errorf("the connection was there for %v", took)
			}
		})
	}
}
