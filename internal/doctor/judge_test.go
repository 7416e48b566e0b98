package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/upstream"
	"github.com/rewind-kafka/rewind/metadatatopic"
)

// finding is the level and a text of what a finding says or advises.
type finding struct {
	level Level
	text  string
}

func compare(t *testing.T, got []Finding, want ...finding) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("findings %+v, want %+v", got, want)
	}
	for i, f := range got {
		if f.Level != want[i].level || !strings.Contains(f.What+" -> "+f.Do, want[i].text) {
			t.Errorf("%s: %s -> %s; want %s with %q", f.Level, f.What, f.Do, want[i].level, want[i].text)
		}
		if f.Level != OK && f.Do == "" {
			t.Errorf("a finding without advice: %s", f.What)
		}
		if strings.Contains(f.What+f.Do, "\n") || strings.Contains(f.What+f.Do, "%!") {
			t.Errorf("not one line: %q -> %q", f.What, f.Do)
		}
	}
}

func TestVersions(t *testing.T) {
	for name, c := range map[string]struct {
		newest map[int16]int16
		want   finding
	}{
		"new":       {map[int16]int16{1: 18, 2: 11, 23: 4}, finding{OK, "up to version 18"}},
		"no tags":   {map[int16]int16{1: 11, 2: 9, 23: 4}, finding{Problem, "too old"}},
		"no tiers":  {map[int16]int16{1: 13, 2: 7, 23: 4}, finding{Problem, "where local logs begin"}},
		"no epochs": {map[int16]int16{1: 13, 2: 9, 23: 1}, finding{Problem, "too old"}},
		"nothing":   {nil, finding{Problem, "too old"}},
	} {
		t.Run(name, func(t *testing.T) { compare(t, judgeVersions(c.newest), c.want) })
	}
}

func TestUnreachable(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: err} }
	plain := &doctor{}
	secure, err := upstream.Parse([]byte("security.protocol=SSL"))
	if err != nil {
		t.Fatal(err)
	}
	overTLS := &doctor{o: Options{Client: secure}}
	for _, c := range []struct {
		d        *doctor
		err      error
		what, do string
	}{
		{plain, dial(syscall.ECONNREFUSED), "nobody listens", "port"},
		{plain, dial(&net.DNSError{Name: "kafka", Err: "no such host"}), "no such host", "name"},
		{plain, context.DeadlineExceeded, "no answer in time", "firewalls"},
		{plain, io.EOF, "closes the connection", "--command-config"},
		{plain, errors.New("... is this a plaintext connection speaking to a tls endpoint?"), "speaks TLS", "SASL_SSL"},
		{overTLS, io.EOF, "does not speak TLS", "PLAINTEXT"},
		{overTLS, tls.RecordHeaderError{}, "does not speak TLS", "PLAINTEXT"},
		{overTLS, tls.RecordHeaderError{RecordHeader: [5]byte{'H', 'T', 'T', 'P', '/'}}, "speaks HTTP", "another service's"},
		{overTLS, x509.UnknownAuthorityError{}, "signed by nobody", "ssl.truststore.location"},
		{overTLS, x509.HostnameError{Certificate: &x509.Certificate{}, Host: "kafka"}, "kafka", "ssl.endpoint.identification.algorithm"},
		{overTLS, x509.CertificateInvalidError{Cert: &x509.Certificate{}, Reason: x509.Expired}, "expired", "renew"},
		{overTLS, errors.New("remote error: tls: certificate required"), "demands", "SASL"},
		{plain, kerr.SaslAuthenticationFailed, "authentication failed", "password"},
		{plain, kerr.UnsupportedSaslMechanism, "mechanism", "sasl.mechanism"},
		{plain, kerr.IllegalSaslState, "does not authenticate", "PLAINTEXT"},
		{plain, errors.New("strange"), "strange", "host"},
	} {
		if what, do := c.d.unreachable(fmt.Errorf("asking: %w", c.err)); !strings.Contains(what, c.what) || !strings.Contains(do, c.do) {
			t.Errorf("%v: %q, %q", c.err, what, do)
		}
	}
}

