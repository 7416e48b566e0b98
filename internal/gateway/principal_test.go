package gateway

import (
	"encoding/base64"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

func TestClaimedUser(t *testing.T) {
	token := "x." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"carol","exp":1}`)) + ".sig"
	for _, c := range []struct{ mechanism, message, want string }{
		{"PLAIN", "\x00alice\x00secret", "alice"},
		{"PLAIN", "other\x00alice\x00secret", "alice"},
		{"PLAIN", "alice", ""},
		{"SCRAM-SHA-256", "n,,n=bob,r=abc", "bob"},
		{"SCRAM-SHA-512", "n,a=x,n=b=2Cc=3Dd,r=abc", "b,c=d"},
		{"SCRAM-SHA-512", "c=biws,r=abc,p=proof", ""},
		{"OAUTHBEARER", "n,,\x01auth=Bearer " + token + "\x01\x01", "carol"},
		{"OAUTHBEARER", "n,,\x01auth=Bearer opaque\x01\x01", ""},
		{"OAUTHBEARER", "\x01", ""},
		{"GSSAPI", "\x60\x82", ""},
	} {
		if got := claimedUser(c.mechanism, []byte(c.message)); got != c.want {
			t.Errorf("%s: %q, want %q", c.mechanism, got, c.want)
		}
	}
}

func FuzzClaimedUser(f *testing.F) {
	f.Add("PLAIN", []byte("\x00a\x00b"))
	f.Add("SCRAM-SHA-256", []byte("n,,n=b,r=c"))
	f.Add("OAUTHBEARER", []byte("n,,\x01auth=Bearer a.b.c\x01\x01"))
	f.Fuzz(func(t *testing.T, mechanism string, message []byte) {
		if len(claimedUser(mechanism, message)) > maxUser {
			t.Error("a name that is too long")
		}
	})
}

// A name counts once the broker has not refused it, and a refused one leaves what was there.
func TestPrincipal(t *testing.T) {
	p := principal{fallback: "Host:1.2.3.4"}
	step := func(req kmsg.Request, code byte) {
		body := req.AppendTo(nil)
		p.request(wire.RequestHeader{Key: req.Key(), Version: req.GetVersion(), Body: body})
		p.response([]byte{0, code})
	}
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Version, handshake.Mechanism = 1, "PLAIN"
	auth := kmsg.NewPtrSASLAuthenticateRequest()
	auth.SASLAuthBytes = []byte("\x00alice\x00wrong")
	p.request(wire.RequestHeader{Key: 17, Version: 1, Body: handshake.AppendTo(nil)})
	step(auth, 58)
	if p.name() != "Host:1.2.3.4" {
		t.Errorf("refused, it is %s", p.name())
	}
	step(auth, 0)
	if p.name() != "User:alice" {
		t.Errorf("it is %s", p.name())
	}
}
