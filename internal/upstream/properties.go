package upstream

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// parseProperties reads what java.util.Properties.load reads, byte for byte: ISO 8859-1, comments with # and !, lines continued by a backslash, escapes, and "=", ":" or
// white space between key and value. Unlike Java it refuses a key that stands there twice. Errors name lines and keys, never values.
func parseProperties(text []byte) (map[string]string, error) {
	p, line := make(map[string]string), 0
	for rest := latin1(text); rest != ""; {
		first := line + 1
		var logical string
		logical, rest, line = logicalLine(rest, line)
		if logical == "" {
			continue
		}
		key, value, err := keyValue(logical)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", first, err)
		}
		if _, ok := p[key]; ok {
			return nil, fmt.Errorf("line %d: %q is set twice", first, key)
		}
		p[key] = value
	}
	return p, nil
}

func latin1(b []byte) string {
	var s strings.Builder
	s.Grow(len(b))
	for _, c := range b {
		s.WriteRune(rune(c))
	}
	return s.String()
}

const white = " \t\f"

// logicalLine takes a line with its continuations; "" for a comment or an empty one.
func logicalLine(text string, line int) (logical, rest string, last int) {
	var s strings.Builder
	for {
		natural, more, _ := strings.Cut(text, "\n")
		text, line = more, line+1
		natural = strings.TrimLeft(strings.TrimSuffix(natural, "\r"), white)
		if s.Len() == 0 && natural != "" && (natural[0] == '#' || natural[0] == '!') {
			return "", text, line
		}
		slashes := len(natural) - len(strings.TrimRight(natural, `\`))
		if slashes%2 == 0 {
			s.WriteString(natural)
			return s.String(), text, line
		}
		s.WriteString(natural[:len(natural)-1])
		if text == "" {
			return s.String(), text, line
		}
	}
}

func keyValue(s string) (key, value string, err error) {
	end := len(s)
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		} else if strings.IndexByte(white+"=:", s[i]) >= 0 {
			end = i
			break
		}
	}
	if key, err = unescape(s[:end]); err != nil {
		return "", "", err
	}
	v := strings.TrimLeft(s[end:], white)
	if v != "" && (v[0] == '=' || v[0] == ':') {
		v = strings.TrimLeft(v[1:], white)
	}
	value, err = unescape(v)
	if err != nil {
		err = fmt.Errorf("value of %q: %w", key, err)
	}
	return key, value, err
}

var errEscape = errors.New(`\u must be followed by four hexadecimal digits`)

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var out []uint16 // as Java's strings, so that a pair of \u escapes makes one character
	runes := []rune(s)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		if r == '\\' && i+1 < len(runes) {
			i++
			switch r = runes[i]; r {
			case 't':
				r = '\t'
			case 'n':
				r = '\n'
			case 'r':
				r = '\r'
			case 'f':
				r = '\f'
			case 'u':
				if i+4 >= len(runes) {
					return "", errEscape
				}
				n, err := strconv.ParseUint(string(runes[i+1:i+5]), 16, 16)
				if err != nil {
					return "", errEscape
				}
				i += 4
				r = rune(n)
				out = append(out, uint16(n))
				continue
			}
		}
		out = utf16.AppendRune(out, r)
	}
	return string(utf16.Decode(out)), nil
}