func TestBrokers(t *testing.T) {
	on := func(class string) map[string]string {
		return map[string]string{keySystem: "true", keyStorageClass: class, keyMetadataClass: topicBased}
	}
	elsewhere := on("a.B")
	elsewhere[keyMetadataClass] = "org.example.Database"
	for name, c := range map[string]struct {
		brokers map[int32]map[string]string
		plugin  string
		want    []finding
	}{
		"on":           {map[int32]map[string]string{1: on("a.B"), 7: on("a.B")}, "a.B", []finding{{OK, "all 2 brokers"}}},
		"off at one":   {map[int32]map[string]string{1: on("a.B"), 7: {keySystem: "false"}}, "a.B", []finding{{Problem, "off on brokers 7"}}},
		"two plug-ins": {map[int32]map[string]string{1: on("a.B"), 7: on("a.C")}, "", []finding{{Warning, "a.B, a.C"}}},
		"elsewhere":    {map[int32]map[string]string{1: elsewhere}, "a.B", []finding{{Problem, "org.example.Database"}}},
		"no word":      {map[int32]map[string]string{1: {"store": "x"}}, "", []finding{{OK, "do not have"}}},
		"nobody":       {nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, plugin := judgeBrokers(c.brokers, len(c.brokers))
			compare(t, got, c.want...)
			if plugin != c.plugin {
				t.Errorf("plug-in %q", plugin)
			}
		})
	}
	got, _ := judgeBrokers(map[int32]map[string]string{1: on("a.B")}, 3)
	compare(t, got, finding{OK, "1 of 3 brokers"})
}

