package tooltest

import "regexp"

// difference is what a tool prints otherwise on purpose. One that does not occur fails the step.
type difference struct {
	step  string
	kafka *regexp.Regexp // in what it prints with Apache Kafka
	ours  string         // instead of it
}

func differ(step, kafka, ours string) difference {
	return difference{step, regexp.MustCompile(kafka), ours}
}

// Each is in docs/differences.md: consumer groups and configurations.
func differences() []difference {
	return []difference{
		differ("configs: describe all of a topic", `(?m)^(compression\.(gzip|lz4|zstd)\.level|errors\.deadletterqueue\.group\.enable|(follower|leader)\.replication\.throttled\.replicas|max\.decompressed\.message\.bytes|remote\.copy\.lag\.\w+)=.*\n`, ""),
		differ("configs: describe the brokers' default", `message\.max\.bytes=900000 .*\n`, ""),
		// Its segment is written to.
		differ("dump-log: a transaction index", `version: 0 .*\n`, ""),
		// A group that its first member is about to join is written down as an empty one.
		differ("dump-log: groups' offsets", `\{"type":"2","data":\{"group":"steady"\}\} payload: .*"generation":0,.*\n`, ""),
		differ("features: downgrade as a try", `(?s).*`, "status 1\nCan not downgrade group.version to 0. The update failed for all features since the following feature had an error: ...\n"),
		differ("configs: a broker's key that is read only", `InvalidRequestException`, "InvalidConfigurationException"),
	}
}
