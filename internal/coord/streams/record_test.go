package streams

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/grouptest"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// TestRecordsAsApacheKafkaWritesThem: each record that Apache Kafka 4.4.0 wrote while TestStreamsGroupsAsApacheKafka was recorded is read, and written with the same bytes.
func TestRecordsAsApacheKafkaWritesThem(t *testing.T) {
	text, err := os.ReadFile("testdata/records_kafka_4.4.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[byte]int{}
	var records []group.Record
	for _, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		k, v, _ := strings.Cut(line, " ")
		key, err := hex.DecodeString(k)
		if err != nil {
			t.Fatal(err)
		}
		var value []byte
		if v != "" {
			if value, err = hex.DecodeString(v); err != nil {
				t.Fatal(err)
			}
		}
		records = append(records, group.Record{Key: key, Value: value})
		kinds[key[1]]++
	}
	grouptest.Records(t, Parse, records)
	for kind := byte(17); kind <= 23; kind++ {
		if kind == 18 { // there is none
			continue
		}
		if kinds[kind] == 0 {
			t.Errorf("no record of kind %d", kind)
		}
	}
}

func samples() []group.Record {
	m := newMember("m")
	m.InstanceID, m.RackID, m.ClientID, m.ClientHost, m.Rebalance, m.TopologyEpoch, m.ProcessID = "i", "r", "c", "/h", 5, 2, "p"
	m.Endpoint, m.Tags = &Endpoint{"host", 65_535}, map[string]string{"zone": "z", "rack": "r"}
	m.Epoch, m.Previous, m.State = 4, 3, members.Unrevoked
	m.Assigned = Held{Active: Epochs{{"0", 1}: 2, {"1", 0}: 4}, Standby: Set{{"0", 2}: {}}, Warmup: Set{{"0", 3}: {}}}
	m.Revoking = Held{Active: Epochs{{"0", 5}: 1}, Standby: Set{}, Warmup: Set{{"2", 0}: {}}}
	tasks := Tasks{Active: Set{{"0", 1}: {}, {"0", 0}: {}}, Standby: Set{{"1", 1}: {}}, Warmup: Set{}}
	topology := &Topology{Epoch: 3, Subtopologies: []Subtopology{{ID: "0", Sources: []string{"a", "b"}, SourceRegexes: []string{"x.*"}, Changelogs: []TopicInfo{{"c", 0, -1, []Pair{{"k", "v"}}}},
		Sinks: []string{"r"}, Repartitions: []TopicInfo{{"r", 7, 1, nil}}, Copartitions: []Copartition{{[]int16{0, 1}, []int16{0}, []int16{0}}}}}}
	return members.Encode("g", []record{metadataType.Of("", &metadata{3, 99, 2, map[string]string{"num.standby.replicas": "1"}, 7, -2}), metadataType.Of("", nil), topologyType.Of("", topology), topologyType.Of("", nil),
		memberType.Of("m", m), memberType.Of("m", nil), assignmentType.Of("", &members.Assignment{Epoch: 3, Made: 5}), assignmentType.Of("", nil), targetType.Of("m", &tasks), targetType.Of("m", nil),
		currentType.Of("m", &m.Standing), currentType.Of("m", nil)})
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) { grouptest.Records(t, Parse, samples()) }

// FuzzParse: no record makes Parse fall over.
func FuzzParse(f *testing.F) {
	for _, r := range samples() {
		f.Add(r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, k, v []byte) {
		if r := grouptest.WrittenAgain(t, Parse, k, v); r != nil {
			r.Replay(newRig().make())
		}
	})
}
