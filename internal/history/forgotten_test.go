package history

import (
	"testing"
	"time"
)

// A partition that the client comes back to after a while has its high watermark in the answer, though the broker, whose session knows it still, has nothing new to say of it.
func TestAPartitionThatWasForgotten(t *testing.T) {
	for name, change := range map[string]func(*Options){"put together": func(*Options) {}, "streamed": streams} {
		t.Run(name, func(t *testing.T) {
			b := newFakeBroker(t)
			topic := b.topic("live", 2)
			p, other := topic.parts[0], topic.parts[1]
			b.append(p, batchOf(0, 0, 10, 100))
			b.history(other, 1, 10, 10, 100)
			d, _ := resolving(t, b, dialOptions{Change: change})
			f := follow(dialRaw(t, d, b), 17, p)
			for range 3 {
				f.fetch(50*time.Millisecond, 10_000)
			}
			conn := d.only(t)
			part := conn.partition(partKey{id: topic.id})
			part.asLongAgo(2 * idleAfter)
			if conn.sweep(); conn.partition(part.key) == part {
				t.Fatal("it is kept")
			}
			f.at[other] = &followed{} // so that the answer is put together
			f.order = append(f.order, other)
			// The client begins a session: nothing that it was told in the last one holds. What the broker has not said yet it is told with a later answer.
			f.session.Reset()
			f.at[p].told, f.at[p].hw = false, -1
			got, read := f.at[p], f.at[other]
			for until := time.Now().Add(time.Minute); (got.hw != 10 || read.records == 0) && time.Now().Before(until); {
				f.fetch(50*time.Millisecond, 10_000)
			}
			if got.hw != 10 || got.next != 10 || read.records == 0 {
				t.Errorf("high watermark %d, next %d, %d batches of the other", got.hw, got.next, read.records)
			}
		})
	}
}
