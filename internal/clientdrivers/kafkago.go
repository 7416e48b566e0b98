package clientdrivers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

func runKafkaGo(t *testing.T, s Session) (r Result) {
	dial := &kafka.Dialer{Timeout: 10 * time.Second, DualStack: false, TLS: s.tlsConfig(t)}
	transport := &kafka.Transport{TLS: s.tlsConfig(t)}
	if m := s.Login.SASL(); m != nil {
		dial.SASLMechanism, transport.SASL = kafkaGoSASL{m}, kafkaGoSASL{m}
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 2*sessionWait)
	defer cancel()
	if s.Produce != "" {
		w := &kafka.Writer{Addr: kafka.TCP(strings.Split(s.Addr, ",")...), Topic: s.Produce, RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond, Transport: transport}
		var messages []kafka.Message
		for i, v := range s.Values {
			messages = append(messages, kafka.Message{Key: []byte(s.key(i)), Value: []byte(v)})
		}
		if err := w.WriteMessages(ctx, messages...); err != nil {
			t.Fatalf("producing: %v", err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	read := func(n int) (all []Record) {
		level := kafka.ReadUncommitted
		if s.Committed {
			level = kafka.ReadCommitted
		}
		k := kafka.NewReader(kafka.ReaderConfig{
			Brokers: strings.Split(s.Addr, ","), Topic: s.Read, GroupID: s.Group, Dialer: dial, MaxWait: 200 * time.Millisecond, MaxBytes: 1 << 20, StartOffset: kafka.FirstOffset,
			IsolationLevel: level,
		})
		for len(all) < n {
			m, err := k.FetchMessage(ctx)
			if err != nil {
				t.Fatalf("after %d of %d records: %v", len(all), n, err)
			}
			all = append(all, NewRecord(m.Offset, m.Key, m.Value))
			if len(all) == n {
				if err := k.CommitMessages(ctx, m); err != nil {
					t.Fatalf("committing: %v", err)
				}
			}
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		return all
	}
	if s.Read != "" {
		r.First = read(s.First)
		r.Rest = read(s.N - s.First)
	}
	return r
}
