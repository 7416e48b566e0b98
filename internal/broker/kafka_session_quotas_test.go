package broker

import (
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Clients' quotas, as they are set and described; that they are kept is another test's matter.
func TestQuotaSessionAsApacheKafka(t *testing.T) {
	compareSession(t, "quotas", quotaDifferences, func(s *peerSession) {
		s.noQuotas()
		s.setQuotas()
		s.describeQuotas()
		s.removeQuotas()
		s.noQuotas()
	})
}

// The reasons are in docs/differences.md.
var quotaDifferences = []difference{}

type quotaPart = kmsg.AlterClientQuotasRequestEntryEntity

func quotaOf(parts ...string) (entity []quotaPart) {
	for i := 0; i < len(parts); i += 2 {
		p := quotaPart{Type: parts[i]}
		if parts[i+1] != "<default>" {
			p.Name = &parts[i+1]
		}
		entity = append(entity, p)
	}
	return entity
}

func quotaSet(entity []quotaPart, key string, value float64) kmsg.AlterClientQuotasRequestEntry {
	return kmsg.AlterClientQuotasRequestEntry{Entity: entity, Ops: []kmsg.AlterClientQuotasRequestEntryOp{{Key: key, Value: value}}}
}

// noQuotas takes away what is there, for a recording on a broker that was used before.
func (s *peerSession) noQuotas() {
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	alter := kmsg.NewPtrAlterClientQuotasRequest()
	for _, e := range s.ask(req).(*kmsg.DescribeClientQuotasResponse).Entries {
		var entry kmsg.AlterClientQuotasRequestEntry
		for _, p := range e.Entity {
			entry.Entity = append(entry.Entity, quotaPart{Type: p.Type, Name: p.Name})
		}
		for _, v := range e.Values {
			entry.Ops = append(entry.Ops, kmsg.AlterClientQuotasRequestEntryOp{Key: v.Key, Remove: true})
		}
		alter.Entries = append(alter.Entries, entry)
	}
	s.ask(alter)
	await(s.t, "no quotas", func() bool { return len(s.ask(req).(*kmsg.DescribeClientQuotasResponse).Entries) == 0 })
}

func (s *peerSession) setQuotas() {
	user := quotaOf("user", "alice")
	for _, tc := range []struct {
		what    string
		entries []kmsg.AlterClientQuotasRequestEntry
	}{
		{"of a user", []kmsg.AlterClientQuotasRequestEntry{quotaSet(user, "producer_byte_rate", 1e9)}},
		{"of a user again", []kmsg.AlterClientQuotasRequestEntry{quotaSet(user, "consumer_byte_rate", 2e9)}},
		{"of a client id", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("client-id", "c"), "request_percentage", 12345.5)}},
		{"of both", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("user", "alice", "client-id", "c"), "controller_mutation_rate", 1e6)}},
		{"of the defaults", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("user", "<default>", "client-id", "<default>"), "producer_byte_rate", 3e9), quotaSet(quotaOf("user", "<default>"), "producer_byte_rate", 4e9)}},
		{"of an address", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("ip", "10.9.8.7"), "connection_creation_rate", 7)}},
		{"of all addresses", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("ip", "<default>"), "connection_creation_rate", 70000)}},
		{"of an odd name", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("user", "CN=a, O=\u00e9"), "producer_byte_rate", 1e9)}},
		{"of nobody", []kmsg.AlterClientQuotasRequestEntry{quotaSet(nil, "producer_byte_rate", 1e9)}},
		{"of an empty name", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("user", ""), "producer_byte_rate", 1e9)}},
		{"of an unknown kind", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("host", "x"), "producer_byte_rate", 1e9)}},
		{"of an address and a user", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("ip", "10.9.8.7", "user", "a"), "connection_creation_rate", 7)}},
		{"of no address", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("ip", "no address"), "connection_creation_rate", 7)}},
		{"of a user for an address", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("ip", "10.9.8.7"), "producer_byte_rate", 7)}},
		{"of an address for a user", []kmsg.AlterClientQuotasRequestEntry{quotaSet(user, "connection_creation_rate", 7)}},
		{"of nothing known", []kmsg.AlterClientQuotasRequestEntry{quotaSet(user, "speed", 7)}},
		{"of 0", []kmsg.AlterClientQuotasRequestEntry{quotaSet(user, "producer_byte_rate", 0)}},
		{"below 0", []kmsg.AlterClientQuotasRequestEntry{quotaSet(user, "producer_byte_rate", -1)}},
		{"of a fraction", []kmsg.AlterClientQuotasRequestEntry{quotaSet(user, "producer_byte_rate", 1.5)}},
		{"of a fraction of a percent", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("user", "bob"), "request_percentage", 150.25)}},
		{"of no number", []kmsg.AlterClientQuotasRequestEntry{quotaSet(user, "producer_byte_rate", math.NaN())}},
		{"without end", []kmsg.AlterClientQuotasRequestEntry{quotaSet(user, "request_percentage", math.Inf(1))}},
		{"too large", []kmsg.AlterClientQuotasRequestEntry{quotaSet(user, "producer_byte_rate", 1e19)}},
		{"of too many connections", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("ip", "10.9.8.7"), "connection_creation_rate", 1<<31)}},
		{"one good and one bad", []kmsg.AlterClientQuotasRequestEntry{quotaSet(quotaOf("user", "carol"), "producer_byte_rate", 5e9), quotaSet(quotaOf("user", "dave"), "speed", 5)}},
		{"one key twice", []kmsg.AlterClientQuotasRequestEntry{{Entity: quotaOf("user", "eve"), Ops: []kmsg.AlterClientQuotasRequestEntryOp{{Key: "producer_byte_rate", Value: 1e9}, {Key: "producer_byte_rate", Value: 2e9}}}}},
		{"one key good and one bad", []kmsg.AlterClientQuotasRequestEntry{{Entity: quotaOf("user", "frank"), Ops: []kmsg.AlterClientQuotasRequestEntryOp{{Key: "producer_byte_rate", Value: 1e9}, {Key: "speed", Value: 2e9}}}}},
		{"remove what is not there", []kmsg.AlterClientQuotasRequestEntry{{Entity: quotaOf("user", "frank"), Ops: []kmsg.AlterClientQuotasRequestEntryOp{{Key: "producer_byte_rate", Remove: true}}}}},
		{"remove what is not known", []kmsg.AlterClientQuotasRequestEntry{{Entity: quotaOf("user", "frank"), Ops: []kmsg.AlterClientQuotasRequestEntryOp{{Key: "speed", Remove: true}}}}},
		{"nothing of somebody", []kmsg.AlterClientQuotasRequestEntry{{Entity: quotaOf("user", "frank")}}},
		{"nothing", nil},
	} {
		for v := range int16(2) {
			for _, validate := range []bool{true, false} {
				req := kmsg.NewPtrAlterClientQuotasRequest()
				req.Entries, req.ValidateOnly = tc.entries, validate
				what := "set quotas "
				if validate {
					what = "judge quotas "
				}
				s.step(what+tc.what, v, req)
			}
		}
	}
}

