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
// the step that proves it; else the subject of its TLS certificate; else its address. The exchange itself passes through as it came, and no byte of it is kept but the name.
type principal struct {
	mu        sync.Mutex
	fallback  string // by certificate or address
	mechanism string
	claimed   string   // in the first of two steps
	steps     []string // that are not answered yet, in order: the name that each proves, "" for none. The connection bounds how many there are.
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

// request sees a step of the exchange. Every step of an authentication is followed by a call of response.
func (p *principal) request(req wire.RequestHeader) {
	r, err := decode(req) // if it cannot, the broker will say so
	p.mu.Lock()
	defer p.mu.Unlock()
	if req.Key == keySaslAuthenticate {
		proves := ""
		if err == nil {
			proves = p.stepLocked(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes)
		}
		p.steps = append(p.steps, proves)
		return
	}
	p.claimed, p.mechanism = "", ""
	if err == nil {
		p.mechanism = r.(*kmsg.SASLHandshakeRequest).Mechanism
	}
}

// stepLocked is the name that a step proves, if the broker does not refuse it.
func (p *principal) stepLocked(message []byte) string {
	user := claimedUser(p.mechanism, message)
	if !strings.HasPrefix(p.mechanism, "SCRAM-") {
		return user
	}
	if user != "" { // the first of two
		p.claimed = user
		return ""
	}
	proves := p.claimed
	p.claimed = ""
	return proves
}

// response sees the broker's answer to the oldest step that has none: an error code comes first.
func (p *principal) response(body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.steps) == 0 {
		return
	}
	proves := p.steps[0]
	if p.steps = p.steps[1:]; len(p.steps) == 0 {
		p.steps = nil
	}
	if proves != "" && len(body) >= 2 && body[0] == 0 && body[1] == 0 {
		p.user = proves
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
