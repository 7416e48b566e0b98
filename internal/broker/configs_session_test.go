package broker

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/config"
)

// The same topic configurations were tried on Apache Kafka 4.4.0 with remote storage; which it accepts is in testdata.
var recordConfigs = flag.String("record-configs", "", "address of an Apache Kafka whose answers are to be recorded")

const configsGolden = "testdata/configs_session_kafka_4.4.0.txt"

// configTrials are values to create a topic with, and then to alter in one request ("-key" deletes).
var configTrials = []struct{ create, alter string }{
	{"", ""},
	{"cleanup.policy=compact", ""},
	{"cleanup.policy=compact,delete", ""},
	{"cleanup.policy=delete,compact", "cleanup.policy=delete"},
	{"cleanup.policy=", ""},
	{"cleanup.policy=keep", ""},
	{"cleanup.policy=Delete", ""},
	{"cleanup.policy=delete,delete", ""},
	{"retention.ms=-1", "retention.ms=-2"},
	{"retention.ms=1d", ""},
	{"retention.ms=", ""},
	{"retention.bytes=-1", "retention.bytes=0"},
	{"segment.bytes=1048575", ""},
	{"segment.bytes=1048576", "segment.bytes=2147483648"},
	{"segment.ms=0", ""},
	{"segment.ms=1", ""},
	{"segment.index.bytes=3", ""},
	{"segment.index.bytes=4", ""},
	{"index.interval.bytes=-1", ""},
	{"index.interval.bytes=0", ""},
	{"max.message.bytes=-1", ""},
	{"max.message.bytes=0", ""},
	{"message.timestamp.type=CreateTime", "message.timestamp.type=LogAppendTime"},
	{"message.timestamp.type=create", ""},
	{"message.timestamp.before.max.ms=-1", ""},
	{"message.timestamp.after.max.ms=0", ""},
	{"min.cleanable.dirty.ratio=1.1", ""},
	{"min.cleanable.dirty.ratio=1", "min.cleanable.dirty.ratio=NaN"},
	{"min.compaction.lag.ms=-1", ""},
	{"max.compaction.lag.ms=0", ""},
	{"min.compaction.lag.ms=6,max.compaction.lag.ms=5", ""},
	{"min.compaction.lag.ms=5,max.compaction.lag.ms=5", "max.compaction.lag.ms=4"},
	{"delete.retention.ms=-1", ""},
	{"file.delete.delay.ms=-1", ""},
	{"preallocate=maybe", ""},
	{"preallocate=FALSE", ""},
	{"min.insync.replicas=0", ""},
	{"compression.type=none", ""},
	{"unclean.leader.election.enable=true", ""},
	{"no.such.key=1", ""},
	{"", "no.such.key=1"},
	{"", "-no.such.key"},
	{"", "-retention.ms"},
	{"remote.storage.enable=true", "retention.ms=5"},
	{"remote.storage.enable=true,cleanup.policy=compact", ""},
	{"remote.storage.enable=true,cleanup.policy=compact,delete", ""},
	{"remote.storage.enable=true", "cleanup.policy=compact"},
	{"cleanup.policy=compact", "remote.storage.enable=true"},
	{"cleanup.policy=compact", "remote.storage.enable=true,cleanup.policy=delete"},
	{"remote.storage.enable=true", "remote.storage.enable=false"},
	{"remote.storage.enable=true", "-remote.storage.enable"},
	{"remote.storage.enable=true", "remote.storage.enable=false,remote.log.delete.on.disable=true"},
	{"remote.storage.enable=true,remote.log.delete.on.disable=true", "remote.storage.enable=false"},
	{"remote.storage.enable=true", "remote.log.copy.disable=true"},
	{"remote.storage.enable=true,local.retention.ms=5", "remote.log.copy.disable=true"},
	{"remote.storage.enable=true,local.retention.ms=5,retention.ms=5", "remote.log.copy.disable=true"},
	{"remote.log.copy.disable=true", ""},
	{"remote.log.delete.on.disable=true", ""},
	{"local.retention.ms=-3", ""},
	{"local.retention.bytes=-3", ""},
	{"local.retention.ms=10,retention.ms=5", ""},
	{"remote.storage.enable=true,local.retention.ms=10,retention.ms=5", ""},
	{"remote.storage.enable=true,local.retention.ms=5,retention.ms=5", "retention.ms=4"},
	{"remote.storage.enable=true,local.retention.ms=-1,retention.ms=5", ""},
	{"remote.storage.enable=true,local.retention.ms=-1,retention.ms=-1", ""},
	{"remote.storage.enable=true,local.retention.ms=10,retention.ms=-1", ""},
	{"remote.storage.enable=true,local.retention.bytes=10,retention.bytes=5", ""},
	{"remote.storage.enable=true,local.retention.bytes=-1,retention.bytes=5", ""},
	{"remote.storage.enable=true,local.retention.bytes=10", ""},
	{"remote.storage.enable=true,local.retention.ms=604800001", ""},
	{"remote.storage.enable=true,local.retention.ms=10,remote.copy.lag.ms=11", ""},
	{"remote.storage.enable=true,local.retention.ms=10,remote.copy.lag.ms=10", "local.retention.ms=9"},
	{"remote.storage.enable=true,remote.copy.lag.ms=604800001", ""},
	{"remote.storage.enable=true,remote.copy.lag.ms=604800000", "retention.ms=604799999"},
	{"remote.storage.enable=true,remote.copy.lag.ms=-1,remote.copy.lag.bytes=-1", "local.retention.ms=5"},
	{"remote.storage.enable=true,retention.bytes=10,remote.copy.lag.bytes=11", ""},
	{"remote.storage.enable=true,local.retention.bytes=10,remote.copy.lag.bytes=10", "remote.copy.lag.bytes=11"},
	{"remote.storage.enable=true,retention.ms=-1,remote.copy.lag.ms=9223372036854775807", ""},
	{"local.retention.ms=10,remote.copy.lag.ms=11", "remote.storage.enable=true"},
	{"min.insync.replicas=3", "min.insync.replicas=2"},
	{"flush.messages=1,flush.ms=0,segment.jitter.ms=9223372036854775807,preallocate=true", "-preallocate,flush.messages=0"},
}

