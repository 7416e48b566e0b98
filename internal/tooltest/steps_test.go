package tooltest

import (
	"strings"
)

// step is one run of a tool. Arguments and input are the same for both brokers, but for what stands in braces.
type step struct {
	name   string
	class  string
	args   string // separated by blanks; {b} is the broker's address
	in     string
	needs  int16  // an API key without which our broker cannot answer it
	sample bool   // part of every test run; the others of the long one
	sorted bool   // the order of the lines means nothing
	expect string // what must be in Apache Kafka's output, so that it is known to have done something
}

const (
	topicsTool    = "org.apache.kafka.tools.TopicCommand"
	configsTool   = "org.apache.kafka.tools.ConfigCommand"
	groupsTool    = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	anyGroupsTool = "org.apache.kafka.tools.GroupsCommand"
	aclsTool      = "org.apache.kafka.tools.AclCommand"
	txnTool       = "org.apache.kafka.tools.TransactionsCommand"
	offsetsTool   = "org.apache.kafka.tools.GetOffsetShell"
	recordsTool   = "org.apache.kafka.tools.DeleteRecordsCommand"
	electionTool  = "org.apache.kafka.tools.LeaderElectionCommand"
	featuresTool  = "org.apache.kafka.tools.FeatureCommand"
	logDirsTool   = "org.apache.kafka.tools.LogDirsCommand"
	versionsTool  = "org.apache.kafka.tools.BrokerApiVersionsCommand"
	clusterTool   = "org.apache.kafka.tools.ClusterTool"
	perfTool      = "org.apache.kafka.tools.ProducerPerformance"
	readPerfTool  = "org.apache.kafka.tools.ConsumerPerformance"
	reassignTool  = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
	metricsTool   = "org.apache.kafka.tools.ClientMetricsCommand"
	tokensTool    = "org.apache.kafka.tools.DelegationTokenCommand"
	quorumTool    = "org.apache.kafka.tools.MetadataQuorumCommand"
)

func (s *step) arguments(addr string) []string {
	args := strings.Fields(strings.ReplaceAll(s.args, "{b}", addr))
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "~", " ")
	}
	return args
}

func steps() []step {
	var all []step
	for _, s := range [][]step{topicSteps(), configSteps(), groupSteps(), nextGroupSteps(), shareSteps(), streamsSteps(), aclSteps(), transactionSteps(), recordSteps(), clientSteps(), letterSteps(), clusterSteps(), clusterMoreSteps(), featureSteps()} {
		all = append(all, s...)
	}
	return all
}

