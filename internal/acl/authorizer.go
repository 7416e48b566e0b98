package acl

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
)

// Authorizer answers questions about a set of rules. It is safe for concurrent use; each answer is by one state of the rules, and a change is seen by
// every question asked after Replace returned.
type Authorizer struct {
	superUsers map[string]bool
	ifNone     bool
	rules      atomic.Pointer[Rules]
}

// Options of an Authorizer, in Kafka's words.
type Options struct {
	SuperUsers                []string // principals that may do everything, whatever the rules say
	AllowEveryoneIfNoACLFound bool     // where no rule bears on a resource at all
}

// New makes an authorizer without rules.
func New(o Options) *Authorizer {
	a := &Authorizer{superUsers: make(map[string]bool, len(o.SuperUsers)), ifNone: o.AllowEveryoneIfNoACLFound}
	for _, p := range o.SuperUsers {
		a.superUsers[p] = true
	}
	a.rules.Store(NewRules(nil))
	return a
}

// Replace puts other rules in force.
func (a *Authorizer) Replace(list []Binding) { a.Use(NewRules(list)) }

// Use puts other rules in force that were indexed already.
func (a *Authorizer) Use(r *Rules) { a.rules.Store(r) }

// Client is who asks.
type Client struct {
	Principal string // type:name
	Host      string // the address; see Host
}

// Host writes an address as it is compared. Rules may have any writing of it: Java's of IPv6 is another than Go's.
func Host(a netip.Addr) string { return a.Unmap().WithZone("").String() }

// host is how a rule's host is compared.
func host(text string) string {
	if a, err := netip.ParseAddr(text); err == nil {
		return Host(a)
	}
	return text
}

// Allowed tells whether a client may do an operation on a resource. It does not allocate: it is asked for every partition of every fetch.
func (a *Authorizer) Allowed(c *Client, op Operation, r ResourceType, name string) bool {
	if a.superUsers[c.Principal] {
		return true
	}
	d := a.rules.Load().decide(c, op, r, name)
	switch {
	case d.denied:
		return false
	case d.allowed:
		return true
	}
	return !d.found && a.ifNone
}

// AllowedOnAny tells whether there may be some resource of the type on which the client may do the operation: Kafka's authorizeByResourceType.
func (a *Authorizer) AllowedOnAny(c *Client, op Operation, r ResourceType) bool {
	// Apache Kafka asks for a name that nobody has first, so that super users and the absence of rules count here too.
	return a.Allowed(c, op, r, "hardcode") || a.rules.Load().someAllowed(c, op, r)
}

// AuthorizedOperations is the bit field of what a client may do on a resource.
func (a *Authorizer) AuthorizedOperations(c *Client, r ResourceType, name string) int32 {
	var bits int32
	for _, op := range Operations(r) {
		if a.Allowed(c, op, r, name) {
			bits |= 1 << op
		}
	}
	return bits
}

// List gives the rules that a filter matches, in a steady order.
func (a *Authorizer) List(f *Filter) []Binding {
	var out []Binding
	for _, b := range a.rules.Load().all {
		if f.Matches(&b) {
			out = append(out, b)
		}
	}
	return out
}

// All gives every rule, in a steady order. It is not to be changed.
func (a *Authorizer) All() []Binding { return a.rules.Load().All() }

// Rules are a set of bindings, each once, indexed. They do not change.
type Rules struct {
	all  []Binding
	byID [resourceTypes]index
}

// index finds the rules that bear on a name.
type index struct {
	wildcard []rule
	literal  map[string][]rule
	prefixed map[string][]rule
	lengths  []int // of prefixes, each once
}

type rule struct {
	principal  string
	host       string
	hosts      netip.Prefix // valid if host is a range
	operation  Operation
	permission Permission
}

// All gives every rule, in a steady order. It is not to be changed.
func (r *Rules) All() []Binding { return r.all }