func (s *peerSession) describeQuotas() {
	type part = kmsg.DescribeClientQuotasRequestComponent
	name := func(n string) *string { return &n }
	await(s.t, "the last quota", func() bool { // which the others came before
		return len(s.ask(kmsg.NewPtrDescribeClientQuotasRequest()).(*kmsg.DescribeClientQuotasResponse).Entries) == 10
	})
	for _, tc := range []struct {
		what  string
		parts []part
	}{
		{"all", nil},
		{"of a user", []part{{EntityType: "user", Match: name("alice")}}},
		{"of nobody", []part{{EntityType: "user", Match: name("nobody")}}},
		{"of a user and a client id", []part{{EntityType: "user", Match: name("alice")}, {EntityType: "client-id", Match: name("c")}}},
		{"of the default user", []part{{EntityType: "user", MatchType: 1}}},
		{"of any user", []part{{EntityType: "user", MatchType: 2}}},
		{"of any client id", []part{{EntityType: "client-id", MatchType: 2}}},
		{"of any user and client id", []part{{EntityType: "user", MatchType: 2}, {EntityType: "client-id", MatchType: 2}}},
		{"of an address", []part{{EntityType: "ip", Match: name("10.9.8.7")}}},
		{"of any address", []part{{EntityType: "ip", MatchType: 2}}},
		{"of an address and a user", []part{{EntityType: "ip", MatchType: 2}, {EntityType: "user", MatchType: 2}}},
		{"of an unknown kind", []part{{EntityType: "host", MatchType: 2}}},
		{"of no kind", []part{{EntityType: "", MatchType: 2}}},
		{"of one kind twice", []part{{EntityType: "user", MatchType: 2}, {EntityType: "user", MatchType: 1}}},
		{"of an unknown match", []part{{EntityType: "user", MatchType: 7}}},
		{"of an exact match without a name", []part{{EntityType: "user"}}},
		{"of a default with a name", []part{{EntityType: "user", MatchType: 1, Match: name("a")}}},
		{"of any with a name", []part{{EntityType: "user", MatchType: 2, Match: name("a")}}},
	} {
		for v := range int16(2) {
			for _, strict := range []bool{false, true} {
				req := kmsg.NewPtrDescribeClientQuotasRequest()
				req.Components, req.Strict = tc.parts, strict
				what := "quotas "
				if strict {
					what = "no more than quotas "
				}
				s.step(what+tc.what, v, req)
			}
		}
	}
}

func (s *peerSession) removeQuotas() {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.Entries = []kmsg.AlterClientQuotasRequestEntry{{Entity: quotaOf("user", "alice"), Ops: []kmsg.AlterClientQuotasRequestEntryOp{{Key: "producer_byte_rate", Remove: true}, {Key: "request_percentage", Value: 5000}}}}
	s.step("remove a quota", 1, req)
	await(s.t, "the quota to go", func() bool {
		for _, e := range s.ask(kmsg.NewPtrDescribeClientQuotasRequest()).(*kmsg.DescribeClientQuotasResponse).Entries {
			if len(e.Entity) == 1 && e.Entity[0].Name != nil && *e.Entity[0].Name == "alice" {
				return e.Values[0].Key != "producer_byte_rate" && e.Values[len(e.Values)-1].Key != "producer_byte_rate"
			}
		}
		return false
	})
	s.step("quotas afterwards", 1, kmsg.NewPtrDescribeClientQuotasRequest())
}
