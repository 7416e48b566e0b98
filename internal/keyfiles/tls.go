package keyfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
)

// Certificates are PEM files for the side that clients see. They are read again when they change.
type Certificates struct {
	// Certificate and Key may be the same file.
	Certificate, Key string
	// ClientCA signs clients' certificates; "": none are asked for.
	ClientCA string
	// Required: clients without a certificate are turned away.
	Required bool
}

// ServerTLS makes the configuration of a listener.
func ServerTLS(f Certificates, log *slog.Logger) (*tls.Config, error) {
	files := []string{f.Certificate}
	if f.Key != f.Certificate {
		files = append(files, f.Key)
	}
	if f.ClientCA != "" {
		files = append(files, f.ClientCA)
	}
	w, err := Watch(log, f.load, files...)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return w.Get(), nil }}, nil
}

func (f Certificates) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", f.Certificate, f.Key, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if f.ClientCA == "" {
		return config, nil
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	if f.Required {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	config.ClientCAs, err = loadCA(f.ClientCA)
	return config, err
}

func loadCA(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("certificate authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("certificate authorities: %s holds no PEM certificate", file)
	}
	return pool, nil
}