// parseTrial takes "a=1,b=x,y" apart: what has no "=" belongs to the value before it.
func parseTrial(text string) (keys []string, values map[string]string) {
	values = map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		k, v, ok := strings.Cut(part, "=")
		switch {
		case part == "":
		case ok:
			keys, values[k] = append(keys, k), v
		case strings.HasPrefix(part, "-"):
			keys = append(keys, part)
		default:
			values[keys[len(keys)-1]] += "," + part
		}
	}
	return keys, values
}

func tryConfigs(t *testing.T, cl *kgo.Client) []string {
	adm := kadm.NewClient(cl)
	var lines []string
	for i, trial := range configTrials {
		topic := fmt.Sprintf("trial-%d", i)
		_, values := parseTrial(trial.create)
		configs := map[string]*string{}
		for k, v := range values {
			configs[k] = &v
		}
		_, err := adm.CreateTopic(t.Context(), 1, 1, configs, topic)
		line := fmt.Sprintf("create %q: %s", trial.create, errorName(err))
		if err == nil && trial.alter != "" {
			line += fmt.Sprintf(", alter %q: %s", trial.alter, errorName(alterTrial(t, adm, topic, trial.alter)))
		}
		lines = append(lines, line)
	}
	return lines
}

func alterTrial(t *testing.T, adm *kadm.Client, topic, text string) error {
	keys, values := parseTrial(text)
	var changes []kadm.AlterConfig
	for _, k := range keys {
		if name, ok := strings.CutPrefix(k, "-"); ok {
			changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
			continue
		}
		changes = append(changes, set(kadm.SetConfig, k, values[k]))
	}
	got, err := adm.AlterTopicConfigs(t.Context(), changes, topic)
	if err != nil {
		t.Fatal(err)
	}
	return got[0].Err
}

func errorName(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.SplitN(err.Error(), ":", 2)[0]
}

func TestTopicConfigsAsApacheKafka(t *testing.T) {
	if *recordConfigs != "" {
		cl, err := kgo.NewClient(kgo.SeedBrokers(*recordConfigs))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if err := os.WriteFile(configsGolden, []byte(strings.Join(tryConfigs(t, cl), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(configsGolden)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	b := startBroker(t, t.TempDir(), withKeys("store", "test:"))
	got := tryConfigs(t, b.client(t))
	if len(got) != len(want) {
		t.Fatalf("%d answers, Apache Kafka gave %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] && !slices.Contains(configDifferences, got[i]) {
			t.Errorf("\nours:  %s\nKafka: %s", got[i], want[i])
		}
	}
}

// configDifferences are answers that differ on purpose; docs/configuration.md says why.
var configDifferences = []string{
	`create "min.cleanable.dirty.ratio=1": ok, alter "min.cleanable.dirty.ratio=NaN": INVALID_CONFIG`,
}

// The defaults of Apache Kafka 4.4.0 as its kafka-configs shows them.
func TestTopicDefaultsAreApacheKafkas(t *testing.T) {
	text, err := os.ReadFile("testdata/topic_defaults_kafka_4.4.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		k, err := config.TopicKey(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if seen++; k.Default != value {
			t.Errorf("%s: default %q, Apache Kafka's is %q", name, k.Default, value)
		}
	}
	internal := 1 // internal.segment.bytes, which Apache Kafka does not show
	if n := len(config.TopicKeys()); n != seen+internal {
		t.Errorf("%d keys, Apache Kafka has %d of them", n, seen)
	}
}
