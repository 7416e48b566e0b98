package config

import (
	"fmt"
	"strings"
)

// Markdown is docs/configuration.md: the tables of all keys. A test keeps the file equal to it.
func Markdown() string {
	var b strings.Builder
	b.WriteString(docsHead)
	b.WriteString("\n## Broker keys\n\n| key | type | default | allowed | while running | what it does |\n|---|---|---|---|---|---|\n")
	for _, k := range brokerKeys {
		dynamic := ""
		if k.Dynamic {
			dynamic = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", k.Name, k.Kind, docDefault(k), k.Allowed, dynamic, k.Doc)
	}
	b.WriteString(docsTopics)
	writeKeys(&b, topicKeys)
	b.WriteString(docsGroups)
	writeKeys(&b, groupKeys)
	b.WriteString(docsClientMetrics)
	writeKeys(&b, clientMetricsKeys)
	b.WriteString(docsGateway)
	b.WriteString("\n| key | type | default | allowed | while running | what it does |\n|---|---|---|---|---|---|\n")
	for _, k := range GatewayKeys() {
		dynamic := ""
		if k.Dynamic {
			dynamic = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", k.Name, k.Kind, docDefault(k), k.Allowed, dynamic, k.Doc)
	}
	return b.String()
}

func writeKeys(b *strings.Builder, keys []*Key) {
	b.WriteString("\n| key | type | default | allowed | default taken from | what it does |\n|---|---|---|---|---|---|\n")
	for _, k := range keys {
		if k.Internal {
			continue
		}
		var from []string
		for _, s := range k.Synonyms {
			from = append(from, "`"+s.Name+"`")
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", k.Name, k.Kind, docDefault(k), k.Allowed, strings.Join(from, ", "), k.Doc)
	}
}

func docDefault(k *Key) string {
	switch {
	case k.NoDefault:
		return ""
	case k.Default == "":
		return "empty"
	}
	return "`" + k.Default + "`"
}

const docsHead = `# Configuration

` + "`rewind broker`" + ` reads one YAML file whose keys are Apache Kafka's property names where Kafka has one; flags override it. A key that does not exist is an
error that names the nearest one. Dots and nesting are the same:

` + "```yaml" + `
log.dirs: /var/lib/rewind
listeners: 0.0.0.0:9092
advertised.listeners: broker.example.org:9092
store: s3://history?region=eu-central-1
log:
  segment.bytes: 256MiB
  local.retention.ms: 1h
` + "```" + `

In the file and in flags a size may be written as 64MiB or 100MB and a time as 30s or 1h; plain numbers are in Kafka's unit (bytes, milliseconds unless the key says
otherwise). Over the protocol (` + "`kafka-configs`" + `) numbers are plain, as with Kafka.

Keys marked "while running" can be altered on a running broker, for its id or for the cluster-wide default, which are the same here. What was altered is kept in
` + "`dynamic-configs.json`" + ` in the data directory and wins over the file until it is deleted again. All other keys are refused with the advice to restart.
`

const docsTopics = `
## Topic keys

Set with CreateTopics, AlterConfigs or IncrementalAlterConfigs; a change is in force at once. What a topic does not set comes from the broker key named in
"default taken from", the first of them that is set.

Rules that Apache Kafka has too:
- ` + "`remote.storage.enable=true`" + ` needs a store and a topic that is not compacted.
- ` + "`local.retention.ms`" + ` and ` + "`local.retention.bytes`" + ` are at most the total retention, ` + "`remote.copy.lag.ms`" + ` and ` + "`remote.copy.lag.bytes`" + ` at most the local one.
- Switching remote storage off deletes the remote data and needs ` + "`remote.log.delete.on.disable=true`" + ` in the same change.

Where this broker differs, on purpose:
- ` + "`compression.type`" + ` and the levels are as in Apache Kafka; a batch that grows above 128 MiB when it has to be opened is answered MESSAGE_TOO_LARGE.
- Keys for replication throttles have no effect.
`

const docsGroups = `
## Group keys

Set with IncrementalAlterConfigs or AlterConfigs (` + "`kafka-configs --entity-type groups`" + `), for groups that are there or not yet. What a group does not set comes from the broker; what it sets must be
within the broker's ` + "`min`" + ` and ` + "`max`" + `, and a session longer than the time between two heartbeats. They are kept in ` + "`resource-configs.json`" + ` in the data directory.
`

const docsClientMetrics = `
## Keys of subscriptions to clients' metrics

` + "`kafka-configs --entity-type client-metrics`" + ` keeps and describes them, as Apache Kafka does. There is no receiver for the metrics themselves, so clients are not asked for any.
`

const docsGateway = `
## Gateway keys

` + "`rewind gateway`" + ` reads a YAML file of the same kind, with keys of its own. Keys marked "while running" are read again from the file when the gateway gets the signal HUP;
the others act at the next start, and a line in the log names those that have changed.

` + "```yaml" + `
upstream.bootstrap.servers: kafka-1.example.org:9092,kafka-2.example.org:9092
listeners: 0.0.0.0:19092
advertised.host: history.example.org
store: s3://tiered?region=eu-central-1
http.listen: 127.0.0.1:8080
` + "```" + `
`
