// Package upstream is how Rewind's own programs (doctor, gateway, bench) connect to somebody's Kafka cluster as a principal of their own. It reads the file that
// Kafka's tools take as --command-config, a Java properties file in Kafka's words:
//
//	security.protocol=SASL_SSL
//	sasl.mechanism=SCRAM-SHA-512
//	sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="rewind" password="...";
//	ssl.truststore.location=/etc/kafka/ca.pem
//
// sasl.username and sasl.password stand for a JAAS line. Certificates are PEM. Keys of Kafka's clients that have nothing to do with the connection's security are accepted and left
// alone; other unknown keys are an error. No secret gets into an error or into what String gives.
//
//	c, err := upstream.Load(path) // "" is PLAINTEXT
//	client, err := kgo.NewClient(append(c.Opts(), kgo.SeedBrokers(seeds...))...)
//
// Any program's package may import it. It has no goroutines.
package upstream

import (
	"crypto/tls"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
)

// Client is a principal and the way it connects. The zero value, and nil, is PLAINTEXT without a principal. It is immutable and safe for concurrent use.
type Client struct {
	protocol  string
	clientID  string
	user      string // of SASL, for people; "" where only the token tells
	mechanism sasl.Mechanism
	tls       *tls.Config // nil without TLS; never handed out itself
}

// Load reads a file. An empty path is PLAINTEXT.
func Load(path string) (*Client, error) {
	if path == "" {
		return &Client{}, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading client configuration: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("client configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse reads the text of a properties file; files that it names are read too.
func Parse(text []byte) (*Client, error) {
	p, err := parseProperties(text)
	if err != nil {
		return nil, err
	}
	if err := checkKeys(p); err != nil {
		return nil, err
	}
	c := &Client{protocol: p["security.protocol"], clientID: p["client.id"]}
	if c.protocol == "" {
		c.protocol = plaintext
	}
	useTLS, useSASL, err := c.layers()
	if err != nil {
		return nil, err
	}
	if err := checkUnused(p, c.protocol, useTLS, useSASL); err != nil {
		return nil, err
	}
	if useTLS {
		if c.tls, err = tlsConfig(p); err != nil {
			return nil, err
		}
	}
	if useSASL {
		if c.mechanism, c.user, err = mechanism(p); err != nil {
			return nil, err
		}
	}
	return c, nil
}

const plaintext = "PLAINTEXT"

// dialTimeout is kgo's own.
const dialTimeout = 10 * time.Second

func (c *Client) layers() (useTLS, useSASL bool, err error) {
	switch c.protocol {
	case plaintext:
		return false, false, nil
	case "SSL":
		return true, false, nil
	case "SASL_PLAINTEXT":
		return false, true, nil
	case "SASL_SSL":
		return true, true, nil
	}
	return false, false, fmt.Errorf("security.protocol %q: must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", c.protocol)
}

// Opts are the options that make a kgo client this principal.
func (c *Client) Opts() []kgo.Opt {
	if c == nil {
		return nil
	}
	var opts []kgo.Opt
	if c.clientID != "" {
		opts = append(opts, kgo.ClientID(c.clientID))
	}
	if c.tls != nil {
		opts = append(opts, kgo.DialTLSConfig(c.TLS()))
	}
	if c.mechanism != nil {
		opts = append(opts, kgo.SASL(c.mechanism))
	}
	return opts
}

// TLS is this principal's own configuration, with its certificate if it has one; nil without TLS. ServerName is left to who dials.
func (c *Client) TLS() *tls.Config {
	if c == nil || c.tls == nil {
		return nil
	}
	return c.tls.Clone()
}

// ForeignTLS is for connections that are made for somebody else: it trusts whom this principal trusts, but does not show its certificate, which would lend its rights. nil
// without TLS.
func (c *Client) ForeignTLS() *tls.Config {
	t := c.TLS()
	if t != nil {
		t.Certificates, t.GetClientCertificate = nil, nil
	}
	return t
}

// HasCertificate tells whether the principal shows a certificate of its own.
func (c *Client) HasCertificate() bool {
	return c != nil && c.tls != nil && c.tls.GetClientCertificate != nil
}

// SASL is the name of the mechanism, "" without SASL.
func (c *Client) SASL() string {
	if c == nil || c.mechanism == nil {
		return ""
	}
	return c.mechanism.Name()
}

// User is the SASL user, "" without SASL or where only the token tells.
func (c *Client) User() string {
	if c == nil {
		return ""
	}
	return c.user
}

// Protocol is the security.protocol.
func (c *Client) Protocol() string {
	if c == nil || c.protocol == "" {
		return plaintext
	}
	return c.protocol
}

// String says how and as whom, for people and logs.
func (c *Client) String() string {
	s := c.Protocol()
	if m := c.SASL(); m != "" {
		s += ", " + m
		if c.user != "" {
			s += " as " + c.user
		}
	}
	if c.HasCertificate() {
		s += ", with a client certificate"
	}
	return s
}
