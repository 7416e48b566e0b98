package acl

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func allow(r ResourceType, name string, p PatternType, op Operation) Binding {
	return Binding{r, name, p, "User:alice", Wildcard, op, Allow}
}

func deny(b Binding) Binding { b.Permission = Deny; return b }

var alice = Client{Principal: "User:alice", Host: "10.0.0.1"}

func TestAllowed(t *testing.T) {
	of := func(b Binding, change func(*Binding)) Binding { change(&b); return b }
	for _, x := range []struct {
		name  string
		rules []Binding
		op    Operation
		topic string
		want  bool
	}{
		{"no rule", nil, Read, "t", false},
		{"literal", []Binding{allow(Topic, "t", Literal, Read)}, Read, "t", true},
		{"literal is no prefix", []Binding{allow(Topic, "t", Literal, Read)}, Read, "tt", false},
		{"another operation", []Binding{allow(Topic, "t", Literal, Read)}, Write, "t", false},
		{"another type", []Binding{allow(Group, "t", Literal, Read)}, Read, "t", false},
		{"all operations", []Binding{allow(Topic, "t", Literal, All)}, AlterConfigs, "t", true},
		{"prefix", []Binding{allow(Topic, "t", Prefixed, Read)}, Read, "tt", true},
		{"prefix of itself", []Binding{allow(Topic, "tt", Prefixed, Read)}, Read, "tt", true},
		{"prefix that is longer", []Binding{allow(Topic, "ttt", Prefixed, Read)}, Read, "tt", false},
		{"prefix star is no wildcard", []Binding{allow(Topic, "*", Prefixed, Read)}, Read, "tt", false},
		{"wildcard", []Binding{allow(Topic, "*", Literal, Read)}, Read, "tt", true},
		{"deny over allow", []Binding{allow(Topic, "t", Literal, Read), deny(allow(Topic, "t", Literal, Read))}, Read, "t", false},
		{"deny by prefix over literal allow", []Binding{allow(Topic, "secret", Literal, Read), deny(allow(Topic, "sec", Prefixed, Read))}, Read, "secret", false},
		{"deny by wildcard over literal allow", []Binding{allow(Topic, "t", Literal, Read), deny(allow(Topic, "*", Literal, All))}, Read, "t", false},
		{"deny of another name", []Binding{allow(Topic, "*", Literal, Read), deny(allow(Topic, "s", Literal, Read))}, Read, "t", true},
		{"deny of another operation", []Binding{allow(Topic, "t", Literal, All), deny(allow(Topic, "t", Literal, Write))}, Read, "t", true},
		{"read implies describe", []Binding{allow(Topic, "t", Literal, Read)}, Describe, "t", true},
		{"write implies describe", []Binding{allow(Topic, "t", Literal, Write)}, Describe, "t", true},
		{"delete implies describe", []Binding{allow(Topic, "t", Literal, Delete)}, Describe, "t", true},
		{"alter implies describe", []Binding{allow(Topic, "t", Literal, Alter)}, Describe, "t", true},
		{"create does not", []Binding{allow(Topic, "t", Literal, Create)}, Describe, "t", false},
		{"alter configs does not", []Binding{allow(Topic, "t", Literal, AlterConfigs)}, Describe, "t", false},
		{"alter configs implies describe configs", []Binding{allow(Topic, "t", Literal, AlterConfigs)}, DescribeConfigs, "t", true},
		{"describe implies nothing", []Binding{allow(Topic, "t", Literal, Describe)}, Read, "t", false},
		{"deny implies nothing", []Binding{allow(Topic, "t", Literal, Describe), deny(allow(Topic, "t", Literal, Read))}, Describe, "t", true},
		{"another host", []Binding{of(allow(Topic, "t", Literal, Read), func(b *Binding) { b.Host = "10.0.0.2" })}, Read, "t", false},
		{"this host", []Binding{of(allow(Topic, "t", Literal, Read), func(b *Binding) { b.Host = "10.0.0.1" })}, Read, "t", true},
		{"deny for another host", []Binding{allow(Topic, "t", Literal, Read), deny(of(allow(Topic, "t", Literal, Read), func(b *Binding) { b.Host = "10.0.0.2" }))}, Read, "t", true},
		{"another user", []Binding{of(allow(Topic, "t", Literal, Read), func(b *Binding) { b.Principal = "User:bob" })}, Read, "t", false},
		{"any user", []Binding{of(allow(Topic, "t", Literal, Read), func(b *Binding) { b.Principal = "User:*" })}, Read, "t", true},
		{"another type of principal", []Binding{of(allow(Topic, "t", Literal, Read), func(b *Binding) { b.Principal = "Group:alice" })}, Read, "t", false},
	} {
		a := New(Options{})
		a.Replace(x.rules)
		if got := a.Allowed(&alice, x.op, Topic, x.topic); got != x.want {
			t.Errorf("%s: %t", x.name, got)
		}
	}
}

