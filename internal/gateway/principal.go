package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

const (
	keySaslHandshake    = 17
	keySaslAuthenticate = 36
)

// principal is who the client is, as far as the gateway can know: limits and audit lines go by it, permissions never do, those are asked of the cluster.
//
// It is the user name that the client has given in its SASL exchange (PLAIN, SCRAM, the subject of an OAUTHBEARER token), from the moment that a broker has not refused
// it; else the subject of its TLS certificate; else its address. The exchange itself passes through as it came, and no byte of it is kept but the name.
type principal struct {
	mu        sync.Mutex
	fallback  string // by certificate or address
	mechanism string
	claimed   string
	user      string
}

// name is for limits and audit lines.
func (p *principal) name() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.user != "" {
		return "User:" + p.user
	}
	return p.fallback
}

// request sees a step of the exchange.
func (p *principal) request(req wire.RequestHeader) {
	r, err := decode(req)
	if err != nil {
		return // the broker will say so
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r := r.(type) {
	case *kmsg.SASLHandshakeRequest:
		p.mechanism, p.claimed = r.Mechanism, ""
	case *kmsg.SASLAuthenticateRequest:
		if u := claimedUser(p.mechanism, r.SASLAuthBytes); u != "" {
			p.claimed = u
		}
	}
}

// response sees the broker's answer to a step: an error code comes first.
func (p *principal) response(body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claimed == "" || len(body) < 2 {
		return
	}
	if body[0] == 0 && body[1] == 0 {
		p.user = p.claimed
	}
}

// maxUser bounds a name that is kept; longer ones are cut.
const maxUser = 256

// claimedUser is the user in the first message of an exchange; "" if there is none to be found.
func claimedUser(mechanism string, message []byte) string {
	user := ""
	switch {
	case mechanism == "PLAIN": // authorization id, 0, user, 0, password
		if f := bytes.SplitN(message, []byte{0}, 3); len(f) == 3 {
			user = string(f[1])
		}
	case strings.HasPrefix(mechanism, "SCRAM-"): // n,,n=user,r=nonce (RFC 5802)
		rest, ok := bytes.CutPrefix(message, []byte("n,"))
		_, rest, more := bytes.Cut(rest, []byte(","))
		if name, has := bytes.CutPrefix(rest, []byte("n=")); ok && more && has {
			name, _, _ = bytes.Cut(name, []byte(","))
			user = strings.NewReplacer("=2C", ",", "=3D", "=").Replace(string(name))
		}
	case mechanism == "OAUTHBEARER": // n,,^Aauth=Bearer token^A^A (RFC 7628)
		_, token, ok := bytes.Cut(message, []byte("auth=Bearer "))
		token, _, _ = bytes.Cut(token, []byte{1})
		if ok {
			user = subject(token)
		}
	}
	return user[:min(len(user), maxUser)]
}

// subject reads the sub claim of a JSON web token. Whether the token is true is the broker's to judge.
func subject(token []byte) string {
	parts := bytes.Split(token, []byte("."))
	if len(parts) < 2 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(string(bytes.TrimRight(parts[1], "=")))
	if err != nil {
		return ""
	}
	var claims struct {
		Sub string `json:"sub"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Sub
}
