package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/clientconn"
	"github.com/rewind-kafka/rewind/internal/session"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	keyFetch = 1

	// Fetch versions that are answered here. Below 4 record batches of today do not exist; above 18 we do not know the fields.
	minClientFetch = 4
	maxClientFetch = 18
	// firstTagged is the first version that carries our fields; firstByID the first that names topics by id.
	firstTagged = 12
	firstByID   = 13

	// sessionSlots is enough for a client that starts its session anew now and then.
	sessionSlots = 8
)

// Conn answers the fetches of one client connection. Its methods are the carrier's to call, one Answer at a time.
type Conn struct {
	h        *History
	peer     Peer
	hooks    Hooks
	carrier  *clientconn.Conn
	ctx      context.Context
	cancel   context.CancelFunc
	sessions *session.Cache // the client's fetch sessions
	tail     *tail
	access   *access
	tailing  sync.Once // the start of tail's goroutine
	running  sync.WaitGroup

	// Of Answer, which is called once at a time.
	streaming <-chan struct{} // closed when the answer that was streamed last has gone by; nil: none
	heldUntil time.Time       // the client is throttled
	mixing    bool            // the last answer was put together
	fetches   int64           // so many so far

	// Ids whose names the broker did not tell, since when. tail.use stands above both.
	untold   map[remotestorage.UUID]struct{}
	untoldAt time.Time

	reading  atomic.Int64 // partitions that are read directly
	turnOwed atomic.Bool  // one of them is to make room
	slow     atomic.Bool  // what the broker answers late in its own good time goes over the connection, too

	mu       sync.Mutex
	parts    map[partKey]*partition
	closed   bool // and parts are not counted any more
	names    map[remotestorage.UUID]string
	versions map[int16]versionRange // of the broker; nil: not asked yet
	forward  bool                   // Fetch is passed through on this connection
	throttle int32                  // owed to the client
	muted    time.Time              // until then the broker does not read what is sent, as it said
	nodes    []kmsg.FetchResponseBroker

	// watchMu is taken after a partition's mu, which is taken after mu.
	watchMu  sync.Mutex
	watching bool // refresh runs, or has ended with the connection
	swept    time.Time
}

type versionRange struct{ min, max int16 }

// partKey names a partition as the client does: by name, or from v13 on by id.
type partKey struct {
	topic     string
	id        remotestorage.UUID
	partition int32
}

