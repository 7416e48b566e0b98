package quota

import (
	"errors"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var windows = Windows{Num: 11, Size: time.Second}

func entity(user, client Part) Entity { return Entity{User: user, ClientID: client} }

func metersOf(t Table) *Meters {
	m := NewMeters(windows, windows)
	m.Use(NewRules(t))
	return m
}

// TestPrecedence: the order of Apache Kafka's documentation, one rule taken away after the other.
func TestPrecedence(t *testing.T) {
	none, all := Part{}, ByDefault()
	u, c := Named("u"), Named("c")
	order := []struct {
		Entity
		shared owner
	}{
		{entity(u, c), owner{"u", "c"}}, {entity(u, all), owner{"u", "c"}}, {entity(u, none), owner{"u", ""}}, {entity(all, c), owner{"u", "c"}},
		{entity(all, all), owner{"u", "c"}}, {entity(all, none), owner{"u", ""}}, {entity(none, c), owner{"", "c"}}, {entity(none, all), owner{"", "c"}},
	}
	table := Table{}
	for i, e := range order {
		table[e.Entity] = map[string]float64{ConsumerByteRate: float64(i + 1)}
	}
	for i, e := range order {
		rate, who, ok := NewRules(table).limit(Fetch, "u", "c")
		if !ok || rate != float64(i+1) || who != e.shared {
			t.Errorf("rule %d: %g, %v, %t", i, rate, who, ok)
		}
		if _, _, ok := NewRules(table).limit(Produce, "u", "c"); ok {
			t.Error("a quota for consumers limits a producer")
		}
		delete(table, e.Entity)
	}
	if _, _, ok := NewRules(table).limit(Fetch, "u", "c"); ok {
		t.Error("a limit without a rule")
	}
}

func TestNoClientID(t *testing.T) {
	table := Table{
		entity(Named("u"), ByDefault()): {ProducerByteRate: 1}, entity(Part{}, ByDefault()): {ProducerByteRate: 2}, entity(ByDefault(), Part{}): {ProducerByteRate: 3},
	}
	if rate, _, ok := NewRules(table).limit(Produce, "u", ""); !ok || rate != 3 {
		t.Errorf("%g, %t", rate, ok)
	}
}

// TestWaits: what Apache Kafka tells a client to wait for the same amounts: (rate - quota) / quota * windows.
func TestWaits(t *testing.T) {
	m := metersOf(Table{entity(Named("u"), Part{}): {ProducerByteRate: 1000, RequestPercentage: 1}})
	for _, step := range []struct {
		at     time.Duration
		amount float64
		wait   time.Duration
	}{
		{0, 10_000, 0}, {0, 1, time.Millisecond}, {0, 19_999, 20 * time.Second}, {5 * time.Second, 0, 15 * time.Second}, {20 * time.Second, 0, 0}, {20 * time.Second, 500, 500 * time.Millisecond},
		{time.Hour, 10_000, 0}, {time.Hour + time.Second, 1000, 0},
	} {
		if got := m.Take(Produce, "u", "any", step.amount, start.Add(step.at)); got != step.wait {
			t.Errorf("%g bytes at %s: %s, want %s", step.amount, step.at, got, step.wait)
		}
	}
	if got := m.Take(Request, "u", "c", 1000, start); got != time.Second {
		t.Errorf("time of requests: %s, at most a window", got)
	}
	if got := m.Take(Produce, "other", "c", math.MaxFloat64, start); got != 0 {
		t.Errorf("without a quota: %s", got)
	}
	if got := m.Most(Produce, "u", "c"); got != 10_000 {
		t.Errorf("at once: %g", got)
	}
	if got := m.Most(Fetch, "u", "c"); !math.IsInf(got, 1) || m.Limited(Fetch, "u", "c") || !m.Limited(Produce, "u", "c") {
		t.Errorf("without a quota at once: %g", got)
	}
}

// TestWhoShares: a user's client ids share its quota; each client id has the default's for itself.
func TestWhoShares(t *testing.T) {
	m := metersOf(Table{entity(Named("u"), Part{}): {ConsumerByteRate: 100}, entity(Part{}, ByDefault()): {ConsumerByteRate: 100}})
	m.Take(Fetch, "u", "a", 1100, start)
	if m.Take(Fetch, "u", "b", 0, start) != time.Second {
		t.Error("another client id of the user does not wait")
	}
	m.Take(Fetch, "v", "a", 1100, start)
	if m.Take(Fetch, "w", "a", 0, start) != time.Second || m.Take(Fetch, "v", "b", 0, start) != 0 {
		t.Error("the default of client ids is not each client id's")
	}
}

// TestMutations: the bucket may be overdrawn by one request, and then nothing is counted until it is full enough.
func TestMutations(t *testing.T) {
	m := metersOf(Table{entity(Named("u"), Part{}): {ControllerMutationRate: 2}})
	if w := m.TakeIfWithin(Mutation, "u", "", 30, start); w != 0 {
		t.Fatalf("the first waits %s", w)
	}
	if w := m.TakeIfWithin(Mutation, "u", "", 5, start); w != 4*time.Second { // 22 fit, 8 too many, 2 a second
		t.Errorf("the second waits %s", w)
	}
	if w := m.TakeIfWithin(Mutation, "u", "", 5, start.Add(4*time.Second)); w != 0 {
		t.Errorf("later it waits %s", w)
	}
}

func TestConnections(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	m := metersOf(Table{{IP: Named("10.0.0.1")}: {ConnectionCreationRate: 1}, {IP: ByDefault()}: {ConnectionCreationRate: 2}})
	count := func(a netip.Addr, now time.Time) (n int) {
		for range 100 {
			if m.Connect(a, now) == 0 {
				n++
			}
		}
		return n
	}
	if n := count(netip.AddrFrom16(a.As16()), start); n != 10 {
		t.Errorf("%d connections of the first", n)
	}
	if n := count(b, start); n != 20 {
		t.Errorf("%d connections of another", n)
	}
	if n := count(a, start.Add(3*time.Second)); n != 3 {
		t.Errorf("%d connections after three seconds", n)
	}
	if w := m.Connect(a, start.Add(3*time.Second)); w != time.Second {
		t.Errorf("one too many waits %s", w)
	}
	if w := metersOf(nil).Connect(a, start); w != 0 {
		t.Error("a limit without a rule")
	}
}

// TestNeverFaster: whoever waits as it is told uses no more in any time than the quota gives in it, besides what the windows give at once and the last request.
func TestNeverFaster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := float64(rapid.IntRange(1, 100_000).Draw(t, "rate"))
		w := Windows{Num: rapid.IntRange(1, 20).Draw(t, "windows"), Size: time.Duration(rapid.IntRange(1, 5).Draw(t, "seconds")) * time.Second}
		m := NewMeters(w, w)
		m.Use(NewRules(Table{entity(Part{}, ByDefault()): {ProducerByteRate: rate}}))
		now, used := start, 0.0
		for range rapid.IntRange(1, 50).Draw(t, "requests") {
			amount := float64(rapid.IntRange(0, 1_000_000).Draw(t, "bytes"))
			used += amount
			now = now.Add(m.Take(Produce, "u", "c", amount, now))
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "pause")) * time.Millisecond)
			if most := rate*now.Sub(start).Seconds() + rate*w.span(); used > most*1.000001 {
				t.Fatalf("%g used after %s, at most %g", used, now.Sub(start), most)
			}
		}
	})
}

