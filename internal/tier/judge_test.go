package tier

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// kafkaHome is where Apache Kafka is installed; the test is skipped where none is, but not under CI.
func kafkaHome(t *testing.T) string {
	t.Helper()
	home := os.Getenv("REWIND_KAFKA_PEER")
	if home == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("REWIND_KAFKA_PEER is not set: there is no Apache Kafka to be the judge (make peers installs one)")
		}
		t.Skip("REWIND_KAFKA_PEER is not set (make peers)")
	}
	return home
}

// kafkaPeer runs Apache Kafka or one of its tools.
func kafkaPeer(t *testing.T, args ...string) string {
	t.Helper()
	out, err := runKafkaPeer(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func runKafkaPeer(t *testing.T, args ...string) (string, error) {
	t.Helper()
	home := kafkaHome(t)
	script, err := filepath.Abs(filepath.Join("..", "..", "peers", "kafka", "kafka-peer.sh"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "KAFKA_PEER_HOME="+home)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// describe is what testdata/SerdeJudge.java prints of a record.
func describe(r remotelog.Record) string {
	id := func(i remotestorage.RemoteLogSegmentID) string {
		return fmt.Sprintf("%s|%s|%d|%s", i.Topic, i.TopicID, i.Partition, i.ID)
	}
	custom := func(b []byte) string {
		if b == nil {
			return "none"
		}
		return hex.EncodeToString(b)
	}
	switch r := r.(type) {
	case *remotelog.SegmentRecord:
		var epochs []string
		for _, e := range r.SegmentLeaderEpochs {
			epochs = append(epochs, fmt.Sprintf("%d:%d", e.LeaderEpoch, e.StartOffset))
		}
		return fmt.Sprintf("segment|%s|%d|%d|%d|%d|%d|%s|%d|%s|%s|%v", id(r.RemoteLogSegmentID), r.StartOffset, r.EndOffset, r.BrokerID, r.MaxTimestampMs,
			r.EventTimestampMs, strings.Join(epochs, ","), r.SegmentSizeInBytes, custom(r.CustomMetadata), r.State, r.TxnIndexEmpty)
	case *remotelog.UpdateRecord:
		return fmt.Sprintf("update|%s|%d|%d|%s|%s", id(r.RemoteLogSegmentID), r.BrokerID, r.EventTimestampMs, custom(r.CustomMetadata), r.State)
	case *remotelog.PartitionDeleteRecord:
		return fmt.Sprintf("partition|%s|%s|%d|%d|%d|%s", r.Topic, r.TopicID, r.Partition, r.BrokerID, r.EventTimestampMs, r.State)
	}
	return "?"
}

// The records of whole histories, read by Apache Kafka's serde: the same fields, the same metadata partition, and the same bytes when it writes them.
func TestApacheKafkaReadsOurRecords(t *testing.T) {
	log := tens(4, 0)
	log.epochs.Assign(3, 12)
	log.epochs.Assign(4, 25)
	for i := range log.segments {
		log.segments[i].LeaderEpochs = log.epochs.Range(log.segments[i].Base, log.segments[i].End+1)
	}
	log.segments[2].Data.Transaction = &log.segments[2].Data.TimeIndex
	p := Partition{TP: tpOf(0), Log: log}
	other := Partition{TP: remotestorage.TopicIDPartition{TopicID: remotestorage.RandomUUID(), Topic: "ä topic.of-1", Partition: 11}, Log: tens(2, 100)}
	r := newRig(t, fakeRecordLogs(50), newMemStore(), p, other)
	r.settle()
	log.dropLocal(3)
	p.Retention = &Retention{Ms: -1, Bytes: 200}
	r.setParts(p)
	r.tier.DeleteTopic([]remotestorage.TopicIDPartition{other.TP})
	r.settle()

	values, want := ourRecords(t, r.logs)
	if len(values) < 16 {
		t.Fatalf("%d records only", len(values))
	}
	file := filepath.Join(t.TempDir(), "records.hex")
	if err := os.WriteFile(file, []byte(strings.Join(values, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := filepath.Abs(filepath.Join("testdata", "SerdeJudge.java"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(kafkaPeer(t, "run", program, file)) {
		got, ok := strings.CutPrefix(strings.TrimSpace(line), "JUDGE|")
		if !ok {
			continue
		}
		if n >= len(want) || got != want[n] {
			t.Fatalf("record %d\nApache Kafka: %s\nours:         %s", n, got, want[min(n, len(want)-1)])
		}
		n++
	}
	if n != len(want) {
		t.Errorf("Apache Kafka read %d of %d records", n, len(want))
	}
}

// ourRecords are the values in hex, and for each what the judge should say.
func ourRecords(t *testing.T, logs []*fakeRecordLog) (values, want []string) {
	t.Helper()
	for n, l := range logs {
		_, err := batch.Each(l.bytes, func(h batch.Header, raw []byte) error {
			return eachValue(h, raw, func(_ int64, v []byte) error {
				rec, err := remotelog.Parse(v)
				if err != nil {
					return err
				}
				values = append(values, hex.EncodeToString(v))
				want = append(want, fmt.Sprintf("%s|%d|%x", describe(rec), n, v))
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return values, want
}
