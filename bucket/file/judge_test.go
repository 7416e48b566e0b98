package file_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/bucket"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/storetest"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestApacheKafkaReadsOurFolder: LocalTieredStorage finds each file of a segment that we copied, with our bytes, and deletes what it read; the directory's id is none of its business.
func TestApacheKafkaReadsOurFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a JVM")
	}
	dist := storetest.Peer(t, "kafka", "dist")
	lib, _ := filepath.Glob(dist + "/[0-9]*/lib")
	rsm, _ := filepath.Glob(dist + "/rsm-*")
	if len(lib) == 0 || len(rsm) == 0 {
		storetest.Missing(t, "Apache Kafka is not installed")
	}
	dir := t.TempDir()
	store, err := file.Open(filepath.Join(dir, "kafka-tiered-storage"), file.Options{IDFile: filepath.Join(t.TempDir(), "store.id")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	m, err := bucket.NewManager(bucket.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	md, data := storetest.Segment("a-topic-with-1", 4711, 12345)
	if _, err := m.CopyLogSegmentData(t.Context(), md, data); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "java", "-cp", lib[0]+"/*:"+rsm[0]+"/*:"+rsm[0]+"/classes", "../../peers/kafka/ReadStore.java",
		dir, md.Topic, md.TopicID.String(), fmt.Sprint(md.Partition), md.ID.String(), fmt.Sprint(md.StartOffset), fmt.Sprint(md.SegmentSizeInBytes))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ReadStore: %v\n%s", err, out)
	}
	log := read(t, data.Log)
	want := line("log", log) + line("from 10", log[10:]) + line("OFFSET", read(t, data.OffsetIndex)) + line("TIMESTAMP", read(t, data.TimeIndex)) +
		line("PRODUCER_SNAPSHOT", read(t, data.ProducerSnapshot)) + line("TRANSACTION", read(t, *data.Transaction)) + line("LEADER_EPOCH", data.LeaderEpochIndex) + "deleted\n"
	var got strings.Builder
	for l := range strings.Lines(string(out)) {
		if !strings.HasPrefix(l, "[") { // the log
			got.WriteString(l)
		}
	}
	if got.String() != want {
		t.Errorf("Apache Kafka read:\n%s\nwant:\n%s", got.String(), want)
	}
	for s, err := range m.ListSegments(t.Context(), md.TopicIDPartition) {
		t.Errorf("after Apache Kafka deleted it: %+v, %v", s, err)
	}
}

func read(t *testing.T, f remotestorage.SegmentFile) []byte {
	t.Helper()
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func line(name string, b []byte) string {
	return fmt.Sprintf("%s %d %x\n", name, len(b), sha256.Sum256(b))
}
