package tooltest

import (
	"fmt"
	"strings"
)

const dumpTool = "org.apache.kafka.tools.DumpLogSegments"

// each is the first segment of each partition of a coordinators' topic.
func each(topic string) string {
	var files []string
	for p := range 4 {
		files = append(files, fmt.Sprintf("{logs}/%s-%d/00000000000000000000.log", topic, p))
	}
	return strings.Join(files, ",")
}

// dumpSteps read the brokers' files.
func dumpSteps() []step {
	with := func(name, args string, more ...func(*step)) step {
		s := step{name: "dump-log: " + name, class: dumpTool, args: args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	first := "/00000000000000000000."
	return []step{
		with("records", "--print-data-log --files {logs}/history-0"+first+"log", sampled, want("value-18")),
		with("batches", "--files {logs}/history-1"+first+"log", want("baseOffset")),
		with("deep iteration", "--deep-iteration --files {logs}/history-1"+first+"log"),
		with("an offset index", "--files {logs}/rolled-0"+first+"index", sampled, want("position: 1")),
		with("an offset index verified", "--verify-index-only --files {logs}/rolled-0"+first+"index"),
		with("an offset index checked", "--index-sanity-check --files {logs}/rolled-0"+first+"index"),
		with("a time index", "--files {logs}/rolled-0"+first+"timeindex", want("offset: 1")),
		with("a segment", "--files {logs}/rolled-0"+first+"log", want("baseOffset: 100")),
		with("groups' offsets", "--offsets-decoder --files "+each("__consumer_offsets"), sampled, want("idle")),
		with("share groups' states", "--share-group-state-decoder --files "+each("__share_group_state"), sampled, want("idle-crew")),
		with("transactions' states", "--transaction-log-decoder --files "+each("__transaction_state"), sampled, want("tx-open")),
		with("transactions", "--print-data-log --files {logs}/transacted-0"+first+"log", want("endTxnMarker: COMMIT")),
		with("a transaction index", "--files {logs}/rolled-0"+first+"txnindex", sampled, want("firstOffset: 0 lastOffset: 1")),
	}
}
