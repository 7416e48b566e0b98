package tooltest

import "strings"

const (
	verifiableProducer = "org.apache.kafka.tools.VerifiableProducer"
	verifiableConsumer = "org.apache.kafka.tools.VerifiableConsumer"
	consoleProducer    = "org.apache.kafka.tools.ConsoleProducer"
	consoleConsumer    = "org.apache.kafka.tools.consumer.ConsoleConsumer"
	latencyTool        = "org.apache.kafka.tools.EndToEndLatency"
	copierTool         = "org.apache.kafka.tools.TransactionalMessageCopier"
	compatibilityTool  = "org.apache.kafka.tools.ClientCompatibilityTest"
	resetterTool       = "org.apache.kafka.tools.StreamsResetter"
)

// featureSteps: levels are lowered, and raised again at the end.
func featureSteps() []step {
	with := func(name, args string, more ...func(*step)) step {
		s := step{name: "features: " + name, class: featuresTool, args: "--bootstrap-server {b} " + args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	return []step{
		with("describe", "describe", lines, sampled, want("metadata.version")),
		with("upgrade to what is there", "upgrade --feature transaction.version=2"),
		with("upgrade too far", "upgrade --feature transaction.version=99"),
		with("upgrade an unknown one", "upgrade --feature no.such=1"),
		with("upgrade to what it is not higher than", "upgrade --feature group.version=0"),
		with("upgrade without a level", "upgrade --feature group.version"),
		with("upgrade to a release", "upgrade --release-version 4.4", lines),
		with("upgrade to a release, as a try", "upgrade --release-version 4.4-IV0 --dry-run", lines),
		with("upgrade to a release that is not there", "upgrade --release-version 9.9"),
		with("upgrade to a level of metadata", "upgrade --metadata 4.4"),
		with("downgrade as a try", "downgrade --feature group.version=0 --dry-run"),
		with("downgrade to a release, as a try", "downgrade --release-version 4.1 --dry-run", lines),
		with("downgrade the level of metadata", "downgrade --metadata 4.0"),
		with("downgrade the level of metadata, whatever it costs", "downgrade --metadata 4.0 --unsafe --dry-run"),
		with("downgrade to what is higher", "downgrade --feature transaction.version=9"),
		with("downgrade an unknown one", "downgrade --feature no.such=0"),
		with("downgrade", "downgrade --feature transaction.version=1", sampled, want("was downgraded to 1")),
		with("downgrade several, one of them unknown", "downgrade --feature share.version=1 --feature no.such=0", lines),
		with("describe what was downgraded", "describe", lines, want("FinalizedVersionLevel: 1")),
		with("disable", "disable --feature transaction.version", want("was disabled")),
		with("disable an unknown one", "disable --feature no.such"),
		with("describe what was disabled", "describe", lines),
		with("upgrade again", "upgrade --feature transaction.version=2", sampled, want("was upgraded to 2")),
		with("describe what was upgraded", "describe", lines),
		with("which versions a release has", "version-mapping --release-version 4.1", sampled, lines, want("group.version=")),
		with("which versions the newest release has", "version-mapping", lines),
		with("which versions a release that is not there has", "version-mapping --release-version 9.9"),
		with("what a feature needs", "feature-dependencies --feature transaction.version=2", want("transaction.version=2")),
		with("what several features need", "feature-dependencies --feature group.version=1 --feature share.version=1", lines, sampled),
		with("what an unknown feature needs", "feature-dependencies --feature no.such=1"),
	}
}

// clusterMoreSteps are about the one node of the cluster, and about what it does not have.
func clusterMoreSteps() []step {
	quorum := func(name, args string, more ...func(*step)) step {
		s := step{name: "quorum: " + name, class: quorumTool, args: "--bootstrap-server {b} " + args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	token := func(name, args string) step {
		return step{name: "tokens: " + name, class: tokensTool, args: "--bootstrap-server {b} --command-config {empty} " + args}
	}
	return []step{
		{name: "cluster: versions", class: clusterTool, args: "api-versions --bootstrap-server {b}", sorted: true, sample: true, expect: "UnregisterController(94)"},
		{name: "cluster: unregister a controller that is not there", class: clusterTool, args: "unregister-controller --bootstrap-server {b} --id 7"},
		{name: "cluster: unregister the controller", class: clusterTool, args: "unregister-controller --bootstrap-server {b} --id 1"},
		quorum("describe the replication", "describe --replication", sampled, want("Leader")),
		quorum("describe the replication for people", "describe --replication --human-readable"),
		quorum("remove what is not there", "remove-controller --controller-id 9 --controller-directory-id AAAAAAAAAAAAAAAAAAAACQ"),
		token("create", "--create --max-life-time-period -1"),
		token("renew", "--renew --hmac aG1hYw== --renew-time-period -1"),
		token("expire", "--expire --hmac aG1hYw== --expiry-time-period -1"),
		{name: "client-metrics: generate a name", class: metricsTool, args: "--bootstrap-server {b} --alter --name sub --interval 10000 --match client_id=a.* --metrics org.apache.kafka.producer", expect: "Altered client metrics config for sub"},
		{name: "client-metrics: describe", class: metricsTool, args: "--bootstrap-server {b} --describe --name sub", sorted: true, sample: true},
		{name: "client-metrics: bad", class: metricsTool, args: "--bootstrap-server {b} --alter --name sub --interval 1"},
		{name: "client-metrics: list what is there", class: metricsTool, args: "--bootstrap-server {b} --list", sorted: true},
		{name: "client-metrics: delete what is there", class: metricsTool, args: "--bootstrap-server {b} --delete --name sub"},
		{name: "compatibility", class: compatibilityTool, sorted: true,
			args: "--bootstrap-server {b} --topic compatible --offsets-for-times-supported true --cluster-id-supported true --expect-record-too-large-exception false --num-cluster-nodes 1 --create-topics-supported true --describe-acls-supported true --describe-configs-supported true --idempotent-producer-supported true"},
	}
}

// clientSteps are tools that write and read.
func clientSteps() []step {
	return []step{
		{name: "verifiable: produce", class: verifiableProducer, args: "--bootstrap-server {b} --topic verified --max-messages 50 --value-prefix 7 --repeating-keys 5 --message-create-time 1700000000000", expect: `"acked":50`, sample: true, sorted: true},
		{name: "verifiable: produce with few acknowledgements", class: verifiableProducer, args: "--bootstrap-server {b} --topic verified --max-messages 5 --acks 1", expect: `"acked":5`, sample: true, sorted: true},
		{name: "verifiable: consume", class: verifiableConsumer, args: "--bootstrap-server {b} --topic verified --group-id verified --group-protocol classic --max-messages 55 --reset-policy earliest", expect: "records_consumed verified-0: 55", sample: true, sorted: true},
		{name: "verifiable: consume by the consumer protocol", class: verifiableConsumer, args: "--bootstrap-server {b} --topic verified --group-id verified-next --group-protocol consumer --max-messages 55 --reset-policy earliest", expect: "records_consumed verified-0: 55", sorted: true},
		{name: "verifiable: consume and commit each", class: verifiableConsumer, args: "--bootstrap-server {b} --topic verified --group-id verified-auto --group-protocol classic --enable-autocommit --max-messages 55 --reset-policy earliest", expect: "records_consumed verified-0: 55", sorted: true},
		{name: "console: produce", class: consoleProducer, args: "--bootstrap-server {b} --topic verified --reader-property parse.key=true --reader-property key.separator=:", in: "a:1\nb:2\n"},
		{name: "console: produce with headers", class: consoleProducer, args: "--bootstrap-server {b} --topic verified --sync --compression-codec gzip --reader-property parse.headers=true --reader-property parse.key=true", in: "h:v\tc\t3\n"},
		{name: "console: consume", class: consoleConsumer, sample: true, expect: "Offset:0",
			args: "--bootstrap-server {b} --topic verified --partition 0 --offset earliest --max-messages 55 --timeout-ms 20000 --formatter-property print.key=true --formatter-property print.offset=true --formatter-property print.partition=true --formatter-property print.timestamp=true"},
		{name: "console: consume as a group", class: consoleConsumer, args: "--bootstrap-server {b} --topic verified --group console --from-beginning --max-messages 55 --timeout-ms 20000 --formatter-property print.headers=true"},
		{name: "console: consume committed", class: consoleConsumer, args: "--bootstrap-server {b} --topic transacted --isolation-level read_committed --from-beginning --max-messages 2 --timeout-ms 20000", expect: "tx-committed"},
		{name: "console: consume by pattern", class: consoleConsumer, args: "--bootstrap-server {b} --include verif.*d --from-beginning --max-messages 50 --timeout-ms 20000"},
		{name: "console: consume nothing", class: consoleConsumer, args: "--bootstrap-server {b} --topic verified --partition 0 --offset latest --timeout-ms 500"},
		{name: "latency", class: latencyTool, args: "{b} verified 100 all 50", expect: "Avg latency"},
		{name: "copier", class: copierTool, sorted: true, expect: `"consumed":50`,
			args: "--broker-list {b} --input-topic verified --input-partition 0 --output-topic copied --max-messages 50 --consumer-group copier --transaction-size 10 --transactional-id copier"},
		{name: "resetter: as a try", class: resetterTool, args: "--bootstrap-server {b} --application-id resettable --input-topics history --dry-run", sorted: true},
		{name: "resetter", class: resetterTool, args: "--bootstrap-server {b} --application-id resettable --input-topics history --to-earliest", sorted: true},
		{name: "resetter: of an application that runs", class: resetterTool, args: "--bootstrap-server {b} --application-id steady --input-topics history", sorted: true},
	}
}

// letterSteps are about the dead letter queue of a share group.
func letterSteps() []step {
	console := func(name, args string, more ...func(*step)) step {
		s := step{name: "letters: " + name, class: consoleConsumer, sorted: true, args: "--bootstrap-server {b} --from-beginning --timeout-ms 20000 --formatter-property print.headers=true --formatter-property print.key=true " + args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	reject := step{name: "letters: reject", class: shareConsoleTool, sorted: true, sample: true, args: "--bootstrap-server {b} --topic crewed --group dead-crew --reject --max-messages 20 --timeout-ms 20000"}
	again := reject
	again.name, again.args = "letters: reject with copies", strings.ReplaceAll(reject.args, "dead-crew", "copy-crew")
	return []step{
		{name: "letters: make the queue", class: topicsTool, sample: true, args: "--bootstrap-server {b} --create --topic dlq.crewed --partitions 1 --config errors.deadletterqueue.group.enable=true"},
		{name: "letters: name it", class: configsTool, sample: true, args: "--bootstrap-server {b} --alter --entity-type groups --entity-name dead-crew --add-config errors.deadletterqueue.topic.name=dlq.crewed,share.auto.offset.reset=earliest"},
		{name: "letters: name it for copies", class: configsTool, args: "--bootstrap-server {b} --alter --entity-type groups --entity-name copy-crew --add-config errors.deadletterqueue.topic.name=dlq.crewed,share.auto.offset.reset=earliest,errors.deadletterqueue.copy.record.enable=true"},
		reject,
		console("read", "--topic dlq.crewed --max-messages 20", sampled, want("__dlq.errors.offset:9,__dlq.errors.group:dead-crew,__dlq.errors.delivery.count:1,__dlq.errors.message:Offset rejected by client.")),
		again,
		console("read with copies", "--topic dlq.crewed --max-messages 40", want("value-19")),
		{name: "letters: what is left", class: shareGroupsTool, sorted: true, args: "--bootstrap-server {b} --describe --group dead-crew"},
	}
}
