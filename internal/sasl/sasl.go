// Package sasl is the server's side of SASL: PLAIN, SCRAM-SHA-256 and -512, OAUTHBEARER. A Mechanism makes an Exchange for each attempt; an Exchange takes a
// client's messages and says what to answer, until it knows who the client is. Nothing here touches a connection, waits or logs, and no error text holds
// more of a secret than a client may see.
//
// The broker imports it. Keys is the one thing with a goroutine, which its Close waits for.
package sasl

import (
	"errors"
	"time"
)

// Names of the mechanisms.
const (
	NamePlain       = "PLAIN"
	NameScramSHA256 = "SCRAM-SHA-256"
	NameScramSHA512 = "SCRAM-SHA-512"
	NameOAuthBearer = "OAUTHBEARER"
)

// Mechanism makes exchanges. It is safe for concurrent use.
type Mechanism interface {
	Name() string
	Start() Exchange
}

// Exchange is one attempt of one client.
type Exchange interface {
	// Step takes a message of the client and gives the answer. Done means that the client is authenticated. After an error, which is a *Refused where the
	// client may read its text, the exchange is over.
	Step(message []byte) (answer []byte, done bool, err error)
	// Identity is who the client is, once Step has said done.
	Identity() Identity
}

// Identity is who was authenticated.
type Identity struct {
	User string
	// Expires is when what was shown ends to be good; zero for never.
	Expires time.Time
}

// ErrFailed: the client is not who it says, or its messages make no sense. Clients are not told which.
var ErrFailed = errors.New("authentication failed")

// Refused is a failure whose text a client may read.
type Refused struct{ Text string }

func (e *Refused) Error() string { return e.Text }
func (e *Refused) Unwrap() error { return ErrFailed }

// maxMessage bounds what one message may be, whatever the frame allows: tokens are the longest.
const maxMessage = 64 << 10
