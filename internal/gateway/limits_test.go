package gateway

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

func TestCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := principals{known: make(map[string]*usage)}
		charge := func(bytes int64, want time.Duration) {
			t.Helper()
			if got := p.charge("a", bytes, 1000); got != want {
				t.Errorf("%d bytes: held back for %v, want %v", bytes, got, want)
			}
		}
		charge(600, 0)
		charge(400, 0)
		charge(500, 500*time.Millisecond)
		time.Sleep(500 * time.Millisecond)
		charge(1000, time.Second)
		charge(1_000_000, maxThrottle)
		if got := p.charge("b", 1000, 1000); got != 0 {
			t.Errorf("another principal is held back for %v", got)
		}
		if got := p.charge("a", 1_000_000, 0); got != 0 {
			t.Errorf("without a limit: %v", got)
		}
		time.Sleep(time.Hour)
		charge(1000, 0)
	})
}

// A location grants no more than what holds its principal back for a second, and something in any case.
func TestGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 10 << 20
		p := principals{known: make(map[string]*usage)}
		for i := range 10 {
			n := p.grant("a", 1<<40, rate)
			if want := []int64{2 * rate, rate}[min(i, 1)]; n != want {
				t.Errorf("grant %d of %d bytes, want %d", i, n, want)
			}
			if wait := p.charge("a", n, rate); wait != maxGranted {
				t.Errorf("grant %d holds back for %v", i, wait)
			}
			time.Sleep(maxGranted)
		}
		p.charge("b", 1<<40, rate)
		for _, c := range []struct{ bytes, rate, want int64 }{{1 << 40, rate, minGrant}, {100, rate, 100}, {1 << 40, 0, 1 << 40}} {
			if n := p.grant("b", c.bytes, c.rate); n != c.want {
				t.Errorf("%d of %d bytes at %d a second, want %d", n, c.bytes, c.rate, c.want)
			}
		}
		if len(p.known) != 2 {
			t.Errorf("%d principals are known", len(p.known))
		}
	})
}

func TestReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := principals{known: make(map[string]*usage)}
		one, two := reading{p: &p}, reading{p: &p}
		if !one.may() || !one.got("a", 1) || !one.got("a", 1) || !one.may() {
			t.Error("the first may not read")
		}
		if two.got("a", 1) || two.may() {
			t.Error("the second may read")
		}
		time.Sleep(deniedFor + time.Second)
		if !one.may() || !two.may() || !two.got("a", 1) {
			t.Error("the second may not read when the first has stopped")
		}
		two.close()
		if !one.got("a", 1) {
			t.Error("the first may not read when the second has gone")
		}
		one.close()
	})
}

// Partitions are counted for their principal over all its connections, and their end is counted for whoever began, whatever the policy or the principal is by then.
func TestReadsOfAPrincipal(t *testing.T) {
	b := startFake(t, nil, func(wire.RequestHeader) kmsg.Response { return nil })
	var log logged
	g := startGateway(t, Options{Upstream: []string{b.addr()}, Brokers: noBrokers, Policy: Policy{Reads: 2}, Registerer: prometheus.NewRegistry(), Logger: log.logger()})
	one, two, other := &conn{g: g}, &conn{g: g}, &conn{g: g}
	one.who.fallback, two.who.fallback, other.who.fallback = "a", "a", "b"
	begin := func(c *conn, want bool) func() {
		t.Helper()
		done, ok := hooks{c}.Begin()
		if ok != want {
			t.Errorf("%s may begin: %t", c.who.name(), ok)
		}
		return done
	}
	first, second := begin(one, true), begin(two, true)
	begin(one, false)
	begin(two, false)
	third := begin(other, true)
	if n, met := testutil.ToFloat64(g.metrics.reading), testutil.ToFloat64(g.metrics.limits.WithLabelValues("principal-reads")); n != 3 || met != 2 || strings.Count(log.String(), "remote.read.principal.max.partitions=2") != 1 {
		t.Errorf("%v are in flight, the limit was met %v times:\n%s", n, met, &log)
	}
	two.who.fallback = "c"
	second()
	fourth := begin(one, true)
	begin(one, false)
	g.SetPolicy(Policy{})
	fifth := begin(one, true)
	for _, done := range []func(){first, third, fourth, fifth} {
		done()
	}
	for name, u := range g.principals.known {
		if u.reads != 0 {
			t.Errorf("%s: %d reads are left", name, u.reads)
		}
	}
	if n := testutil.ToFloat64(g.metrics.reading); n != 0 {
		t.Errorf("%v are in flight", n)
	}
}

// What is remembered of principals does not grow for ever.
func TestPrincipalsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := principals{known: make(map[string]*usage)}
		p.begin("reader", 0)
		for i := range 10 * sweepOver {
			p.charge(fmt.Sprint(i), 1, 1000)
			time.Sleep(time.Second)
		}
		if len(p.known) > sweepOver || p.known["reader"] == nil {
			t.Errorf("%d principals are known", len(p.known))
		}
	})
}

func TestPolicy(t *testing.T) {
	p := Policy{Topics: []string{"orders*", "pay-?"}, TopicsExcluded: []string{"orders-secret"}, Principals: []string{"User:etl-*"}, ClientIDs: []string{"backfill"}}
	for topic, want := range map[string]bool{"orders": true, "orders-7": true, "orders-secret": false, "pay-1": true, "pay-10": false, "else": false} {
		if p.topic(topic) != want {
			t.Errorf("%s: %t", topic, !want)
		}
	}
	if !p.client("User:etl-1", "backfill") || p.client("User:etl-1", "") || p.client("User:web", "backfill") {
		t.Error("not by principal and client id")
	}
	p.Off = true
	if p.topic("orders") || (&Policy{}).topic("x") == false || !(&Policy{}).client("", "") {
		t.Error("the kill switch, or no policy")
	}
}

// * and ? stand for whatever there is in names: clients and users have slashes, spaces and signs of all kinds in theirs.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true}, {"*", "anything", true}, {"*", "spiffe://domain/path", true}, {"team*", "team/app-7", true}, {"User:*", "User:service/host@REALM", true}, {"*/app", "team/app", true},
		{"User:CN=alice*", "User:CN=alice,O=A/B", true}, {"?", "/", true}, {"?", "\u00e9", true}, {"?", "", false}, {"a?c", "abc", true}, {"a?c", "ac", false}, {"a*b*c", "a1b2b3c", true},
		{"a*b*c", "a1b2b3", false}, {"orders", "orders", true}, {"orders", "Orders", false}, {"orders", "orders2", false}, {"", "", true}, {"", "x", false}, {"**", "x", true}, {"*x", "xxy", false},
		{"a.b", "axb", false}, {"{a,b}", "a", false},
	} {
		if matches([]string{c.pattern}, c.name) != c.want {
			t.Errorf("%q for %q: %t", c.pattern, c.name, !c.want)
		}
	}
}

// Long names that nearly match do not take long: they come from clients.
func TestPatternsAreQuick(t *testing.T) {
	pattern, name := strings.Repeat("*a", 20)+"b", strings.Repeat("a", 32_000)
	began := time.Now()
	if matches([]string{pattern}, name) {
		t.Error("it matches")
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%v", took)
	}
}
