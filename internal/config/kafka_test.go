package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// kafkaKeys are the broker's keys as Apache Kafka 4.4.0 describes them: name, kind, whether it can be altered, whether it is secret, default.
func kafkaKeys(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/broker_keys_kafka_4.4.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	keys := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "|")
		keys[name] = rest
	}
	return keys
}

func ownText(k *Key) string {
	how, secret, value := "static", "shown", k.Default
	if k.Dynamic {
		how = "dynamic"
	}
	if k.Sensitive {
		secret = "secret"
	}
	if k.NoDefault {
		value = "null"
	}
	return fmt.Sprintf("%d|%s|%s|%s", k.Kind, how, secret, value)
}

// TestBrokerKeysAreApacheKafkas: a key of Apache Kafka's that we have is of its kind and has its default, unless it is listed here.
func TestBrokerKeysAreApacheKafkas(t *testing.T) {
	kafka := kafkaKeys(t)
	seen := 0
	for _, k := range BrokerKeys() {
		theirs, ok := kafka[k.Name]
		if !ok {
			continue
		}
		seen++
		ours := ownText(k)
		if want, differs := brokerKeyDifferences[k.Name]; differs {
			if ours != want {
				t.Errorf("%s is %s, the difference says %s", k.Name, ours, want)
			}
			if ours == theirs {
				t.Errorf("%s does not differ any more", k.Name)
			}
			continue
		}
		if ours != theirs {
			t.Errorf("\t%q: %q, // %s", k.Name, ours, theirs)
		}
	}
	names := make([]string, 0, len(brokerKeyDifferences))
	for name := range brokerKeyDifferences {
		names = append(names, name)
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		if kafka[name] == "" {
			t.Errorf("%s is no key of Apache Kafka's", name)
		}
	}
	if seen < 100 {
		t.Errorf("only %d keys compared", seen)
	}
}

// brokerKeyDifferences are on purpose (docs/differences.md); behind each is what Apache Kafka has.
var brokerKeyDifferences = map[string]string{
	"advertised.listeners":                            "7|dynamic|shown|null",                                                                       // 7|static|shown|null
	"auto.create.topics.enable":                       "1|dynamic|shown|true",                                                                       // 1|static|shown|true
	"delete.topic.enable":                             "1|dynamic|shown|true",                                                                       // 1|static|shown|true
	"fetch.max.bytes":                                 "3|dynamic|shown|57671680",                                                                   // 3|static|shown|57671680
	"group.initial.rebalance.delay.ms":                "3|dynamic|shown|3000",                                                                       // 3|static|shown|3000
	"group.max.session.timeout.ms":                    "3|dynamic|shown|1800000",                                                                    // 3|static|shown|1800000
	"group.max.size":                                  "3|dynamic|shown|2147483647",                                                                 // 3|static|shown|2147483647
	"group.min.session.timeout.ms":                    "3|dynamic|shown|6000",                                                                       // 3|static|shown|6000
	"listener.security.protocol.map":                  "2|static|shown|PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", // 2|dynamic|shown|SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
	"listeners":                                       "7|static|shown|127.0.0.1:9092",                                                              // 7|dynamic|shown|PLAINTEXT://:9092
	"log.cleaner.backoff.ms":                          "5|static|shown|15000",                                                                       // 5|dynamic|shown|15000
	"log.retention.hours":                             "3|dynamic|shown|168",                                                                        // 3|static|shown|168
	"log.retention.minutes":                           "3|dynamic|shown|null",                                                                       // 3|static|shown|null
	"log.roll.hours":                                  "3|dynamic|shown|168",                                                                        // 3|static|shown|168
	"node.id":                                         "3|static|shown|1",                                                                           // 3|static|shown|null
	"num.partitions":                                  "3|dynamic|shown|1",                                                                          // 3|static|shown|1
	"offset.metadata.max.bytes":                       "3|dynamic|shown|4096",                                                                       // 3|static|shown|4096
	"offsets.retention.minutes":                       "3|dynamic|shown|10080",                                                                      // 3|static|shown|10080
	"remote.fetch.max.wait.ms":                        "3|static|shown|30000",                                                                       // 3|dynamic|shown|500
	"remote.log.index.file.cache.total.size.bytes":    "5|static|shown|67108864",                                                                    // 5|dynamic|shown|1073741824
	"remote.log.manager.copier.thread.pool.size":      "3|static|shown|4",                                                                           // 3|dynamic|shown|10
	"sasl.enabled.mechanisms":                         "7|static|shown|",                                                                            // 7|dynamic|shown|GSSAPI
	"sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "5|static|shown|1000",                                                                        // 5|static|shown|100
	"ssl.client.auth":                                 "2|static|shown|none",                                                                        // 2|dynamic|shown|none
	"ssl.keystore.location":                           "2|static|shown|null",                                                                        // 2|dynamic|shown|null
	"ssl.keystore.type":                               "2|static|shown|PEM",                                                                         // 2|dynamic|shown|JKS
	"ssl.truststore.location":                         "2|static|shown|null",                                                                        // 2|dynamic|shown|null
	"ssl.truststore.type":                             "2|static|shown|PEM",                                                                         // 2|dynamic|shown|JKS
}
