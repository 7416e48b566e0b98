package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/control"
	"github.com/rewind-kafka/rewind/internal/freeport"
)

// contender is one broker of a pair, on fixed addresses and a folder of its own.
type contender struct {
	name           string
	addr, tlsAddr  string
	launch, finish func(ctx context.Context) error
	pid            func() (int, error)
	up             bool
}

const (
	upWait = 2 * time.Minute
	askFor = 20 * time.Millisecond
)

// start launches it, and returns once it has answered.
func (c *contender) start(ctx context.Context) error {
	launched := make(chan error, 1)
	go func() { launched <- c.launch(ctx) }() // ends: a launch has a bound of its own
	c.up = true
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.RetryBackoffFn(func(int) time.Duration { return askFor }))
	if err != nil {
		return errors.Join(err, <-launched)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, upWait)
	defer cancel()
	for {
		if err := cl.Ping(ctx); err == nil {
			break
		}
		select {
		case err := <-launched:
			if err != nil {
				return err
			}
			launched = nil
		case <-time.After(askFor):
		case <-ctx.Done():
			return fmt.Errorf("not up in %v: %w", upWait, ctx.Err())
		}
	}
	return nil
}

func (c *contender) stop() error {
	if !c.up {
		return nil
	}
	c.up = false
	return c.finish(context.Background())
}

func (c *contender) resident() (all, own float64, err error) {
	pid, err := c.pid()
	if err != nil {
		return 0, 0, err
	}
	return resident(pid)
}

func (c *contender) create(ctx context.Context, topic string, partitions int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, int32(partitions), 1, nil, topic); err != nil {
		return fmt.Errorf("creating topic %s: %w", topic, err)
	}
	return nil
}

// newOurs is our broker, as it is by default but for more lines of its configuration. Without keys it speaks no TLS.
func (l *lab) newOurs(dir, keyStore string, more ...string) (*contender, error) {
	port, err := freeport.Find(2)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	cfg := filepath.Join(dir, "broker.yaml")
	listeners := "PLAINTEXT://" + freeport.Address(port)
	if keyStore != "" {
		listeners += ",SSL://" + freeport.Address(port+1)
		more = append(more, "ssl.keystore.location: "+keyStore)
	}
	lines := slices.Concat([]string{"log.dirs: " + filepath.Join(dir, "data"), "listeners: " + listeners, "group.initial.rebalance.delay.ms: 0"}, more)
	if err := os.WriteFile(cfg, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	var child *control.Child
	launched := make(chan struct{}, 1)
	return &contender{
		name: "our broker", addr: freeport.Address(port), tlsAddr: freeport.Address(port + 1),
		launch: func(ctx context.Context) (err error) {
			child, err = control.Start(ctx, l.Logs, "broker", "--control", "--config", cfg)
			launched <- struct{}{}
			return err
		},
		finish: func(context.Context) error {
			<-launched
			if child == nil {
				return nil
			}
			return child.Stop(stopWait)
		},
		pid: func() (int, error) { return child.PID(), nil },
	}, nil
}

// newKafka is an Apache Kafka as the script runs it, without tiered storage.
func (l *lab) newKafka(dir, keyStore string) (*contender, error) {
	port, err := freeport.Find(3) // the controller is at the second
	if err != nil {
		return nil, err
	}
	script := func(ctx context.Context, args ...string) error {
		cmd := exec.CommandContext(ctx, l.PeerScript, args...)
		listeners := fmt.Sprintf("PLAINTEXT://%s,SSL://%s,CONTROLLER://%s", freeport.Address(port), freeport.Address(port+2), freeport.Address(port+1))
		cmd.Env = append(os.Environ(), "KAFKA_PEER_HOME="+l.PeerHome, "KAFKA_PEER_TIERED=false", "KAFKA_PEER_EXTRA="+strings.Join([]string{
			"listeners=" + listeners, "advertised.listeners=" + listeners, "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL",
			"ssl.keystore.type=PEM", "ssl.keystore.location=" + keyStore,
		}, "\n"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w\n%s", filepath.Base(l.PeerScript), args[0], err, out)
		}
		return nil
	}
	return &contender{
		name: "Apache Kafka", addr: freeport.Address(port), tlsAddr: freeport.Address(port + 2),
		launch: func(ctx context.Context) error { return script(ctx, "start", fmt.Sprint(port), dir) },
		finish: func(ctx context.Context) error { return script(ctx, "stop", dir) },
		pid:    func() (int, error) { return pidOf(filepath.Join(dir, "broker.pid")) },
	}, nil
}

// writeKeys makes a certificate for 127.0.0.1 that signs itself: with its key in one file, and alone for whoever trusts it.
func writeKeys(dir string) (keyStore, caFile string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rewind bench"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", "", err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", "", err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyStore, caFile = filepath.Join(dir, "keystore.pem"), filepath.Join(dir, "ca.pem")
	both := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), cert...)
	return keyStore, caFile, errors.Join(os.WriteFile(keyStore, both, 0o600), os.WriteFile(caFile, cert, 0o600))
}
