package clustertest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rewind-kafka/rewind/internal/freeport"
)

// properties of one broker, in Kafka's words.
func (c *Cluster) properties(n *node) map[string]string {
	rf := strconv.Itoa(min(len(c.nodes), 3))
	p := map[string]string{
		"broker.rack": fmt.Sprintf("rack-%d", n.id), "process.roles": "broker", "node.id": strconv.Itoa(int(n.id)), "log.dirs": filepath.Join(n.dir, "log"),
		"inter.broker.listener.name": string(internal), "controller.listener.names": string(controller),
		"controller.quorum.bootstrap.servers": freeport.Address(c.controllerPort),
		"num.partitions":                      "1", "default.replication.factor": rf, "min.insync.replicas": "1", "auto.create.topics.enable": "false",
		"offsets.topic.replication.factor": rf, "offsets.topic.num.partitions": "4",
		"transaction.state.log.replication.factor": rf, "transaction.state.log.min.isr": "1", "transaction.state.log.num.partitions": "4",
		"share.coordinator.state.topic.replication.factor": rf, "share.coordinator.state.topic.min.isr": "1", "share.coordinator.state.topic.num.partitions": "4",
		"group.initial.rebalance.delay.ms": "0", "unclean.leader.election.interval.ms": "1000",
		// Tiering and retention act within seconds.
		"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500", "log.segment.delete.delay.ms": "500", "remote.log.manager.task.interval.ms": "500",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
		// A broker that is killed is missed soon, but not one that waits for a processor.
		"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "500", "replica.lag.time.max.ms": "6000",
		// The quorum of one node elects itself at once.
		"controller.quorum.election.timeout.ms": "500", "controller.quorum.election.backoff.max.ms": "200",
		// Few threads: many brokers share few processors.
		"num.network.threads": "1", "num.io.threads": "4", "background.threads": "4", "num.replica.fetchers": "1", "log.cleaner.threads": "1",
		"log.cleaner.dedupe.buffer.size": "16777216", "remote.log.manager.copier.thread.pool.size": "2", "remote.log.manager.expiration.thread.pool.size": "2",
		"remote.log.manager.follower.thread.pool.size": "2",

		"remote.log.storage.system.enable":              "true",
		"remote.log.storage.manager.class.name":         "peer.SlowTieredStorage",
		"remote.log.storage.manager.class.path":         c.storagePath,
		"remote.log.storage.manager.impl.prefix":        "rsm.config.",
		"rsm.config.dir":                                filepath.Join(c.dir, "remote"),
		"rsm.config.latency.ms":                         strconv.FormatInt(c.opts.RemoteLatency.Milliseconds(), 10),
		"rsm.config.stream.bytes.per.second":            strconv.FormatInt(c.opts.RemoteStreamRate, 10),
		"rsm.config.meters.port":                        strconv.Itoa(n.ports.meters),
		"remote.log.metadata.manager.class.name":        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
		"remote.log.metadata.manager.listener.name":     string(internal),
		"remote.log.metadata.manager.impl.prefix":       "rlmm.config.",
		"rlmm.config.remote.log.metadata.topic.min.isr": "1", "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
		"rlmm.config.remote.log.metadata.topic.replication.factor": rf,
	}
	var listeners, kinds []string
	for _, l := range c.protocols() {
		listeners = append(listeners, fmt.Sprintf("%s://%s", l, freeport.Address(n.ports.listeners[l])))
		kinds = append(kinds, fmt.Sprintf("%s:%s", l, l.wire()))
	}
	if n == c.nodes[0] {
		p["process.roles"] = "broker,controller"
		listeners = append(listeners, fmt.Sprintf("%s://%s", controller, freeport.Address(c.controllerPort)))
	}
	kinds = append(kinds, fmt.Sprintf("%s:%s", controller, controller.wire()))
	p["listeners"], p["advertised.listeners"], p["listener.security.protocol.map"] = strings.Join(listeners, ","), strings.Join(listeners, ","), strings.Join(kinds, ",")
	if c.opts.Secure {
		c.secure(p)
	}
	if c.opts.ACLs {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		p["super.users"] = "User:" + Admin + ";User:ANONYMOUS"
	}
	if rack := c.opts.Racks[n.id]; rack != "" {
		p["broker.rack"] = rack
	}
	for k, v := range c.opts.Config {
		p[k] = v
	}
	return p
}

// secure adds keys and users.
func (c *Cluster) secure(p map[string]string) {
	p["ssl.keystore.type"], p["ssl.keystore.location"] = "PEM", c.serverKeyStore
	p["ssl.truststore.type"], p["ssl.truststore.location"] = "PEM", c.authority.CertFile
	p["listener.name.mtls.ssl.client.auth"] = "required"
	var all []string
	for _, m := range Mechanisms {
		all = append(all, string(m))
	}
	p["sasl.enabled.mechanisms"] = strings.Join(all, ",")
	for _, l := range []Protocol{SASL, SASLTLS} {
		for _, m := range Mechanisms {
			p["listener.name."+strings.ToLower(string(l))+"."+strings.ToLower(string(m))+".sasl.jaas.config"] = jaas(m, Admin, users)
		}
	}
}

// protocols are those of the cluster's listeners but the controller's.
func (c *Cluster) protocols() []Protocol {
	if c.opts.Secure {
		return []Protocol{internal, Plaintext, TLS, SASL, SASLTLS, MutualTLS}
	}
	return []Protocol{internal, Plaintext}
}

func writeProperties(path string, p map[string]string) error {
	var lines []string
	for k, v := range p {
		lines = append(lines, k+"="+v+"\n")
	}
	slices.Sort(lines)
	return os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600)
}