// NewRules makes an index of bindings that Check has passed.
func NewRules(list []Binding) *Rules {
	r := &Rules{all: slices.Clone(list)}
	slices.SortFunc(r.all, compare)
	r.all = slices.Compact(r.all)
	lengths := [resourceTypes]map[int]bool{}
	for _, b := range r.all {
		x := &r.byID[b.Resource]
		if x.literal == nil {
			x.literal, x.prefixed, lengths[b.Resource] = make(map[string][]rule), make(map[string][]rule), make(map[int]bool)
		}
		one := rule{principal: b.Principal, host: host(b.Host), operation: b.Operation, permission: b.Permission}
		one.hosts, _ = netip.ParsePrefix(b.Host) // an error: it is no range
		switch {
		case b.Pattern == Prefixed:
			x.prefixed[b.Name] = append(x.prefixed[b.Name], one)
			lengths[b.Resource][len(b.Name)] = true
		case b.Name == Wildcard:
			x.wildcard = append(x.wildcard, one)
		default:
			x.literal[b.Name] = append(x.literal[b.Name], one)
		}
	}
	for i := range r.byID {
		r.byID[i].lengths = slices.Sorted(maps.Keys(lengths[i]))
	}
	return r
}

func compare(a, b Binding) int {
	return cmp.Or(
		cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Pattern, b.Pattern), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Principal, b.Principal),
		cmp.Compare(a.Host, b.Host), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Permission, b.Permission),
	)
}

// decision is what the rules say: denied wins over allowed; found tells that there are rules about the resource, though perhaps about others.
type decision struct{ found, allowed, denied bool }

func (r *Rules) decide(c *Client, op Operation, t ResourceType, name string) decision {
	var d decision
	if t < 0 || t >= resourceTypes {
		return d
	}
	x := &r.byID[t]
	d.look(x.wildcard, c, op)
	if name != Wildcard {
		d.look(x.literal[name], c, op)
	}
	for _, n := range x.lengths {
		if n > len(name) || d.denied {
			break
		}
		d.look(x.prefixed[name[:n]], c, op)
	}
	return d
}

func (d *decision) look(list []rule, c *Client, op Operation) {
	for i := range list {
		d.found = true
		if !list[i].bearsOn(c, op) {
			continue
		}
		if list[i].permission == Deny {
			d.denied = true
			return
		}
		d.allowed = true
	}
}

func (r *rule) bearsOn(c *Client, op Operation) bool {
	if !r.concerns(c) {
		return false
	}
	if r.operation == All || r.operation == op {
		return true
	}
	// Who may do something to a resource may know that it is there. Who may not do it is not kept from knowing.
	if r.permission != Allow {
		return false
	}
	switch op {
	case Describe:
		return r.operation == Read || r.operation == Write || r.operation == Delete || r.operation == Alter
	case DescribeConfigs:
		return r.operation == AlterConfigs
	}
	return false
}

func (r *rule) concerns(c *Client) bool {
	return (r.principal == AnyUser || r.principal == c.Principal) && (r.host == Wildcard || r.host == c.Host || r.hosts.IsValid() && within(r.hosts, c.Host))
}

func within(hosts netip.Prefix, host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && hosts.Contains(a)
}

// someAllowed looks for a rule that allows the operation and is not wholly hidden behind one that denies it. Implied operations do not count here, as in
// Apache Kafka.
func (r *Rules) someAllowed(c *Client, op Operation, t ResourceType) bool {
	if t < 0 || t >= resourceTypes {
		return false
	}
	x := &r.byID[t]
	if has(x.wildcard, c, op, Deny) {
		return false
	}
	if has(x.wildcard, c, op, Allow) {
		return true
	}
	for name, list := range x.literal {
		if has(list, c, op, Allow) && !has(list, c, op, Deny) && !x.prefixDenied(c, op, name) {
			return true
		}
	}
	for name, list := range x.prefixed {
		if has(list, c, op, Allow) && !x.prefixDenied(c, op, name) {
			return true
		}
	}
	return false
}

func (x *index) prefixDenied(c *Client, op Operation, name string) bool {
	for _, n := range x.lengths {
		if n > len(name) {
			break
		}
		if has(x.prefixed[name[:n]], c, op, Deny) {
			return true
		}
	}
	return false
}

func has(list []rule, c *Client, op Operation, p Permission) bool {
	for i := range list {
		if list[i].permission == p && (list[i].operation == op || list[i].operation == All) && list[i].concerns(c) {
			return true
		}
	}
	return false
}
