package gateway

import (
	"crypto/tls"
	"log/slog"

	"github.com/rewind-kafka/rewind/internal/keyfiles"
)

// CertificateFiles are PEM files for the side that clients see. They are read again when they change.
type CertificateFiles = keyfiles.Certificates

// ServerTLS makes the configuration for Options.TLS.
func ServerTLS(f CertificateFiles, log *slog.Logger) (*tls.Config, error) {
	return keyfiles.ServerTLS(f, log)
}
