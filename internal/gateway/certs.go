package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// watched is something made of files that is made anew when one of them changes, for instance by a renewal of a certificate. While the new files cannot be used, what was
// there before stays in use.
type watched[T any] struct {
	files []string
	load  func() (T, error)
	log   *slog.Logger

	mu     sync.Mutex
	value  T
	looked time.Time
	stamps []stamp
}

type stamp struct {
	changed time.Time
	size    int64
}

// lookEvery is how often the files are looked at, when there are connections.
const lookEvery = time.Second

func watch[T any](log *slog.Logger, load func() (T, error), files ...string) (*watched[T], error) {
	w := &watched[T]{files: files, load: load, log: log}
	w.stamps = w.stamp()
	w.looked = time.Now()
	var err error
	w.value, err = load()
	return w, err
}

func (w *watched[T]) stamp() []stamp {
	stamps := make([]stamp, len(w.files))
	for i, f := range w.files {
		if info, err := os.Stat(f); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

// get is the value as of now, give or take lookEvery. Reading a few small files under the lock is what keeps two connections from loading at the same time.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.looked) < lookEvery {
		return w.value
	}
	w.looked = time.Now()
	stamps := w.stamp()
	same := true
	for i := range stamps {
		same = same && stamps[i] == w.stamps[i]
	}
	if same {
		return w.value
	}
	v, err := w.load()
	if err != nil {
		// Half of it may have been written: the stamps stay as they were, so that it is tried again.
		w.log.Error("changed certificate files cannot be used; the old ones stay in use", "files", w.files, "err", err)
		return w.value
	}
	w.log.Info("certificate files were read again", "files", w.files)
	w.value, w.stamps = v, stamps
	return w.value
}

// CertificateFiles are PEM files for the side that clients see. They are read again when they change.
type CertificateFiles struct {
	Certificate, Key string
	// ClientCA signs clients' certificates; "": none are asked for.
	ClientCA string
	// Required: clients without a certificate are turned away.
	Required bool
}

// ServerTLS makes the configuration for Options.TLS.
func ServerTLS(f CertificateFiles, log *slog.Logger) (*tls.Config, error) {
	load := func() (*tls.Config, error) {
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
	files := []string{f.Certificate, f.Key}
	if f.ClientCA != "" {
		files = append(files, f.ClientCA)
	}
	w, err := watch(log, load, files...)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return w.get(), nil }}, nil
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
