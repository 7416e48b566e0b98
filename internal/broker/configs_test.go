package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/config"
)

func valueOf(t *testing.T, r kadm.ResourceConfig, key string) kadm.Config {
	t.Helper()
	for _, c := range r.Configs {
		if c.Key == key {
			return c
		}
	}
	t.Fatalf("%s has no key %s: %v", r.Name, key, r.Err)
	return kadm.Config{}
}

func (b *testBroker) topicConfig(t *testing.T, topic, key string) kadm.Config {
	t.Helper()
	got, err := b.admin(t).DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return valueOf(t, got[0], key)
}

func set(op kadm.IncrementalOp, key, value string) kadm.AlterConfig {
	return kadm.AlterConfig{Op: op, Name: key, Value: &value}
}

func TestDescribeTopicConfigs(t *testing.T) {
	b := startBroker(t, t.TempDir(), withKeys("log.retention.hours", "2"))
	b.createTopic(t, "t", 1, "segment.bytes", "2097152")
	if c := b.topicConfig(t, "t", "segment.bytes"); *c.Value != "2097152" || c.Source != kmsg.ConfigSourceDynamicTopicConfig || len(c.Synonyms) != 2 {
		t.Errorf("segment.bytes: %+v", c)
	}
	if c := b.topicConfig(t, "t", "retention.ms"); *c.Value != "7200000" || c.Source != kmsg.ConfigSourceStaticBrokerConfig {
		t.Errorf("retention.ms: %+v", c)
	}
	if c := b.topicConfig(t, "t", "cleanup.policy"); *c.Value != "delete" || c.Source != kmsg.ConfigSourceDefaultConfig {
		t.Errorf("cleanup.policy: %+v", c)
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeDocumentation = true
	req.Resources = []kmsg.DescribeConfigsRequestResource{
		{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t", ConfigNames: []string{"retention.ms", "no.such"}},
		{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "none"},
		{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "?"},
		{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "99"},
		{ResourceType: kmsg.ConfigResourceTypeBrokerLogger, ResourceName: "1"},
	}
	req.Version = 4
	resp, err := b.serveOnce(t, req)
	if err != nil {
		t.Fatal(err)
	}
	got := resp.(*kmsg.DescribeConfigsResponse).Resources
	c := got[0].Configs
	if len(c) != 1 || c[0].ConfigType != kmsg.ConfigTypeLong || c[0].ReadOnly || c[0].ConfigSynonyms != nil || c[0].Documentation == nil || *c[0].Documentation == "" {
		t.Errorf("got %+v", c)
	}
	for i, want := range []int16{errNone, errUnknownTopicOrPartition, errInvalidTopic, errInvalidRequest, errInvalidRequest} {
		if got[i].ErrorCode != want {
			t.Errorf("%s: %v", got[i].ResourceName, kerr.ErrorForCode(got[i].ErrorCode))
		}
	}
}

func TestDescribeBrokerConfigs(t *testing.T) {
	b := startBroker(t, t.TempDir())
	got, err := b.admin(t).DescribeBrokerConfigs(t.Context(), b.nodeID)
	if err != nil {
		t.Fatal(err)
	}
	if len(got[0].Configs) != len(config.BrokerKeys()) {
		t.Errorf("%d keys of %d", len(got[0].Configs), len(config.BrokerKeys()))
	}
	if c := valueOf(t, got[0], "offsets.topic.num.partitions"); *c.Value != "3" || c.Source != kmsg.ConfigSourceStaticBrokerConfig {
		t.Errorf("got %+v", c)
	}
	if c := valueOf(t, got[0], "store"); !c.Sensitive || c.Value != nil {
		t.Errorf("the store's URL is shown: %+v", c)
	}
}

func TestAlterTopicConfigs(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	b.createTopic(t, "t", 2)
	adm := b.admin(t)
	alter := func(cfgs ...kadm.AlterConfig) error {
		t.Helper()
		got, err := adm.AlterTopicConfigs(t.Context(), cfgs, "t")
		if err != nil {
			t.Fatal(err)
		}
		return got[0].Err
	}
	if err := alter(set(kadm.SetConfig, "retention.ms", "1000"), set(kadm.SetConfig, "max.message.bytes", "500")); err != nil {
		t.Fatal(err)
	}
	if c := b.partition("t", 1).config(); c.RetentionMs != 1000 || c.MaxMessageBytes != 500 {
		t.Errorf("not in force: %+v", c)
	}
	if err := b.client(t).ProduceSync(t.Context(), bigRecord("t")).FirstErr(); !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("a record above max.message.bytes: %v", err)
	}
	if err := alter(set(kadm.AppendConfig, "cleanup.policy", "compact")); err != nil {
		t.Fatal(err)
	}
	if c := b.topicConfig(t, "t", "cleanup.policy"); *c.Value != "delete,compact" {
		t.Errorf("after append: %s", *c.Value)
	}
	if err := alter(set(kadm.SubtractConfig, "cleanup.policy", "delete"), kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"}); err != nil {
		t.Fatal(err)
	}
	if c := b.partition("t", 0).config(); !c.Compact || c.Delete || c.RetentionMs != 604_800_000 {
		t.Errorf("in force: %+v", c)
	}
	for name, c := range map[string]struct {
		cfgs []kadm.AlterConfig
		want error
	}{
		"unknown key":       {[]kadm.AlterConfig{set(kadm.SetConfig, "retention.msec", "1")}, kerr.InvalidConfig},
		"value":             {[]kadm.AlterConfig{set(kadm.SetConfig, "retention.ms", "x")}, kerr.InvalidConfig},
		"good beside bad":   {[]kadm.AlterConfig{set(kadm.SetConfig, "retention.ms", "5"), set(kadm.SetConfig, "segment.bytes", "1")}, kerr.InvalidConfig},
		"append to no list": {[]kadm.AlterConfig{set(kadm.AppendConfig, "retention.ms", "5")}, kerr.InvalidConfig},
		"twice":             {[]kadm.AlterConfig{set(kadm.SetConfig, "retention.ms", "5"), set(kadm.SetConfig, "retention.ms", "6")}, kerr.InvalidRequest},
		"null":              {[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms"}}, kerr.InvalidRequest},
		"remote, no store":  {[]kadm.AlterConfig{set(kadm.SetConfig, "remote.storage.enable", "true")}, kerr.InvalidConfig},
	} {
		if err := alter(c.cfgs...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	got, err := adm.ValidateAlterTopicConfigs(t.Context(), []kadm.AlterConfig{set(kadm.SetConfig, "retention.ms", "5")}, "t", "none")
	if err != nil || got[0].Err != nil && got[1].Err != nil {
		t.Errorf("validating: %v, %v", got, err)
	}
	if c := b.partition("t", 0).config(); c.RetentionMs != 604_800_000 {
		t.Error("validation changed something")
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir)
	if c := b.partition("t", 0).config(); !c.Compact || c.MaxMessageBytes != 500 {
		t.Errorf("after a restart: %+v", c)
	}
	// The older call replaces everything that was set.
	state, err := b.admin(t).AlterTopicConfigsState(t.Context(), []kadm.AlterConfig{set(kadm.SetConfig, "retention.ms", "9")}, "t")
	if err != nil || state[0].Err != nil {
		t.Fatalf("%v, %v", state, err)
	}
	if c := b.partition("t", 0).config(); c.Compact || c.MaxMessageBytes != 1048588 || c.RetentionMs != 9 {
		t.Errorf("replaced by %+v", c)
	}
}

func TestAlterBrokerConfigs(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir, withKeys("log.retention.ms", "7000"))
	b.createTopic(t, "t", 1)
	b.createTopic(t, "own", 1, "retention.ms", "5")
	id := strconv.Itoa(int(b.nodeID))
	alter := func(b *testBroker, cfgs ...kadm.AlterConfig) error {
		t.Helper()
		got, err := b.admin(t).AlterBrokerConfigs(t.Context(), cfgs, b.nodeID)
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Name != id {
			t.Errorf("answered for %q", got[0].Name)
		}
		return got[0].Err
	}
	if err := alter(b, set(kadm.SetConfig, "log.retention.ms", "6000"), set(kadm.SetConfig, "group.max.size", "2")); err != nil {
		t.Fatal(err)
	}
	if c, own := b.partition("t", 0).config(), b.partition("own", 0).config(); c.RetentionMs != 6000 || own.RetentionMs != 5 {
		t.Errorf("in force: %d, %d", c.RetentionMs, own.RetentionMs)
	}
	if err := alter(b, set(kadm.SetConfig, "node.id", "3")); !errors.Is(err, kerr.InvalidRequest) {
		t.Errorf("a key that is read at the start only: %v", err)
	}
	if err := alter(b, set(kadm.SetConfig, "group.max.size", "0")); !errors.Is(err, kerr.InvalidRequest) {
		t.Errorf("a value that is not valid: %v", err)
	}
	if err := alter(b, set(kadm.SetConfig, "no.such", "0")); !errors.Is(err, kerr.InvalidConfig) {
		t.Errorf("an unknown key: %v", err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	b = startBroker(t, dir, withKeys("log.retention.ms", "7000"))
	if c := b.partition("t", 0).config(); c.RetentionMs != 6000 || b.config().GroupMaxSize != 2 {
		t.Errorf("after a restart: %d, %d", c.RetentionMs, b.config().GroupMaxSize)
	}
	c := b.topicConfig(t, "t", "retention.ms")
	if c.Source != kmsg.ConfigSourceDynamicBrokerConfig || !slices.ContainsFunc(c.Synonyms, func(s kadm.ConfigSynonym) bool { return strings.HasPrefix(s.Key, "log.retention") }) {
		t.Errorf("described as %+v", c)
	}
	if err := alter(b, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "log.retention.ms"}); err != nil {
		t.Fatal(err)
	}
	if c := b.partition("t", 0).config(); c.RetentionMs != 7000 {
		t.Errorf("the file's value is not back: %d", c.RetentionMs)
	}
}

func TestDamagedDynamicConfigs(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	if err := saveDynamic(b.fs, dir, map[string]string{"group.max.size": "4", "gone.key": "1", "log.retention.ms": "x"}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir)
	if b.config().GroupMaxSize != 4 || len(b.config().Dynamic()) != 1 {
		t.Errorf("in force: %v", b.config().Dynamic())
	}
}

// TestAlteredConfigsThatDependOnEachOther: values that are valid together are in force together after a restart, though one by itself is not beside the other's default, and
// though there is something else among them that cannot be taken any more.
func TestAlteredConfigsThatDependOnEachOther(t *testing.T) {
	for _, pair := range []map[string]string{
		{"group.max.session.timeout.ms": "3000", "group.min.session.timeout.ms": "1000"},
		{"group.max.session.timeout.ms": "4000000", "group.min.session.timeout.ms": "3000000"},
		{"log.cleaner.max.compaction.lag.ms": "2000", "log.cleaner.min.compaction.lag.ms": "1000"},
	} {
		dir := t.TempDir()
		// What the file sets makes each value by itself wrong, the one or the other way round.
		file := withKeys("log.cleaner.max.compaction.lag.ms", "9000", "log.cleaner.min.compaction.lag.ms", "8000")
		b := startBroker(t, dir, file)
		var alter []kadm.AlterConfig
		for _, k := range slices.Sorted(maps.Keys(pair)) {
			alter = append(alter, set(kadm.SetConfig, k, pair[k]))
		}
		if got, err := b.admin(t).AlterBrokerConfigs(t.Context(), alter, b.nodeID); err != nil || got[0].Err != nil {
			t.Fatal(pair, err, got)
		}
		for _, more := range []map[string]string{{}, {"gone.key": "1"}, {"group.max.size": "none"}} {
			if len(more) > 0 {
				maps.Copy(more, pair)
				if err := saveDynamic(b.fs, dir, more); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			b = startBroker(t, dir, file)
			if got := b.config().Dynamic(); !maps.Equal(got, pair) {
				t.Errorf("%v with %v: in force after a restart: %v", pair, more, got)
			}
		}
	}
}

// TestAlteredConfigsOneByOne: where the configuration file now says what not all altered values can stand beside, those stay that can.
func TestAlteredConfigsOneByOne(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	values := map[string]string{"group.max.size": "7", "group.min.session.timeout.ms": "10", "log.cleaner.min.compaction.lag.ms": "5000"}
	if err := saveDynamic(b.fs, dir, values); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir, withKeys("log.cleaner.max.compaction.lag.ms", "100"))
	delete(values, "log.cleaner.min.compaction.lag.ms")
	if got := b.config().Dynamic(); !maps.Equal(got, values) {
		t.Errorf("in force after a restart: %v, want %v", got, values)
	}
}

// TestTopicConfigsOfAnotherVersion: of a topic whose file has keys and values that this broker does not know the others are in force, and it can be written to. It got
// segments of 0 bytes and refused every record.
func TestTopicConfigsOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	b.createTopic(t, "t", 1)
	configs := map[string]string{"of.another.version": "1", "segment.ms": "soon", "retention.ms": "77000000"}
	if _, err := b.topics.SetConfigs("t", configs); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir)
	if c := b.partition("t", 0).config(); c.RetentionMs != 77000000 || !c.Delete || c.SegmentBytes != 1<<30 || c.SegmentMs != 604800000 {
		t.Errorf("in force: %+v", c)
	}
	if err := b.client(t, kgo.RecordRetries(0)).ProduceSync(t.Context(), bigRecord("t")).FirstErr(); err != nil {
		t.Error(err)
	}
	if c := b.topicConfig(t, "t", "retention.ms"); c.MaybeValue() != "77000000" {
		t.Errorf("described as %+v", c)
	}
}

// TestDescriptionsAreBounded: a small request that names a resource again and again, or groups that nobody has heard of, does not make an answer of many gigabytes. All topics of a
// large broker fit.
func TestDescriptionsAreBounded(t *testing.T) {
	const most = 4 << 20
	b := startBroker(t, t.TempDir())
	describe := func(kind kmsg.ConfigResourceType, n int, name func(int) string) (described, refused, bytes int) {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.SetVersion(4)
		req.IncludeDocumentation, req.IncludeSynonyms = true, true
		for i := range n {
			req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kind, ResourceName: name(i)})
		}
		resp := b.describeConfigs(&conn{}, req, most)
		for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			if r.ErrorCode == errPolicyViolation && len(r.Configs) == 0 {
				refused++
			} else if r.ErrorCode == errNone {
				described++
			}
		}
		return described, refused, len(resp.AppendTo(nil))
	}
	id := func(int) string { return strconv.Itoa(int(b.nodeID)) }
	for kind, name := range map[kmsg.ConfigResourceType]func(int) string{kmsg.ConfigResourceTypeBroker: id, kmsg.ConfigResourceTypeGroupConfig: strconv.Itoa} {
		if described, refused, bytes := describe(kind, 2000, name); described == 0 || refused == 0 || bytes > most*5/4 {
			t.Errorf("%s: %d described, %d refused, %d bytes", kind, described, refused, bytes)
		}
	}
	b.createTopic(t, "t", 1)
	if described, _, bytes := describe(kmsg.ConfigResourceTypeTopic, 2000, func(int) string { return "t" }); described < 10_000*most/maxDescription {
		t.Errorf("%d topics described in %d bytes", described, bytes)
	}
}

