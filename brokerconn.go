package rewind

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	keyFetch       = 1
	keyListOffsets = 2
	keyMetadata    = 3

	// Fetch versions that are answered here. Below 4 record batches of today do not exist; above 18 we do not know the fields.
	minClientFetch = 4
	maxClientFetch = 18
	// firstTagged is the first version that carries our fields; firstByID the first that names topics by id.
	firstTagged = 12
	firstByID   = 13

	// sessionSlots is enough for a client that starts its session anew now and then.
	sessionSlots = 8
)

// brokerConn is one connection of a client to one broker. The carrier calls it for each fetch; run owns its goroutines.
type brokerConn struct {
	d        *Dialer
	host     string // as dialled: part of what is trusted
	upstream net.Conn
	pipe     *pipe
	carrier  *clientconn.Conn
	ctx      context.Context
	cancel   context.CancelFunc
	sessions *session.Cache // the client's fetch sessions
	tail     *tail
	running  sync.WaitGroup

	mu       sync.Mutex
	parts    map[partKey]*partition
	names    map[remotestorage.UUID]string
	versions map[int16]versionRange // of the broker; nil: not asked yet
	forward  bool                   // Fetch is passed through on this connection
	throttle int32                  // owed to the client
	nodes    []kmsg.FetchResponseBroker
}

type versionRange struct{ min, max int16 }

// partKey names a partition as the client does: by name, or from v13 on by id.
type partKey struct {
	topic     string
	id        remotestorage.UUID
	partition int32
}

func newBrokerConn(d *Dialer, upstream net.Conn, host string) *brokerConn {
	b := &brokerConn{
		d: d, host: host, upstream: upstream, pipe: newPipe(upstream.LocalAddr(), upstream.RemoteAddr()), sessions: session.NewCache(sessionSlots),
		parts: make(map[partKey]*partition), names: make(map[remotestorage.UUID]string),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.carrier = clientconn.New(carrierEnd{b.pipe}, upstream, clientconn.Options{})
	b.tail = newTail(b)
	return b
}

// run carries the connection until it ends, and leaves nothing behind.
func (b *brokerConn) run() {
	b.running.Go(b.tail.run)
	b.running.Go(b.refresh)
	if err := b.carrier.Run(b); err != nil {
		b.d.opts.Logger.Warn("connection to a broker ended", "broker", b.upstream.RemoteAddr().String(), "err", err)
	}
	b.cancel()
	b.mu.Lock()
	parts := make([]*partition, 0, len(b.parts))
	for _, p := range b.parts {
		parts = append(parts, p)
	}
	b.mu.Unlock()
	for _, p := range parts {
		p.close()
	}
	b.running.Wait()
}

// Wants is the carrier's question which requests to hand over.
func (b *brokerConn) Wants(key, version int16) bool {
	if key != keyFetch || version < minClientFetch || version > maxClientFetch {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.forward
}

// upstreamVersion is the version of our own fetches for a client of this one, or false if the broker has none that carries our fields.
func (b *brokerConn) upstreamVersion(ctx context.Context, client int16) (int16, bool, error) {
	if client >= firstTagged {
		return client, true, nil // the client has found out that the broker speaks it
	}
	r, ok, err := b.version(ctx, keyFetch)
	return firstTagged, ok && r.min <= firstTagged && r.max >= firstTagged, err
}

// version asks the broker, once, what it speaks.
func (b *brokerConn) version(ctx context.Context, key int16) (versionRange, bool, error) {
	b.mu.Lock()
	known := b.versions
	b.mu.Unlock()
	if known == nil {
		resp, err := b.carrier.Request(ctx, kmsg.NewPtrApiVersionsRequest())
		if err != nil {
			return versionRange{}, false, fmt.Errorf("asking for the broker's versions: %w", err)
		}
		known = make(map[int16]versionRange)
		for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
			known[k.ApiKey] = versionRange{k.MinVersion, k.MaxVersion}
		}
		b.mu.Lock()
		b.versions = known
		b.mu.Unlock()
	}
	r, ok := known[key]
	return r, ok, nil
}

// topicName finds the name behind an id: ListOffsets knows no ids, and errors are for people.
func (b *brokerConn) topicName(ctx context.Context, k partKey) (string, error) {
	if k.topic != "" {
		return k.topic, nil
	}
	b.mu.Lock()
	name, ok := b.names[k.id]
	b.mu.Unlock()
	if ok {
		return name, nil
	}
	const byID = 12 // the first version that asks by id
	id := [16]byte(k.id)
	req := kmsg.NewPtrMetadataRequest()
	req.Version = byID
	t := kmsg.NewMetadataRequestTopic()
	t.TopicID = id
	req.Topics = append(req.Topics, t)
	resp, err := b.carrier.Request(ctx, req)
	if err != nil {
		return "", fmt.Errorf("asking for the name of topic %s: %w", k.id, err)
	}
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		if t.TopicID == id && t.ErrorCode == 0 && t.Topic != nil {
			b.mu.Lock()
			b.names[k.id] = *t.Topic
			b.mu.Unlock()
			return *t.Topic, nil
		}
	}
	return "", fmt.Errorf("the broker does not tell the name of topic %s", k.id)
}

// partition finds or makes the state of one.
func (b *brokerConn) partition(k partKey) *partition {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parts[k]
	if p == nil {
		p = &partition{b: b, key: k, hw: -1, lso: -1, logStart: -1, served: -1}
		b.parts[k] = p
	}
	return p
}

// direct lists the partitions that are read directly, and drops those that the client has not asked for in a while: paused, revoked or gone elsewhere.
func (b *brokerConn) direct() []*partition {
	b.mu.Lock()
	parts := make([]*partition, 0, len(b.parts))
	for _, p := range b.parts {
		parts = append(parts, p)
	}
	b.mu.Unlock()
	direct := parts[:0]
	for _, p := range parts {
		switch p.state(time.Now()) {
		case stateDirect:
			direct = append(direct, p)
		case stateIdle:
			p.close()
			b.mu.Lock()
			delete(b.parts, p.key)
			b.mu.Unlock()
		}
	}
	return direct
}
