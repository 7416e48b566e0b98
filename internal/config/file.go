package config

import (
	"errors"
	"fmt"
	"os"

	"github.com/goccy/go-yaml/ast"
)

// LoadFile sets the keys of a YAML file: one mapping from key to value, with Kafka's property names. Nested mappings are keys with dots
// between: "log: {retention: {ms: 1}}" is log.retention.ms. Every mistake is in the error, each with its line.
func (b *Broker) LoadFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading configuration: %w", err)
	}
	if err := b.Load(text); err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	return nil
}

// Load is LoadFile for text in memory.
func (b *Broker) Load(text []byte) error {
	return load(b, text)
}

// setter is what a file is loaded into.
type setter interface {
	Set(name, value string) error
}

type loader struct {
	target setter
	lines  map[string]int // key to the line where it was set
	errs   []error
}

func (l *loader) wrong(n ast.Node, err error) {
	l.errs = append(l.errs, fmt.Errorf("line %d: %w", n.GetToken().Position.Line, err))
}

func (l *loader) node(name string, n ast.Node) {
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			l.pair(name, v)
		}
	case *ast.MappingValueNode:
		l.pair(name, n)
	case *ast.NullNode, *ast.CommentGroupNode:
		if name != "" {
			l.wrong(n, fmt.Errorf("%s has no value", name))
		}
	case *ast.SequenceNode:
		l.sequence(name, n)
	case ast.ScalarNode:
		l.set(name, n, scalar(n))
	default:
		l.wrong(n, fmt.Errorf("%s: expected a plain value", name))
	}
}

func (l *loader) pair(prefix string, v *ast.MappingValueNode) {
	name := v.Key.GetToken().Value
	if prefix != "" {
		name = prefix + "." + name
	}
	l.node(name, v.Value)
}

// sequence is a YAML list, which stands for Kafka's comma separated one.
func (l *loader) sequence(name string, n *ast.SequenceNode) {
	value := ""
	for i, item := range n.Values {
		s, ok := item.(ast.ScalarNode)
		if !ok {
			l.wrong(item, fmt.Errorf("%s: expected a list of plain values", name))
			return
		}
		if i > 0 {
			value += ","
		}
		value += scalar(s)
	}
	l.set(name, n, value)
}

func (l *loader) set(name string, n ast.Node, value string) {
	if name == "" {
		l.wrong(n, errors.New("expected keys with values, as in num.partitions: 1"))
		return
	}
	if first, ok := l.lines[name]; ok {
		l.wrong(n, fmt.Errorf("%s is set twice, first in line %d", name, first))
		return
	}
	l.lines[name] = n.GetToken().Position.Line
	if err := l.target.Set(name, value); err != nil {
		l.wrong(n, err)
	}
}

// scalar is the text of a value as it was written: numbers must not pass through floating point.
func scalar(n ast.ScalarNode) string {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value
	}
	return n.GetToken().Value
}
