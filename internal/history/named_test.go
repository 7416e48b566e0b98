package history

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) with(part string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

// Whoever reads that a partition is read through the broker is told the topic's name, also where clients call it by its id, which no tool of Kafka's takes.
func TestFallbackNamesTheTopic(t *testing.T) {
	for _, version := range []int16{12, 18} {
		for _, resolved := range []bool{false, true} {
			t.Run(fmt.Sprintf("Fetch %d, resolved=%v", version, resolved), func(t *testing.T) {
				t.Parallel()
				b := newFakeBroker(t)
				b.set(func() { b.maxFetch = version })
				topic := b.topic("history", 1)
				end := b.history(topic.parts[0], 3, 20, 10, 1000)
				b.store.setFault(status(404))
				said := new(lines)
				o := dialOptions{Logger: slog.New(slog.NewTextHandler(said, nil))}
				d := new(testDialer)
				if resolved {
					var r *fakeResolver
					d, r = resolving(t, b, o)
					r.set(func() {
						r.fault = func(*fakePart, int64, int64) (io.ReadCloser, error, bool) {
							return nil, remotestorage.ErrNotFound, true
						}
					})
				} else {
					d = newDialer(t, o)
				}
				client := newClient(t, b, d, kgo.ConsumeTopics("history"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
				newConsumed(t, 1000).until(client, map[int32]int64{0: end})
				told := said.with("through the broker for a while")
				if len(told) == 0 {
					t.Fatal("nothing was told")
				}
				for _, line := range told {
					if !strings.Contains(line, " topic=history ") || strings.Contains(line, topic.id.String()) {
						t.Errorf("%s does not name topic history, or its id", line)
					}
				}
			})
		}
	}
}
