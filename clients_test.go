package rewind_test

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
)

// Sarama reads through the dialer by its proxy option.
func TestSarama(t *testing.T) {
	w := newWorld(t)
	const n = 1000
	w.history("for-sarama", 1, n, kgo.SnappyCompression())
	want := readAll(t, w.client(fromStart("for-sarama")...), n)
	for _, version := range []sarama.KafkaVersion{sarama.V1_0_0_0, sarama.V2_8_0_0, sarama.MaxVersion} {
		t.Run(version.String(), func(t *testing.T) {
			d := w.dialer(rewind.Options{})
			conf := sarama.NewConfig()
			conf.Version = version
			conf.Net.Proxy.Enable, conf.Net.Proxy.Dialer = true, d
			conf.Consumer.Fetch.Default = 50_000
			consumer, err := sarama.NewConsumer([]string{w.addr}, conf)
			if err != nil {
				t.Fatal(err)
			}
			defer consumer.Close()
			pc, err := consumer.ConsumePartition("for-sarama", 0, sarama.OffsetOldest)
			if err != nil {
				t.Fatal(err)
			}
			defer pc.Close()
			got := new(digest)
			timeout := time.After(20 * time.Second)
			for got.count() < n {
				select {
				case m := <-pc.Messages():
					got.add(m.Partition, m.Offset, m.Key, m.Value, string(m.Headers[0].Key)+"="+string(m.Headers[0].Value))
				case <-timeout:
					t.Fatalf("%d of %d messages", got.count(), n)
				}
			}
			if got.String() != want.String() {
				t.Error("another digest")
			}
			if s := d.Stats(); s.DirectBytes == 0 || s.Fallbacks > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// kafka-go speaks Fetch 10, without topic ids, leader epochs or sessions.
func TestKafkaGo(t *testing.T) {
	w := newWorld(t)
	const n = 1000
	w.history("for-kafka-go", 1, n, kgo.GzipCompression())
	want := readAll(t, w.client(fromStart("for-kafka-go")...), n)
	d := w.dialer(rewind.Options{})
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{w.addr}, Topic: "for-kafka-go", Dialer: &kafka.Dialer{DialFunc: d.DialContext}, MaxWait: 200 * time.Millisecond, MaxBytes: 100_000,
	})
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got := new(digest)
	for got.count() < n {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			t.Fatalf("%v after %d messages", err, got.count())
		}
		got.add(int32(m.Partition), m.Offset, m.Key, m.Value, m.Headers[0].Key+"="+string(m.Headers[0].Value))
	}
	if got.String() != want.String() {
		t.Error("another digest")
	}
	if s := d.Stats(); s.DirectBytes == 0 || s.Fallbacks > 0 {
		t.Errorf("%+v", s)
	}
}
