package doctor_test

import (
	"bytes"
	"context"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/broker"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/doctor"
	"github.com/rewind-kafka/rewind/internal/fileserver"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// served opens a directory as a broker does that signs its files' locations, and serves them.
func served(t *testing.T, dir string) remotestorage.RemoteStorageManager {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	signer, err := fileserver.NewSigner(bytes.Repeat([]byte("k"), 32), &url.URL{Scheme: "http", Host: server.Listener.Addr().String()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	id := filepath.Join(t.TempDir(), "store.id")
	store := openStore(t, dir, file.Options{IDFile: id, Sign: signer.Sign})
	files, err := fileserver.NewHandler(dir, id, signer)
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = files
	server.Start()
	t.Cleanup(func() {
		server.Close()
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	return manager(t, store)
}

// TestRewindBroker: a broker of our own is told from Apache Kafka by its answers.
func TestRewindBroker(t *testing.T) {
	dir := t.TempDir()
	cfg := config.NewBroker()
	for k, v := range map[string]string{"log.dirs": t.TempDir(), "listeners": "127.0.0.1:0", "store": "file://" + dir, "remote.log.manager.task.interval.ms": "100", "log.retention.check.interval.ms": "100"} {
		if err := cfg.Set(k, v); err != nil {
			t.Fatal(err)
		}
	}
	b, err := broker.New(broker.Options{Config: cfg, RSM: served(t, dir), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	k, err := kgo.NewClient(kgo.SeedBrokers(b.Addr().String()), kgo.DefaultProduceTopic("history"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	admin := kadm.NewClient(k)
	value := func(s string) *string { return &s }
	if _, err := admin.CreateTopic(t.Context(), 1, 1, map[string]*string{"remote.storage.enable": value("true"), "segment.bytes": value("1048576"), "local.retention.bytes": value("1")}, "history"); err != nil {
		t.Fatal(err)
	}
	for range 60 {
		if err := k.ProduceSync(t.Context(), &kgo.Record{Value: bytes.Repeat([]byte("v"), 60_000)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	o := doctor.Options{Seeds: []string{b.Addr().String()}, Topics: []string{"history"}, Storage: openDir(t, dir), Store: "file://" + dir, Layout: "kafka"}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		rep := examine(t, o)
		if rep.Partitions[0].From == "store" {
			only(t, rep, doctor.OK, doctor.Warning)
			want(t, rep, doctor.OK, "upstream", "Rewind broker or gateway", "signed locations")
			want(t, rep, doctor.OK, "location", "was opened")
			want(t, rep, doctor.OK, "locations", "the upstream signs locations")
			want(t, rep, doctor.OK, "segments", "history")
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not tiered in time: %+v", rep.Partitions)
		}
	}
}