func TestListeners(t *testing.T) {
	for name, c := range map[string]struct {
		config map[string]string
		want   []finding
	}{
		"kerberos by default, no SASL": {map[string]string{"sasl.enabled.mechanisms": "GSSAPI", "listeners": "PLAINTEXT://:9092", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL"}, nil},
		"kerberos":                     {map[string]string{"sasl.enabled.mechanisms": "SCRAM-SHA-512,GSSAPI", "listeners": "SASL_SSL://:9092"}, []finding{{Warning, "Kerberos"}}},
		"kerberos on one listener": {map[string]string{"listener.name.inner.sasl.enabled.mechanisms": "GSSAPI", "listeners": "INNER://:9092", "listener.security.protocol.map": "INNER:SASL_PLAINTEXT"},
			[]finding{{Warning, "listener.name.inner"}}},
		"scram":   {map[string]string{"sasl.enabled.mechanisms": "SCRAM-SHA-512", "listeners": "SASL_SSL://:9092"}, nil},
		"mutual":  {map[string]string{"listener.name.mtls.ssl.client.auth": "required"}, []finding{{Warning, "shows no certificate"}}},
		"request": {map[string]string{"ssl.client.auth": "requested"}, nil},
	} {
		t.Run(name, func(t *testing.T) { compare(t, judgeListeners(map[int32]map[string]string{1: c.config}), c.want...) })
	}
}

func TestTopics(t *testing.T) {
	base := func(change ...string) map[string]string {
		c := map[string]string{keyTopicTiered: "true", "retention.ms": "604800000", "retention.bytes": "-1", "local.retention.ms": "86400000", "local.retention.bytes": "-2", "remote.log.copy.disable": "false"}
		for i := 0; i < len(change); i += 2 {
			c[change[i]] = change[i+1]
		}
		return c
	}
	for name, c := range map[string]struct {
		config map[string]string
		tiered bool
		want   []finding
	}{
		"tiered":                {base(), true, []finding{{OK, "local.retention.ms=86400000, local.retention.bytes=-1 of"}}},
		"by size":               {base("local.retention.ms", "-2", "local.retention.bytes", "1000"), true, []finding{{OK, "local.retention.bytes=1000"}}},
		"not tiered":            {base(keyTopicTiered, "false"), false, []finding{{Problem, "kafka-configs.sh --alter --entity-type topics --entity-name t "}}},
		"compacted":             {base(keyTopicTiered, "false", "cleanup.policy", "compact"), false, []finding{{Problem, "leave it to the brokers"}}},
		"compacted and deleted": {base(keyTopicTiered, "false", "cleanup.policy", "compact,delete"), false, []finding{{Problem, "(cleanup.policy=compact,delete)"}}},
		"tiered, whatever else": {base("cleanup.policy", "compact"), true, []finding{{OK, "it is tiered"}}},
		"no word":               {nil, false, []finding{{Problem, "remote.storage.enable=true"}}},
		"everything stays":      {base("local.retention.ms", "-2"), true, []finding{{Warning, "remote.read.policy=tiered"}}},
		"everything stays, too": {base("local.retention.ms", "604800000"), true, []finding{{Warning, "own disks"}}},
		"nothing new":           {base("remote.log.copy.disable", "true"), true, []finding{{OK, ""}, {Warning, "nothing new is copied"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, tiered := judgeTopic("t", c.config)
			compare(t, got, c.want...)
			if tiered != c.tiered {
				t.Errorf("tiered is %v", tiered)
			}
		})
	}
	got, _ := judgeTopic("__remote_log_metadata", base(keyTopicTiered, "false", "cleanup.policy", "delete"))
	compare(t, got, finding{Problem, "name a topic whose history is to be read"})
	many := strings.Fields(strings.Repeat("x ", maxUnasked+2))
	compare(t, judgeTiered(many, 20, 0), finding{OK, "12 of 20 topics are tiered: x, x, x, x, x, x, x, x, x, x, ..."})
	compare(t, judgeTiered(nil, 20, 3), finding{Warning, "--topic"})
	compare(t, judgeTiered(nil, 20, 0), finding{Problem, "none of 20"})
}

func TestMetadata(t *testing.T) {
	d := &doctor{}
	for _, c := range []struct {
		err  error
		want string
	}{
		{metadatatopic.ErrNoTopic, "switch tiered storage on"}, {metadatatopic.ErrNotAllowed, "User:PRINCIPAL --operation Read --operation Describe --topic __remote_log_metadata"},
		{syscall.ECONNREFUSED, "nobody listens"},
	} {
		compare(t, []Finding{d.judgeMetadataError(fmt.Errorf("metadatatopic: %w", c.err))}, finding{Problem, c.want})
	}
	for name, c := range map[string]struct {
		status metadatatopic.Status
		want   []finding
	}{
		"well":      {metadatatopic.Status{Partitions: 50, Applied: 20, Segments: 10}, []finding{{OK, "50 partitions read to their end: 20 records, 10 segments"}}},
		"empty":     {metadatatopic.Status{Partitions: 50}, []finding{{Warning, "nothing has been tiered"}}},
		"not read":  {metadatatopic.Status{Partitions: 50, Unread: 3, Err: errors.New("no leader")}, []finding{{Problem, "3 of 50 partitions cannot be read: no leader"}}},
		"stalled":   {metadatatopic.Status{Partitions: 50, Unread: 3}, []finding{{Problem, "nothing more comes"}}},
		"beginning": {metadatatopic.Status{Partitions: 50, Segments: 1, Torn: []int32{4, 9}}, []finding{{OK, ""}, {Warning, "partitions [4 9]"}}},
		"skipped":   {metadatatopic.Status{Partitions: 50, Segments: 1, Skipped: 2}, []finding{{OK, ""}, {Warning, "newer Rewind"}}},
	} {
		t.Run(name, func(t *testing.T) { compare(t, judgeMetadata(c.status), c.want...) })
	}
	compare(t, judgeMetadataConfig(map[string]string{"retention.ms": "-1", "retention.bytes": "-1"}))
	compare(t, judgeMetadataConfig(map[string]string{"retention.ms": "1000", "retention.bytes": "-1"}), finding{Warning, "retention.ms=-1"})
	compare(t, judgeMetadataConfig(map[string]string{"retention.ms": "-1", "retention.bytes": "7"}), finding{Warning, "retention.bytes=7"})
}

func TestPlugin(t *testing.T) {
	const tiered, ivan = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage", "io.aiven.kafka.tieredstorage.RemoteStorageManager"
	for name, c := range map[string]struct {
		plugin, layout string
		read           bool
		want           []finding
	}{
		"kafka": {tiered, "kafka", false, []finding{{OK, "writes layout kafka"}}}, "aiven": {ivan, "aiven", true, []finding{{OK, "writes layout aiven"}}},
		"the other layout": {ivan, "kafka", false, []finding{{Problem, "--layout aiven"}}}, "not known": {"a.B", "kafka", false, []finding{{Warning, "a.B"}}},
		"not known but read": {"a.B", "kafka", true, []finding{{OK, "but writes layout kafka"}}}, "not told": {"", "kafka", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := &doctor{plugin: c.plugin, read: c.read, o: Options{Layout: c.layout, Storage: noStorage{}}}
			d.judgePlugin()
			compare(t, d.rep.Findings, c.want...)
		})
	}
}

func TestTrust(t *testing.T) {
	d := &doctor{}
	acl := func(kind kmsg.ACLResourceType, pattern kmsg.ACLResourcePatternType, name, principal, host string, op kmsg.ACLOperation, allow kmsg.ACLPermissionType) kmsg.DescribeACLsResponseResource {
		return kmsg.DescribeACLsResponseResource{ResourceType: kind, ResourceName: name, ResourcePatternType: pattern,
			ACLs: []kmsg.DescribeACLsResponseResourceACL{{Principal: principal, Host: host, Operation: op, PermissionType: allow}}}
	}
	const literal, prefixed, allow, deny = kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed, kmsg.ACLPermissionTypeAllow, kmsg.ACLPermissionTypeDeny
	const topicType, groupType = kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup
	read := kmsg.ACLOperationRead
	for name, c := range map[string]struct {
		acls []kmsg.DescribeACLsResponseResource
		err  error
		want []finding
	}{
		"no authorizer":        {err: kerr.SecurityDisabled, want: []finding{{OK, "no authorizer"}}},
		"not to be seen":       {err: kerr.ClusterAuthorizationFailed, want: []finding{{Warning, "--operation Describe --cluster"}}},
		"none":                 {want: []finding{{OK, "no ACL is by host"}}},
		"by host":              {acls: []kmsg.DescribeACLsResponseResource{acl(groupType, literal, "g", "User:a", "10.0.0.1", read, allow)}, want: []finding{{Warning, "User:a from 10.0.0.1"}}},
		"refused by host":      {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, literal, "t", "User:a", "10.0.0.1", read, deny)}, want: []finding{{Warning, "User:a from 10.0.0.1"}}},
		"other topics":         {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, literal, "t", "User:a", "*", read, allow)}, want: []finding{{OK, ""}}},
		"all topics":           {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, literal, "*", "User:a", "*", read, allow)}, want: []finding{{Warning, "User:a may read __remote_log_metadata"}}},
		"by prefix":            {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, prefixed, "__", "User:a", "*", kmsg.ACLOperationAll, allow)}, want: []finding{{Warning, "User:a may read"}}},
		"another prefix":       {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, prefixed, "orders", "User:a", "*", read, allow)}, want: []finding{{OK, ""}}},
		"refused":              {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, literal, "*", "User:a", "*", read, deny)}, want: []finding{{OK, ""}}},
		"ourselves":            {acls: []kmsg.DescribeACLsResponseResource{acl(topicType, literal, metadatatopic.DefaultTopic, "User:PRINCIPAL", "*", read, allow)}, want: []finding{{OK, ""}}},
		"a group of that name": {acls: []kmsg.DescribeACLsResponseResource{acl(groupType, literal, metadatatopic.DefaultTopic, "User:a", "*", read, allow)}, want: []finding{{OK, ""}}},
	} {
		t.Run(name, func(t *testing.T) { compare(t, d.judgeACLs(c.acls, c.err), c.want...) })
	}
	entry := func(kind, key string) kmsg.DescribeClientQuotasResponseEntry {
		return kmsg.DescribeClientQuotasResponseEntry{Entity: []kmsg.DescribeClientQuotasResponseEntryEntity{{Type: kind}}, Values: []kmsg.DescribeClientQuotasResponseEntryValue{{Key: key}}}
	}
	compare(t, judgeQuotas(nil))
	compare(t, judgeQuotas([]kmsg.DescribeClientQuotasResponseEntry{entry("ip", "connection_creation_rate"), entry("user", "consumer_byte_rate"), entry("user", "producer_byte_rate")}),
		finding{Warning, "1 quotas by IP"}, finding{Warning, "remote.read.principal.bytes.per.second"})
}

func TestReport(t *testing.T) {
	var r Report
	var out strings.Builder
	if err := r.WriteJSON(&out); err != nil || strings.Contains(out.String(), "null") {
		t.Errorf("%v: %s", err, &out)
	}
	r.add(OK, "a", "", "fine")
	r.add(Warning, "b", "do %s", "so %d", 1) // advice is not a format: commands hold percent signs
	r.Partitions = []Place{{Topic: "t", Partition: 1, LogStart: 0, LocalStart: 9, LastTiered: -1, HighWatermark: 10, Committed: -1, From: "store", StoreBytes: 1 << 20}}
	if r.Worst() != Warning {
		t.Errorf("worst is %s", r.Worst())
	}
	out.Reset()
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Worst      string
		Findings   []struct{ Level, Check, What, Do string }
		Partitions []map[string]any
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Worst != "warning" || len(got.Findings) != 2 || got.Findings[1].Do != "do %s" || got.Findings[1].What != "so 1" || got.Partitions[0]["reads_from"] != "store" {
		t.Errorf("%+v", got)
	}
	out.Reset()
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ok       a", "-> do %s", "t-1", "1.0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
}
