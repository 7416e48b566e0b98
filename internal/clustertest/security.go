package clustertest

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Protocol is a kind of listener. Each broker has one of each kind that the cluster was started with.
type Protocol string

const (
	Plaintext Protocol = "PLAINTEXT"
	TLS       Protocol = "SSL"
	SASL      Protocol = "SASL_PLAINTEXT"
	SASLTLS   Protocol = "SASL_SSL"
	// MutualTLS demands a client's certificate, and takes the principal from it.
	MutualTLS Protocol = "MTLS"

	internal   Protocol = "INTERNAL" // between brokers, and for the test's own hands
	controller Protocol = "CONTROLLER"
)

// wire is the protocol's name in Kafka.
func (p Protocol) wire() Protocol {
	switch p {
	case internal, controller:
		return Plaintext
	case MutualTLS:
		return TLS
	}
	return p
}

// Mechanism of SASL. The listeners SASL and SASLTLS know all of them.
type Mechanism string

const (
	Plain       Mechanism = "PLAIN"
	ScramSHA256 Mechanism = "SCRAM-SHA-256"
	ScramSHA512 Mechanism = "SCRAM-SHA-512"
	// OAuthBearer tokens are JSON Web Signatures without a signature, which Apache Kafka accepts unless told otherwise. See Token.
	OAuthBearer Mechanism = "OAUTHBEARER"
)

// Mechanisms are all that there are.
var Mechanisms = []Mechanism{Plain, ScramSHA256, ScramSHA512, OAuthBearer}

// Users that a Secure cluster knows by every mechanism. What Alice and Bob may do is said by ACLs; Admin may do everything.
const (
	Admin = "admin"
	Alice = "alice"
	Bob   = "bob"
)

var users = []string{Admin, Alice, Bob}

// Password of a user.
func Password(user string) string { return user + "-secret" }

// Token is what OAuthBearer wants of a user, good for an hour.
func Token(user string) string {
	part := func(format string, args ...any) string {
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, format, args...))
	}
	now := time.Now().Unix()
	return part(`{"alg":"none"}`) + "." + part(`{"sub":%q,"iat":%d,"exp":%d,"scope":"kafka"}`, user, now, now+3600) + "."
}

// Login is how a client comes in.
type Login struct {
	Protocol  Protocol
	Mechanism Mechanism // for SASL and SASLTLS
	User      string    // for SASL and SASLTLS; Admin if empty
	// Token for OAuthBearer, an unsigned one of the user if empty; TokenFile holds the same for Java, which can only read it there.
	Token, TokenFile string
	// CertFile and KeyFile are the client's own for MutualTLS, as Authority.Issue makes them; KeyStore is both in one, for Java.
	CertFile, KeyFile, KeyStore string
}

func (l Login) String() string {
	if l.Mechanism == "" {
		return string(l.Protocol)
	}
	return string(l.Protocol) + "-" + string(l.Mechanism)
}

// Logins are all ways to come in as Admin.
func Logins() []Login {
	all := []Login{{Protocol: Plaintext}, {Protocol: TLS}, {Protocol: MutualTLS}}
	for _, p := range []Protocol{SASL, SASLTLS} {
		for _, m := range Mechanisms {
			all = append(all, Login{Protocol: p, Mechanism: m})
		}
	}
	return all
}

func (l Login) user() string {
	if l.User == "" {
		return Admin
	}
	return l.User
}

// BearerToken is what the client shows with OAuthBearer.
func (l Login) BearerToken() string {
	if l.Token != "" {
		return l.Token
	}
	return Token(l.user())
}

// Wire is the protocol's name in Kafka.
func (l Login) Wire() string { return string(l.Protocol.wire()) }

// UsesTLS tells whether the client needs the authority's certificate.
func (l Login) UsesTLS() bool { return l.Protocol.wire() == TLS || l.Protocol == SASLTLS }

// SASL is the client's part in franz-go; nil without SASL.
func (l Login) SASL() sasl.Mechanism {
	user, pass := l.user(), Password(l.user())
	switch l.Mechanism {
	case Plain:
		return plain.Auth{User: user, Pass: pass}.AsMechanism()
	case ScramSHA256:
		return scram.Auth{User: user, Pass: pass}.AsSha256Mechanism()
	case ScramSHA512:
		return scram.Auth{User: user, Pass: pass}.AsSha512Mechanism()
	case OAuthBearer:
		return oauth.Auth{Token: l.BearerToken()}.AsMechanism()
	}
	return nil
}

// KgoOptions are what franz-go needs for the login.
func (c *Cluster) KgoOptions(l Login) []kgo.Opt {
	var opts []kgo.Opt
	if l.UsesTLS() {
		conf := c.authority.ClientConfig()
		if l.Protocol == MutualTLS {
			conf.Certificates = []tls.Certificate{c.clientCert}
		}
		opts = append(opts, kgo.DialTLSConfig(conf))
	}
	if m := l.SASL(); m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	return opts
}

// jaas is the configuration of a mechanism in Java. With the users it is a broker's.
func jaas(m Mechanism, user string, all []string) string {
	const pkg = "org.apache.kafka.common.security."
	switch m {
	case Plain:
		s := pkg + fmt.Sprintf("plain.PlainLoginModule required username=%q password=%q", user, Password(user))
		for _, u := range all {
			s += fmt.Sprintf(" user_%s=%q", u, Password(u))
		}
		return s + ";"
	case OAuthBearer:
		return pkg + fmt.Sprintf("oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=%q;", user)
	default:
		return pkg + fmt.Sprintf("scram.ScramLoginModule required username=%q password=%q;", user, Password(user))
	}
}

// JavaProperties are what a client in Java needs for the login; caFile is the authority's certificate.
func (l Login) JavaProperties(caFile string) map[string]string {
	p := map[string]string{"security.protocol": string(l.Protocol.wire())}
	if l.UsesTLS() {
		p["ssl.truststore.type"], p["ssl.truststore.location"] = "PEM", caFile
	}
	if l.KeyStore != "" {
		p["ssl.keystore.type"], p["ssl.keystore.location"] = "PEM", l.KeyStore
	}
	if l.Mechanism != "" {
		p["sasl.mechanism"], p["sasl.jaas.config"] = string(l.Mechanism), jaas(l.Mechanism, l.user(), nil)
	}
	if l.TokenFile != "" {
		p["sasl.jaas.config"] = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
		p["sasl.login.callback.handler.class"] = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
		p["sasl.oauthbearer.token.endpoint.url"] = "file://" + l.TokenFile
	}
	return p
}
