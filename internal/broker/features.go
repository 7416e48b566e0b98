package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// feature is something that the brokers of a cluster agree on. Apache Kafka's clients look at transaction.version, its tools show all of them.
type feature struct {
	name     string
	min, max int16
}

// features are Apache Kafka 4.4.0's, in the order of their names. Each is at its newest level, and stays there.
var features = []feature{
	{"eligible.leader.replicas.version", 0, 1},
	{"group.version", 0, 1}, // groups of KIP-848
	{"kraft.version", 0, 1},
	{"metadata.version", 7, 33}, // 3.3-IV3 to 4.4-IV2
	{"share.version", 0, 2},
	{"streams.version", 0, 1},
	{"transaction.version", 0, int16(txn.V2)}, // KIP-890
}

// featuresEpoch is that of the levels, which never change.
const featuresEpoch = 1

func supportedFeatures(version int16) (list []kmsg.ApiVersionsResponseSupportedFeature) {
	for _, f := range features {
		if version >= firstWithZeroLevels || f.min > 0 {
			list = append(list, kmsg.ApiVersionsResponseSupportedFeature{Name: f.name, MinVersion: f.min, MaxVersion: f.max})
		}
	}
	return list
}

// firstWithZeroLevels: before that version of ApiVersions a smallest level of 0 could not be told.
const firstWithZeroLevels = 4

func finalizedFeatures() (list []kmsg.ApiVersionsResponseFinalizedFeature) {
	for _, f := range features {
		list = append(list, kmsg.ApiVersionsResponseFinalizedFeature{Name: f.name, MaxVersionLevel: f.max, MinVersionLevel: f.max})
	}
	return list
}
