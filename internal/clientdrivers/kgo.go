package clientdrivers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// sessionWait is for one half of a session.
const sessionWait = 60 * time.Second

// tlsConfig trusts the session's authority; nil without TLS.
func (s Session) tlsConfig(t *testing.T) *tls.Config {
	t.Helper()
	if !s.Login.UsesTLS() {
		return nil
	}
	pem, err := os.ReadFile(s.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("no certificate in %s", s.CAFile)
	}
	conf := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if s.Login.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(s.Login.CertFile, s.Login.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{cert}
	}
	return conf
}

func (s Session) kgo(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	all := []kgo.Opt{kgo.SeedBrokers(strings.Split(s.Addr, ",")...), kgo.FetchMaxWait(200 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond)}
	if c := s.tlsConfig(t); c != nil {
		all = append(all, kgo.DialTLSConfig(c))
	}
	if m := s.Login.SASL(); m != nil {
		all = append(all, kgo.SASL(m))
	}
	c, err := kgo.NewClient(append(all, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func runKgo(t *testing.T, s Session) (r Result) {
	if s.Produce != "" {
		kgoProduce(t, s)
	}
	if s.Read == "" {
		return r
	}
	return Result{kgoRead(t, s, s.First), kgoRead(t, s, s.N-s.First)}
}

func kgoProduce(t *testing.T, s Session) {
	t.Helper()
	opts := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}
	if s.Transactional {
		opts = append(opts, kgo.TransactionalID(s.Group+"-txn"))
	}
	c := s.kgo(t, opts...)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), sessionWait)
	defer cancel()
	write := func() {
		var records []*kgo.Record
		for i, v := range s.Values {
			records = append(records, &kgo.Record{Topic: s.Produce, Key: []byte(s.key(i)), Value: []byte(v)})
		}
		if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatalf("producing: %v", err)
		}
	}
	if !s.Transactional {
		write()
		return
	}
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		err := c.BeginTransaction()
		if err == nil {
			write()
			err = c.EndTransaction(ctx, end)
		}
		if err != nil {
			t.Fatalf("transaction: %v", err)
		}
	}
}

func kgoRead(t *testing.T, s Session, n int) (all []Record) {
	t.Helper()
	level := kgo.ReadUncommitted()
	if s.Committed {
		level = kgo.ReadCommitted()
	}
	opts := []kgo.Opt{kgo.ConsumeTopics(s.Read), kgo.ConsumerGroup(s.Group), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.FetchIsolationLevel(level)}
	ctx, cancel := context.WithTimeout(t.Context(), sessionWait)
	defer cancel()
	if s.NewGroups {
		opts = append(opts, kgo.ServerSideBalancer())
	}
	c := s.kgo(t, opts...)
	defer c.Close()
	for len(all) < n {
		f := c.PollRecords(ctx, n-len(all))
		if err := ctx.Err(); err != nil {
			t.Fatalf("%d of %d records in time: %v", len(all), n, err)
		}
		if err := f.Err(); err != nil {
			t.Logf("after %d of %d records: %v", len(all), n, err)
		}
		f.EachRecord(func(r *kgo.Record) { all = append(all, NewRecord(r.Offset, r.Key, r.Value)) })
	}
	if err := c.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatalf("committing: %v", err)
	}
	c.LeaveGroup()
	return all
}
