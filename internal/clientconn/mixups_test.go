package clientconn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

func testCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"broker"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// end runs a Conn and gives what it says in the end.
func end(t *testing.T, client, upstream net.Conn, o Options) chan error {
	t.Helper()
	c := New(Socket(client), upstream, o)
	done := make(chan error, 1)
	go func() { done <- c.Run(handlerFuncs{}) }()
	t.Cleanup(c.Close)
	return done
}

func wantMixup(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
}

func request() []byte { return wire.AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1, nil) }

// Case 33, four ways: each side may be the one that is set up wrongly.
func TestCase33_TLSClientOnAPlainPort(t *testing.T) {
	// The greeting's size is 369 MB: below a generous limit too it is named.
	for _, limit := range []int32{0, 1 << 30} {
		client, ours := tcpPair(t)
		upstream, broker := tcpPair(t)
		defer broker.Close()
		done := end(t, ours, upstream, Options{MaxRequestBytes: limit})
		hello := tls.Client(client, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // nobody is there to be verified
		if err := hello.Handshake(); err == nil {
			t.Fatal("a handshake with a plain port")
		}
		client.Close()
		wantMixup(t, <-done, "client", "TLS", "not plain Kafka")
	}
}

func TestCase33_PlainClientOnATLSPort(t *testing.T) {
	client, ours := tcpPair(t)
	upstream, broker := tcpPair(t)
	defer broker.Close()
	defer client.Close()
	done := end(t, tls.Server(ours, &tls.Config{Certificates: []tls.Certificate{testCertificate(t)}}), upstream, Options{})
	if _, err := client.Write(request()); err != nil {
		t.Fatal(err)
	}
	err := <-done
	wantMixup(t, err, "client", "plain Kafka, not TLS")
	if !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
	if b, err := io.ReadAll(client); len(b) > 16 {
		t.Errorf("the client gets %q %v", b, err)
	}
}

func TestCase33_TLSBrokerTakenForAPlainOne(t *testing.T) {
	client, ours := tcpPair(t)
	upstream, broker := tcpPair(t)
	defer client.Close()
	done := end(t, ours, upstream, Options{})
	if _, err := client.Write(request()); err != nil {
		t.Fatal(err)
	}
	server := tls.Server(broker, &tls.Config{Certificates: []tls.Certificate{testCertificate(t)}})
	if err := server.Handshake(); err == nil {
		t.Fatal("a handshake with a plain request")
	}
	// Go's server hangs up; Java's says why, in an alert.
	if _, err := broker.Write([]byte("\x15\x03\x03\x00\x02\x02\x46")); err != nil {
		t.Fatal(err)
	}
	broker.Close()
	err := <-done
	wantMixup(t, err, "broker", "TLS, not plain Kafka")
	if !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
}

func TestCase33_PlainBrokerTakenForATLSOne(t *testing.T) {
	for name, reply := range map[string]string{"hangs up": "", "answers": "\x00\x00\x00\x20\x00\x00\x00\x01\x00\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			client, ours := tcpPair(t)
			upstream, broker := tcpPair(t)
			defer client.Close()
			done := end(t, ours, tls.Client(upstream, &tls.Config{ServerName: "broker"}), Options{})
			if _, err := io.ReadFull(broker, make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			if _, err := broker.Write([]byte(reply)); err != nil {
				t.Fatal(err)
			}
			if err := broker.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			err := <-done
			broker.Close()
			wantMixup(t, err, "broker", "plain Kafka, not TLS")
			if !errors.Is(err, ErrProtocol) {
				t.Error(err)
			}
		})
	}
}

// A frame of Kafka whose size looks like TLS is one all the same.
func TestSizesThatLookLikeTLS(t *testing.T) {
	if err := foreignRequest([]byte("\x16\x03\x01\x02\x00\x00\x00\x09")); err != nil {
		t.Error(err)
	}
	if err := foreignResponse([]byte("\x16\x03\x03\x02\x00"), &pending{correlationID: 7}); err != nil {
		t.Error(err)
	}
	if err := foreignResponse([]byte("\x15\x03\x03\x00\x02"), &pending{correlationID: 7}); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
}
