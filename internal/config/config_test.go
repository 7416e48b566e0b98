package config

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestDefaultsAreValid(t *testing.T) {
	b := NewBroker()
	b.DataDir = "d"
	if err := b.Validate(); err != nil {
		t.Fatal(err)
	}
	b = NewBroker()
	for _, k := range brokerKeys {
		if v, ok := b.value(k); ok && v != k.Default {
			t.Errorf("%s: value %q, default %q", k.Name, v, k.Default)
		}
	}
	got, err := ParseTopic(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Delete || got.Compact || got.SegmentBytes != 1<<30 || got.RetentionMs != 7*24*hour || got.MaxMessageBytes != 1048588 || got.LocalRetentionMs != -2 || got.MinCleanableRatio != 0.5 {
		t.Errorf("defaults of a topic: %+v", got)
	}
}

func TestKeysAreSortedAndDocumented(t *testing.T) {
	for name, keys := range map[string][]*Key{"broker": brokerKeys, "topic": topicKeys} {
		for i, k := range keys {
			if i > 0 && keys[i-1].Name >= k.Name {
				t.Errorf("%s keys: %s stands before %s", name, keys[i-1].Name, k.Name)
			}
			if k.Doc == "" || k.check == nil {
				t.Errorf("%s key %s: no documentation or no check", name, k.Name)
			}
			for _, s := range k.Synonyms {
				if _, err := brokerKey(s.Name); err != nil {
					t.Errorf("%s: synonym: %v", k.Name, err)
				}
			}
		}
	}
}

func TestSynonyms(t *testing.T) {
	b := NewBroker()
	for _, set := range [][2]string{{"log.retention.hours", "2"}, {"log.retention.minutes", "5"}, {"log.segment.bytes", "2MiB"}} {
		if err := b.Set(set[0], set[1]); err != nil {
			t.Fatal(err)
		}
	}
	topic, err := ParseTopic(map[string]string{"segment.ms": "99"}, b)
	if err != nil {
		t.Fatal(err)
	}
	if topic.RetentionMs != 300_000 || topic.SegmentBytes != 2<<20 || topic.SegmentMs != 99 {
		t.Errorf("got %+v", topic)
	}
	for _, e := range DescribeTopic(map[string]string{"segment.ms": "99"}, b) {
		switch e.Key.Name {
		case "segment.ms":
			if e.Source != SourceTopic || len(e.Synonyms) != 1 { // Apache Kafka does not list the default in hours
				t.Errorf("segment.ms: %+v", e)
			}
		case "retention.ms":
			if e.Value != "300000" || e.Source != SourceStaticBroker || e.Synonyms[0] != (SynonymValue{Name: "log.retention.minutes", Value: "5", Source: SourceStaticBroker}) {
				t.Errorf("retention.ms: %+v", e)
			}
		}
	}
	if err := b.Set("log.retention.hours", "-1"); err != nil {
		t.Fatal(err)
	}
	delete(b.topicDefaults, "log.retention.minutes")
	if topic, _ = ParseTopic(nil, b); topic.RetentionMs != -1 {
		t.Errorf("unlimited hours gave %d ms", topic.RetentionMs)
	}
}

func TestParseTopicRefuses(t *testing.T) {
	tiered := NewBroker()
	tiered.Store = "file:///store"
	remote := func(kv ...string) map[string]string {
		m := map[string]string{"remote.storage.enable": "true"}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	cases := []struct {
		name string
		set  map[string]string
		b    *Broker
		key  string // "" is accepted
	}{
		{"unknown", map[string]string{"retention.msec": "1"}, nil, `"retention.ms"`},
		{"not a number", map[string]string{"retention.ms": "1d"}, nil, "retention.ms"},
		{"below the bound", map[string]string{"segment.bytes": "1000"}, nil, "segment.bytes"},
		{"internal bound", map[string]string{"internal.segment.bytes": "1000"}, nil, ""},
		{"beyond int", map[string]string{"segment.bytes": "2147483648"}, nil, "segment.bytes"},
		{"policy", map[string]string{"cleanup.policy": "compact,keep"}, nil, "cleanup.policy"},
		{"policy twice", map[string]string{"cleanup.policy": "delete,delete"}, nil, ""},
		{"both policies", map[string]string{"cleanup.policy": "compact, delete"}, nil, ""},
		{"codec", map[string]string{"compression.type": "zstd", "compression.zstd.level": "-7"}, nil, ""},
		{"no codec", map[string]string{"compression.type": "none"}, nil, "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"level of gzip", map[string]string{"compression.gzip.level": "0"}, nil, "Value must be between 1 and 9 or equal to -1"},
		{"level of lz4", map[string]string{"compression.lz4.level": "18"}, nil, "Value must be no more than 17"},
		{"level of zstd", map[string]string{"compression.zstd.level": "x"}, nil, "Not a number of type INT"},
		{"decompressed", map[string]string{"max.decompressed.message.bytes": "0"}, nil, "Value must be at least 1"},
		{"flush", map[string]string{"flush.messages": "1", "flush.ms": "0", "preallocate": "true", "segment.jitter.ms": "0", "min.insync.replicas": "2"}, nil, ""},
		{"flush after none", map[string]string{"flush.messages": "0"}, nil, "flush.messages"},
		{"flush before", map[string]string{"flush.ms": "-1"}, nil, "flush.ms"},
		{"jitter", map[string]string{"segment.jitter.ms": "-1"}, nil, "segment.jitter.ms"},
		{"no replica", map[string]string{"min.insync.replicas": "0"}, nil, "min.insync.replicas"},
		{"copy lag", map[string]string{"remote.copy.lag.ms": "-2"}, nil, "remote.copy.lag.ms"},
		{"copy lag in bytes", map[string]string{"remote.copy.lag.bytes": "-2"}, nil, "remote.copy.lag.bytes"},
		{"copy lag above local", remote("local.retention.ms", "10", "remote.copy.lag.ms", "11"), tiered, "must not exceed local.retention.ms (effective value: 10)"},
		{"copy lag above total", remote("retention.bytes", "10", "remote.copy.lag.bytes", "11"), tiered, "must not exceed local.retention.bytes (effective value: 10)"},
		{"copy lag above default total", remote("remote.copy.lag.ms", "604800001"), tiered, "effective value: 604800000"},
		{"copy lag as local", remote("local.retention.ms", "10", "remote.copy.lag.ms", "10", "remote.copy.lag.bytes", "10000000000000"), tiered, ""},
		{"copy lag without remote", map[string]string{"local.retention.ms": "10", "remote.copy.lag.ms": "11"}, tiered, ""},
		{"boolean", map[string]string{"remote.storage.enable": "yes"}, nil, "remote.storage.enable"},
		{"ratio", map[string]string{"min.cleanable.dirty.ratio": "1.5"}, nil, "min.cleanable.dirty.ratio"},
		{"compaction lags", map[string]string{"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, nil, "min.compaction.lag.ms"},
		{"no store", remote(), NewBroker(), "remote storage is disabled"},
		{"tiered", remote(), tiered, ""},
		{"compact and remote", remote("cleanup.policy", "compact"), tiered, "compacted topic"},
		{"compact, delete and remote", remote("cleanup.policy", "compact,delete"), tiered, "compacted topic"},
		{"local above total ms", remote("retention.ms", "1000", "local.retention.ms", "1001"), tiered, "local.retention.ms"},
		{"local unlimited", remote("retention.bytes", "1000", "local.retention.bytes", "-1"), tiered, "local.retention.bytes"},
		{"local above default total", remote("local.retention.ms", "604800001"), tiered, "local.retention.ms"},
		{"total unlimited", remote("retention.ms", "-1", "local.retention.ms", "5"), tiered, ""},
		{"local equals total", remote("retention.ms", "5", "local.retention.ms", "5"), tiered, ""},
		{"local above total without remote", map[string]string{"retention.ms": "1", "local.retention.ms": "5"}, tiered, ""},
		{"copy disabled, local shorter", remote("remote.log.copy.disable", "true", "local.retention.ms", "5"), tiered, "local.retention.ms"},
		{"copy disabled, local as total", remote("remote.log.copy.disable", "true", "local.retention.ms", "604800000"), tiered, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseTopic(c.set, c.b)
			switch {
			case c.key == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case c.key == "":
			case err == nil:
				t.Fatal("accepted")
			case !strings.Contains(err.Error(), c.key):
				t.Fatalf("error %q does not say %q", err, c.key)
			case !errors.Is(err, ErrInvalidValue) && !errors.Is(err, ErrUnknownKey):
				t.Fatalf("error %v is none of the sentinels", err)
			}
		})
	}
}

func TestValidateChange(t *testing.T) {
	b := NewBroker()
	b.Store = "file:///store"
	topic := func(kv ...string) Topic {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		p, err := ParseTopic(m, b)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	on, off := topic("remote.storage.enable", "true"), topic()
	if on.ValidateChange(off) == nil {
		t.Error("switched off without consent")
	}
	if err := on.ValidateChange(topic("remote.log.delete.on.disable", "true")); err != nil {
		t.Error(err)
	}
	compacted := topic("cleanup.policy", "compact")
	if err := compacted.ValidateChange(on); err != nil {
		t.Errorf("from compact to delete with remote storage: %v", err)
	}
}

func TestLoad(t *testing.T) {
	b := NewBroker()
	err := b.Load([]byte(`# a broker
log.dirs: /data
listeners: PLAINTEXT://0.0.0.0:9092
log:
  segment.bytes: 64MiB
  cleanup:
    policy: [delete, compact]
remote.read.ahead.enable: false
store.latency.ms: 30ms
store.stream.rate: 100MB
offsets.retention.minutes: 60
broker.id: 7
`))
	if err != nil {
		t.Fatal(err)
	}
	topic, err := ParseTopic(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	if b.DataDir != "/data" || b.Listen != "0.0.0.0:9092" || topic.SegmentBytes != 64<<20 || !topic.Compact || !topic.Delete || b.RemoteReadAhead ||
		b.StoreLatency != 30*time.Millisecond || b.StoreStreamRate != 100_000_000 || b.OffsetsRetention != time.Hour || b.NodeID != 7 {
		t.Errorf("got %+v, topic %+v", b, topic)
	}
}

func TestLoadNamesMistakes(t *testing.T) {
	err := NewBroker().Load([]byte("num.partition: 3\nnode.id: x\nnode.id: 2\nstore:\nlog.dirs: {a: 1}\n"))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`line 1: unknown configuration key "num.partition" (did you mean "num.partitions"?)`, "line 2: Invalid value x for configuration node.id",
		"line 3: node.id is set twice, first in line 2", "store has no value", `"log.dirs.a"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
	for _, text := range []string{"- a\n- b\n", "plain", "a: [", "a: 1\n---\nb: 2\n"} {
		if err := NewBroker().Load([]byte(text)); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
	if err := NewBroker().Load(nil); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

func TestValidateGivesAllMistakes(t *testing.T) {
	b := NewBroker()
	b.NumPartitions = 0
	b.GroupMinSessionTimeout = time.Hour
	b.RemoteReadCache = b.RemoteReadMemory + 1
	err := b.Validate()
	for _, want := range []string{"num.partitions", "group.min.session.timeout.ms", "remote.read.cache.bytes", "log.dirs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %s: %v", want, err)
		}
	}
}

func TestDynamic(t *testing.T) {
	b := NewBroker()
	if err := b.Set("log.retention.ms", "7"); err != nil {
		t.Fatal(err)
	}
	c := b.Clone()
	if err := c.SetDynamic(map[string]string{"log.retention.ms": "5", "group.max.size": "3"}); err != nil {
		t.Fatal(err)
	}
	for _, values := range []map[string]string{{"node.id": "5"}, {"group.max.size": "0"}, {"group.max.size": "4", "no.such.key": "1"}} {
		if err := c.SetDynamic(values); err == nil {
			t.Errorf("accepted %v", values)
		}
	}
	if topic, _ := ParseTopic(nil, b); topic.RetentionMs != 7 {
		t.Error("a clone shares its values")
	}
	if topic, _ := ParseTopic(nil, c); topic.RetentionMs != 5 || c.GroupMaxSize != 3 {
		t.Errorf("no effect: retention %d, size %d", topic.RetentionMs, c.GroupMaxSize)
	}
	for _, e := range c.Describe() {
		if e.Key.Name == "group.max.size" && (e.Source != SourceDynamicBroker || e.Value != "3") {
			t.Errorf("described as %+v", e)
		}
	}
	if err := c.SetDynamic(nil); err != nil {
		t.Fatal(err)
	}
	if topic, _ := ParseTopic(nil, c); topic.RetentionMs != 7 || c.GroupMaxSize != math.MaxInt32 || len(c.Dynamic()) != 0 {
		t.Errorf("not taken back: retention %d, size %d, %v", topic.RetentionMs, c.GroupMaxSize, c.Dynamic())
	}
}

// TestUnits: how people write numbers, and what a key of that kind takes it for.
func TestUnits(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"log.segment.bytes", "64MiB", "67108864"},
		{"remote.read.cache.bytes", "1.5 MiB", "1572864"},
		{"store.stream.rate", "100MB/s", "100000000"},
		{"store.latency.ms", "30ms", "30"},
		{"log.local.retention.ms", "1h", "3600000"},
		{"log.local.retention.bytes", "-1", "-1"},
		{"log.segment.bytes", "64MiB/s", ""},
		{"log.segment.bytes", "-1MiB", ""},
		{"store.latency.ms", "30MB", ""},
		{"num.partitions", "1kB", ""},
	} {
		k, err := BrokerKey(c.key)
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.parseHuman(c.value)
		if got != c.want || (err != nil) != (c.want == "") || err != nil && !errors.Is(err, ErrInvalidValue) {
			t.Errorf("%s: %s: %q, %v", c.key, c.value, got, err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("log.dirs: /data\nlog: {retention: {ms: 1}}\n"))
	f.Add([]byte("a: &x [1, *x]\n"))
	f.Add([]byte("? [a]\n: 1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b := NewBroker()
		if err := b.Load(text); err == nil {
			_ = b.Validate() // must not panic
		}
	})
}

// TestCopyLag: what is held back for as long as it is kept here follows the local retention, and that the total.
func TestCopyLag(t *testing.T) {
	for _, c := range []struct {
		set       []string
		ms, bytes int64
	}{
		{nil, 0, -1},
		{[]string{"remote.copy.lag.ms", "-1"}, 604800000, -1},
		{[]string{"remote.copy.lag.ms", "-1", "remote.copy.lag.bytes", "-1", "local.retention.ms", "5", "local.retention.bytes", "6"}, 5, 6},
		{[]string{"remote.copy.lag.ms", "-1", "retention.ms", "-1", "retention.bytes", "7"}, -1, 7},
		{[]string{"remote.copy.lag.ms", "4", "local.retention.ms", "5", "remote.copy.lag.bytes", "0"}, 4, 0},
	} {
		set := map[string]string{}
		for i := 0; i < len(c.set); i += 2 {
			set[c.set[i]] = c.set[i+1]
		}
		topic, err := ParseTopic(set, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ms, bytes := topic.CopyLag(); ms != c.ms || bytes != c.bytes {
			t.Errorf("%v: %d ms, %d bytes, want %d, %d", c.set, ms, bytes, c.ms, c.bytes)
		}
	}
}

// TestBrokerCopyLag: the broker's defaults are held to the same rule, where it has a store.
func TestBrokerCopyLag(t *testing.T) {
	b := NewBroker()
	b.DataDir = "/data"
	for _, kv := range [][2]string{{"log.local.retention.ms", "10"}, {"log.remote.copy.lag.ms", "11"}} {
		if err := b.Set(kv[0], kv[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Validate(); err != nil {
		t.Errorf("without a store: %v", err)
	}
	b.Store = "test:"
	if err := b.Validate(); !errors.Is(err, ErrInvalidValue) || !strings.Contains(err.Error(), "log.remote.copy.lag.ms") {
		t.Errorf("with one: %v", err)
	}
}

// TestSynonymsAreListed: the keys behind the first are listed once that one has a value, as by Apache Kafka.
func TestSynonymsAreListed(t *testing.T) {
	for _, c := range []struct {
		set  string
		key  string
		want string
	}{
		{"", "flush.ms", ""},
		{"log.flush.interval.ms", "flush.ms", "log.flush.interval.ms=5 log.flush.scheduler.interval.ms=9223372036854775807"},
		{"", "segment.jitter.ms", ""},
		{"log.roll.jitter.ms", "segment.jitter.ms", "log.roll.jitter.ms=5 log.roll.jitter.hours=0"},
		{"", "segment.ms", ""},
		{"log.roll.ms", "segment.ms", "log.roll.ms=5 log.roll.hours=168"},
		{"log.retention.ms", "retention.ms", "log.retention.ms=5 log.retention.hours=168"},
		{"", "remote.copy.lag.ms", "log.remote.copy.lag.ms=0"},
	} {
		b := NewBroker()
		if c.set != "" {
			if err := b.SetDynamic(map[string]string{c.set: "5"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range DescribeTopic(nil, b) {
			var got []string
			for _, s := range e.Synonyms {
				got = append(got, s.Name+"="+s.Value)
			}
			if text := strings.Join(got, " "); e.Key.Name == c.key && text != c.want {
				t.Errorf("%s with %q: %s, want %s", c.key, c.set, text, c.want)
			}
		}
	}
}

// TestJitterInHours: as with other times in several units the finest counts.
func TestJitterInHours(t *testing.T) {
	b := NewBroker()
	for _, c := range []struct {
		key, value string
		ms         int64
	}{{"log.roll.jitter.hours", "2", 7_200_000}, {"log.roll.jitter.ms", "5s", 5000}} {
		if err := b.Set(c.key, c.value); err != nil {
			t.Fatal(err)
		}
		if topic, err := ParseTopic(nil, b); err != nil || topic.SegmentJitterMs != c.ms {
			t.Errorf("with %s: %d, %v, want %d", c.key, topic.SegmentJitterMs, err, c.ms)
		}
	}
	if err := b.SetDynamic(map[string]string{"log.roll.jitter.hours": "1"}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("altering the hours: %v", err)
	}
}

// TestFlushScheduler: how often logs are looked at, and what it means to topics.
func TestFlushScheduler(t *testing.T) {
	b := NewBroker()
	check := func(every time.Duration, ms int64) {
		t.Helper()
		topic, err := ParseTopic(nil, b)
		if got := b.FlushScheduler(); got != every || err != nil || topic.FlushMs != ms {
			t.Errorf("every %v, flush.ms %d, %v, want %v, %d", got, topic.FlushMs, err, every, ms)
		}
	}
	check(time.Second, math.MaxInt64)
	for _, c := range []struct {
		key, value string
		every      time.Duration
		ms         int64
	}{
		{"log.flush.scheduler.interval.ms", "200ms", 200 * time.Millisecond, 200},
		{"log.flush.interval.ms", "70", 200 * time.Millisecond, 70},
		{"log.flush.scheduler.interval.ms", "9223372036854775807", time.Second, 70},
	} {
		if err := b.Set(c.key, c.value); err != nil {
			t.Fatal(err)
		}
		check(c.every, c.ms)
	}
}
