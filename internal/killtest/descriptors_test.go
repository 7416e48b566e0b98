package killtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestFewDescriptors: a broker that may have far fewer files open than it has partitions takes records for all of them, over and over, keeps what it has confirmed when
// it is killed, and gives it back.
func TestFewDescriptors(t *testing.T) {
	const files, topics, partitions, rounds = 120, 2, 150, 3
	for name, sync := range map[string]string{"synced": "true", "not synced": "false"} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "acks.all.sync="+sync, "log.segment.bytes=1048576")
			s.files = files
			l := s.serve()
			names := createMany(t, s, topics, partitions)
			for r := range rounds {
				fewDescriptorsRound(t, s, names, partitions, r)
				if r == 1 && sync == "true" {
					l.kill()
					l = s.serve()
				}
				readEverywhere(t, s, names, partitions, r+1)
			}
			l.stop()
			l = s.serve()
			readEverywhere(t, s, names, partitions, rounds)
			l.stop()
			s.checkLogs()
			if !strings.Contains(s.logs(), fmt.Sprintf("limit=%d", files)) {
				t.Error("the broker does not know of its limit")
			}
		})
	}
}

func createMany(t *testing.T, s *site, topics int, partitions int32) (names []string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range topics {
		names = append(names, fmt.Sprintf("many-%d", i))
	}
	made, err := kadm.NewClient(cl).CreateTopics(t.Context(), partitions, 1, nil, names...)
	if err = errors.Join(err, made.Error()); err != nil {
		t.Fatal(err)
	}
	return names
}

func fewDescriptorsRound(t *testing.T, s *site, topics []string, partitions, round int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(len(topics)*partitions))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var records []*kgo.Record
	for _, topic := range topics {
		for p := range partitions {
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(p), Value: fmt.Appendf(nil, "%s-%d-%d", topic, p, round)})
		}
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
}

// readEverywhere reads all partitions from their beginning: each has the record of each round, in order, once.
func readEverywhere(t *testing.T, s *site, topics []string, partitions, rounds int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for left := len(topics) * partitions * rounds; left > 0; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%d records are missing: %v", left, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			left--
			if want := fmt.Sprintf("%s-%d-%d", r.Topic, r.Partition, r.Offset); string(r.Value) != want {
				t.Errorf("offset %d of %s-%d has %q", r.Offset, r.Topic, r.Partition, r.Value)
			}
		})
	}
}
