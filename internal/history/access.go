package history

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
)

const (
	keyMetadata         = 3
	keySaslHandshake    = 17
	keySaslAuthenticate = 36

	// accessKept is how long the cluster's word on a topic is good; accessRenewed how old it may be before it is asked for again while the topic is read directly.
	accessKept    = 5 * time.Second
	accessRenewed = 2 * time.Second
	// maxAsks bounds how often one search asks: what was learnt is forgotten if the client authenticates meanwhile.
	maxAsks = 3
	// maxAccess bounds what is remembered of one connection.
	maxAccess = 1000

	// readBit is that of AclOperation READ in topic authorized operations.
	readBit = 1 << 3
	// operationsFrom is the first Metadata version that tells them; operationsByName the last one that is used here.
	operationsFrom, operationsByName = 8, 12
)

// errNoRead: the cluster does not let this client read the topic, so the broker is to say so.
var errNoRead = fmt.Errorf("the cluster does not let the client read the topic: %w", remote.ErrLocal)

// access knows what the cluster lets the client of this connection read. It asks on the client's own, authenticated connection, so that whatever authorizer the
// cluster has decides; without one it answers that all is allowed.
type access struct {
	c *Conn

	mu       sync.Mutex
	verdicts map[string]verdict
	login    int // counts authentications: what was asked before one says nothing about who comes after
	asking   map[string]chan struct{}
}

type verdict struct {
	read bool
	at   time.Time
}

func newAccess(c *Conn) *access {
	return &access{c: c, verdicts: make(map[string]verdict), asking: make(map[string]chan struct{})}
}

// forget is called when the client authenticates.
func (a *access) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.login++
	clear(a.verdicts)
}

// known gives the cluster's word on a topic if it is fresh.
func (a *access) known(topic string) (read, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, ok := a.verdicts[topic]
	return v.read, ok && time.Since(v.at) < accessKept
}

// due lists which of the topics are to be asked for again.
func (a *access) due(topics map[string]struct{}) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for t := range topics {
		if v, ok := a.verdicts[t]; !ok || time.Since(v.at) >= accessRenewed {
			out = append(out, t)
		}
	}
	return out
}

// check is known, or asks. Those who come while it is being asked about the same topic share the answer.
func (a *access) check(ctx context.Context, topic string) error {
	for try := 0; ; try++ {
		if read, ok := a.known(topic); ok {
			if read {
				return nil
			}
			return errNoRead
		}
		if try == maxAsks {
			return fmt.Errorf("the client keeps authenticating anew: %w", remote.ErrLocal)
		}
		a.mu.Lock()
		done, other := a.asking[topic]
		if !other {
			done = make(chan struct{})
			a.asking[topic] = done
		}
		a.mu.Unlock()
		if other {
			select {
			case <-done:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := a.askForAll(topic)
		a.mu.Lock()
		delete(a.asking, topic)
		a.mu.Unlock()
		close(done)
		if err != nil {
			return err
		}
	}
}

// askForAll does not end with the search that came first: others wait for the answer, and a client that seeks to and fro would have the same asked again each time.
func (a *access) askForAll(topic string) error {
	ctx, cancel := context.WithTimeout(a.c.ctx, findDeadline)
	defer cancel()
	return a.ask(ctx, topic)
}

// ask asks the cluster. What it does not say is no.
func (a *access) ask(ctx context.Context, topics ...string) error {
	if len(topics) == 0 {
		return nil
	}
	v, ok, err := a.c.version(ctx, keyMetadata)
	switch {
	case err != nil:
		return err
	case !ok || v.max < operationsFrom:
		return fmt.Errorf("the broker does not tell what a client may read: %w", remote.ErrLocal)
	}
	a.mu.Lock()
	login := a.login
	a.mu.Unlock()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = min(v.max, operationsByName)
	req.AllowAutoTopicCreation, req.IncludeTopicAuthorizedOperations = false, true
	for _, t := range topics {
		q := kmsg.NewMetadataRequestTopic()
		q.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, q)
	}
	resp, err := a.c.carrier.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("asking the cluster what the client may read: %w", err)
	}
	read := make(map[string]bool, len(topics))
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		if t.Topic != nil {
			// The least int32 stands for "not told".
			read[*t.Topic] = t.ErrorCode == 0 && t.AuthorizedOperations >= 0 && t.AuthorizedOperations&readBit != 0
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if login != a.login {
		return nil
	}
	if len(a.verdicts)+len(topics) > maxAccess {
		clear(a.verdicts)
	}
	now := time.Now()
	for _, t := range topics {
		a.verdicts[t] = verdict{read[t], now}
	}
	return nil
}