func TestSuperUsersAndDefault(t *testing.T) {
	a := New(Options{SuperUsers: []string{"User:root"}, AllowEveryoneIfNoACLFound: true})
	a.Replace([]Binding{deny(allow(Topic, "t", Literal, All)), {Topic, "u", Literal, "User:bob", Wildcard, Read, Allow}})
	for _, x := range []struct {
		who, topic string
		want       bool
	}{
		{"User:root", "t", true}, {"User:alice", "t", false}, {"User:alice", "nobody-knows", true}, {"User:alice", "u", false}, {"User:bob", "u", true}, {"User:bob", "t", false},
	} {
		if got := a.Allowed(&Client{Principal: x.who, Host: "h"}, Read, Topic, x.topic); got != x.want {
			t.Errorf("%+v: %t", x, got)
		}
	}
	if bits := a.AuthorizedOperations(&Client{Principal: "User:root"}, Topic, "t"); bits != 0b1101_1111_1000 {
		t.Errorf("%b", bits)
	}
	if bits := a.AuthorizedOperations(&Client{Principal: "User:bob"}, Topic, "u"); bits != 1<<Read|1<<Describe {
		t.Errorf("%b", bits)
	}
}

func TestHostsOfBothWritings(t *testing.T) {
	a := New(Options{})
	a.Replace([]Binding{{Topic, "t", Literal, "User:alice", "0:0:0:0:0:0:0:1", Read, Allow}})
	for _, from := range []string{"::1", "0:0::1"} {
		if !a.Allowed(&Client{Principal: "User:alice", Host: Host(netip.MustParseAddr(from))}, Read, Topic, "t") {
			t.Errorf("not allowed from %s", from)
		}
	}
	if h := Host(netip.MustParseAddr("::ffff:10.0.0.1")); h != "10.0.0.1" {
		t.Error(h)
	}
}

