package metadatatopic_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/metadatatopic"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// TestAccess: what is missing is said by name, at start-up.
func TestAccess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		change func(c *cluster)
		is     error
		says   []string
	}{
		{"no topic", func(c *cluster) { delete(c.topics, metadatatopic.DefaultTopic) }, metadatatopic.ErrNoTopic,
			[]string{metadatatopic.DefaultTopic, "tiered storage is off", "remote.log.storage.system.enable"}},
		{"no Describe", func(c *cluster) { c.topics[metadatatopic.DefaultTopic].err = errUnauthorized }, metadatatopic.ErrNotAllowed,
			[]string{"Describe", "Read", metadatatopic.DefaultTopic}},
		{"no Read", func(c *cluster) { c.topics[metadatatopic.DefaultTopic].operations = 1 << 8 }, metadatatopic.ErrNotAllowed,
			[]string{"Read on topic " + metadatatopic.DefaultTopic}},
		{"no Describe for offsets", func(c *cluster) {
			c.topics[metadatatopic.DefaultTopic].operations = -1 << 31
			c.topics[metadatatopic.DefaultTopic].parts[0].offsetsError = errUnauthorized
		}, metadatatopic.ErrNotAllowed, []string{"Describe on topic " + metadatatopic.DefaultTopic}},
	} {
		t.Run(c.what, func(t *testing.T) {
			k := newCluster(t, 1)
			k.set(func() { c.change(k) })
			r, err := metadatatopic.New(context.Background(), metadatatopic.Options{Seeds: []string{k.address()}, Storage: golden.Store{}})
			if r != nil || !errors.Is(err, c.is) {
				t.Fatalf("%v, want %v", err, c.is)
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if _, err := metadatatopic.New(ctx, metadatatopic.Options{Seeds: []string{address}, Storage: golden.Store{}}); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("%v, want an error that names %s", err, address)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	_, err := metadatatopic.New(context.Background(), metadatatopic.Options{Policy: 7, IndexCacheBytes: -1})
	for _, field := range []string{"Seeds", "Storage", "Policy", "IndexCacheBytes"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	for _, p := range []metadatatopic.Policy{metadatatopic.NotLocal, metadatatopic.Tiered} {
		if got, err := metadatatopic.ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	if _, err := metadatatopic.ParsePolicy("always"); err == nil {
		t.Error("a policy that does not exist was taken")
	}
}

// TestOptionsOfAConsumer: a program that hands the resolver the options of its own consumer does not get a second consumer of its topics, and is told of what kgo will not have.
func TestOptionsOfAConsumer(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tiered(c, "t")
	fromStart := map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}
	for _, o := range [][]kgo.Opt{
		{kgo.ConsumePartitions(fromStart)}, {kgo.ConsumeTopics("t")}, {kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t")}, {kgo.ShareGroup("g"), kgo.ConsumeTopics("t")},
	} {
		r := open(t, c, metadatatopic.Options{Storage: nothing{}, ClientOptions: o})
		if topics := r.Consumed(); len(topics) != 0 {
			t.Errorf("the client that asks consumes %v", topics)
		}
	}
	for _, o := range [][]kgo.Opt{{kgo.ConsumerGroup("g"), kgo.DisableAutoCommit()}, {kgo.ConsumeRegex(), kgo.ConsumeTopics("t.*")}} {
		r, err := metadatatopic.New(context.Background(), metadatatopic.Options{Seeds: []string{c.address()}, Storage: nothing{}, ClientOptions: o})
		if err == nil {
			r.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "ClientOptions") {
			t.Errorf("%v does not name ClientOptions", err)
		}
	}
}

// TestTopicNotDescribed: a topic that the principal may not describe is the brokers', and the log says why, once.
func TestTopicNotDescribed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	tp := tiered(c, "secret")
	log := newLog()
	r := open(t, c, metadatatopic.Options{Storage: nothing{}, Logger: log.logger()})
	ready(t, r)
	c.set(func() { c.topics["secret"].err = errUnauthorized })
	for range 3 {
		_, err := r.Resolve(context.Background(), question(tp, 0, false))
		if !errors.Is(err, remote.ErrLocal) || !errors.Is(err, metadatatopic.ErrNotAllowed) || !strings.Contains(err.Error(), "Describe on topic secret") {
			t.Fatalf("%v", err)
		}
		if _, _, err := r.Topic(context.Background(), "secret", remotestorage.UUID{}); !errors.Is(err, metadatatopic.ErrNotAllowed) || !errors.Is(err, remote.ErrLocal) {
			t.Fatalf("%v", err)
		}
		if _, _, err := r.Topic(context.Background(), "", tp.TopicID); !errors.Is(err, metadatatopic.ErrNotAllowed) || !strings.Contains(err.Error(), "Describe on topic secret") {
			t.Fatalf("asked for by its id: %v", err)
		}
	}
	if n := log.count("Describe on topic secret"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
}
