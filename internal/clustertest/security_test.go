package clustertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Every listener lets in who may come in, and nobody else; rules hold as soon as Allow and Revoke return.
func TestSecurity(t *testing.T) {
	c := Start(t, Options{Secure: true, ACLs: true})
	c.CreateTiered(t, "guarded", 1, nil)
	for _, l := range Logins() {
		t.Run(l.String(), func(t *testing.T) {
			k := c.Client(t, l, kgo.DefaultProduceTopic("guarded"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := k.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr()
			if l.Protocol == MutualTLS { // its name is the certificate's, which may do nothing
				if !errors.Is(err, kerr.TopicAuthorizationFailed) {
					t.Errorf("a stranger: %v", err)
				}
				return
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	read := Rule{Alice, "topic", "guarded", []Operation{Read, Describe}}
	c.Allow(t, read)
	n := len(c.Records(t, "guarded", false)[0])
	for _, m := range Mechanisms {
		for user, want := range map[string]error{Alice: nil, Bob: kerr.TopicAuthorizationFailed} {
			if err := fetch(t, c, Login{Protocol: SASL, Mechanism: m, User: user}, n); !errors.Is(err, want) {
				t.Errorf("%s by %s: %v instead of %v", user, m, err, want)
			}
		}
	}
	c.Revoke(t, read)
	if err := fetch(t, c, Login{Protocol: SASL, Mechanism: Plain, User: Alice}, n); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("after the revocation: %v", err)
	}
	k := c.Client(t, Login{Protocol: SASL, Mechanism: Plain, User: "mallory"})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := k.Ping(ctx); err == nil {
		t.Error("a user that nobody knows came in")
	}
}

// fetch reads n records, or gives the first error.
func fetch(t *testing.T, c *Cluster, l Login, n int) error {
	t.Helper()
	k := c.Client(t, l, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"guarded": {0: kgo.NewOffset().AtStart()}}))
	defer k.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for got := 0; got < n; {
		f := k.PollFetches(ctx)
		if err := f.Err(); err != nil && !Temporary(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		got += f.NumRecords()
	}
	return nil
}
