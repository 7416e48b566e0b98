package sasl

import (
	"errors"
	"fmt"
	"strings"
)

// ErrSyntax: a text that holds users cannot be read. What it wraps says where, without the text itself.
var ErrSyntax = errors.New("wrong syntax")

// ParseUsers reads lines of name=password. Empty lines and those that begin with # do not count; spaces around the name do not, those in the password do.
func ParseUsers(text string) (map[string]string, error) {
	users := make(map[string]string)
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		name, password, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		switch _, twice := users[name]; {
		case !ok || name == "" || password == "":
			return nil, fmt.Errorf("%w: line %d: want name=password", ErrSyntax, n+1)
		case twice:
			return nil, fmt.Errorf("%w: line %d: the user is there already", ErrSyntax, n+1)
		}
		users[name] = password
	}
	return users, nil
}

// JAAS is the configuration of a login module, as Kafka's sasl.jaas.config has it.
type JAAS struct {
	Module  string
	Options map[string]string
}

// Users are those of Kafka's PlainLoginModule: the options user_<name>.
func (j *JAAS) Users() map[string]string {
	users := make(map[string]string)
	for k, v := range j.Options {
		if name, ok := strings.CutPrefix(k, "user_"); ok {
			users[name] = v
		}
	}
	return users
}

// ParseJAAS reads one login module: a class, a flag, options, a semicolon.
func ParseJAAS(text string) (*JAAS, error) {
	p := jaasParser{text: text}
	words, err := p.words()
	if err != nil {
		return nil, err
	}
	if len(words) < 2 || words[0].value != nil || words[1].value != nil {
		return nil, fmt.Errorf("%w: want a login module, a control flag, and options", ErrSyntax)
	}
	j := &JAAS{Module: words[0].name, Options: make(map[string]string)}
	switch strings.ToLower(words[1].name) {
	case "required", "requisite", "sufficient", "optional":
	default:
		return nil, fmt.Errorf("%w: the login module is not followed by a control flag", ErrSyntax)
	}
	for i, w := range words[2:] {
		if w.value == nil {
			return nil, fmt.Errorf("%w: option %d is no key=value", ErrSyntax, i+1)
		}
		j.Options[w.name] = *w.value
	}
	return j, nil
}

type jaasParser struct {
	text string
	at   int
}

// jaasWord is a word, or an option with its value.
type jaasWord struct {
	name  string
	value *string
}

func (p *jaasParser) words() ([]jaasWord, error) {
	var words []jaasWord
	for {
		p.space()
		if p.at == len(p.text) {
			return nil, fmt.Errorf("%w: no semicolon at the end", ErrSyntax)
		}
		if p.text[p.at] == ';' {
			p.at++
			if p.space(); p.at != len(p.text) {
				return nil, fmt.Errorf("%w: one login module is expected, there is more after its semicolon", ErrSyntax)
			}
			return words, nil
		}
		name, err := p.word()
		if err != nil {
			return nil, err
		}
		w := jaasWord{name: name}
		if p.space(); p.at < len(p.text) && p.text[p.at] == '=' {
			p.at++
			p.space()
			value, err := p.word()
			if err != nil {
				return nil, err
			}
			w.value = &value
		}
		words = append(words, w)
	}
}

func (p *jaasParser) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// word reads up to a space or a sign, or between quotes, where a backslash takes the next character as it is.
func (p *jaasParser) word() (string, error) {
	if p.at < len(p.text) && (p.text[p.at] == '"' || p.text[p.at] == '\'') {
		return p.quoted()
	}
	start := p.at
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n=;\"'", p.text[p.at]) < 0 {
		p.at++
	}
	if p.at == start {
		return "", fmt.Errorf("%w: a word is missing", ErrSyntax)
	}
	return p.text[start:p.at], nil
}

func (p *jaasParser) quoted() (string, error) {
	quote := p.text[p.at]
	var b strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == quote:
			p.at++
			return b.String(), nil
		case c == '\\' && p.at+1 < len(p.text):
			p.at++
			b.WriteByte(p.text[p.at])
		default:
			b.WriteByte(c)
		}
	}
	return "", fmt.Errorf("%w: a quote is not closed", ErrSyntax)
}
