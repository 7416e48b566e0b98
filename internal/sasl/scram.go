package sasl

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"

	"github.com/xdg-go/scram"
)

// Credential is what is kept of a SCRAM password, as Apache Kafka keeps it: nobody can come in with it, but it is enough to try passwords out.
type Credential struct {
	Salt       []byte
	Iterations int
	StoredKey  []byte
	ServerKey  []byte
}

// Bounds of iterations, Apache Kafka's.
const (
	MinIterations = 4096
	MaxIterations = 16384
)

// Credentials gives a user's credential of one mechanism.
type Credentials func(user string) (Credential, bool)

// ScramHash is a hash that SCRAM runs on, with its name and its number in the protocol.
type ScramHash struct {
	Name string
	Type int8
	new  func() hash.Hash
	gen  scram.HashGeneratorFcn
}

// The hashes that Kafka knows.
var (
	SHA256 = &ScramHash{NameScramSHA256, 1, sha256.New, scram.SHA256}
	SHA512 = &ScramHash{NameScramSHA512, 2, sha512.New, scram.SHA512}
)

// ScramHashOf finds a hash by its number in the protocol.
func ScramHashOf(t int8) (*ScramHash, bool) {
	for _, h := range []*ScramHash{SHA256, SHA512} {
		if h.Type == t {
			return h, true
		}
	}
	return nil, false
}

// Credential makes one of a password, with a new salt.
func (h *ScramHash) Credential(password string, iterations int) (Credential, error) {
	salt := make([]byte, 20)
	if _, err := rand.Read(salt); err != nil {
		return Credential{}, fmt.Errorf("making a salt: %w", err)
	}
	salted, err := pbkdf2.Key(h.new, password, salt, iterations, h.new().Size())
	if err != nil {
		return Credential{}, fmt.Errorf("salting a password: %w", err)
	}
	return h.FromSaltedPassword(salt, salted, iterations), nil
}

// FromSaltedPassword makes a credential of what a client that alters it sends.
func (h *ScramHash) FromSaltedPassword(salt, salted []byte, iterations int) Credential {
	d := h.new()
	d.Write(h.mac(salted, "Client Key"))
	return Credential{Salt: salt, Iterations: iterations, StoredKey: d.Sum(nil), ServerKey: h.mac(salted, "Server Key")}
}

func (h *ScramHash) mac(key []byte, text string) []byte {
	m := hmac.New(h.new, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// Scram is RFC 5802 without channel binding. A user that is not there is answered like one whose password is wrong: with a salt that is always the same for
// the same name, made of a secret of this process.
func (h *ScramHash) Scram(credentials Credentials) (Mechanism, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("making a secret: %w", err)
	}
	m := &scramMechanism{name: h.Name}
	var err error
	m.server, err = h.gen.NewServer(func(user string) (scram.StoredCredentials, error) {
		c, ok := credentials(user)
		if !ok {
			c = Credential{Salt: h.mac(secret, "salt of "+user)[:20], Iterations: MinIterations, StoredKey: h.mac(secret, "key of "+user), ServerKey: make([]byte, h.new().Size())}
		}
		return scram.StoredCredentials{KeyFactors: scram.KeyFactors{Salt: string(c.Salt), Iters: c.Iterations}, StoredKey: c.StoredKey, ServerKey: c.ServerKey}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("making the server of %s: %w", h.Name, err)
	}
	return m, nil
}

type scramMechanism struct {
	name   string
	server *scram.Server
}

func (m *scramMechanism) Name() string    { return m.name }
func (m *scramMechanism) Start() Exchange { return &scramExchange{talk: m.server.NewConversation()} }

type scramExchange struct{ talk *scram.ServerConversation }

func (x *scramExchange) Step(message []byte) ([]byte, bool, error) {
	if len(message) > maxMessage {
		return nil, false, ErrFailed
	}
	answer, err := x.talk.Step(string(message))
	if err != nil {
		// The library's texts may hold bytes of the exchange.
		return nil, false, ErrFailed
	}
	if as := x.talk.AuthzID(); as != "" && as != x.talk.Username() {
		return nil, false, &Refused{"Authentication failed: Client requested an authorization id that is different from username"}
	}
	return []byte(answer), x.talk.Done() && x.talk.Valid(), nil
}

func (x *scramExchange) Identity() Identity { return Identity{User: x.talk.Username()} }
