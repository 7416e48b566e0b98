package broker

import (
	"bytes"
	"maps"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/quota"
)

// TestNamesThatCannotBeKept: what is kept in files of text is UTF-8; a name that is not would be another one after the next start, and two of them would be one. They are refused, by
// all that keep names and values, and nothing is altered.
func TestNamesThatCannotBeKept(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir, withKeys("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "allow.everyone.if.no.acl.found", "true"))
	b.createTopic(t, "t", 1)
	c := b.raw(t)
	incremental := func(kind kmsg.ConfigResourceType, name, key, value string) int16 {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kind, ResourceName: name, Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: key, Value: &value}}}}
		return c.ask(t, req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode
	}
	for what, ask := range map[string]func(bad string) int16{
		"a SCRAM user": func(bad string) int16 {
			req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
			req.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{{Name: bad, Mechanism: 1, Iterations: 4096, Salt: []byte("salt"), SaltedPassword: bytes.Repeat([]byte("p"), 32)}}
			return c.ask(t, req).(*kmsg.AlterUserSCRAMCredentialsResponse).Results[0].ErrorCode
		},
		"a user with a quota": func(bad string) int16 {
			req := kmsg.NewPtrAlterClientQuotasRequest()
			req.Entries = append(req.Entries, quotaSet(quotaOf("user", bad), quota.ProducerByteRate, 1))
			return c.ask(t, req).(*kmsg.AlterClientQuotasResponse).Entries[0].ErrorCode
		},
		"a client id with a quota": func(bad string) int16 {
			req := kmsg.NewPtrAlterClientQuotasRequest()
			req.Entries = append(req.Entries, quotaSet(quotaOf("user", "u", "client-id", bad), quota.ProducerByteRate, 1))
			return c.ask(t, req).(*kmsg.AlterClientQuotasResponse).Entries[0].ErrorCode
		},
		"a group": func(bad string) int16 {
			return incremental(kmsg.ConfigResourceTypeGroupConfig, bad, "consumer.session.timeout.ms", "50000")
		},
		"a subscription": func(bad string) int16 {
			return incremental(kmsg.ConfigResourceTypeClientMetrics, bad, "interval.ms", "1000")
		},
		"a group's value": func(bad string) int16 {
			return incremental(kmsg.ConfigResourceTypeGroupConfig, "g", "errors.deadletterqueue.topic.name", bad)
		},
		"a broker's value": func(bad string) int16 {
			return incremental(kmsg.ConfigResourceTypeBroker, "", "errors.deadletterqueue.topic.name.prefix", bad)
		},
		"a rule's principal": func(bad string) int16 {
			req := kmsg.NewPtrCreateACLsRequest()
			req.SetVersion(3)
			req.Creations = []kmsg.CreateACLsRequestCreation{{ResourceType: kmsg.ACLResourceTypeTopic, ResourceName: "t", ResourcePatternType: kmsg.ACLResourcePatternTypeLiteral, Principal: "User:" + bad,
				Host: "*", Operation: kmsg.ACLOperationRead, PermissionType: kmsg.ACLPermissionTypeAllow}}
			return c.ask(t, req).(*kmsg.CreateACLsResponse).Results[0].ErrorCode
		},
	} {
		for _, bad := range []string{"\xff", "name\xc3", "\xed\xa0\x80"} {
			if code := ask(bad); code == errNone {
				t.Errorf("%s, %q: accepted", what, bad)
			}
		}
	}
	check := func(b *testBroker) {
		groups, subscriptions := b.resourceConfigs.names()
		if n := len(b.secrets.userNames()) + len(b.quotas.all()) + len(groups) + len(subscriptions) + len(b.authorizer.List(&acl.Everything)) + len(b.config().Dynamic()); n > 0 {
			t.Errorf("%d things are kept", n)
		}
	}
	check(b)
	// What is UTF-8 is kept as it is.
	const name = "näme � \U0001F511"
	b.setQuota(t, quota.ProducerByteRate, 7, "user", name)
	if code := incremental(kmsg.ConfigResourceTypeGroupConfig, name, "consumer.session.timeout.ms", "50000"); code != errNone {
		t.Errorf("code %d", code)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, dir)
	if got := b.quotas.all(); !maps.Equal(got[quota.Entity{User: quota.Named(name)}], map[string]float64{quota.ProducerByteRate: 7}) {
		t.Errorf("quotas %v", got)
	}
	if got := b.resourceConfigs.group(name); len(got) != 1 {
		t.Errorf("the group's %v", got)
	}
}