// TestRangesOfHosts: a rule about 10.1.0.0/16 is about each host in it, whether it allows or denies.
func TestRangesOfHosts(t *testing.T) {
	for _, tc := range []struct {
		hosts, from string
		in          bool
	}{
		{"10.1.0.0/16", "10.1.2.3", true}, {"10.1.0.0/16", "10.1.0.0", true}, {"10.1.0.0/16", "10.1.255.255", true}, {"10.1.0.0/16", "10.2.0.1", false}, {"10.1.2.3/16", "10.1.9.9", true},
		{"10.1.2.3/32", "10.1.2.3", true}, {"10.1.2.3/32", "10.1.2.4", false}, {"0.0.0.0/0", "192.0.2.1", true}, {"10.1.0.0/16", "::1", false}, {"10.1.0.0/16", "::ffff:10.1.2.3", true},
		{"2001:db8::/32", "2001:db8:1::1", true}, {"2001:db8::/32", "2001:db9::1", false}, {"::1/128", "0:0::1", true}, {"::/0", "10.1.2.3", false},
	} {
		c := &Client{Principal: "User:alice", Host: Host(netip.MustParseAddr(tc.from))}
		a := New(Options{})
		a.Replace([]Binding{{Topic, "t", Literal, "User:alice", tc.hosts, Read, Allow}})
		if a.Allowed(c, Read, Topic, "t") != tc.in || a.AllowedOnAny(c, Read, Topic) != tc.in {
			t.Errorf("%s allowed, from %s: %v", tc.hosts, tc.from, !tc.in)
		}
		a.Replace([]Binding{{Topic, "t", Literal, AnyUser, Wildcard, Read, Allow}, {Topic, "t", Literal, "User:alice", tc.hosts, Read, Deny}})
		if a.Allowed(c, Read, Topic, "t") == tc.in {
			t.Errorf("%s denied, from %s: %v", tc.hosts, tc.from, tc.in)
		}
	}
	for _, wrong := range []string{"10.1.0.0/33", "10.1.0.0/", "/16", "10.1/16", "host/16", "10.1.0.0/16/1", "10.1.0.0/-1", "2001:db8::/129"} {
		b := Binding{Topic, "t", Literal, "User:alice", wrong, Read, Allow}
		if err := b.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestAllowedOnAny(t *testing.T) {
	for _, x := range []struct {
		name  string
		rules []Binding
		want  bool
	}{
		{"nothing", nil, false},
		{"a literal", []Binding{allow(Topic, "t", Literal, Write)}, true},
		{"another operation", []Binding{allow(Topic, "t", Literal, Read)}, false},
		{"a prefix", []Binding{allow(Topic, "t", Prefixed, All)}, true},
		{"all", []Binding{allow(Topic, "*", Literal, Write)}, true},
		{"denied by name", []Binding{allow(Topic, "t", Literal, Write), deny(allow(Topic, "t", Literal, Write))}, false},
		{"denied by prefix", []Binding{allow(Topic, "tt", Literal, Write), deny(allow(Topic, "t", Prefixed, Write))}, false},
		{"prefix denied by shorter prefix", []Binding{allow(Topic, "tt", Prefixed, Write), deny(allow(Topic, "t", Prefixed, Write))}, false},
		{"prefix not denied by longer one", []Binding{allow(Topic, "t", Prefixed, Write), deny(allow(Topic, "tt", Prefixed, Write))}, true},
		{"all denied", []Binding{allow(Topic, "*", Literal, Write), deny(allow(Topic, "*", Literal, Write))}, false},
		{"another type", []Binding{allow(Group, "*", Literal, Write)}, false},
	} {
		a := New(Options{})
		a.Replace(x.rules)
		if got := a.AllowedOnAny(&alice, Write, Topic); got != x.want {
			t.Errorf("%s: %t", x.name, got)
		}
	}
}

func TestFilters(t *testing.T) {
	str := func(s string) *string { return &s }
	foo, fo, star, group := allow(Topic, "foo", Literal, Read), allow(Topic, "fo", Prefixed, Read), allow(Topic, "*", Literal, Write), allow(Group, "foo", Literal, Read)
	a := New(Options{})
	a.Replace([]Binding{foo, fo, star, group, foo}) // once each
	for _, x := range []struct {
		name   string
		change func(*Filter)
		want   []Binding
	}{
		{"everything", func(*Filter) {}, []Binding{star, foo, fo, group}},
		{"a name, any pattern", func(f *Filter) { f.Name = str("foo") }, []Binding{foo, group}},
		{"what bears on a name", func(f *Filter) { f.Name, f.Pattern = str("foo"), PatternMatch }, []Binding{star, foo, fo, group}},
		{"what bears on a longer name", func(f *Filter) { f.Name, f.Pattern = str("fooo"), PatternMatch }, []Binding{star, fo}},
		{"a prefix", func(f *Filter) { f.Name, f.Pattern = str("fo"), Prefixed }, []Binding{fo}},
		{"literal ones", func(f *Filter) { f.Pattern, f.Resource = Literal, Topic }, []Binding{star, foo}},
		{"an operation", func(f *Filter) { f.Operation = Write }, []Binding{star}},
		{"denials", func(f *Filter) { f.Permission = Deny }, nil},
		{"a principal", func(f *Filter) { f.Principal = str("User:bob") }, nil},
		{"a host", func(f *Filter) { f.Host = str("*") }, []Binding{star, foo, fo, group}},
	} {
		f := Everything
		x.change(&f)
		if err := f.Check(); err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
		if got := a.List(&f); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
	if err := (&Filter{}).Check(); !errors.Is(err, ErrInvalid) {
		t.Errorf("an empty filter: %v", err)
	}
}

func TestCheck(t *testing.T) {
	good := allow(Topic, "t", Literal, Read)
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	good.Host = "10.1.0.0/16"
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Binding){
		"resource any": func(b *Binding) { b.Resource = ResourceAny }, "resource unknown": func(b *Binding) { b.Resource = 99 }, "pattern match": func(b *Binding) { b.Pattern = PatternMatch },
		"operation any": func(b *Binding) { b.Operation = OperationAny }, "operation unknown": func(b *Binding) { b.Operation = 77 }, "permission any": func(b *Binding) { b.Permission = PermissionAny },
		"no name": func(b *Binding) { b.Name = "" }, "another cluster": func(b *Binding) { b.Resource = Cluster }, "principal without type": func(b *Binding) { b.Principal = "alice" }, "no host": func(b *Binding) { b.Host = "" },
		"no UTF-8": func(b *Binding) { b.Resource, b.Name = Group, "g\xff" }, "a principal that is no UTF-8": func(b *Binding) { b.Principal = "User:\xff" },
		"negative": func(b *Binding) { b.Resource = -1 },
	} {
		b := good
		change(&b)
		if err := b.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWords(t *testing.T) {
	for r := range ResourceType(resourceTypes) {
		if ParseResourceType(r.String()) != r {
			t.Error(r)
		}
	}
	for o := range Operation(operations) {
		if ParseOperation(o.String()) != o {
			t.Error(o)
		}
	}
	for p := range Prefixed + 1 {
		if ParsePatternType(p.String()) != p {
			t.Error(p)
		}
	}
	for p := range Allow + 1 {
		if ParsePermission(p.String()) != p {
			t.Error(p)
		}
	}
	if ParseOperation("SING") != OperationUnknown || Operation(99).String() != "99" {
		t.Error("unknown words")
	}
}

// model is the rule as it is written down: look at every binding.
func model(rules []Binding, ifNone bool, c *Client, op Operation, r ResourceType, name string) bool {
	found, allowed := false, false
	for _, b := range rules {
		about := b.Resource == r && (b.Pattern == Prefixed && strings.HasPrefix(name, b.Name) || b.Pattern == Literal && (b.Name == name || b.Name == "*"))
		if !about {
			continue
		}
		found = true
		if b.Principal != c.Principal && b.Principal != "User:*" || b.Host != "*" && b.Host != c.Host {
			continue
		}
		if b.Permission == Deny {
			if b.Operation == op || b.Operation == All {
				return false
			}
			continue
		}
		implied := op == Describe && slices.Contains([]Operation{Read, Write, Delete, Alter}, b.Operation) || op == DescribeConfigs && b.Operation == AlterConfigs
		allowed = allowed || b.Operation == op || b.Operation == All || implied
	}
	return allowed || !found && ifNone
}

// anyModel looks for a name that the client may do the operation on, among all that the rules could tell apart.
func anyModel(rules []Binding, c *Client, op Operation, r ResourceType, names []string) bool {
	for _, b := range rules {
		if b.Resource == r && b.Pattern == Literal && b.Name == "*" && b.Permission == Deny && (b.Operation == op || b.Operation == All) &&
			(b.Principal == c.Principal || b.Principal == "User:*") && (b.Host == "*" || b.Host == c.Host) {
			return false
		}
	}
	return slices.ContainsFunc(names, func(n string) bool { return model(rules, false, c, op, r, n) })
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[ab]{1,4}`)
		binding := rapid.Custom(func(t *rapid.T) Binding {
			b := Binding{
				Resource: rapid.SampledFrom([]ResourceType{Topic, Group}).Draw(t, "resource"), Name: rapid.OneOf(name, rapid.Just("*")).Draw(t, "name"),
				Pattern: rapid.SampledFrom([]PatternType{Literal, Prefixed}).Draw(t, "pattern"), Principal: rapid.SampledFrom([]string{"User:a", "User:b", "User:*"}).Draw(t, "principal"),
				Host: rapid.SampledFrom([]string{"*", "10.0.0.1", "10.0.0.2"}).Draw(t, "host"), Operation: rapid.SampledFrom([]Operation{All, Read, Write, Describe, AlterConfigs, DescribeConfigs, Delete}).Draw(t, "op"),
				Permission: rapid.SampledFrom([]Permission{Allow, Allow, Deny}).Draw(t, "permission"),
			}
			return b
		})
		rules := rapid.SliceOfN(binding, 0, 12).Draw(t, "rules")
		ifNone := rapid.Bool().Draw(t, "if none")
		a := New(Options{AllowEveryoneIfNoACLFound: ifNone})
		a.Replace(rules)
		for range 20 {
			c := Client{rapid.SampledFrom([]string{"User:a", "User:b", "User:c"}).Draw(t, "who"), rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.3"}).Draw(t, "from")}
			op := rapid.SampledFrom([]Operation{Read, Write, Describe, DescribeConfigs, Delete}).Draw(t, "asked")
			on, r := name.Draw(t, "on"), rapid.SampledFrom([]ResourceType{Topic, Group}).Draw(t, "type")
			if got, want := a.Allowed(&c, op, r, on), model(rules, ifNone, &c, op, r, on); got != want {
				t.Fatalf("%+v %s on %s %q: %t, want %t", c, op, r, on, got, want)
			}
		}
		// A rule that is taken away leaves the others as they were.
		f := Everything
		f.Operation = Read
		var left []Binding
		for _, b := range a.All() {
			if !f.Matches(&b) {
				left = append(left, b)
			}
		}
		a.Replace(left)
		if n := len(a.List(&f)); n != 0 {
			t.Fatalf("%d rules are still there", n)
		}
	})
}

// TestAnyModel: what is allowed on some name that the rules know is found, and nothing else. (WRITE is implied by nothing.)
func TestAnyModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[ab]{1,3}`)
		var rules []Binding
		var names []string
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			n := rapid.OneOf(name, rapid.Just("*")).Draw(t, "name")
			p := rapid.SampledFrom([]PatternType{Literal, Prefixed}).Draw(t, "pattern")
			if n == "*" {
				p = Literal
			}
			rules = append(rules, Binding{Topic, n, p, "User:alice", Wildcard, rapid.SampledFrom([]Operation{Write, All}).Draw(t, "op"), rapid.SampledFrom([]Permission{Allow, Deny}).Draw(t, "permission")})
			if n != "*" {
				names = append(names, n)
				if p == Prefixed {
					names = append(names, n+"-nothing-else")
				}
			}
		}
		wild := slices.ContainsFunc(rules, func(b Binding) bool { return b.Name == "*" && b.Permission == Allow })
		a := New(Options{})
		a.Replace(rules)
		got := a.AllowedOnAny(&alice, Write, Topic)
		// Where everything is allowed Apache Kafka does not look at what is denied by name.
		want := anyModel(rules, &alice, Write, Topic, names) || wild && anyModel(rules, &alice, Write, Topic, []string{"zzz"})
		if got != want {
			t.Fatalf("%v: %t, want %t", rules, got, want)
		}
	})
}

func manyRules(n int) []Binding {
	rnd := rand.New(rand.NewPCG(1, 2))
	var rules []Binding
	for i := range n {
		b := Binding{Topic, fmt.Sprintf("team-%d.topic-%d", i%50, i), Literal, fmt.Sprintf("User:u%d", i%100), Wildcard, Read, Allow}
		if i%10 == 0 {
			b.Name, b.Pattern = fmt.Sprintf("team-%d.", rnd.IntN(50)), Prefixed
		}
		rules = append(rules, b)
	}
	return rules
}

func TestAllowedDoesNotAllocate(t *testing.T) {
	a := New(Options{SuperUsers: []string{"User:root"}})
	a.Replace(manyRules(10_000))
	c := Client{"User:u1", "10.0.0.1"}
	if n := testing.AllocsPerRun(100, func() { a.Allowed(&c, Read, Topic, "team-1.topic-1") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAllowed(b *testing.B) {
	a := New(Options{})
	a.Replace(manyRules(10_000))
	c := Client{"User:u1", "10.0.0.1"}
	b.ReportAllocs()
	for b.Loop() {
		a.Allowed(&c, Read, Topic, "team-1.topic-1")
	}
}
