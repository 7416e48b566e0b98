package clienttest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	topicCommand   = "org.apache.kafka.tools.TopicCommand"
	configCommand  = "org.apache.kafka.tools.ConfigCommand"
	offsetShell    = "org.apache.kafka.tools.GetOffsetShell"
	deleteCommand  = "org.apache.kafka.tools.DeleteRecordsCommand"
	logDirsCommand = "org.apache.kafka.tools.LogDirsCommand"
	clusterCommand = "org.apache.kafka.tools.ClusterTool"
	versionsTool   = "org.apache.kafka.tools.BrokerApiVersionsCommand"
)

// Apache Kafka's own tools administer topics, configurations, offsets and logs.
func TestAdminTools(t *testing.T) {
	j := lab.jvm.Get(t)
	w := newWorld(t, "")
	run := func(class string, args ...string) string {
		t.Helper()
		return string(j.Tool(t, class, nil, append([]string{"--bootstrap-server", w.addr}, args...)...))
	}
	has := func(out string, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if !strings.Contains(out, p) {
				t.Errorf("no %q in %s", p, out)
			}
		}
	}
	has(run(topicCommand, "--create", "--topic", "made", "--partitions", "2", "--replication-factor", "1", "--config", "remote.storage.enable=true",
		"--config", "local.retention.bytes=1", "--config", "segment.bytes=1048576"), "Created topic made")
	has(run(topicCommand, "--list"), "made")
	has(run(topicCommand, "--describe", "--topic", "made"), "PartitionCount: 2", "ReplicationFactor: 1", "remote.storage.enable=true", "segment.bytes=1048576", "Partition: 1", "Leader: ", "Isr: ")
	run(topicCommand, "--alter", "--topic", "made", "--partitions", "3")
	has(run(topicCommand, "--describe", "--topic", "made"), "PartitionCount: 3")

	has(run(configCommand, "--alter", "--entity-type", "topics", "--entity-name", "made", "--add-config", "retention.bytes=123456789,max.message.bytes=70000"), "Completed")
	out := run(configCommand, "--describe", "--entity-type", "topics", "--entity-name", "made")
	has(out, "retention.bytes=123456789", "max.message.bytes=70000", "DYNAMIC_TOPIC_CONFIG")
	has(run(configCommand, "--alter", "--entity-type", "topics", "--entity-name", "made", "--delete-config", "max.message.bytes"), "Completed")
	if out := run(configCommand, "--describe", "--entity-type", "topics", "--entity-name", "made"); strings.Contains(out, "max.message.bytes=70000") {
		t.Errorf("max.message.bytes is still set: %s", out)
	}
	has(run(configCommand, "--describe", "--all", "--entity-type", "topics", "--entity-name", "made"), "cleanup.policy=delete", "local.retention.bytes=1")
	has(run(configCommand, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1"), "log.segment.bytes=")

	has(run(logDirsCommand, "--describe", "--topic-list", "made"), `"partition":"made-2"`)
	has(string(j.Tool(t, clusterCommand, nil, "cluster-id", "--bootstrap-server", w.addr)), "Cluster ID: ")
	has(run(versionsTool), "Fetch(1): 4 to 18", "Produce(0)")

	topics, _ := grouped(t, w, "old", 1)
	offset := func(time string) string {
		t.Helper()
		return strings.TrimSpace(run(offsetShell, "--topic", "old", "--time", time))
	}
	for time, want := range map[string]int{"earliest": 0, "latest": perPartition + 1, "-4": perPartition, "-5": perPartition - 1, fmt.Sprint(firstTimestamp + 7*33): 33} {
		if got := offset(time); got != fmt.Sprintf("old:0:%d", want) {
			t.Errorf("offset %s is %s, not %d", time, got, want)
		}
	}
	file := filepath.Join(t.TempDir(), "delete.json")
	if err := os.WriteFile(file, []byte(`{"partitions": [{"topic": "old", "partition": 0, "offset": 40}], "version": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	has(run(deleteCommand, "--offset-json-file", file), "low_watermark: 40")
	if got := offset("earliest"); got != "old:0:40" {
		t.Errorf("after DeleteRecords the log begins at %s", got)
	}
	read := runConsole(t, w, topics[0].name, perPartition+1-40)
	if len(read) == 0 || read[0].offset != 40 {
		t.Errorf("after DeleteRecords the first of %d records is not 40", len(read))
	}

	run(topicCommand, "--delete", "--topic", "made")
	if out := run(topicCommand, "--list"); strings.Contains(out, "made") {
		t.Errorf("list after delete: %s", out)
	}
}
