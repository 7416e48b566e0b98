package broker

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestClosedSegmentIsCopiedAtOnce: copying does not wait for its interval once a segment is closed, and says what it did.
func TestClosedSegmentIsCopiedAtOnce(t *testing.T) {
	rsm, _ := directoryStore(t)
	logs := new(logLines)
	b := startBroker(t, t.TempDir(), withRSM(rsm), withKeys("remote.log.manager.task.interval.ms", "3600000"), func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(logs, nil))
	})
	b.tieredTopic(t, "soon", 1)
	cl := b.client(t, kgo.ProducerBatchCompression(kgo.NoCompression()))
	p := b.partition("soon", 0)
	for i := 0; p.log.Stats().Segments < 3; i++ {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "soon", Value: make([]byte, 3000)}).FirstErr(); err != nil || i > 100 {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	await(t, "two segments to be copied", func() bool { return len(p.log.Tierable()) == 0 })
	copied := 0
	for _, line := range logs.lines() {
		if !strings.Contains(line, "partition=") {
			continue
		}
		if n := strings.Count(line, "partition="); n != 1 {
			t.Errorf("%d times partition in %s", n, line)
		}
		if strings.Contains(line, `msg="segment copied" partition=soon-0 base=`) {
			copied++
		}
	}
	if copied != 2 {
		t.Errorf("%d segments were said to be copied:\n%s", copied, strings.Join(logs.lines(), "\n"))
	}
}
