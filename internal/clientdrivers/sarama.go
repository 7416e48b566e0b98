package clientdrivers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

func (s Session) sarama(t *testing.T) *sarama.Config {
	conf := sarama.NewConfig()
	conf.Version = sarama.MaxVersion
	conf.Consumer.MaxWaitTime, conf.Consumer.Offsets.Initial = 200*time.Millisecond, sarama.OffsetOldest
	conf.Consumer.Offsets.AutoCommit.Enable = false
	conf.ChannelBufferSize = 0
	if s.Committed {
		conf.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	if c := s.tlsConfig(t); c != nil {
		conf.Net.TLS.Enable, conf.Net.TLS.Config = true, c
	}
	saramaSASL(conf, s.Login)
	conf.Producer.Return.Successes, conf.Producer.Partitioner, conf.Producer.RequiredAcks = true, sarama.NewManualPartitioner, sarama.WaitForAll
	return conf
}

func runSarama(t *testing.T, s Session) (r Result) {
	if s.Produce != "" {
		p, err := sarama.NewSyncProducer(strings.Split(s.Addr, ","), s.sarama(t))
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range s.Values {
			if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: s.Produce, Key: sarama.StringEncoder(s.key(i)), Value: sarama.StringEncoder(v)}); err != nil {
				t.Fatalf("producing: %v", err)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if s.Read != "" {
		r.First, r.Rest = saramaRead(t, s, s.First), saramaRead(t, s, s.N-s.First)
	}
	return r
}

// saramaReader is a member of a group that stops after n records.
type saramaReader struct {
	n    int
	all  []Record
	stop context.CancelFunc
}

func (r *saramaReader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *saramaReader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *saramaReader) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			r.all = append(r.all, NewRecord(m.Offset, m.Key, m.Value))
			s.MarkMessage(m, "")
			if len(r.all) == r.n {
				s.Commit()
				r.stop()
				return nil
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func saramaRead(t *testing.T, s Session, n int) []Record {
	t.Helper()
	g, err := sarama.NewConsumerGroup(strings.Split(s.Addr, ","), s.Group, s.sarama(t))
	if err != nil {
		t.Fatal(err)
	}
	limit, cancel := context.WithTimeout(t.Context(), sessionWait)
	defer cancel()
	ctx, stop := context.WithCancel(limit)
	defer stop()
	r := &saramaReader{n: n, stop: stop}
	for ctx.Err() == nil && len(r.all) < n {
		if err := g.Consume(ctx, []string{s.Read}, r); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d of %d records: %v", len(r.all), n, err)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if len(r.all) < n {
		t.Fatalf("%d of %d records in time", len(r.all), n)
	}
	return r.all
}
