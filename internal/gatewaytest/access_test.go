package gatewaytest

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// Who may read is said by the cluster: a user without READ gets its error on every path, one with READ gets history past the brokers, and a revocation ends that within seconds.
func TestAccess(t *testing.T) {
	c := clustertest.Start(t, clustertest.Options{Secure: true, ACLs: true})
	c.Load(t, "secret", 1, "lz4", 300)
	want := c.Records(t, "secret", false)
	rule := clustertest.Rule{User: clustertest.Alice, Resource: "topic", Name: "secret", Operations: []clustertest.Operation{clustertest.Read, clustertest.Describe}}
	c.Allow(t, rule, clustertest.Rule{User: clustertest.Bob, Resource: "topic", Name: "secret", Operations: []clustertest.Operation{clustertest.Describe}})
	login := clustertest.Login{Protocol: clustertest.SASL, Mechanism: clustertest.ScramSHA512}
	login.User = clustertest.Bob
	bob := paths(t, c, login)
	login.User = clustertest.Alice
	alice := paths(t, c, login)
	starts := []int64{0}
	for _, p := range bob {
		b := startBackfill(t, p, "secret", starts, count(want))
		b.allow(count(want))
		b.awaitError(t, kerr.TopicAuthorizationFailed)
		b.stop()
		<-b.done
		if n := b.lengths()[0]; n > 0 {
			t.Errorf("%s: a user who may not read was given %d records", p.name, n)
		}
		if n := p.read(t); n > 0 {
			t.Errorf("%s: %d bytes were read from the store for a user who may not read", p.name, n)
		}
	}
	var all []*backfill
	for _, p := range alice {
		all = append(all, startBackfill(t, p, "secret", starts, count(want)))
	}
	var at []int
	for _, b := range all {
		b.allow(count(want) / 4)
	}
	for _, b := range all {
		b.await(t, count(want)/4)
	}
	c.Revoke(t, rule)
	revoked := time.Now()
	for _, b := range all {
		at = append(at, b.lengths()[0])
		b.trickle(t, kerr.TopicAuthorizationFailed)
		t.Logf("%s: %d of %d records came after the revocation, for %v", b.path.name, b.lengths()[0]-at[len(at)-1], count(want), time.Since(revoked).Round(time.Millisecond))
		if b.lengths()[0] == count(want) {
			t.Errorf("%s: everything was read in spite of the revocation", b.path.name)
		}
		b.stop()
		<-b.done
		if d := clustertest.Difference([][]*kgo.Record{want[0][:len(b.got[0])]}, b.got); d != "" {
			t.Errorf("%s: %s", b.path.name, d)
		}
	}
	for i, b := range all {
		if n := b.path.read(t); n == 0 {
			t.Errorf("%s: nothing of the %d records came past the brokers", b.path.name, at[i])
		}
	}
}

// awaitError waits until the client was told an error.
func (b *backfill) awaitError(t *testing.T, want error) {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		b.mu.Lock()
		change, told := b.change, errors.Is(errors.Join(b.errs...), want)
		b.mu.Unlock()
		if told {
			return
		}
		select {
		case <-change:
		case <-timeout:
			b.mu.Lock()
			defer b.mu.Unlock()
			t.Fatalf("%s: no %v after %d records, but %v", b.path.name, want, b.n, b.errs)
		}
	}
}

// trickle lets it read on slowly until it is told an error.
func (b *backfill) trickle(t *testing.T, want error) {
	t.Helper()
	done := make(chan struct{})
	defer close(done)
	b.mu.Lock()
	n, total := b.n, b.total
	b.mu.Unlock()
	go func() { // ends with the function
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for ; n < total; n++ {
			select {
			case <-tick.C:
				b.allow(n + 1)
			case <-done:
				return
			}
		}
	}()
	b.awaitError(t, want)
}
