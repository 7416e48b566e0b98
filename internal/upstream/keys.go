package upstream

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rewind-kafka/rewind/internal/config"
)

// supported are the keys that have a meaning here.
var supported = []string{
	"security.protocol", "client.id",
	"sasl.mechanism", "sasl.jaas.config", "sasl.username", "sasl.password",
	"sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.scope",
	"ssl.truststore.location", "ssl.truststore.certificates", "ssl.truststore.type",
	"ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.keystore.type",
	"ssl.endpoint.identification.algorithm", "ssl.enabled.protocols", "ssl.protocol",
}

// refused are keys of Kafka's that would change how the connection is secured, and that are not done here: a file that relies on one must not be taken for understood.
var refused = map[string]string{
	"ssl.truststore.password": "it belongs to JKS and PKCS12; " + pemOnly,
	"ssl.keystore.password":   "it belongs to JKS and PKCS12; " + pemOnly,
	"ssl.key.password":        "encrypted private keys are not read; decrypt it: openssl pkey -in key.pem -out plain.pem",
	"ssl.cipher.suites":       "Go chooses the cipher suites",
	"ssl.provider":            "there is no Java here", "ssl.engine.factory.class": "there is no Java here", "security.providers": "there is no Java here",
	"sasl.client.callback.handler.class": "there is no Java here", "sasl.login.class": "there is no Java here",
	"sasl.oauthbearer.jwt.retriever.class": "give sasl.oauthbearer.token.endpoint.url",
	"sasl.oauthbearer.assertion.file":      "give a client id and secret, or a file with the token",
	"sasl.kerberos.service.name":           gssapi,
}

const (
	pemOnly = "certificates are read as PEM: keytool -importkeystore ... -deststoretype PKCS12, then openssl pkcs12 -in store.p12 -out store.pem -nodes"
	gssapi  = "GSSAPI (Kerberos) is not done here; give this program a SCRAM, PLAIN or OAUTHBEARER principal"
)

// ignored are keys of Kafka's clients that do not matter here: one file may serve several tools.
var ignored = []string{
	"bootstrap.servers", "bootstrap.controllers", "client.dns.lookup", "client.rack", "group.id", "group.instance.id", "group.protocol", "connections.max.idle.ms", "default.api.timeout.ms", "request.timeout.ms",
	"metadata.max.age.ms", "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms", "metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms", "enable.metrics.push",
	"receive.buffer.bytes", "send.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries", "retry.backoff.ms", "retry.backoff.max.ms",
	"socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms", "allow.auto.create.topics", "auto.offset.reset", "enable.auto.commit", "auto.commit.interval.ms", "isolation.level",
	"key.deserializer", "value.deserializer", "key.serializer", "value.serializer", "fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes", "max.poll.records", "max.poll.interval.ms",
	"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy", "check.crcs", "exclude.internal.topics", "interceptor.classes", "acks", "batch.size", "linger.ms", "buffer.memory", "compression.type",
	"delivery.timeout.ms", "enable.idempotence", "max.block.ms", "max.in.flight.requests.per.connection", "max.request.size", "transactional.id", "transaction.timeout.ms",
	"sasl.login.callback.handler.class", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms",
	"sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
	"ssl.secure.random.implementation",
}

func checkKeys(p map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(p)) {
		if slices.Contains(supported, k) || slices.Contains(ignored, k) {
			continue
		}
		if why, ok := refused[k]; ok {
			if p[k] == "" {
				continue
			}
			return fmt.Errorf("%q is not supported: %s", k, why)
		}
		if n := config.Nearest(k, slices.Concat(supported, ignored)); n != "" {
			return fmt.Errorf("%w %q (did you mean %q?)", config.ErrUnknownKey, k, n)
		}
		return fmt.Errorf("%w %q", config.ErrUnknownKey, k)
	}
	return nil
}

// checkUnused refuses security that was set up and would not be used: Kafka's tools ignore it in silence, and then the connection is not what its owner believes.
func checkUnused(p map[string]string, protocol string, useTLS, useSASL bool) error {
	for _, k := range slices.Sorted(maps.Keys(p)) {
		if p[k] == "" || slices.Contains(ignored, k) {
			continue
		}
		if !useSASL && strings.HasPrefix(k, "sasl.") {
			return fmt.Errorf("%q has no effect with security.protocol=%s: SASL_SSL or SASL_PLAINTEXT is meant", k, protocol)
		}
		if !useTLS && strings.HasPrefix(k, "ssl.") {
			return fmt.Errorf("%q has no effect with security.protocol=%s: SSL or SASL_SSL is meant", k, protocol)
		}
	}
	return nil
}
