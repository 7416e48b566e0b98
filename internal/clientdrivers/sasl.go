package clientdrivers

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
	kafkasasl "github.com/segmentio/kafka-go/sasl"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/rewind-kafka/rewind/internal/clustertest"
)

// saramaScram gives Sarama franz-go's SCRAM: Sarama wants one to be brought.
type saramaScram struct {
	mechanism sasl.Mechanism
	session   sasl.Session
	done      bool
}

func (s *saramaScram) Begin(_, _, _ string) error { return nil }

func (s *saramaScram) Step(challenge string) (string, error) {
	if s.session == nil {
		session, first, err := s.mechanism.Authenticate(context.Background(), "")
		s.session = session
		return string(first), err
	}
	done, resp, err := s.session.Challenge([]byte(challenge))
	s.done = done
	return string(resp), err
}

func (s *saramaScram) Done() bool { return s.done }

type saramaToken string

func (t saramaToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func saramaSASL(conf *sarama.Config, l clustertest.Login) {
	if l.Mechanism == "" {
		return
	}
	user := l.User
	if user == "" {
		user = clustertest.Admin
	}
	conf.Net.SASL.Enable, conf.Net.SASL.Mechanism, conf.Net.SASL.User, conf.Net.SASL.Password = true, sarama.SASLMechanism(l.Mechanism), user, clustertest.Password(user)
	conf.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &saramaScram{mechanism: l.SASL()} }
	if l.Mechanism == clustertest.OAuthBearer {
		conf.Net.SASL.TokenProvider = saramaToken(l.BearerToken())
	}
}

// kafkaGoSASL gives kafka-go a mechanism of franz-go.
type kafkaGoSASL struct{ sasl.Mechanism }

func (m kafkaGoSASL) Start(ctx context.Context) (kafkasasl.StateMachine, []byte, error) {
	session, first, err := m.Authenticate(ctx, "")
	return &kafkaGoSession{session: session}, first, err
}

type kafkaGoSession struct {
	session sasl.Session
	done    bool
}

func (s *kafkaGoSession) Next(_ context.Context, challenge []byte) (bool, []byte, error) {
	if s.done {
		return true, nil, errors.New("a challenge after the last one")
	}
	done, resp, err := s.session.Challenge(challenge)
	s.done = done
	return done, resp, err
}