func topicSteps() []step {
	with := func(name, args string, more ...func(*step)) step {
		s := step{name: name, class: topicsTool, args: "--bootstrap-server {b} " + args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	return []step{
		with("create", "--create --topic made --partitions 3 --replication-factor 1 --config retention.ms=123456 --config cleanup.policy=compact", sampled, want("Created topic made.")),
		with("create again", "--create --topic made"),
		with("create if it is not there", "--create --if-not-exists --topic made"),
		with("create with defaults", "--create --topic plain", want("Created topic plain.")),
		with("create by assignment", "--create --topic assigned --replica-assignment 1,1", want("Created topic assigned.")),
		with("create with a bad name", "--create --topic bad/name"),
		with("create with a colliding name", "--create --topic a.b_c", want("WARNING")),
		with("create with too many replicas", "--create --topic replicated --replication-factor 3"),
		with("create with an unknown configuration", "--create --topic configured --config no.such=1"),
		with("create with no partitions", "--create --topic nothing --partitions 0"),
		with("describe", "--describe --topic made", sampled, want("PartitionCount: 3")),
		with("describe several", "--describe --topic made|plain", lines),
		with("describe what is not there", "--describe --topic absent"),
		with("describe if it is there", "--describe --if-exists --topic absent"),
		with("describe overridden configurations", "--describe --topics-with-overrides --exclude-internal", lines),
		with("under-replicated", "--describe --under-replicated-partitions", sampled),
		with("unavailable", "--describe --unavailable-partitions"),
		with("under the minimum of replicas", "--describe --under-min-isr-partitions"),
		with("at the minimum of replicas", "--describe --at-min-isr-partitions --exclude-internal", lines),
		with("list", "--list --exclude-internal", lines, sampled, want("made")),
		with("list by pattern", "--list --topic ma.*"),
		with("alter", "--alter --topic made --partitions 5", sampled),
		with("alter to fewer", "--alter --topic made --partitions 2"),
		with("alter what is not there", "--alter --topic absent --partitions 2"),
		with("alter if it is there", "--alter --if-exists --topic absent --partitions 2"),
		with("alter by assignment", "--alter --topic assigned --partitions 3 --replica-assignment 1,1,1"),
		with("describe altered", "--describe --topic made", want("PartitionCount: 5")),
		with("delete", "--delete --topic plain", sampled),
		with("delete what is not there", "--delete --topic absent"),
		with("delete if it is there", "--delete --if-exists --topic absent"),
		with("list after the deletion", "--list --exclude-internal", lines),
	}
}

func sampled(s *step)                 { s.sample = true }
func lines(s *step)                   { s.sorted = true }
func want(text string) func(*step)    { return func(s *step) { s.expect = text } }
func needs(key int16) func(*step)     { return func(s *step) { s.needs = key } }
func reading(text string) func(*step) { return func(s *step) { s.in = text } }

func configSteps() []step {
	with := func(name, args string, more ...func(*step)) step {
		s := step{name: "configs: " + name, class: configsTool, args: "--bootstrap-server {b} " + args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	return []step{
		with("describe a topic", "--describe --entity-type topics --entity-name made", sampled, lines, want("retention.ms=123456")),
		with("describe all of a topic", "--describe --all --entity-type topics --entity-name made", lines),
		with("alter a topic", "--alter --entity-type topics --entity-name made --add-config retention.ms=99,max.message.bytes=5000", sampled, want("Completed updating")),
		with("alter a topic's lists", "--alter --entity-type topics --entity-name made --add-config cleanup.policy=[compact,delete]", want("Completed updating")),
		with("delete of a topic", "--alter --entity-type topics --entity-name made --delete-config retention.ms", want("Completed updating")),
		with("delete what is not set", "--alter --entity-type topics --entity-name made --delete-config segment.ms"),
		with("a bad value", "--alter --entity-type topics --entity-name made --add-config retention.ms=often"),
		with("an unknown key", "--alter --entity-type topics --entity-name made --add-config no.such=1"),
		with("a topic that is not there", "--alter --entity-type topics --entity-name absent --add-config retention.ms=5"),
		with("describe a topic that is not there", "--describe --entity-type topics --entity-name absent"),
		with("describe what was altered", "--describe --entity-type topics --entity-name made", lines, want("max.message.bytes=5000")),
		with("alter a broker", "--alter --entity-type brokers --entity-name 1 --add-config message.max.bytes=900000", want("Completed updating")),
		with("describe a broker", "--describe --entity-type brokers --entity-name 1", lines),
		with("delete of a broker", "--alter --entity-type brokers --entity-name 1 --delete-config message.max.bytes"),
		with("alter the brokers' default", "--alter --entity-type brokers --entity-default --add-config message.max.bytes=900000"),
		with("describe the brokers' default", "--describe --entity-type brokers --entity-default", lines),
		with("delete of the brokers' default", "--alter --entity-type brokers --entity-default --delete-config message.max.bytes"),
		with("a broker's key that is read only", "--alter --entity-type brokers --entity-name 1 --add-config node.id=3"),
		with("a user of SCRAM", "--alter --entity-type users --entity-name alice --add-config SCRAM-SHA-256=[password=alice-secret]", sampled, want("Completed updating")),
		with("describe a user", "--describe --entity-type users --entity-name alice", want("SCRAM-SHA-256"), needs(48)),
		with("delete a user", "--alter --entity-type users --entity-name alice --delete-config SCRAM-SHA-256"),
		with("quotas of a client", "--alter --entity-type clients --entity-name one --add-config producer_byte_rate=1000000,consumer_byte_rate=2000000", needs(49), want("Completed updating")),
		with("quotas of a user and its client", "--alter --entity-type users --entity-name bob --entity-type clients --entity-name one --add-config request_percentage=50", needs(49)),
		with("the users' default quota", "--alter --entity-type users --entity-default --add-config producer_byte_rate=5000000", needs(49)),
		with("an unknown quota", "--alter --entity-type clients --entity-name one --add-config no_such_rate=1", needs(49)),
		with("describe a client's quotas", "--describe --entity-type clients --entity-name one", lines, needs(48), want("producer_byte_rate")),
		with("describe all quotas", "--describe --entity-type users", lines, needs(48)),
		with("delete quotas", "--alter --entity-type clients --entity-name one --delete-config producer_byte_rate", needs(49)),
		with("a group", "--alter --entity-type groups --entity-name steady --add-config consumer.session.timeout.ms=50000", needs(68), want("Completed updating")),
		with("describe a group", "--describe --entity-type groups --entity-name steady", lines, needs(68)),
		with("a subscription to metrics", "--alter --entity-type client-metrics --entity-name sub --add-config metrics=[org.apache],interval.ms=5000", needs(74), want("Completed updating")),
		with("describe a subscription to metrics", "--describe --entity-type client-metrics --entity-name sub", lines, needs(74)),
		{name: "client-metrics: list", class: metricsTool, args: "--bootstrap-server {b} --list", needs: 74, sorted: true},
		{name: "client-metrics: delete", class: metricsTool, args: "--bootstrap-server {b} --delete --name sub", needs: 74},
	}
}

func groupSteps() []step {
	with := func(name, args string, more ...func(*step)) step {
		s := step{name: "groups: " + name, class: groupsTool, args: "--bootstrap-server {b} " + args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	reset := func(name, args string, more ...func(*step)) step {
		return with("reset "+name, "--reset-offsets --group idle --topic history "+args, append(more, lines)...)
	}
	return []step{
		with("list", "--list", lines, sampled, want("idle")),
		with("list with states", "--list --state", lines),
		with("list of a state", "--list --state Stable", lines),
		with("list with types", "--list --type", lines),
		with("list of a type", "--list --type classic", lines),
		with("describe", "--describe --group idle", sampled, lines, want("history")),
		with("describe verbosely", "--describe --group idle --verbose", lines),
		with("describe a live one", "--describe --group steady", lines, want("history")),
		with("describe its members", "--describe --group steady --members", lines, sampled),
		with("describe its members verbosely", "--describe --group steady --members --verbose", lines),
		with("describe its state", "--describe --group steady --state", sampled, want("Stable")),
		with("describe the state verbosely", "--describe --group steady --state --verbose"),
		with("describe what is not there", "--describe --group absent"),
		with("describe the state of what is not there", "--describe --group absent --state"),
		with("describe all", "--describe --all-groups", lines),
		with("describe the state of all", "--describe --all-groups --state", lines),
		reset("to the earliest, as a try", "--to-earliest --dry-run", sampled, want("history")),
		reset("to the earliest", "--to-earliest --execute"),
		reset("to the latest", "--to-latest --execute"),
		reset("to an offset", "--to-offset 7 --execute", sampled),
		reset("to an offset beyond the end", "--to-offset 7000000 --execute"),
		reset("by a shift", "--shift-by -3 --execute"),
		reset("to a time", "--to-datetime 2023-11-14T22:13:25.000 --execute"),
		reset("by a duration", "--by-duration PT1H --execute"),
		reset("to the current", "--to-current --execute"),
		reset("as a table", "--to-offset 2 --export --dry-run"),
		with("reset of one partition", "--reset-offsets --group idle --topic history:1 --to-offset 3 --execute", lines),
		with("reset of all topics", "--reset-offsets --group idle --all-topics --to-earliest --execute", lines),
		with("reset of a live group", "--reset-offsets --group steady --topic history --to-earliest --execute"),
		with("reset of a new group", "--reset-offsets --group fresh --topic history --to-earliest --execute", lines),
		with("reset of what is not there", "--reset-offsets --group idle --topic absent --to-earliest --execute"),
		with("describe what was reset", "--describe --group idle", lines),
		with("delete offsets", "--delete-offsets --group idle --topic history:1", sampled),
		with("delete offsets of what is not there", "--delete-offsets --group idle --topic absent"),
		with("delete offsets of a live group", "--delete-offsets --group steady --topic history"),
		with("delete", "--delete --group idle", sampled, want("successful")),
		with("delete a live one", "--delete --group steady"),
		with("delete what is not there", "--delete --group absent"),
		with("delete all that have a state", "--delete --group fresh --group idle"),
		{name: "all groups: list", class: anyGroupsTool, args: "--bootstrap-server {b} --list", sorted: true, expect: "steady"},
		{name: "all groups: consumers'", class: anyGroupsTool, args: "--bootstrap-server {b} --list --consumer", sorted: true},
		{name: "all groups: of a type", class: anyGroupsTool, args: "--bootstrap-server {b} --list --group-type classic", sorted: true},
		{name: "all groups: of a protocol", class: anyGroupsTool, args: "--bootstrap-server {b} --list --protocol consumer", sorted: true},
		{name: "all groups: share groups", class: anyGroupsTool, args: "--bootstrap-server {b} --list --share", sorted: true},
	}
}

func aclSteps() []step {
	with := func(name, args string, more ...func(*step)) step {
		s := step{name: "acls: " + name, class: aclsTool, args: "--bootstrap-server {b} " + args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	return []step{
		with("none", "--list"),
		with("add", "--add --allow-principal User:alice --operation Read --operation Describe --topic made", sampled, lines, want("User:alice")),
		with("add a denial", "--add --deny-principal User:bob --deny-host 10.0.0.1 --operation All --topic made", lines),
		with("add a prefix", "--add --allow-principal User:alice --operation Write --resource-pattern-type prefixed --topic ma", lines),
		with("add a producer", "--add --allow-principal User:carol --producer --topic made --transactional-id tx", lines),
		with("add an idempotent producer", "--add --allow-principal User:carol --producer --idempotent --topic made", lines),
		with("add a consumer", "--add --allow-principal User:carol --consumer --topic made --group steady", lines),
		with("add for the cluster", "--add --allow-principal User:dan --operation Alter --cluster", lines),
		with("add what has no meaning", "--add --allow-principal User:dan --operation Write --group steady"),
		with("list", "--list", lines, sampled, want("User:alice")),
		with("list of a topic", "--list --topic made", lines),
		with("list what matches", "--list --topic made --resource-pattern-type match", lines),
		with("list of a principal", "--list --principal User:alice", lines),
		with("remove", "--remove --force --allow-principal User:alice --operation Read --topic made", lines, sampled),
		with("remove all of a topic", "--remove --force --topic made", lines),
		with("remove what matches", "--remove --force --topic made --resource-pattern-type match", lines),
		with("list in the end", "--list", lines),
	}
}

func transactionSteps() []step {
	with := func(name, args string, more ...func(*step)) step {
		s := step{name: "transactions: " + name, class: txnTool, args: "--bootstrap-server {b} " + args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	return []step{
		with("list", "list", lines, sampled, want("tx-open")),
		with("list by duration", "list --duration-filter 3600000", lines),
		with("list by pattern", "list --transactional-id-pattern tx-[oc].*", lines),
		with("describe", "describe --transactional-id tx-open", sampled, want("Ongoing")),
		with("describe one that has ended", "describe --transactional-id tx-committed", want("CompleteCommit")),
		with("describe what is not there", "describe --transactional-id absent"),
		with("describe producers", "describe-producers --topic transacted --partition 0", lines, sampled),
		with("find hanging ones", "find-hanging --broker-id 1", lines),
		with("find hanging ones of a topic", "find-hanging --topic transacted --max-transaction-timeout 0"),
		with("abort", "abort --topic transacted --partition 0 --start-offset {open}", sampled),
		with("abort what is not open", "abort --topic transacted --partition 0 --start-offset 0"),
		with("describe producers after that", "describe-producers --topic transacted --partition 0", lines),
		with("terminate", "forceTerminateTransaction --transactional-id tx-open"),
	}
}

func recordSteps() []step {
	offsets := func(name, args string, more ...func(*step)) step {
		s := step{name: "offsets: " + name, class: offsetsTool, args: "--bootstrap-server {b} " + args, sorted: true}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	return []step{
		offsets("of a topic", "--topic history", sampled, want("history:0:")),
		offsets("of all", "--exclude-internal-topics"),
		offsets("of partitions", "--topic-partitions history:0,made:1-3"),
		offsets("of some partitions", "--topic history --partitions 1"),
		offsets("earliest", "--topic history --time earliest", sampled),
		offsets("latest", "--topic history --time latest"),
		offsets("of the largest time", "--topic history --time max-timestamp"),
		offsets("earliest local", "--topic history --time earliest-local"),
		offsets("latest tiered", "--topic history --time latest-tiered"),
		offsets("earliest that waits for its upload", "--topic history --time earliest-pending-upload"),
		offsets("of a time", "--topic history --time 1700000003000", sampled),
		offsets("of what is not there", "--topic absent"),
		offsets("of a bad time", "--topic history --time yesterday"),
		{name: "records: delete", class: recordsTool, args: "--bootstrap-server {b} --offset-json-file {deletions}", sorted: true, sample: true, expect: "low_watermark: 2"},
		{name: "records: delete again", class: recordsTool, args: "--bootstrap-server {b} --offset-json-file {deletions}", sorted: true},
		offsets("after that", "--topic history --time earliest", want("history:0:2")),
		{name: "log-dirs: describe", class: logDirsTool, args: "--bootstrap-server {b} --describe --topic-list made", sorted: true, sample: true, expect: "made-0"},
		{name: "log-dirs: of a broker that is not there", class: logDirsTool, args: "--bootstrap-server {b} --describe --broker-list 7 --topic-list made"},
		{name: "perf: produce", class: perfTool, args: "--bootstrap-server {b} --topic assigned --num-records 2000 --record-size 100 --throughput -1 --command-property acks=all", expect: "2000 records sent"},
		{name: "perf: transactions", class: perfTool, args: "--bootstrap-server {b} --topic assigned --num-records 500 --record-size 100 --throughput -1 --transactional-id perf --transaction-duration-ms 50", expect: "500 records sent"},
		{name: "perf: consume", class: readPerfTool, args: "--bootstrap-server {b} --topic assigned --num-records 2500 --timeout 20000", expect: "2500"},
	}
}

func clusterSteps() []step {
	return []step{
		{name: "cluster: id", class: clusterTool, args: "cluster-id --bootstrap-server {b}", sample: true, expect: "Cluster ID"},
		{name: "cluster: list of endpoints", class: clusterTool, args: "list-endpoints --bootstrap-server {b}"},
		{name: "cluster: unregister", class: clusterTool, args: "unregister --bootstrap-server {b} --id 7", needs: 64},
		{name: "versions", class: versionsTool, args: "--bootstrap-server {b}", sorted: true, sample: true, expect: "Fetch(1)"},
		{name: "election: one partition", class: electionTool, args: "--bootstrap-server {b} --election-type preferred --topic made --partition 0", needs: 43},
		{name: "election: all", class: electionTool, args: "--bootstrap-server {b} --election-type preferred --all-topic-partitions", needs: 43, sorted: true},
		{name: "election: unclean", class: electionTool, args: "--bootstrap-server {b} --election-type unclean --topic made --partition 0", needs: 43},
		{name: "election: of what is not there", class: electionTool, args: "--bootstrap-server {b} --election-type preferred --topic absent --partition 0", needs: 43},
		{name: "reassign: list", class: reassignTool, args: "--bootstrap-server {b} --list", needs: 46, sorted: true},
		{name: "reassign: execute", class: reassignTool, args: "--bootstrap-server {b} --execute --reassignment-json-file {reassignment}", needs: 45},
		{name: "reassign: verify", class: reassignTool, args: "--bootstrap-server {b} --verify --reassignment-json-file {reassignment}", needs: 45},
		{name: "reassign: cancel", class: reassignTool, args: "--bootstrap-server {b} --cancel --reassignment-json-file {reassignment}", needs: 45},
		{name: "tokens: describe", class: tokensTool, args: "--bootstrap-server {b} --describe --command-config {empty}", needs: 41},
		{name: "quorum: describe", class: quorumTool, args: "--bootstrap-server {b} describe --status", needs: 55},
	}
}
