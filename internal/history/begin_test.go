package history

import (
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// few lets so many partitions be read at one time.
type few struct {
	NoHooks
	most int

	mu                     sync.Mutex
	now, peak, all, denied int
}

func (f *few) Begin() (func(), bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now == f.most {
		f.denied++
		return nil, false
	}
	f.now, f.all = f.now+1, f.all+1
	f.peak = max(f.peak, f.now)
	var once sync.Once
	return func() {
		again := true
		once.Do(func() { again = false })
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.now--; again {
			f.now = -1000 // shows up in the end
		}
	}, true
}

// No more partitions are read directly than may be; the others are the broker's, whole and in order, and every reading that began has ended when the connection has.
func TestReadsInFlight(t *testing.T) {
	for name, open := range map[string]func(*testing.T, *fakeBroker, dialOptions) *testDialer{
		"resolved": func(t *testing.T, b *fakeBroker, o dialOptions) *testDialer {
			o.Change = streams
			d, _ := resolving(t, b, o)
			return d
		},
		"located": func(t *testing.T, _ *fakeBroker, o dialOptions) *testDialer { return newDialer(t, o) },
	} {
		for _, most := range []int{0, 1, 2, 5} {
			t.Run(name, func(t *testing.T) {
				b := newFakeBroker(t)
				topic := b.topic("history", 5)
				ends, total := make(map[int32]int64), int64(0)
				for _, p := range topic.parts {
					ends[p.n] = b.history(p, 2, 10, 10, 1000)
					total += int64(remoteBytes(p))
				}
				h := &few{most: most}
				d := open(t, b, dialOptions{Metrics: h})
				client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(20_000))
				newConsumed(t, 1000).until(client, ends)
				direct := d.Stats().DirectBytes
				client.Close()
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				if h.now != 0 || h.peak > most || most > 0 && direct == 0 || most == 0 && direct > 0 || most == 5 && direct != total || most < 5 && h.denied == 0 {
					t.Errorf("at most %d: %d at one time, %d in all, %d refused, %d still; %d of %d bytes read directly", most, h.peak, h.all, h.denied, h.now, direct, total)
				}
			})
		}
	}
}

// A partition that was one too many is read directly once another has ended.
func TestReadsInFlightFollow(t *testing.T) {
	b := newFakeBroker(t)
	topic := b.topic("history", 2)
	for _, p := range topic.parts {
		b.history(p, 1, 40, 10, 1000)
	}
	h := &few{most: 1}
	d, _ := resolving(t, b, dialOptions{Metrics: h, RemoteMaxPartitionFetchBytes: 1, Change: streams})
	one, two := dialRaw(t, d, b), dialRaw(t, d, b)
	if r := one.fetch(17, 10*time.Second, at(topic.parts[0], 0)); nextOf(t, r[0]) != 10 {
		t.Fatal(brief(t, r[0]))
	}
	direct := d.Stats().DirectBytes
	r := two.fetch(17, time.Second, at(topic.parts[1], 0))
	next := nextOf(t, r[0])
	if next == 0 || d.Stats().DirectBytes != direct {
		t.Errorf("%s, %d bytes read directly", brief(t, r[0]), d.Stats().DirectBytes-direct)
	}
	one.conn.Close()
	for deadline := time.Now().Add(15 * time.Second); d.Stats().DirectBytes == direct; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is never read directly")
		}
		two.fetch(17, time.Second, at(topic.parts[1], 10))
	}
}
