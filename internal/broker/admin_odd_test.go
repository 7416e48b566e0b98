package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/quota"
)

// TestOddAdminRequests has answers of Apache Kafka 4.4.0 to requests that were drawn at random.
func TestOddAdminRequests(t *testing.T) {
	b := startBroker(t, t.TempDir())
	c := b.raw(t)
	describe := func(from string, partition int32, names ...string) string {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		for _, name := range names {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		req.ResponsePartitionLimit = 8
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: from, Partition: partition}
		var out []string
		for _, answer := range c.ask(t, req).(*kmsg.DescribeTopicPartitionsResponse).Topics {
			out = append(out, fmt.Sprintf("%s %d", *answer.Topic, answer.ErrorCode))
		}
		return strings.Join(out, ", ")
	}
	for what, got := range map[string][2]string{
		"a cursor to none, and an empty name": {describe("root", 16, "-1", ""), "-1 42,  42"},
		"as they were asked for":              {describe("f", 1, "1", "*"), "1 42, * 42"},
		"the same twice":                      {describe("i", 16, "1", "1"), "1 42, 1 42"},
		"of all":                              {describe("i", -1), ""},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %q, want %q", what, got[0], got[1])
		}
	}

	alter := func(entities ...[]quotaPart) string {
		req := kmsg.NewPtrAlterClientQuotasRequest()
		for _, e := range entities {
			req.Entries = append(req.Entries, quotaSet(e, quota.ProducerByteRate, 5))
		}
		var out []string
		for _, e := range c.ask(t, req).(*kmsg.AlterClientQuotasResponse).Entries {
			text := fmt.Sprint(e.ErrorCode)
			for _, part := range e.Entity {
				text += " " + part.Type + "=" + deref(part.Name)
			}
			out = append(out, text)
		}
		return strings.Join(out, ", ")
	}
	for what, got := range map[string][2]string{
		"two that there cannot be": {alter(quotaOf("-1", "a"), quotaOf("x", "b")), "42 -1=a, 42 x=b"},
		"one of nothing besides":   {alter(quotaOf("x", "a"), nil), "42 x=a, 42"},
		"a type twice":             {alter(append(quotaOf("user", "first"), quotaOf("user", "last")...)), "0 user=last"},
		"the same by that":         {alter(append(quotaOf("user", "first"), quotaOf("user", "same")...), quotaOf("user", "same")), "42 user=same"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %q, want %q", what, got[0], got[1])
		}
	}
	if all := b.quotas.all(); len(all) != 1 || all[quota.Entity{User: quota.Named("last")}] == nil {
		t.Errorf("kept: %v", all)
	}
}
