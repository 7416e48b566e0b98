package sasl

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
)

// Passwords gives a user's password.
type Passwords func(user string) (password string, ok bool)

// Plain is RFC 4616 with Apache Kafka's texts.
func Plain(passwords Passwords) Mechanism { return plain{passwords} }

type plain struct{ passwords Passwords }

func (plain) Name() string      { return NamePlain }
func (p plain) Start() Exchange { return &plainExchange{passwords: p.passwords} }

type plainExchange struct {
	passwords Passwords
	user      string
	over      bool
}

func (x *plainExchange) Step(message []byte) ([]byte, bool, error) {
	if x.over || len(message) > maxMessage {
		return nil, false, ErrFailed
	}
	x.over = true
	parts := bytes.Split(message, []byte{0})
	if len(parts) != 3 {
		return nil, false, &Refused{fmt.Sprintf("Invalid SASL/PLAIN response: expected 3 tokens, got %d", min(len(parts), 4))}
	}
	as, user, given := string(parts[0]), string(parts[1]), parts[2]
	switch {
	case user == "":
		return nil, false, &Refused{"Authentication failed: username not specified"}
	case len(given) == 0:
		return nil, false, &Refused{"Authentication failed: password not specified"}
	}
	password, known := x.passwords(user)
	// An unknown user takes the same time as a wrong password. Digests have one length, so that time does not tell the password's.
	want, got := sha256.Sum256([]byte(password)), sha256.Sum256(given)
	right := subtle.ConstantTimeCompare(want[:], got[:]) == 1
	switch {
	case !known || !right:
		return nil, false, &Refused{"Authentication failed: Invalid username or password"}
	case as != "" && as != user:
		return nil, false, &Refused{"Authentication failed: Client requested an authorization id that is different from username"}
	}
	x.user = user
	return []byte{}, true, nil
}

func (x *plainExchange) Identity() Identity { return Identity{User: x.user} }
