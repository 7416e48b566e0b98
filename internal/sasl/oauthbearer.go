package sasl

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// TokenRules say which tokens are good, in Kafka's words (sasl.oauthbearer.*).
type TokenRules struct {
	Issuer       string   // expected.issuer; "" for any
	Audience     []string // expected.audience: one of them must be the token's; none for any
	SubjectClaim string   // sub.claim.name, "" for "sub"
	ClockSkew    time.Duration
}

// algorithms that a token may be signed with. Those with a shared secret are not among them: a public key must never be taken for one.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// OAuthBearer is RFC 7628 with signed JSON Web Tokens. Unsigned ones are refused, always.
func OAuthBearer(keys KeySource, rules TokenRules, now func() time.Time) Mechanism {
	return &oauthBearer{keys, rules, now}
}

// KeySource finds the public keys that may have signed a token: those of that id, or all where the token names none.
type KeySource interface {
	Find(keyID string) []jose.JSONWebKey
}

type oauthBearer struct {
	keys  KeySource
	rules TokenRules
	now   func() time.Time
}

func (*oauthBearer) Name() string      { return NameOAuthBearer }
func (m *oauthBearer) Start() Exchange { return &oauthExchange{m: m} }

type oauthExchange struct {
	m        *oauthBearer
	identity Identity
	refused  string // the answer that the client has yet to acknowledge
	over     bool
}

const separator = "\x01"

// invalidToken is RFC 7628's answer, which does not say why.
const invalidToken = `{"status":"invalid_token"}`

func (x *oauthExchange) Step(message []byte) ([]byte, bool, error) {
	if x.over || len(message) > maxMessage {
		return nil, false, ErrFailed
	}
	if x.refused != "" {
		x.over = true
		return nil, false, &Refused{x.refused}
	}
	token, as, err := parseBearer(message)
	if err != nil {
		x.over = true
		return nil, false, err
	}
	id, err := x.m.verify(token)
	if err != nil {
		x.refused = invalidToken
		return []byte(invalidToken), false, nil
	}
	x.over = true
	if as != "" && as != id.User {
		return nil, false, &Refused{"Authentication failed: Client requested an authorization id that is different from the token's principal name"}
	}
	x.identity = id
	return []byte{}, true, nil
}

func (x *oauthExchange) Identity() Identity { return x.identity }

// parseBearer takes the client's message apart: n,a=<authzid>,^A auth=Bearer <token>^A ... ^A^A. Extensions are passed over.
func parseBearer(message []byte) (token, as string, err error) {
	head, rest, ok := bytes.Cut(message, []byte(separator))
	if !ok || !bytes.HasSuffix(rest, []byte(separator+separator)) && string(rest) != separator {
		return "", "", ErrFailed
	}
	gs2 := strings.Split(string(head), ",")
	if len(gs2) != 3 || gs2[0] != "n" || gs2[2] != "" || gs2[1] != "" && !strings.HasPrefix(gs2[1], "a=") {
		return "", "", ErrFailed
	}
	as = strings.TrimPrefix(gs2[1], "a=")
	for pair := range strings.SplitSeq(string(rest), separator) {
		name, value, _ := strings.Cut(pair, "=")
		if name != "auth" {
			continue
		}
		scheme, given, ok := strings.Cut(value, " ")
		if !ok || !strings.EqualFold(scheme, "bearer") || token != "" || strings.TrimSpace(given) == "" {
			return "", "", ErrFailed
		}
		token = strings.TrimSpace(given)
	}
	if token == "" {
		return "", "", ErrFailed
	}
	return token, as, nil
}

// errToken: a token that is not good. The reason stays here: what it is worth to know, only an attacker would learn.
var errToken = errors.New("token refused")

func (m *oauthBearer) verify(text string) (Identity, error) {
	parsed, err := jwt.ParseSigned(text, algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return Identity{}, errToken
	}
	for _, key := range m.keys.Find(parsed.Headers[0].KeyID) {
		if key.Algorithm != "" && key.Algorithm != parsed.Headers[0].Algorithm || key.Use == "enc" {
			continue
		}
		var claims jwt.Claims
		var all map[string]any
		if err := parsed.Claims(key.Key, &claims, &all); err == nil {
			return m.judge(&claims, all)
		}
	}
	return Identity{}, errToken
}

// judge looks at the claims of a token whose signature is right. A token without an end is refused, as in Apache Kafka.
func (m *oauthBearer) judge(c *jwt.Claims, all map[string]any) (Identity, error) {
	if c.Expiry == nil {
		return Identity{}, errToken
	}
	want := jwt.Expected{Time: m.now(), Issuer: m.rules.Issuer, AnyAudience: m.rules.Audience}
	if err := c.ValidateWithLeeway(want, m.rules.ClockSkew); err != nil {
		return Identity{}, errToken
	}
	name := m.rules.SubjectClaim
	if name == "" {
		name = "sub"
	}
	user, ok := all[name].(string)
	if !ok || strings.TrimSpace(user) == "" {
		return Identity{}, errToken
	}
	return Identity{User: strings.TrimSpace(user), Expires: c.Expiry.Time()}, nil
}
