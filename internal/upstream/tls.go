package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

func tlsConfig(p map[string]string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if err := versions(c, p); err != nil {
		return nil, err
	}
	roots, err := trusted(p)
	if err != nil {
		return nil, err
	}
	c.RootCAs = roots
	switch alg, set := p["ssl.endpoint.identification.algorithm"]; {
	case !set || strings.EqualFold(alg, "https"):
	case alg == "":
		withoutHostname(c)
	default:
		return nil, fmt.Errorf("ssl.endpoint.identification.algorithm %q: must be https, or empty for certificates whose name is not the broker's", alg)
	}
	return c, ownCertificate(c, p)
}

// withoutHostname checks the chain as ever, but not whose certificate it is.
func withoutHostname(c *tls.Config) {
	c.InsecureSkipVerify = true // VerifyConnection does what is left of it
	roots := c.RootCAs
	c.VerifyConnection = func(s tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, cert := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(cert)
		}
		_, err := s.PeerCertificates[0].Verify(o)
		return err
	}
}

func versions(c *tls.Config, p map[string]string) error {
	list := p["ssl.enabled.protocols"]
	if list == "" {
		list = p["ssl.protocol"]
	}
	if list == "" {
		return nil
	}
	low, high := uint16(0), uint16(0)
	for name := range strings.SplitSeq(list, ",") {
		var v uint16
		switch strings.TrimSpace(name) {
		case "TLSv1.2":
			v = tls.VersionTLS12
		case "TLSv1.3":
			v = tls.VersionTLS13
		default:
			return errors.New("ssl.enabled.protocols: TLSv1.2 and TLSv1.3 are known")
		}
		if low == 0 || v < low {
			low = v
		}
		high = max(high, v)
	}
	if p["ssl.enabled.protocols"] == "" { // ssl.protocol is the best, not the only one
		low = tls.VersionTLS12
	}
	c.MinVersion, c.MaxVersion = low, high
	return nil
}

func checkType(p map[string]string, key string) error {
	if t := p[key]; t != "" && !strings.EqualFold(t, "PEM") {
		return fmt.Errorf("%s is %s: %s", key, t, pemOnly)
	}
	return nil
}

func trusted(p map[string]string) (*x509.CertPool, error) {
	if err := checkType(p, "ssl.truststore.type"); err != nil {
		return nil, err
	}
	key, text := "ssl.truststore.certificates", []byte(p["ssl.truststore.certificates"])
	if path := p["ssl.truststore.location"]; path != "" {
		var err error
		if key, text, err = read("ssl.truststore.location", path); err != nil {
			return nil, err
		}
	}
	if len(text) == 0 {
		return nil, nil // those of the system
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in PEM: %s", key, pemOnly)
	}
	return pool, nil
}

func read(key, path string) (string, []byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return key, nil, fmt.Errorf("%s: %w", key, err)
	}
	return fmt.Sprintf("%s %s", key, path), text, nil
}

// ownCertificate is read anew for each connection, so that a renewed file needs no restart; the first time to find mistakes at the start.
func ownCertificate(c *tls.Config, p map[string]string) error {
	if err := checkType(p, "ssl.keystore.type"); err != nil {
		return err
	}
	load := func() (*tls.Certificate, error) {
		return certificate("ssl.keystore.key", []byte(p["ssl.keystore.certificate.chain"]), []byte(p["ssl.keystore.key"]))
	}
	switch path := p["ssl.keystore.location"]; {
	case path != "":
		load = func() (*tls.Certificate, error) {
			key, text, err := read("ssl.keystore.location", path)
			if err != nil {
				return nil, err
			}
			return certificate(key, text, text)
		}
	case p["ssl.keystore.key"] == "" && p["ssl.keystore.certificate.chain"] == "":
		return nil
	}
	if _, err := load(); err != nil {
		return err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return nil
}

func certificate(key string, chain, private []byte) (*tls.Certificate, error) {
	if strings.Contains(string(private), "BEGIN ENCRYPTED PRIVATE KEY") {
		return nil, fmt.Errorf("%s: %s", key, refused["ssl.key.password"])
	}
	cert, err := tls.X509KeyPair(chain, private)
	if err != nil {
		return nil, fmt.Errorf("%s: a private key and its certificates in PEM are needed: %w", key, err)
	}
	return &cert, nil
}
