package upstream

import (
	"errors"
	"strings"
)

// The login modules of Kafka's clients.
const (
	plainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
	scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule"
	oauthModule = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
)

var (
	errJAASForm   = errors.New(`want: module required name="value" ... ;`)
	errJAASQuote  = errors.New("a quotation mark is not closed")
	errJAASEnd    = errors.New("it does not end with a semicolon")
	errJAASEscape = errors.New("a backslash must stand before a quotation mark, a backslash, or one of n, r and t")
)

// parseJAAS reads one login module's line. Errors do not quote it: it holds the password.
func parseJAAS(line string) (module string, options map[string]string, err error) {
	s := &jaas{rest: line}
	if module, err = s.word(); err != nil {
		return "", nil, err
	}
	flag, err := s.word()
	if err != nil {
		return "", nil, err
	}
	switch strings.ToLower(flag) {
	case "required", "requisite", "sufficient", "optional":
	default:
		return "", nil, errJAASForm
	}
	options = make(map[string]string)
	for {
		s.skip()
		if strings.HasPrefix(s.rest, ";") {
			s.rest = s.rest[1:]
			break
		}
		if s.rest == "" {
			return "", nil, errJAASEnd
		}
		key, err := s.word()
		if err != nil {
			return "", nil, err
		}
		if s.skip(); !strings.HasPrefix(s.rest, "=") {
			return "", nil, errJAASForm
		}
		s.rest = s.rest[1:]
		if options[key], err = s.word(); err != nil {
			return "", nil, err
		}
	}
	if s.skip(); s.rest != "" {
		return "", nil, errors.New("there is something after the semicolon")
	}
	return module, options, nil
}

type jaas struct{ rest string }

func (s *jaas) skip() { s.rest = strings.TrimLeft(s.rest, " \t\r\n\f") }

// word takes a quoted text, or all up to white space or a sign.
func (s *jaas) word() (string, error) {
	s.skip()
	if s.rest != "" && (s.rest[0] == '"' || s.rest[0] == '\'') {
		return s.quoted(s.rest[0])
	}
	end := strings.IndexAny(s.rest, " \t\r\n\f=;\"'")
	if end < 0 {
		end = len(s.rest)
	}
	if end == 0 {
		return "", errJAASForm
	}
	w := s.rest[:end]
	s.rest = s.rest[end:]
	return w, nil
}

func (s *jaas) quoted(mark byte) (string, error) {
	var w strings.Builder
	for i := 1; i < len(s.rest); i++ {
		switch c := s.rest[i]; c {
		case mark:
			s.rest = s.rest[i+1:]
			return w.String(), nil
		case '\\':
			i++
			if i == len(s.rest) {
				return "", errJAASQuote
			}
			at := strings.IndexByte(`"'\nrt`, s.rest[i])
			if at < 0 {
				return "", errJAASEscape
			}
			w.WriteByte("\"'\\\n\r\t"[at])
		default:
			w.WriteByte(c)
		}
	}
	return "", errJAASQuote
}