func TestCheck(t *testing.T) {
	for _, e := range []Entity{{}, {User: Named("")}, {IP: Named("host")}, {IP: Named("1.2.3.4"), User: Named("u")}, {IP: ByDefault(), ClientID: ByDefault()}} {
		if err := e.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	for _, e := range []Entity{{User: Named("u")}, {User: ByDefault(), ClientID: Named("c")}, {IP: Named("::1")}, {IP: ByDefault()}} {
		if err := e.Check(); err != nil {
			t.Errorf("%+v: %v", e, err)
		}
	}
	user, ip := Entity{User: Named("u")}, Entity{IP: ByDefault()}
	for _, v := range []struct {
		e     Entity
		name  string
		value float64
		ok    bool
	}{
		{user, ProducerByteRate, 1, true}, {user, ProducerByteRate, 1.5, false}, {user, RequestPercentage, 0.5, true}, {user, ControllerMutationRate, 0, false}, {user, ConsumerByteRate, -1, false},
		{user, ConsumerByteRate, math.NaN(), false}, {user, RequestPercentage, math.Inf(1), false}, {user, ConnectionCreationRate, 1, false}, {ip, ConnectionCreationRate, 1, true},
		{ip, ConnectionCreationRate, 1 << 31, false}, {ip, ProducerByteRate, 1, false}, {user, "speed", 1, false}, {user, ProducerByteRate, 1e19, false},
	} {
		if err := v.e.CheckValue(v.name, v.value); (err == nil) != v.ok {
			t.Errorf("%s=%g: %v", v.name, v.value, err)
		}
	}
}

func TestOrder(t *testing.T) {
	table := Table{entity(Named("b"), Part{}): nil, entity(Named("a"), Part{}): nil, entity(ByDefault(), Part{}): nil, entity(Part{}, Named("a")): nil}
	want := []Entity{entity(ByDefault(), Part{}), entity(Named("a"), Part{}), entity(Named("b"), Part{}), entity(Part{}, Named("a"))}
	if got := table.Entities(); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestMemoryIsBounded: clients that change their ids take no more than a bounded number of buckets, and idle ones give theirs back.
func TestMemoryIsBounded(t *testing.T) {
	m := metersOf(Table{entity(Part{}, ByDefault()): {ProducerByteRate: 1}})
	id := make([]byte, 4)
	use := func(n int, now time.Time) {
		for i := range n {
			id[0], id[1], id[2], id[3] = byte(i), byte(i>>8), byte(i>>16), 'x'
			m.Take(Produce, "u", string(id), 5, now)
		}
	}
	use(maxBuckets+1000, start)
	if n := len(m.buckets[Produce]); n > maxBuckets+1 {
		t.Errorf("%d buckets", n)
	}
	use(10, start.Add(time.Hour))
	m.Take(Produce, "u", "one more", 5, start.Add(time.Hour))
	if n := len(m.buckets[Produce]); n > 100 {
		t.Errorf("%d buckets after an hour", n)
	}
}

// TestLongNames: of a name of 32 KiB little is kept, it has a bucket and a quota of its own all the same, and gives the bucket back.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("n", 32<<10)
	m := metersOf(Table{entity(ByDefault(), ByDefault()): {ProducerByteRate: 1}, entity(Named(long+"7"), ByDefault()): {ProducerByteRate: 1e9}})
	const names = 5000
	for i := range names {
		m.Take(Produce, long+strconv.Itoa(i), "c"+long, 1000, start)
	}
	kept := 0
	for who := range m.buckets[Produce] {
		kept += len(who.user) + len(who.client)
	}
	if n := len(m.buckets[Produce]); n != names || kept > names*2*maxName {
		t.Errorf("%d buckets, %d bytes of names", n, kept)
	}
	if a, b, c := m.Take(Produce, long+"5", "c"+long, 0, start), m.Take(Produce, long+"5", "another"+long, 0, start), m.Take(Produce, long+"7", "c"+long, 1e6, start); a == 0 || b != 0 || c != 0 {
		t.Errorf("to wait %s, %s and %s", a, b, c)
	}
	m.Take(Produce, "u", "c", 0, start.Add(10*time.Second))
	m.mu.Lock()
	m.sweepLocked(start.Add(20 * time.Second))
	if n := len(m.buckets[Produce]); n != names-1 { // that of the larger quota is empty
		t.Errorf("%d buckets after a while", n)
	}
	m.sweepLocked(start.Add(2 * time.Hour))
	if n := len(m.buckets[Produce]); n != 0 {
		t.Errorf("%d buckets after two hours", n)
	}
	m.mu.Unlock()
}

func TestNoAllocation(t *testing.T) {
	m := metersOf(Table{entity(Part{}, ByDefault()): {ProducerByteRate: 1000}, {IP: ByDefault()}: {ConnectionCreationRate: 5}})
	now, a := start, netip.MustParseAddr("10.0.0.1")
	m.Take(Produce, "u", "c", 1, now)
	m.Connect(a, now)
	if n := testing.AllocsPerRun(100, func() {
		now = now.Add(time.Millisecond)
		m.Take(Produce, "u", "c", 1, now)
		m.Take(Fetch, "u", "c", 1, now)
		m.Connect(a, now)
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkTake(b *testing.B) {
	m := metersOf(Table{entity(Named("u"), Part{}): {ProducerByteRate: 1000}})
	b.ReportAllocs()
	for b.Loop() {
		m.Take(Produce, "u", "c", 1, start)
	}
}
