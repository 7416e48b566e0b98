package gateway

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Whatever becomes of an authentication (taken, refused, cut off, malformed, of a mechanism that nobody knows): no line of the log, on any level, and no metric has a byte of it but the name.
func TestSecretsAreNotTold(t *testing.T) {
	const secret = "correct-horse-battery"
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"alice","key":"` + secret + `"}`))
	messages := map[string][]string{
		"PLAIN":         {"\x00alice\x00" + secret},
		"SCRAM-SHA-256": {"n,,n=alice,r=" + secret, "c=biws,r=" + secret + ",p=" + secret},
		"OAUTHBEARER":   {"n,,\x01auth=Bearer " + secret + "." + claims + "." + secret + "\x01\x01", "\x01" + secret},
		"GSSAPI":        {secret + strings.Repeat("\x00", 100)},
		"NONE-OF-THEM":  {secret},
	}
	var lines logged
	reg := prometheus.NewRegistry()
	var code atomic.Int32
	broker := startFake(t, nil, func(h wire.RequestHeader) kmsg.Response {
		resp := kmsg.ResponseForKey(h.Key)
		resp.SetVersion(h.Version)
		if r, ok := resp.(*kmsg.SASLAuthenticateResponse); ok {
			r.ErrorCode, r.SASLAuthBytes = int16(code.Load()), []byte("s="+secret)
			if r.ErrorCode != 0 {
				r.ErrorMessage = kmsg.StringPtr("not " + secret)
			}
			if r.ErrorCode < 0 {
				return nil // the connection ends
			}
		}
		return resp
	})
	g := startGateway(t, Options{Upstream: []string{broker.addr()}, Brokers: noBrokers, PollInterval: -1, Registerer: reg,
		Logger:  slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug - 4})),
		History: &History{Resolver: &allLocal{learnt: make(map[remotestorage.TopicIDPartition]resolve.Learnt)}, Read: remote.Options{Budget: remote.NewBudget(64 << 20)}}})
	talk := func(frames ...[]byte) {
		t.Helper()
		g.notes.mu.Lock()
		clear(g.notes.last) // every line is written
		g.notes.mu.Unlock()
		nc, err := net.Dial("tcp", g.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			_, _ = nc.Write(f) // it may have been ended by then
		}
		_ = nc.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, nc)
	}
	for mechanism, steps := range messages {
		for _, c := range []int32{0, 58, -1} {
			code.Store(c)
			for _, version := range []int16{0, 1} {
				shake := kmsg.NewPtrSASLHandshakeRequest()
				shake.Version, shake.Mechanism = version, mechanism
				frames := [][]byte{wire.AppendRequest(nil, shake, 1, nil)}
				for _, step := range steps {
					if version == 0 { // bare tokens
						frames = append(frames, append([]byte{0, 0, 0, byte(len(step))}, step...))
						continue
					}
					auth := kmsg.NewPtrSASLAuthenticateRequest()
					auth.Version, auth.SASLAuthBytes = 2, []byte(step)
					frames = append(frames, wire.AppendRequest(nil, auth, 2, nil))
				}
				talk(frames...)
				last := frames[len(frames)-1]
				for _, broken := range [][]byte{last[:len(last)-3], append([]byte{0x7f}, last...), append(last[:len(last):len(last)], last[2:]...), []byte(steps[0])} {
					talk(append(frames[:len(frames)-1:len(frames)-1], broken)...)
				}
			}
		}
	}
	eventually(t, "all connections to have ended", func() bool { return g.Connections() == 0 })
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	told := lines.String() + fmt.Sprint(families)
	for _, form := range []string{secret, fmt.Sprintf("%q", secret), hex.EncodeToString([]byte(secret)), fmt.Sprint([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret))[:24], claims} {
		if i := strings.Index(told, strings.Trim(form, `[]"`)); i >= 0 {
			t.Errorf("it is told: %.300s", told[max(i-200, 0):])
		}
	}
	if strings.Count(told, "connection ended") == 0 {
		t.Error("nothing was said at all: the test shows nothing")
	}
}
