package broker

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// logKeys are topic keys about how a partition lies on disk and when it goes to the store.
var logKeys = []string{"flush.messages", "flush.ms", "min.insync.replicas", "preallocate", "remote.copy.lag.bytes", "remote.copy.lag.ms", "segment.jitter.ms"}

// TestLogKeysAsApacheKafka: what they may be, where they come from, and that more replicas than there are is asked of no produce request.
func TestLogKeysAsApacheKafka(t *testing.T) {
	compareSession(t, "logkeys", logKeyDifferences, func(s *peerSession) {
		s.create("t", 1)
		s.describeLogKeys("before")
		s.alterLogKeys()
		s.describeLogKeys("after")
		s.clusterDefaults()
		s.manyReplicas()
	}, withKeys("store", "test:"))
}

// The source of min.insync.replicas: docs/differences.md.
var logKeyDifferences = []difference{
	{"describe before", `Source DYNAMIC_DEFAULT_BROKER_CONFIG ConfigSynonyms [{Name "min.insync.replicas" Value "1" Source DEFAULT_CONFIG} {Name "min.insync.replicas" Value "1" Source DYNAMIC_DEFAULT_BROKER_CONFIG}]`,
		`Source DEFAULT_CONFIG ConfigSynonyms [{Name "min.insync.replicas" Value "1" Source DEFAULT_CONFIG}]`},
	{"describe after", ` {Name "min.insync.replicas" Value "1" Source DYNAMIC_DEFAULT_BROKER_CONFIG}`, ""},
}

func (s *peerSession) describeLogKeys(when string) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: ofTopic, ResourceName: s.prefix + "t", ConfigNames: logKeys}}
	s.step("describe "+when, 4, req)
}

func (s *peerSession) alterLogKeys() {
	for _, tc := range []struct{ key, value string }{
		{"flush.messages", "0"}, {"flush.messages", "1"}, {"flush.messages", "9223372036854775807"}, {"flush.messages", "3"},
		{"flush.ms", "-1"}, {"flush.ms", "0"}, {"flush.ms", "1s"}, {"flush.ms", "1000"},
		{"min.insync.replicas", "0"}, {"min.insync.replicas", "2147483648"}, {"min.insync.replicas", "2147483647"}, {"min.insync.replicas", "2"},
		{"preallocate", "yes"}, {"preallocate", "TRUE"},
		{"remote.copy.lag.bytes", "-2"}, {"remote.copy.lag.bytes", "-1"}, {"remote.copy.lag.bytes", "9223372036854775807"}, {"remote.copy.lag.bytes", "0"},
		{"remote.copy.lag.ms", "-2"}, {"remote.copy.lag.ms", "-1"}, {"remote.copy.lag.ms", "9223372036854775807"},
		{"segment.jitter.ms", "-1"}, {"segment.jitter.ms", "9223372036854775807"}, {"segment.jitter.ms", "5"},
	} {
		s.alterOne(ofTopic, s.prefix+"t", tc.key, tc.value)
	}
}

func (s *peerSession) alterOne(kind kmsg.ConfigResourceType, name, key, value string) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: key, Value: &value}}
	req.Resources = append(req.Resources, r)
	s.step(fmt.Sprintf("%s of %q = %s", key, name, value), 1, req)
}

// clusterDefaults tries the broker's keys, of which none stays altered.
func (s *peerSession) clusterDefaults() {
	for _, tc := range []struct{ key, value string }{
		{"log.flush.interval.messages", "0"}, {"log.flush.interval.messages", "x"}, {"log.flush.interval.ms", "x"},
		{"log.flush.scheduler.interval.ms", "100"}, {"log.roll.jitter.hours", "1"}, {"log.roll.jitter.ms", "-1"},
		{"log.preallocate", "maybe"}, {"log.remote.copy.lag.ms", "-2"}, {"log.remote.copy.lag.bytes", "-2"}, {"min.insync.replicas", "0"},
	} {
		s.alterOne(ofBroker, "", tc.key, tc.value)
	}
}

// manyReplicas produces to a topic that asks for more replicas than it has.
func (s *peerSession) manyReplicas() {
	for _, acks := range []int16{acksAll, 1} {
		s.produce(fmt.Sprintf("acks %d", acks), 9, acks, "t", plain(nil))
		s.step("read it", 12, fetchRequestOf(s.prefix+"t", 0, 0, 1<<20))
	}
}