func newConn(h *History, carrier *clientconn.Conn, p Peer) *Conn {
	c := &Conn{
		h: h, peer: p, hooks: p.Hooks, carrier: carrier, sessions: session.NewCache(sessionSlots),
		parts: make(map[partKey]*partition), names: make(map[remotestorage.UUID]string),
	}
	if c.hooks == nil {
		c.hooks = NoHooks{}
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.tail, c.access = newTail(c), newAccess(c)
	return c
}

// watch starts what looks after partitions that are read directly, unless it runs.
func (c *Conn) watch() {
	c.watchMu.Lock()
	defer c.watchMu.Unlock()
	if !c.watching {
		c.watchingLocked(true)
		c.running.Go(c.refresh)
	}
}

func (c *Conn) watchingLocked(now bool) {
	if c.watching != now {
		c.watching = now
		c.h.watching.Add(map[bool]int64{true: 1, false: -1}[now])
	}
}

// Close ends direct reading and waits for all that goes on. The carrier's Run has returned by then, so no Answer is under way.
func (c *Conn) Close() {
	c.cancel()
	c.mixes(false)
	c.mu.Lock()
	parts := make([]*partition, 0, len(c.parts))
	for _, p := range c.parts {
		parts = append(parts, p)
	}
	c.keptLocked(-int64(len(c.parts)))
	c.closed = true
	c.mu.Unlock()
	for _, p := range parts {
		p.close()
	}
	c.running.Wait()
	c.watchMu.Lock()
	defer c.watchMu.Unlock()
	c.watchingLocked(false)
}

// mixes says whether answers are put together now.
func (c *Conn) mixes(now bool) {
	if c.mixing != now {
		c.mixing = now
		c.h.mixing.Add(map[bool]int64{true: 1, false: -1}[now])
	}
}

// Wants is the carrier's question which requests to hand over. It is to be called for every request: a client that authenticates anew may be somebody else.
func (c *Conn) Wants(key, version int16) bool {
	if key == keySaslHandshake || key == keySaslAuthenticate {
		c.forgetAccess()
	}
	c.noteSlow(key)
	if key != keyFetch || version < minClientFetch || version > maxClientFetch {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.forward
}

// forgetAccess is called when the client authenticates: who comes after may be let read what the one before was not, and the other way round.
func (c *Conn) forgetAccess() {
	c.access.forget()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.parts {
		p.mu.Lock()
		p.served, p.left = question{}, left{}
		p.mu.Unlock()
	}
}

// upstreamVersion is the version of our own fetches for a client of this one, or false if the broker has none that carries our fields.
func (c *Conn) upstreamVersion(ctx context.Context, client int16) (int16, bool, error) {
	if client >= firstTagged || c.h.opts.Locations == nil && c.h.opts.RemoteMaxBytes == 0 {
		return client, true, nil // the client has found out that the broker speaks it
	}
	r, ok, err := c.version(ctx, keyFetch)
	return firstTagged, ok && r.min <= firstTagged && r.max >= firstTagged, err
}

// version asks the broker, once, what it speaks.
func (c *Conn) version(ctx context.Context, key int16) (versionRange, bool, error) {
	c.mu.Lock()
	known := c.versions
	c.mu.Unlock()
	if known == nil {
		resp, err := c.carrier.Request(ctx, kmsg.NewPtrApiVersionsRequest())
		if err != nil {
			return versionRange{}, false, fmt.Errorf("asking for the broker's versions: %w", err)
		}
		known = make(map[int16]versionRange)
		for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
			known[k.ApiKey] = versionRange{k.MinVersion, k.MaxVersion}
		}
		c.mu.Lock()
		c.versions = known
		c.mu.Unlock()
	}
	r, ok := known[key]
	return r, ok, nil
}

// topicName finds the name behind an id: ListOffsets knows no ids, and errors are for people.
func (c *Conn) topicName(ctx context.Context, k partKey) (string, error) {
	if k.topic != "" {
		return k.topic, nil
	}
	c.mu.Lock()
	name, ok := c.names[k.id]
	c.mu.Unlock()
	if ok {
		return name, nil
	}
	if err := c.askNames(ctx, k.id); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if name, ok = c.names[k.id]; !ok {
		return "", fmt.Errorf("the broker does not tell the name of topic %s", k.id)
	}
	return name, nil
}

// askNames asks the broker for the names behind ids, and keeps those that it tells.
func (c *Conn) askNames(ctx context.Context, ids ...remotestorage.UUID) error {
	const byID = 12 // the first version that asks by id
	req := kmsg.NewPtrMetadataRequest()
	req.Version = byID
	for _, id := range ids {
		t := kmsg.NewMetadataRequestTopic()
		t.TopicID = id
		req.Topics = append(req.Topics, t)
	}
	resp, err := c.carrier.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("asking for the names of %d topics: %w", len(ids), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		if t.ErrorCode == 0 && t.Topic != nil {
			c.names[t.TopicID] = *t.Topic
		}
	}
	return nil
}

// learnNames asks for the names of topics that the client calls by their ids, where it depends on them whether upstream is asked for locations. It is called with tail.use held.
func (c *Conn) learnNames(ctx context.Context, d *demand) {
	if c.h.opts.Locations == nil || c.h.opts.Allow == nil {
		return
	}
	// What could not be learnt is the broker's meanwhile, and not asked for with each fetch.
	if time.Since(c.untoldAt) > notReadyFor {
		c.untold, c.untoldAt = make(map[remotestorage.UUID]struct{}), time.Now()
	}
	unknown := make(map[remotestorage.UUID]struct{}) // clients name very many
	c.mu.Lock()
	for _, p := range d.parts {
		_, known := c.names[p.key.id]
		if _, untold := c.untold[p.key.id]; p.key.topic == "" && !known && !untold {
			unknown[p.key.id] = struct{}{}
		}
	}
	c.mu.Unlock()
	if len(unknown) == 0 {
		return
	}
	_ = c.askNames(ctx, slices.Collect(maps.Keys(unknown))...) // as above
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range unknown {
		if _, ok := c.names[id]; !ok {
			c.untold[id] = struct{}{}
		}
	}
}

// mayLocate tells whether upstream may be asked where the history of a partition lies, and it may be read there. Of a topic whose name is not known nobody can tell.
func (c *Conn) mayLocate(k partKey) bool {
	if c.h.opts.Locations == nil || c.h.opts.Allow == nil {
		return c.h.opts.Locations != nil
	}
	name := k.topic
	if name == "" {
		c.mu.Lock()
		name = c.names[k.id]
		c.mu.Unlock()
	}
	return name != "" && c.h.allows(name)
}

// nameOf is the topic's name for people, or its id where the name has not been learnt.
func (c *Conn) nameOf(k partKey) string {
	if k.topic != "" {
		return k.topic
	}
	if tp, ok := c.h.topics.known(k); ok {
		return tp.Topic
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if name, ok := c.names[k.id]; ok {
		return name
	}
	return k.id.String()
}

// keptLocked counts the partitions that are kept for the connection, until it is closed.
func (c *Conn) keptLocked(n int64) {
	if !c.closed {
		c.h.partitions.Add(n)
	}
}

// partition finds or makes the state of one, which is then kept for a while.
func (c *Conn) partition(k partKey) *partition {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.parts[k]
	if p == nil {
		p = &partition{c: c, key: k, hw: -1, lso: -1, logStart: -1}
		c.parts[k] = p
		c.keptLocked(1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = now
	return p
}

// sweep lists the partitions that are to be looked after, and drops those that the client has not asked for in a while: paused, revoked or gone elsewhere.
func (c *Conn) sweep() (watched []*partition) {
	now := time.Now()
	c.watchMu.Lock()
	c.swept = now
	c.watchMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, p := range c.parts {
		switch p.look(now) {
		case stateDirect, stateFallback:
			watched = append(watched, p)
		case stateGone:
			delete(c.parts, k)
			c.keptLocked(-1)
			c.tail.forgot.Store(true)
		}
	}
	return watched
}

// sweepNowAndThen does it with a fetch where refresh does not run.
func (c *Conn) sweepNowAndThen() {
	c.watchMu.Lock()
	due := !c.watching && time.Since(c.swept) > idleAfter
	c.watchMu.Unlock()
	if due {
		c.sweep()
	}
}
