// Package config defines every configuration key of a broker and of its topics: name, type, default, what is allowed, and what it does.
// Where Apache Kafka has a key for something, the name, the unit and the rules are Kafka's.
//
// The definitions are read by the configuration file (YAML), the command line, CreateTopics, DescribeConfigs, AlterConfigs and
// IncrementalAlterConfigs, and docs/configuration.md is generated from them, so none of these can disagree with another.
//
// Anyone inside this module may import it. It owns no goroutine and reads no file but the one that LoadFile is given.
package config

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is the type of a key, in the numbers of DescribeConfigs.
type Kind int8

const (
	Boolean Kind = 1
	String  Kind = 2
	Int     Kind = 3
	Long    Kind = 5
	Double  Kind = 6
	List    Kind = 7
)

func (k Kind) String() string {
	switch k {
	case Boolean:
		return "boolean"
	case String:
		return "string"
	case Int:
		return "int"
	case Long:
		return "long"
	case Double:
		return "double"
	case List:
		return "list"
	}
	return fmt.Sprintf("Kind(%d)", int8(k))
}

// Source tells where a value comes from, in the numbers of DescribeConfigs.
type Source int8

const (
	SourceTopic         Source = 1
	SourceDynamicBroker Source = 2
	SourceStaticBroker  Source = 4
	SourceDefault       Source = 5
	SourceLogger        Source = 6
	SourceClientMetrics Source = 7
	SourceGroup         Source = 8
)

// Errors that callers branch on.
var (
	// ErrUnknownKey: no such configuration key. The text names the nearest one that there is.
	ErrUnknownKey = errors.New("unknown configuration key")
	// ErrInvalidValue: the key exists, its value is not allowed, by itself or beside the others.
	ErrInvalidValue = errors.New("invalid configuration value")
)

// ErrReadOnly: the key is read at the start of the broker only.
var ErrReadOnly = errors.New("it is read at the start of the broker only; change the configuration file and restart")

// Invalid is an error about the value of one key.
type Invalid struct {
	Key, Value string
	Reason     string
}

func (e *Invalid) Error() string {
	return fmt.Sprintf("Invalid value %s for configuration %s: %s", e.Value, e.Key, e.Reason)
}

func (e *Invalid) Unwrap() error { return ErrInvalidValue }

// Key is the definition of one configuration key.
type Key struct {
	Name    string
	Kind    Kind
	Default string
	// NoDefault: the key has no value until it is given one (null in DescribeConfigs).
	NoDefault bool
	// Allowed says in words which values are accepted, beyond what the kind says.
	Allowed string
	Doc     string
	// Dynamic: a broker key that AlterConfigs may change while the broker runs. Topic keys always can be.
	Dynamic bool
	// Internal keys are accepted and described, but meant for tests.
	Internal bool
	// Sensitive values are not shown to clients.
	Sensitive bool
	// Synonyms are the broker keys that give a topic key its default, the strongest first.
	Synonyms []Synonym

	check check
	unit  unit
	bind  func(*Broker) any
}

// Synonym is a broker key that gives a topic key its default. The broker's value times Scale is the topic's (log.retention.hours to retention.ms).
type Synonym struct {
	Name  string
	Scale int64
}

// Parse checks a value as it comes over the protocol (plain numbers in Kafka's unit) and returns it in canonical form.
func (k *Key) Parse(value string) (string, error) {
	v, err := k.check(strings.TrimSpace(value))
	if err != nil {
		return "", &Invalid{Key: k.Name, Value: value, Reason: err.Error()}
	}
	return v, nil
}

// parseHuman is Parse for values that people write: sizes and durations may carry a unit.
func (k *Key) parseHuman(value string) (string, error) {
	plain, err := k.unit.plain(strings.TrimSpace(value))
	if err != nil {
		return "", &Invalid{Key: k.Name, Value: value, Reason: err.Error()}
	}
	v, err := k.check(plain)
	if err != nil {
		return "", &Invalid{Key: k.Name, Value: value, Reason: err.Error()}
	}
	return v, nil
}

// Entry is the state of one key, as DescribeConfigs gives it.
type Entry struct {
	Key    *Key
	Value  string
	Null   bool
	Source Source
	// Synonyms are all places that give the key a value, the one in force first.
	Synonyms []SynonymValue
}

// SynonymValue is one place that gives a key a value.
type SynonymValue struct {
	Name, Value string
	Null        bool
	Source      Source
}

var (
	topicIndex  = index(topicKeys)
	brokerIndex = index(brokerKeys)
)

func index(keys []*Key) map[string]*Key {
	m := make(map[string]*Key, len(keys))
	for _, k := range keys {
		m[k.Name] = k
	}
	return m
}

func unknownKey(name string, known []*Key) error {
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = k.Name
	}
	if n := Nearest(name, names); n != "" {
		return fmt.Errorf("%w %q (did you mean %q?)", ErrUnknownKey, name, n)
	}
	return fmt.Errorf("%w %q", ErrUnknownKey, name)
}
