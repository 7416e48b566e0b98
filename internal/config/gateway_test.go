package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestGatewayDefaults(t *testing.T) {
	g := NewGateway()
	if err := g.Validate(); err == nil || !strings.Contains(err.Error(), "upstream.bootstrap.servers") {
		t.Errorf("without brokers: %v", err)
	}
	g.Upstream = "kafka:9092"
	if err := g.Validate(); err != nil {
		t.Errorf("the defaults are not valid: %v", err)
	}
	if !slices.IsSortedFunc(gatewayKeys, func(a, b gatewayKey) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("keys are not in the order of their names")
	}
}

func TestGatewayFile(t *testing.T) {
	g := NewGateway()
	err := g.Load([]byte(`
upstream.bootstrap.servers: [one:9092, two:9092]
broker.ports: [1:19093, "7:19094"]
listeners: 0.0.0.0:19092
remote.read.memory.bytes: 512MiB
drain.timeout.ms: 5s
store.layout: aiven
store.encryption.keys: old=/keys/old.pem,new=/keys/new.pem
remote:
  read:
    topics: "orders*"
`))
	if err == nil {
		err = g.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	if g.Upstream != "one:9092,two:9092" || g.RemoteReadMemory != 512<<20 || g.DrainTimeout != 5*time.Second || g.RemoteReadTopics != "orders*" {
		t.Errorf("%+v", g)
	}
	if p := g.Ports(); len(p) != 2 || p[1] != 19093 || p[7] != 19094 {
		t.Errorf("ports %v", p)
	}
	if k := g.KeyFiles(); len(k) != 2 || k["new"] != "/keys/new.pem" {
		t.Errorf("keys %v", k)
	}
}

func TestGatewayMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"upstream.bootstrap.server: a:1":                     "did you mean",
		"log.dirs: /data":                                    `"log.dirs": it belongs to rewind broker`,
		"num.partitions: 3":                                  "it belongs to rewind broker",
		"advertised.host: gw.example:19092":                  "advertised.port (19092)",
		"advertised.host: '[::1]:19092'":                     "advertised.port (19092)",
		"advertised.host: '[::1]'":                           "without brackets",
		"advertised.host: https://gw.example":                "name of a host",
		"advertised.host: a, b":                              "name of a host",
		"advertised.host: 0.0.0.0":                           "cannot connect",
		"broker.ports: 1:2,1:3":                              "twice",
		"broker.ports: 1:2,3:2":                              "twice",
		"broker.ports: one:2":                                "id:port",
		"upstream.bootstrap.servers: kafka":                  "host:port",
		"remote.read.policy: always":                         "one of",
		"remote.read.topics: '[a'":                           "pattern",
		"store.encryption.keys: nokey":                       "id=file",
		"ssl.client.auth: required":                          "ssl.certificate.location",
		"ssl.certificate.location: c.pem":                    "ssl.key.location",
		"listener.sni.domain: gw.example":                    "ssl.certificate.location",
		"store.encryption.keys: a=b":                         "no keys",
		"{remote.read.cache.bytes: 2GiB, store: 's3://x?k'}": "must not exceed",
	} {
		g := NewGateway()
		g.Upstream = "kafka:9092"
		err := g.Load([]byte(text))
		if err == nil {
			err = g.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if err != nil && !errors.Is(err, ErrInvalidValue) && !errors.Is(err, ErrUnknownKey) {
			t.Errorf("%s: %v is of no kind", text, err)
		}
	}
}

func TestGatewayReload(t *testing.T) {
	running := NewGateway()
	next := running.Clone()
	next.RemoteReadEnable, next.RemoteReadTopics, next.Listen = false, "a,b", "0.0.0.0:1"
	got, changed, ignored := running.Reload(next)
	if got.RemoteReadEnable || got.RemoteReadTopics != "a,b" || got.Listen != running.Listen || !slices.Equal(ignored, []string{"listeners"}) ||
		!slices.Equal(changed, []string{"remote.read.enable", "remote.read.topics"}) {
		t.Errorf("%+v, changed %v, ignored %v", got, changed, ignored)
	}
	if !running.RemoteReadEnable {
		t.Error("the running configuration was changed in place")
	}
}

// A key of the other command is named as such: no name like it would help.
func TestKeyOfTheOther(t *testing.T) {
	b := NewBroker()
	if err := b.Set("upstream.bootstrap.servers", "a:1"); !errors.Is(err, ErrUnknownKey) || !strings.Contains(err.Error(), "rewind gateway") {
		t.Errorf("a broker: %v", err)
	}
	if err := NewGateway().Set("log.dirs", "/data"); !errors.Is(err, ErrUnknownKey) || !strings.Contains(err.Error(), "rewind broker") {
		t.Errorf("a gateway: %v", err)
	}
}