func bigRecord(topic string) *kgo.Record {
	value := make([]byte, 1000) // that no codec makes small
	rand.Read(value)
	return &kgo.Record{Topic: topic, Value: value}
}

// TestLongConfigurations: a value that is too long is refused whatever it is for, by all who set one; what is accepted the next start can read.
func TestLongConfigurations(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	b.createTopic(t, "t", 1)
	long := func(n int) *string { return kmsg.StringPtr(strings.Repeat("0:1,", n/4-1) + "00:1") }
	c := b.raw(t)
	const key = "leader.replication.throttled.replicas"
	for n, want := range map[int]int16{maxConfigValue - 3: errNone, 6 << 20: errInvalidConfig} {
		create := kmsg.NewPtrCreateTopicsRequest()
		create.SetVersion(7)
		create.TimeoutMillis = 10_000
		ct := kmsg.NewCreateTopicsRequestTopic()
		ct.Topic, ct.NumPartitions, ct.ReplicationFactor = fmt.Sprint("of-", n), 1, 1
		ct.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: key, Value: long(n)}}
		create.Topics = append(create.Topics, ct)
		if code := c.ask(t, create).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != want {
			t.Errorf("made with a value of %d bytes: error %d, want %d", n, code, want)
		}
		for _, op := range []kmsg.IncrementalAlterConfigOp{kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpAppend} {
			alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
			alter.SetVersion(1)
			alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t",
				Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: key, Op: op, Value: long(n)}}}}
			if code := c.ask(t, alter).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode; code != want && op == kmsg.IncrementalAlterConfigOpSet {
				t.Errorf("altered to a value of %d bytes: error %d, want %d", n, code, want)
			}
		}
		replace := kmsg.NewPtrAlterConfigsRequest()
		replace.SetVersion(2)
		replace.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t", Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: key, Value: long(n)}}}}
		if code := c.ask(t, replace).(*kmsg.AlterConfigsResponse).Resources[0].ErrorCode; code != want {
			t.Errorf("replaced by a value of %d bytes: error %d, want %d", n, code, want)
		}
	}
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	startBroker(t, dir)
}
