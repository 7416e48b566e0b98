package config

import (
	"errors"

	"github.com/rewind-kafka/rewind/internal/principal"
)

// StandardAuthorizer is the one value of authorizer.class.name.
const StandardAuthorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

// scopable are the keys that listeners may have values of their own for.
var scopable = []string{
	"connections.max.reauth.ms", "sasl.enabled.mechanisms", "sasl.plain.users.file", "ssl.client.auth", "ssl.keystore.location", "ssl.keystore.type",
	"ssl.principal.mapping.rules", "ssl.truststore.location", "ssl.truststore.type",
}

func mappingRules(v string) (string, error) {
	_, err := principal.ParseRules(v)
	return v, err
}

func authorizerClass(v string) (string, error) {
	if v != "" && v != StandardAuthorizer {
		return "", errors.New("only " + StandardAuthorizer + " is there")
	}
	return v, nil
}

const pemOnly = "keys and certificates are PEM files"

// securityKeys say who may come in and what they may do.
var securityKeys = []*Key{
	{
		Name: "allow.everyone.if.no.acl.found", Kind: Boolean, Default: "false", check: boolean, bind: func(b *Broker) any { return &b.AllowIfNoACL },
		Doc: "Whether anybody may use a resource that no ACL is about. With authorizer.class.name only.",
	},
	{
		Name: "authorizer.class.name", Kind: String, check: authorizerClass, Allowed: "empty, or `" + StandardAuthorizer + "`", bind: func(b *Broker) any { return &b.Authorizer },
		Doc: "Empty: whoever comes in may do everything. Otherwise ACLs say who may do what, and what none allows is denied.",
	},
	{
		Name: "connection.failed.authentication.delay.ms", Kind: Int, Default: "100", check: integer(32, 0, maxInt), unit: millisUnit, bind: func(b *Broker) any { return &b.FailedAuthDelay },
		Doc: "How long a client that failed to authenticate waits for the answer, after which its connection is closed.",
	},
	{
		Name: "connections.max.reauth.ms", Kind: Long, Default: "0", check: integer(64, 0, maxMillis), unit: millisUnit, bind: func(b *Broker) any { return &b.MaxReauth },
		Doc: "How long a SASL client may go on before it has to authenticate again (KIP-368); a connection that does not is closed. 0: as long as its token is good, or for ever. listener.name.<l>. and listener.name.<l>.<mechanism>. go before.",
	},
	{
		Name: "listener.security.protocol.map", Kind: String, Default: "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", check: protocolMap, Allowed: "name:protocol,...",
		bind: func(b *Broker) any { return &b.ProtocolMap },
		Doc:  "What the listeners speak: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
	},
	{
		Name: "sasl.enabled.mechanisms", Kind: List, check: listOf(saslMechanisms...), Allowed: "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER", bind: func(b *Broker) any { return &b.SASLMechanisms },
		Doc: "How clients of listeners with SASL may say who they are. listener.name.<l>. goes before.",
	},
	{
		Name: "sasl.oauthbearer.clock.skew.seconds", Kind: Int, Default: "30", check: integer(32, 0, 3600), bind: func(b *Broker) any { return &b.ClockSkewSeconds },
		Doc: "How far the clock of who issues tokens may be off.",
	},
	{
		Name: "sasl.oauthbearer.expected.audience", Kind: List, check: anyText, bind: func(b *Broker) any { return &b.ExpectedAudience },
		Doc: "Tokens must be for one of these. Empty: for anybody.",
	},
	{
		Name: "sasl.oauthbearer.expected.issuer", Kind: String, NoDefault: true, check: anyText, bind: func(b *Broker) any { return &b.ExpectedIssuer },
		Doc: "Tokens must come from this issuer. Empty: from whoever has the keys.",
	},
	{
		Name: "sasl.oauthbearer.jwks.endpoint.refresh.ms", Kind: Long, Default: "3600000", check: integer(64, 1000, maxMillis), unit: millisUnit, bind: func(b *Broker) any { return &b.JWKSRefresh },
		Doc: "How often the keys of tokens are read again, besides when a token names one that is not there.",
	},
	{
		Name: "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Kind: Long, Default: "1000", check: integer(64, 100, maxMillis), unit: millisUnit, bind: func(b *Broker) any { return &b.JWKSRetry },
		Doc: "The least time between two readings of the keys of tokens.",
	},
	{
		Name: "sasl.oauthbearer.jwks.endpoint.url", Kind: String, NoDefault: true, check: anyText, Allowed: "a URL: https://, http:// or file://", bind: func(b *Broker) any { return &b.JWKS },
		Doc: "The key set (JWKS) that tokens of OAUTHBEARER are signed with. Tokens without a signature are refused.",
	},
	{
		Name: "sasl.oauthbearer.sub.claim.name", Kind: String, Default: "sub", check: anyText, bind: func(b *Broker) any { return &b.SubjectClaim },
		Doc: "The claim of a token that is the user's name.",
	},
	{
		Name: "sasl.plain.users.file", Kind: String, check: anyText, bind: func(b *Broker) any { return &b.PlainUsersFile },
		Doc: "A file with a line name=password for each user of PLAIN, read again when it changes. Kafka's listener.name.<l>.plain.sasl.jaas.config does the same inside the configuration; where both are given, the file goes before. listener.name.<l>. goes before.",
	},
	{
		Name: "sasl.server.max.receive.size", Kind: Int, Default: "524288", check: integer(32, 1024, maxInt), unit: bytesUnit, bind: func(b *Broker) any { return &b.SASLMaxReceive },
		Doc: "The largest request of a client that has not authenticated yet.",
	},
	{
		Name: "ssl.client.auth", Kind: String, Default: "none", check: oneOf("none", "requested", "required"), Allowed: "none, requested, required", bind: func(b *Broker) any { return &b.ClientAuth },
		Doc: "Whether clients of listeners with SSL show a certificate, which says who they are. listener.name.<l>. goes before; of SASL_SSL listeners only that counts, as in Apache Kafka.",
	},
	{
		Name: "ssl.keystore.location", Kind: String, NoDefault: true, check: anyText, bind: func(b *Broker) any { return &b.KeyStore },
		Doc: "A PEM file with the broker's key and certificates, read again when it changes. listener.name.<l>. goes before.",
	},
	{
		Name: "ssl.keystore.type", Kind: String, Default: "PEM", check: only("PEM", pemOnly), bind: func(b *Broker) any { return &b.KeyStoreType },
		Doc: "The kind of ssl.keystore.location.",
	},
	{
		Name: "ssl.principal.mapping.rules", Kind: String, Default: "DEFAULT", check: mappingRules, Allowed: "DEFAULT, RULE:pattern/replacement/[LU], ...", bind: func(b *Broker) any { return &b.PrincipalRules },
		Doc: "What a certificate's subject becomes as a principal. The first rule that matches the whole of it counts. listener.name.<l>. goes before.",
	},
	{
		Name: "ssl.truststore.location", Kind: String, NoDefault: true, check: anyText, bind: func(b *Broker) any { return &b.TrustStore },
		Doc: "A PEM file with the authorities of clients' certificates, read again when it changes. listener.name.<l>. goes before.",
	},
	{
		Name: "ssl.truststore.type", Kind: String, Default: "PEM", check: only("PEM", pemOnly), bind: func(b *Broker) any { return &b.TrustStoreType },
		Doc: "The kind of ssl.truststore.location.",
	},
	{
		Name: "super.users", Kind: String, check: principals, Allowed: "User:name;...", bind: func(b *Broker) any { return &b.SuperUsers },
		Doc: "Principals that may do everything, whatever the ACLs say.",
	},
}
