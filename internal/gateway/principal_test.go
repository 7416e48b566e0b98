package gateway

import (
	"encoding/base64"
	"net"
	"sync/atomic"
	"testing"
	"time"

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

// Steps may be sent before the answers to those ahead of them have come. Each answer speaks of the name in its own step: who is let in under one name does not go by another, whose limits
// and audit lines those would be.
func TestPrincipalsAnswersInTurn(t *testing.T) {
	const refused = 34 // ILLEGAL_SASL_STATE, to whoever is in
	step := func(message string) kmsg.Request {
		r := kmsg.NewPtrSASLAuthenticateRequest()
		r.Version, r.SASLAuthBytes = 2, []byte(message)
		return r
	}
	handshake := func(mechanism string) kmsg.Request {
		r := kmsg.NewPtrSASLHandshakeRequest()
		r.Version, r.Mechanism = 1, mechanism
		return r
	}
	malformed := func() kmsg.Request {
		r := kmsg.NewPtrSASLAuthenticateRequest()
		r.Version, r.SASLAuthBytes = 1, []byte("\x00alice\x00secret")
		return r // as version 2, whose lengths are others
	}
	for _, c := range []struct {
		name  string
		steps []kmsg.Request
		codes []int16 // of the answers to steps of an authentication
		want  string
	}{
		{"one after the other", []kmsg.Request{handshake("PLAIN"), step("\x00alice\x00secret")}, []int16{0}, "User:alice"},
		{"another name behind", []kmsg.Request{handshake("PLAIN"), step("\x00alice\x00secret"), step("\x00bob\x00?")}, []int16{0, refused}, "User:alice"},
		{"another name before", []kmsg.Request{handshake("PLAIN"), step("\x00bob\x00?"), step("\x00alice\x00secret")}, []int16{58, 0}, "User:alice"},
		{"another mechanism behind", []kmsg.Request{handshake("PLAIN"), step("\x00alice\x00secret"), handshake("SCRAM-SHA-256"), step("n,,n=bob,r=x")}, []int16{0, refused}, "User:alice"},
		{"the first step of an exchange proves nothing", []kmsg.Request{handshake("PLAIN"), step("\x00alice\x00secret"), handshake("SCRAM-SHA-256"), step("n,,n=bob,r=x")}, []int16{0, 0}, "User:alice"},
		{"a whole exchange", []kmsg.Request{handshake("SCRAM-SHA-256"), step("n,,n=bob,r=x"), step("c=biws,r=x,p=y")}, []int16{0, 0}, "User:bob"},
		{"an exchange that fails", []kmsg.Request{handshake("SCRAM-SHA-256"), step("n,,n=bob,r=x"), step("c=biws,r=x,p=y")}, []int16{0, 58}, "Host:127.0.0.1"},
		{"a second exchange that fails", []kmsg.Request{handshake("SCRAM-SHA-512"), step("n,,n=alice,r=x"), step("c=biws,r=x,p=y"), step("n,,n=bob,r=x"), step("c=biws,r=x,p=y")},
			[]int16{0, 0, refused, refused}, "User:alice"},
		{"what cannot be read", []kmsg.Request{handshake("PLAIN"), malformed(), step("\x00bob\x00?")}, []int16{0, refused}, "Host:127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n atomic.Int32
			b := startFake(t, nil, func(h wire.RequestHeader) kmsg.Response {
				req := kmsg.RequestForKey(h.Key)
				req.SetVersion(h.Version)
				resp := req.ResponseKind()
				if r, ok := resp.(*kmsg.SASLAuthenticateResponse); ok {
					r.ErrorCode = c.codes[n.Add(1)-1]
				}
				return resp
			})
			g := startGateway(t, Options{Upstream: []string{b.addr()}, Brokers: noBrokers})
			nc, err := net.Dial("tcp", g.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			var all []byte
			for _, s := range c.steps {
				frame := wire.AppendRequest(nil, s, 4711, nil)
				if c.name == "what cannot be read" && s.GetVersion() == 1 && s.Key() == keySaslAuthenticate {
					frame[7] = 2
				}
				all = append(all, frame...)
			}
			if _, err := nc.Write(all); err != nil {
				t.Fatal(err)
			}
			if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			for range c.steps {
				if _, err := wire.ReadFrame(nc, 1<<20, nil); err != nil {
					t.Fatal(err)
				}
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			for conn := range g.conns {
				if got := conn.who.name(); got != c.want {
					t.Errorf("it goes by %s, want %s", got, c.want)
				}
			}
			if len(g.conns) != 1 {
				t.Errorf("%d connections", len(g.conns))
			}
		})
	}
}
