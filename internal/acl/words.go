package acl

import (
	"fmt"
	"slices"
)

// The words of Kafka's tools, by number.
var (
	resourceWords   = []string{"UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"}
	patternWords    = []string{"UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"}
	permissionWords = []string{"UNKNOWN", "ANY", "DENY", "ALLOW"}
	operationWords  = []string{
		"UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
		"IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
	}
)

func word(words []string, n int8) string {
	if n >= 0 && int(n) < len(words) {
		return words[n]
	}
	return fmt.Sprint(n)
}

// number is 0, unknown, for words that are not known.
func number(words []string, w string) int8 { return int8(max(slices.Index(words, w), 0)) }

func (r ResourceType) String() string { return word(resourceWords, int8(r)) }
func (p PatternType) String() string  { return word(patternWords, int8(p)) }
func (p Permission) String() string   { return word(permissionWords, int8(p)) }
func (o Operation) String() string    { return word(operationWords, int8(o)) }

// ParseResourceType and the others read what String writes; an unknown word gives the number of unknown.
func ParseResourceType(w string) ResourceType { return ResourceType(number(resourceWords, w)) }
func ParsePatternType(w string) PatternType   { return PatternType(number(patternWords, w)) }
func ParsePermission(w string) Permission     { return Permission(number(permissionWords, w)) }
func ParseOperation(w string) Operation       { return Operation(number(operationWords, w)) }
