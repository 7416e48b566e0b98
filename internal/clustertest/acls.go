package clustertest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Rule is something that a user may do from any host.
type Rule struct {
	User string
	// Resource is "topic", "group", "transactional" or "cluster", and Name its name, "*" for all. A cluster has no name.
	Resource, Name string
	Operations     []Operation
}

// Operation is what a rule is about.
type Operation = kadm.ACLOperation

// Operations for rules.
const (
	Read     = kadm.OpRead
	Write    = kadm.OpWrite
	Describe = kadm.OpDescribe
)

func (r Rule) builder() *kadm.ACLBuilder {
	b := kadm.NewACLs().Allow("User:" + r.User).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(r.Operations...)
	switch r.Resource {
	case "topic":
		return b.Topics(r.Name)
	case "group":
		return b.Groups(r.Name)
	case "transactional":
		return b.TransactionalIDs(r.Name)
	default:
		return b.Clusters()
	}
}

// Allow adds rules. The brokers have learnt of them when it returns.
func (c *Cluster) Allow(t testing.TB, rules ...Rule) {
	t.Helper()
	for _, r := range rules {
		c.addRules(t, r.builder())
	}
	c.settleACLs(t)
}

// AllowAll is Allow for rules of any kind.
func (c *Cluster) AllowAll(t testing.TB, rules *kadm.ACLBuilder) {
	t.Helper()
	c.addRules(t, rules)
	c.settleACLs(t)
}

func (c *Cluster) addRules(t testing.TB, rules *kadm.ACLBuilder) {
	t.Helper()
	err := Retried(t.Context(), func(ctx context.Context) error {
		resp, err := c.adm.CreateACLs(ctx, rules)
		for _, one := range resp {
			err = errors.Join(err, one.Err)
		}
		return err
	})
	if err != nil {
		t.Fatalf("allowing %+v: %v", rules, err)
	}
}

// Revoke takes rules back. The brokers have learnt of it when it returns.
func (c *Cluster) Revoke(t testing.TB, rules ...Rule) {
	t.Helper()
	for _, r := range rules {
		again := false
		err := Retried(t.Context(), func(ctx context.Context) error {
			resp, err := c.adm.DeleteACLs(ctx, r.builder())
			for _, one := range resp {
				if err = errors.Join(err, one.Err); len(one.Deleted) == 0 && err == nil && !again {
					err = errors.New("nobody has it")
				}
			}
			again = true
			return err
		})
		if err != nil {
			t.Fatalf("revoking %+v: %v", r, err)
		}
	}
	c.settleACLs(t)
}

// settleACLs returns once every broker has applied what the controller has: a topic that is made after the rules is known to a broker only after them.
func (c *Cluster) settleACLs(t testing.TB) {
	t.Helper()
	c.settled++
	topic := fmt.Sprintf("rules-%d", c.settled)
	err := Retried(t.Context(), func(ctx context.Context) error {
		_, err := c.adm.CreateTopic(ctx, 1, 1, nil, topic)
		if errors.Is(err, kerr.TopicAlreadyExists) { // made by a request whose answer was lost
			err = nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		if !n.running() {
			continue
		}
		k, err := kgo.NewClient(kgo.SeedBrokers(c.Address(t, n.id, internal)))
		if err != nil {
			t.Fatal(err)
		}
		c.await(t, fmt.Sprintf("broker %d to know rules", n.id), func(ctx context.Context) error {
			resp, err := metadataRequest(topic).RequestWith(ctx, k.SeedBrokers()[0])
			if err != nil {
				return err
			}
			return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		})
		k.Close()
	}
}
