// Package principal says who a TLS client is, as Apache Kafka says it: the subject of its certificate in Java's writing of RFC 2253, through
// ssl.principal.mapping.rules. The broker imports it. It does no I/O.
package principal

import (
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Anonymous is who did not say who they are.
const Anonymous = "User:ANONYMOUS"

// keywords are the attribute types that Java writes by name; any other is written by number, its value in hexadecimal.
var keywords = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}

type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

type attributesSET []attribute

// Name writes a certificate's subject (its RawSubject) as X500Principal.getName does.
func Name(rawSubject []byte) (string, error) {
	var names []attributesSET
	if rest, err := asn1.Unmarshal(rawSubject, &names); err != nil || len(rest) > 0 {
		return "", errors.New("the subject of the certificate cannot be read")
	}
	var parts []string
	for _, set := range slices.Backward(names) {
		var one []string
		for _, a := range set {
			one = append(one, a.String())
		}
		parts = append(parts, strings.Join(one, "+"))
	}
	return strings.Join(parts, ","), nil
}

func (a *attribute) String() string {
	id := a.Type.String()
	if key, known := keywords[id]; known {
		if a.text() {
			return key + "=" + escape(string(a.Value.Bytes))
		}
		id = key
	}
	return id + "=#" + hex.EncodeToString(a.Value.FullBytes)
}

// tagGeneral is ASN.1's GeneralString, for which encoding/asn1 has no name.
const tagGeneral = 27

// text tells whether Java takes a value for text: by its type, whose bytes are UTF-8 then, whatever the type says. What is not UTF-8 is no text here, while Java has the same
// sign for all of it: two names must not become one.
func (a *attribute) text() bool {
	if a.Value.Class != asn1.ClassUniversal || a.Value.IsCompound {
		return false
	}
	switch a.Value.Tag {
	case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagT61String, asn1.TagIA5String, asn1.TagBMPString, tagGeneral:
		return utf8.Valid(a.Value.Bytes)
	}
	return false
}

// escape writes a value with Java's backslashes, which are more than RFC 2253's: an equals sign and a number sign have one wherever they are, and so has each of the spaces and
// carriage returns at the ends. A zero is written in digits.
func escape(text string) string {
	const ends = " \r"
	lead := len(text) - len(strings.TrimLeft(text, ends))
	trail := len(strings.TrimRight(text, ends))
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == 0:
			b.WriteString(`\00`)
			continue
		case strings.ContainsRune(`,=+<>#;"\`, r), i < lead, i >= trail:
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Rules are ssl.principal.mapping.rules.
type Rules []rule

// rule without a pattern takes the name as it is.
type rule struct {
	pattern     *regexp.Regexp
	replacement string
	change      func(string) string
}

// ErrNoRule: no rule is about a name.
var ErrNoRule = errors.New("no rule of ssl.principal.mapping.rules matches")

// ParseRules reads DEFAULT, or RULE:pattern/replacement/[LU], several with commas between; "" is DEFAULT. Patterns are those of RE2, which has no
// look-around and no back references.
func ParseRules(text string) (Rules, error) {
	if strings.TrimSpace(text) == "" {
		return Rules{{}}, nil
	}
	var rules Rules
	for rest := strings.TrimSpace(text); rest != ""; {
		var r rule
		var err error
		if after, ok := strings.CutPrefix(rest, "DEFAULT"); ok {
			rest = after
		} else if r, rest, err = parseRule(rest); err != nil {
			return nil, err
		}
		rules = append(rules, r)
		rest = strings.TrimSpace(rest)
		if rest == "" {
			break
		}
		after, ok := strings.CutPrefix(rest, ",")
		if !ok {
			return nil, fmt.Errorf("rule %d is followed by %q, not by a comma", len(rules), rest)
		}
		rest = strings.TrimSpace(after)
	}
	return rules, nil
}

func parseRule(text string) (r rule, rest string, err error) {
	body, ok := strings.CutPrefix(text, "RULE:")
	if !ok {
		return r, "", fmt.Errorf("%q is neither DEFAULT nor RULE:pattern/replacement/", text)
	}
	pattern, body, ok := cutSlash(body)
	if !ok {
		return r, "", errors.New("a rule has no replacement")
	}
	if r.replacement, body, ok = cutSlash(body); !ok {
		return r, "", errors.New("a rule's replacement does not end with a slash")
	}
	if r.pattern, err = regexp.Compile("^(?:" + pattern + ")$"); err != nil {
		return r, "", fmt.Errorf("a rule's pattern: %w", err)
	}
	switch {
	case strings.HasPrefix(body, "L"):
		r.change, body = strings.ToLower, body[1:]
	case strings.HasPrefix(body, "U"):
		r.change, body = strings.ToUpper, body[1:]
	}
	return r, body, nil
}

// cutSlash cuts at the first slash that has no backslash before it.
func cutSlash(text string) (before, after string, ok bool) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '/':
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

// Map gives the name that a subject has by the first rule that matches it whole.
func (rules Rules) Map(subject string) (string, error) {
	for i := range rules {
		if name, ok := rules[i].apply(subject); ok {
			return name, nil
		}
	}
	return "", ErrNoRule
}

func (r *rule) apply(subject string) (string, bool) {
	if r.pattern == nil {
		return subject, true
	}
	groups := r.pattern.FindStringSubmatch(subject)
	if groups == nil {
		return "", false
	}
	name := expand(r.replacement, groups)
	if r.change != nil {
		name = r.change(name)
	}
	return name, true
}

// expand puts groups in for $1 and the like, in Java's way: as many digits as make a group that there is; a number without a group stays as it is
// written; a backslash takes the next character as it is.
func expand(template string, groups []string) string {
	var b strings.Builder
	for i := 0; i < len(template); i++ {
		switch c := template[i]; {
		case c == '\\' && i+1 < len(template):
			i++
			b.WriteByte(template[i])
		case c == '$':
			n := groupAt(template[i+1:], len(groups))
			if n == 0 {
				b.WriteByte(c)
				continue
			}
			index, err := strconv.Atoi(template[i+1 : i+1+n])
			if err == nil {
				b.WriteString(groups[index])
			}
			i += n
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// groupAt tells how many digits at the start of text make the number of a group.
func groupAt(text string, groups int) int {
	n, value := 0, 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		next := value*10 + int(text[n]-'0')
		if next >= groups {
			break
		}
		n, value = n+1, next
	}
	return n
}
