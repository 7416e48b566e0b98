package tooltest

const (
	shareGroupsTool     = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
	shareConsoleTool    = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
	sharePerfTool       = "org.apache.kafka.tools.ShareConsumerPerformance"
	verifiableShareTool = "org.apache.kafka.tools.VerifiableShareConsumer"
)

// nextGroupSteps are about the group next, which has a member of the consumer protocol (side_groups_test.go).
func nextGroupSteps() []step {
	with := func(name, args string, more ...func(*step)) step {
		s := step{name: "groups: " + name, class: groupsTool, args: "--bootstrap-server {b} " + args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	return []step{
		with("list of the type consumer", "--list --type consumer", lines, want("next")),
		with("describe one of the consumer protocol", "--describe --group next", lines, sampled, want("next-client")),
		with("describe its offsets verbosely", "--describe --group next --offsets --verbose", lines),
		with("describe members of the consumer protocol", "--describe --group next --members", lines, want("next-client")),
		with("describe members of the consumer protocol verbosely", "--describe --group next --members --verbose", lines, sampled, want("history")),
		with("describe the state of one of the consumer protocol", "--describe --group next --state", sampled, want("Stable")),
		with("describe its state verbosely", "--describe --group next --state --verbose"),
		with("reset of a live one of the consumer protocol", "--reset-offsets --group next --topic history --to-earliest --execute"),
		with("delete offsets of a live one of the consumer protocol", "--delete-offsets --group next --topic history"),
		with("delete a live one of the consumer protocol", "--delete --group next"),
		with("a share group", "--describe --group crew"),
		with("delete a share group", "--delete --group crew"),
		{name: "all groups: of the type consumer", class: anyGroupsTool, args: "--bootstrap-server {b} --list --group-type consumer", sorted: true, expect: "next"},
	}
}

// shareSteps are about crew, which has a member, idle-crew, which has none any more, and groups that come with the steps.
func shareSteps() []step {
	with := func(name, args string, more ...func(*step)) step {
		s := step{name: "share groups: " + name, class: shareGroupsTool, args: "--bootstrap-server {b} " + args}
		for _, m := range more {
			m(&s)
		}
		return s
	}
	reset := func(name, args string, more ...func(*step)) step {
		return with("reset "+name, "--reset-offsets --group idle-crew "+args, append(more, lines)...)
	}
	return []step{
		with("list", "--list", lines, sampled, want("idle-crew")),
		with("list with states", "--list --state", lines, want("Stable")),
		with("list of a state", "--list --state Empty", lines, want("idle-crew")),
		with("list of a state that there is not", "--list --state Busy"),
		with("describe", "--describe --group idle-crew", lines, sampled, want("crewed")),
		with("describe a live one", "--describe --group crew", lines, want("crewed")),
		with("describe the offsets", "--describe --group crew --offsets", lines),
		with("describe the offsets verbosely", "--describe --group crew --offsets --verbose", lines),
		with("describe the members", "--describe --group crew --members", lines, sampled, want("crew-client")),
		with("describe the members verbosely", "--describe --group crew --members --verbose", lines, want("crewed")),
		with("describe the members where there are none", "--describe --group idle-crew --members"),
		with("describe the state", "--describe --group crew --state", sampled, want("Stable")),
		with("describe the state verbosely", "--describe --group crew --state --verbose"),
		with("describe all", "--describe --all-groups", lines),
		with("describe the state of all", "--describe --all-groups --state", lines),
		with("describe what is not there", "--describe --group absent"),
		with("describe a consumer group", "--describe --group next"),
		reset("to the earliest, as a try", "--topic crewed --to-earliest --dry-run", sampled, want("crewed")),
		reset("to the earliest", "--topic crewed --to-earliest --execute"),
		with("describe what was reset", "--describe --group idle-crew", lines),
		reset("to a time", "--topic crewed --to-datetime 2023-11-14T22:13:25.000 --execute"),
		with("describe what was reset to a time", "--describe --group idle-crew", lines),
		reset("to the latest", "--all-topics --to-latest --execute"),
		reset("to the current", "--topic crewed --to-current --execute"),
		reset("to an offset", "--topic crewed:0 --to-offset 4 --execute", sampled),
		reset("to an offset beyond the end", "--topic crewed:0 --to-offset 4000 --execute"),
		reset("as a table", "--topic crewed --to-earliest --dry-run --export"),
		reset("of a topic that it has not read", "--topic history --to-earliest --execute"),
		reset("of a topic that is not there", "--topic absent --to-earliest --execute"),
		with("reset of a live one", "--reset-offsets --group crew --topic crewed --to-earliest --execute"),
		with("reset of what is not there", "--reset-offsets --group fresh-crew --topic crewed --to-earliest --execute", lines),
		with("describe what the reset made", "--describe --group fresh-crew", lines),
		with("reset of a consumer group", "--reset-offsets --group next --topic crewed --to-earliest --execute"),
		with("delete offsets of a live one", "--delete-offsets --group crew --topic crewed"),
		with("delete offsets", "--delete-offsets --group idle-crew --topic history", sampled),
		with("delete offsets of what is not there", "--delete-offsets --group idle-crew --topic absent"),
		with("delete offsets of a group that is not there", "--delete-offsets --group absent --topic crewed"),
		with("describe what is left", "--describe --group idle-crew", lines),
		with("delete a live one", "--delete --group crew"),
		with("delete", "--delete --group idle-crew", sampled, want("successful")),
		with("delete what is not there", "--delete --group absent"),
		with("delete a consumer group", "--delete --group next"),
		with("list after the deletion", "--list", lines),
		{name: "share groups: console", class: shareConsoleTool, sorted: true, sample: true, expect: "Delivery:1",
			args: "--bootstrap-server {b} --topic crewed --group console-crew --max-messages 20 --timeout-ms 20000 --formatter-property print.offset=true --formatter-property print.delivery=true --formatter-property print.key=true"},
		{name: "share groups: console that rejects", class: shareConsoleTool, sorted: true, args: "--bootstrap-server {b} --topic crewed --group reject-crew --reject --max-messages 20 --timeout-ms 20000"},
		{name: "share groups: console that releases", class: shareConsoleTool, sorted: true, args: "--bootstrap-server {b} --topic crewed --group release-crew --release --max-messages 20 --timeout-ms 20000"},
		{name: "share groups: console once more", class: shareConsoleTool, sorted: true, expect: "Delivery:2",
			args: "--bootstrap-server {b} --topic crewed --group release-crew --max-messages 20 --timeout-ms 20000 --formatter-property print.offset=true --formatter-property print.delivery=true"},
		with("describe what the consoles left", "--describe --group release-crew", lines),
		{name: "share groups: perf", class: sharePerfTool, args: "--bootstrap-server {b} --topic crewed --group perf-crew --num-records 20 --timeout 20000 --hide-header", expect: "20"},
		{name: "share groups: verifiable", class: verifiableShareTool, expect: "offsets_acknowledged crewed-1 9: 1", sorted: true,
			args: "--bootstrap-server {b} --topic crewed --group-id verify-crew --max-messages 20 --offset-reset-strategy earliest --acknowledgement-mode sync"},
		// Those that are renewed come once more.
		{name: "share groups: verifiable that renews and rejects", class: verifiableShareTool, sorted: true, expect: "RENEW: 8",
			args: "--bootstrap-server {b} --topic crewed --group-id pattern-crew --max-messages 28 --offset-reset-strategy earliest --acknowledgement-mode sync --ack-pattern renew,accept,reject"},
	}
}
