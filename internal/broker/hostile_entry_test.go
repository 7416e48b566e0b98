package broker

import (
	"crypto/tls"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// mangled damages what a client writes, somewhere behind the first `after` bytes.
type mangled struct {
	net.Conn
	r     *rand.Rand
	after int
	how   int
	sent  int
}

// The ways of damage. What is not damaged passes.
const (
	flipBit = iota
	leaveOut
	sendTwice
	cutShort
	sendNoise
	oneByOne
	ways
)

func (m *mangled) Write(b []byte) (int, error) {
	at := m.after - m.sent
	m.sent += len(b)
	if m.how == oneByOne {
		for i := range b {
			if _, err := m.Conn.Write(b[i : i+1]); err != nil {
				return i, err
			}
		}
		return len(b), nil
	}
	if at < 0 || at >= len(b) {
		return m.Conn.Write(b)
	}
	out := append([]byte(nil), b...)
	switch m.how {
	case flipBit:
		out[at] ^= 1 << m.r.IntN(8)
	case leaveOut:
		out = append(out[:at], out[at+1:]...)
	case sendTwice:
		out = append(out, out[at:]...)
	case cutShort:
		m.Conn.Write(out[:at])
		m.Conn.Close()
		return 0, net.ErrClosed
	case sendNoise:
		for i := at; i < len(out); i++ {
			out[i] = byte(m.r.Uint32())
		}
	}
	if _, err := m.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// TestHostileEntries: whatever is wrong with what comes while a client is on its way in, at whichever byte of TLS, of the frames of SASL or of the first requests, its connection ends,
// no handler panics, nothing is left of it, nobody comes in, and clients who do it right are served all the while.
func TestHostileEntries(t *testing.T) {
	s := startSecure(t, t.TempDir())
	done := make(chan struct{})
	var work, good sync.WaitGroup
	seeds := make(chan uint64)
	listeners := []string{"SSL", "SASL_PLAINTEXT", "SASL_SSL", "MTLS"}
	for range 32 {
		work.Go(func() {
			for seed := range seeds {
				entry(t, s, listeners[seed%uint64(len(listeners))], seed)
			}
		})
	}
	good.Go(func() {
		for {
			cl := s.as(t, "SASL_SSL", saslplain.Auth{User: "alice", Pass: "alice-s3cret"}.AsMechanism(), kgo.RetryTimeout(2*time.Minute), kgo.RequestRetries(100))
			if err := cl.Ping(t.Context()); err != nil {
				t.Errorf("a client who does it right: %v", err)
			}
			cl.Close()
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for seed := range uint64(600) {
		seeds <- seed
	}
	close(seeds)
	work.Wait()
	close(done)
	good.Wait()
	await(t, "the connections to go", func() bool { return s.connections() == 0 })
	for _, line := range s.logs.lines() {
		if strings.Contains(line, "panic") {
			t.Error(line)
		}
	}
}

func entry(t *testing.T, s *secure, listener string, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	nc, err := net.Dial("tcp", s.at(listener))
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(2 * time.Second)) // a peer whose frame was made longer is waited for
	var c net.Conn = &mangled{Conn: nc, r: r, after: r.IntN(1 << r.IntN(12)), how: r.IntN(ways)}
	if strings.HasSuffix(listener, "SSL") || listener == "MTLS" {
		tc := tls.Client(c, s.authority.ClientConfig())
		if tc.Handshake() != nil {
			return
		}
		if r.IntN(2) == 0 { // damage within TLS, too
			c = &mangled{Conn: tc, r: r, after: r.IntN(1 << r.IntN(9)), how: r.IntN(ways)}
		} else {
			c = tc
		}
	}
	send := func(req kmsg.Request, version int16) bool {
		req.SetVersion(version)
		if _, err := c.Write(wire.AppendRequest(nil, req, 1, kmsg.StringPtr("hostile"))); err != nil {
			return false
		}
		_, err := wire.ReadFrame(c, 1<<20, nil)
		return err == nil
	}
	api := kmsg.NewPtrApiVersionsRequest()
	api.ClientSoftwareName, api.ClientSoftwareVersion = "a", "1"
	if !send(api, int16(r.IntN(6))) {
		return
	}
	if strings.HasPrefix(listener, "SASL") {
		hand := kmsg.NewPtrSASLHandshakeRequest()
		hand.Mechanism = []string{"PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"}[r.IntN(4)]
		if !send(hand, int16(r.IntN(2))) {
			return
		}
		for range 3 {
			auth := kmsg.NewPtrSASLAuthenticateRequest()
			auth.SASLAuthBytes = []byte([]string{"\x00alice\x00wrong", "n,,n=alice,r=abc", "n,,\x01auth=Bearer x.y.z\x01\x01", "c=biws,r=abc,p=AAAA", ""}[r.IntN(5)])
			if !send(auth, int16(r.IntN(3))) {
				return
			}
		}
	}
	meta := kmsg.NewPtrMetadataRequest()
	if send(meta, 9) && strings.HasPrefix(listener, "SASL") {
		t.Errorf("%s, seed %d: somebody is served who did not say who they are", listener, seed)
	}
}
