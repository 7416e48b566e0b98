// Package acl is Apache Kafka's StandardAuthorizer as a value: which principal may do what from where. Rules go in as Bindings; an Authorizer answers
// whether an operation is allowed. It does no I/O, has no goroutine and keeps no clock. The broker imports it, and keeps the bindings on disk.
package acl

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"
)

// ResourceType is what a rule is about, in the protocol's numbers.
type ResourceType int8

const (
	ResourceUnknown ResourceType = 0
	ResourceAny     ResourceType = 1
	Topic           ResourceType = 2
	Group           ResourceType = 3
	Cluster         ResourceType = 4
	TransactionalID ResourceType = 5
	DelegationToken ResourceType = 6
	User            ResourceType = 7
)

const resourceTypes = 8

// ClusterName is the name of the one resource of type Cluster.
const ClusterName = "kafka-cluster"

// PatternType is how a rule's resource name is meant.
type PatternType int8

const (
	PatternUnknown PatternType = 0
	// PatternAny, in a filter: whatever the pattern, with exactly that name.
	PatternAny PatternType = 1
	// PatternMatch, in a filter: whatever rule bears on a resource of that name.
	PatternMatch PatternType = 2
	Literal      PatternType = 3
	Prefixed     PatternType = 4
)

// Operation is what is done to a resource.
type Operation int8

const (
	OperationUnknown Operation = 0
	OperationAny     Operation = 1
	All              Operation = 2
	Read             Operation = 3
	Write            Operation = 4
	Create           Operation = 5
	Delete           Operation = 6
	Alter            Operation = 7
	Describe         Operation = 8
	ClusterAction    Operation = 9
	DescribeConfigs  Operation = 10
	AlterConfigs     Operation = 11
	IdempotentWrite  Operation = 12
	CreateTokens     Operation = 13
	DescribeTokens   Operation = 14
	TwoPhaseCommit   Operation = 15
)

const operations = 16

// Permission of a rule.
type Permission int8

const (
	PermissionUnknown Permission = 0
	PermissionAny     Permission = 1
	Deny              Permission = 2
	Allow             Permission = 3
)

// Wildcard stands for every name, host, or (as User:*) principal.
const Wildcard = "*"

// AnyUser is the principal of rules that are about everybody.
const AnyUser = "User:*"

// Binding is one rule.
type Binding struct {
	Resource   ResourceType
	Name       string
	Pattern    PatternType
	Principal  string // type:name
	Host       string // an address, a range of them (10.1.0.0/16), or Wildcard
	Operation  Operation
	Permission Permission
}

// ErrInvalid: a rule that cannot be.
var ErrInvalid = errors.New("invalid ACL")

// Check tells whether a rule is one that can be kept. The texts are Apache Kafka's.
func (b *Binding) Check() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
	}
	switch {
	case b.Resource <= ResourceAny || b.Resource >= resourceTypes:
		return wrong("Invalid resourceType %d", b.Resource)
	case b.Pattern != Literal && b.Pattern != Prefixed:
		return wrong("Invalid patternType %d", b.Pattern)
	case b.Operation <= OperationAny || b.Operation >= operations:
		return wrong("Invalid operation %d", b.Operation)
	case b.Permission != Deny && b.Permission != Allow:
		return wrong("Invalid permissionType %d", b.Permission)
	case b.Name == "":
		return wrong("Resource name should not be empty")
	case !utf8.ValidString(b.Name) || !utf8.ValidString(b.Principal) || !utf8.ValidString(b.Host): // it would be another one after the next start
		return wrong("Names should be UTF-8")
	case b.Resource == Cluster && b.Name != ClusterName:
		return wrong("The only valid name for the CLUSTER resource is %s", ClusterName)
	case strings.IndexByte(b.Principal, ':') < 1:
		return wrong("Could not parse principal from `%s` (no colon is present separating the principal type from the principal name)", b.Principal)
	case b.Host == "":
		return wrong("Host should not be empty")
	case strings.Contains(b.Host, "/"):
		if _, err := netip.ParsePrefix(b.Host); err != nil {
			return wrong("Invalid range of hosts %s: want one such as 10.1.0.0/16", b.Host)
		}
	}
	return nil
}

// Filter chooses rules. Nil strings and the values Any match everything.
type Filter struct {
	Resource   ResourceType
	Name       *string
	Pattern    PatternType
	Principal  *string
	Host       *string
	Operation  Operation
	Permission Permission
}

// Everything is the filter that all rules match.
var Everything = Filter{Resource: ResourceAny, Pattern: PatternAny, Operation: OperationAny, Permission: PermissionAny}

// Check tells whether a filter has a meaning.
func (f *Filter) Check() error {
	if f.Resource <= ResourceUnknown || f.Resource >= resourceTypes || f.Pattern <= PatternUnknown || f.Pattern > Prefixed ||
		f.Operation <= OperationUnknown || f.Operation >= operations || f.Permission <= PermissionUnknown || f.Permission > Allow {
		return fmt.Errorf("%w: the filter contains UNKNOWN elements", ErrInvalid)
	}
	return nil
}

// Matches tells whether a filter chooses a rule.
func (f *Filter) Matches(b *Binding) bool {
	return f.matchesResource(b) &&
		(f.Principal == nil || *f.Principal == b.Principal) &&
		(f.Host == nil || *f.Host == b.Host) &&
		(f.Operation == OperationAny || f.Operation == b.Operation) &&
		(f.Permission == PermissionAny || f.Permission == b.Permission)
}

func (f *Filter) matchesResource(b *Binding) bool {
	if f.Resource != ResourceAny && f.Resource != b.Resource {
		return false
	}
	if f.Pattern != PatternAny && f.Pattern != PatternMatch && f.Pattern != b.Pattern {
		return false
	}
	switch {
	case f.Name == nil:
		return true
	case f.Pattern != PatternMatch:
		return *f.Name == b.Name
	case b.Pattern == Prefixed:
		return strings.HasPrefix(*f.Name, b.Name)
	default:
		return *f.Name == b.Name || b.Name == Wildcard
	}
}

// Operations are those that make sense on a resource: what a field of authorized operations may hold.
func Operations(r ResourceType) []Operation {
	switch r {
	case Topic:
		return []Operation{Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs}
	case Group:
		return []Operation{Read, Delete, Describe, DescribeConfigs, AlterConfigs}
	case Cluster:
		return []Operation{Create, Alter, Describe, ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite}
	case TransactionalID:
		return []Operation{Write, Describe, TwoPhaseCommit}
	case DelegationToken:
		return []Operation{Describe}
	case User:
		return []Operation{CreateTokens, DescribeTokens}
	}
	return nil
}
