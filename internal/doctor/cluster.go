package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// API keys whose versions decide what can be done.
const (
	keyFetch         = 1
	keyListOffsets   = 2
	keyEpochs        = 23
	keyDescribeACLs  = 29
	fetchTags        = 12 // the first Fetch that has room for our fields
	listOffsetsLocal = 8  // the first ListOffsets that knows the local log start offset
	listOffsetsTier  = 9  // and the last tiered one
)

// cluster tells whether the cluster can be reached, and all its brokers. Without one nothing else is to be found out.
func (d *doctor) cluster(ctx context.Context) bool {
	resp, other, err := d.firstAnswer(ctx)
	if err != nil {
		what, do := d.unreachable(err)
		if other != "" {
			what, do = foreign(other)
		}
		d.rep.add(Problem, "cluster", do, "%s cannot be used: %s", strings.Join(d.o.Seeds, ","), what)
		return false
	}
	d.brokers = resp.Brokers
	id := ""
	if resp.ClusterID != nil {
		id = " " + *resp.ClusterID
	}
	d.rep.add(OK, "cluster", "", "cluster%s answers: %d brokers; connected by %s", id, len(d.brokers), d.o.Client)
	var lost []string
	d.newest = make(map[int16]int16)
	for _, b := range d.brokers {
		versions, err := d.versions(ctx, b.NodeID)
		if err != nil {
			what, _ := d.unreachable(err)
			lost = append(lost, fmt.Sprintf("%d at %s (%s)", b.NodeID, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), what))
			continue
		}
		for key, v := range versions {
			if old, ok := d.newest[key]; !ok || v < old {
				d.newest[key] = v
			}
		}
	}
	if len(lost) > 0 {
		d.rep.add(Problem, "brokers", "gateway and library need every broker by its advertised address: look at advertised.listeners of the listener that was given, names and firewalls",
			"brokers that cannot be reached from here: %s", strings.Join(lost, ", "))
	}
	if len(lost) < len(d.brokers) {
		d.rep.Findings = append(d.rep.Findings, judgeVersions(d.newest)...)
	}
	return true
}

// versions are the newest versions that a broker has of each API.
func (d *doctor) versions(ctx context.Context, broker int32) (map[int16]int16, error) {
	limited, cancel := d.limited(ctx)
	defer cancel()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "rewind-doctor", "1"
	resp, err := req.RequestWith(limited, d.broker(broker))
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	m := make(map[int16]int16, len(resp.ApiKeys))
	for _, k := range resp.ApiKeys {
		m[k.ApiKey] = k.MaxVersion
	}
	return m, nil
}

func judgeVersions(newest map[int16]int16) []Finding {
	var r Report
	switch fetch, offsets := newest[keyFetch], newest[keyListOffsets]; {
	case fetch < fetchTags || newest[keyEpochs] < 2:
		r.add(Problem, "protocol", "bring the brokers to Apache Kafka 3.9 or later, where tiered storage is ready for production", "the brokers are too old: Fetch up to version %d, 12 is needed", fetch)
	case offsets < listOffsetsLocal:
		r.add(Problem, "protocol", "bring the brokers to Apache Kafka 3.9 or later, where tiered storage is ready for production",
			"the brokers do not tell where local logs begin: ListOffsets up to version %d, 8 is needed", offsets)
	default:
		r.add(OK, "protocol", "", "all brokers speak Fetch up to version %d, ListOffsets up to %d", fetch, offsets)
	}
	return r.Findings
}

// unreachable says in an operator's words why a connection does not come about.
func (d *doctor) unreachable(err error) (what, do string) {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		dns       *net.DNSError
		first     *kgo.ErrFirstReadEOF
	)
	closed := errors.As(err, &first) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
	switch {
	case errors.As(err, &authority):
		return "its certificate is signed by nobody that is trusted here", "give ssl.truststore.location in --command-config FILE: the authority's certificate, PEM"
	case errors.As(err, &host):
		return host.Error(), "use the name that the certificate has, or set ssl.endpoint.identification.algorithm to nothing"
	case errors.As(err, &invalid):
		return invalid.Error(), "renew the broker's certificate"
	case errors.As(err, &record):
		if p := wire.OtherProtocol(record.RecordHeader[:4]); p == "HTTP" {
			return foreign(p)
		}
		return "it does not speak TLS", "the port is another listener's, or security.protocol is to be PLAINTEXT or SASL_PLAINTEXT"
	case strings.Contains(err.Error(), "tls: bad certificate"), strings.Contains(err.Error(), "tls: certificate required"): // alerts have no type
		if d.o.Client.HasCertificate() {
			return "it does not accept our client certificate", "give one of an authority that the brokers trust in ssl.keystore.location"
		}
		return "it demands a client certificate", demandsCertificate
	case strings.Contains(err.Error(), "plaintext connection speaking to a tls endpoint"):
		return foreign("TLS")
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "authentication failed", "check user and password, and that the mechanism is the one that the user was made for"
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return "the listener does not offer this SASL mechanism", "set sasl.mechanism to one of the listener's sasl.enabled.mechanisms"
	case errors.Is(err, kerr.IllegalSaslState):
		return "the listener does not authenticate by SASL", "the port is another listener's, or security.protocol is to be PLAINTEXT or SSL"
	case errors.As(err, &dns):
		return dns.Error(), "use a name that this machine knows"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nobody listens there", "check host and port, and that the broker runs"
	case closed && d.o.Client.TLS() != nil:
		return "it closes the connection in the TLS handshake: it does not speak TLS", "the port is another listener's, or security.protocol is to be PLAINTEXT or SASL_PLAINTEXT"
	case closed:
		return "it closes the connection at once: it expects TLS or SASL, or another protocol altogether", giveSecurity
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time", "check host and port and the firewalls between; a listener that expects TLS may look like this too"
	}
	return err.Error(), "check host, port and --command-config"
}

const giveSecurity = "give the listener's security in --command-config FILE, as to Kafka's tools"

const demandsCertificate = "name a listener that authenticates clients by SASL: the gateway cannot show a certificate for its clients, since that would lend each of them the same rights"
