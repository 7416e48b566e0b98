package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// A gateway's upstream may be another gateway, and is not to lead back: each connection would make both of them open the next one. So every address is asked what it is before a
// client's connection is carried there. A broker skips the question. A gateway asks on, wherever its own upstream is not known to be a broker, and answers with its id and all that
// it was told; the question holds the ids of those that have asked, and ends where it comes back to one of them. Whoever has no answer yet looks at the first request of a
// connection before it is carried, so that gateways that have just met can ask each other.
const (
	// probePatience bounds one question; of those that are asked on each is given a little less. An address that does not answer may be a broker of another kind, or slow: it is used,
	// and asked again with the next connection.
	probePatience, patienceLess = 3 * time.Second, 300 * time.Millisecond
	// maxChain is how many gateways a question is passed through.
	maxChain = 8
	// wayKept is how long an answer is good before a poll asks again.
	wayKept = time.Minute
	// maxVersionsFrame bounds an answer.
	maxVersionsFrame = 1 << 20
	// probesAtOnce bounds the questions of one survey.
	probesAtOnce = 16
)

// errLoop: the upstream leads back to this gateway, by way of others.
var errLoop = fmt.Errorf("%w: it is another gateway, which leads back to this one: upstream.bootstrap.servers of one of them must lead to the brokers themselves, and the brokers must not "+
	"advertise a gateway's address on the listener that it names", errUnfit)

// ways is what is known of the addresses that connections are carried to.
type ways struct {
	id wire.GatewayID

	mu sync.Mutex
	m  map[string]*way
}

type way struct {
	known answered
	busy  chan struct{} // closed at the end of the question that is under way; nil: none is
}

// answered is what a question has brought. The zero value: nothing yet.
type answered struct {
	at      time.Time
	ok      bool             // there was an answer
	through []wire.GatewayID // the gateways behind the address; none: it is a broker
	gives   bool             // it answers with locations, by its own word
	err     error            // errLoop, or why there was no connection
}

func newWays() *ways {
	w := &ways{m: make(map[string]*way)}
	rand.Read(w.id[:]) // never fails
	return w
}

// take gives an address' state, and whether the caller is to ask: if nothing is known, or what is known is old or does not serve.
func (w *ways) take(addr string, age time.Duration) (known answered, busy chan struct{}, ask bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.m[addr]
	if e == nil {
		e = &way{}
		w.m[addr] = e
	}
	if e.busy != nil {
		return e.known, e.busy, false
	}
	since := time.Since(e.known.at)
	switch {
	case e.known.ok && since < age:
		return e.known, nil, false
	}
	e.busy = make(chan struct{})
	return e.known, e.busy, true
}

// put ends a question. It gives what was known before.
func (w *ways) put(addr string, a answered) (before answered) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.m[addr]
	before = e.known
	if !a.ok {
		a.through = before.through // nothing new was heard
	}
	e.known = a
	close(e.busy)
	e.busy = nil
	return before
}

func (w *ways) find(addr string) answered {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.m[addr]; e != nil {
		return e.known
	}
	return answered{}
}

// follow tells whether connections may be carried to a broker: not if it leads back here. What was heard within age counts.
func (g *Gateway) follow(ctx context.Context, b Broker, age time.Duration) error {
	if g.opts.PollInterval < 0 {
		return nil // nobody is asked anything
	}
	addr := b.addr()
	known, busy, ask := g.ways.take(addr, age)
	switch {
	case ask:
		known = g.probe(ctx, b, nil)
		before := g.ways.put(addr, known)
		g.judged(b, before, known)
	case busy != nil:
		select {
		case <-busy:
			known = g.ways.find(addr)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return known.err
}

// judged tells of an address that has turned out to lead back, and ends what leads there.
func (g *Gateway) judged(b Broker, before, now answered) {
	if !errors.Is(now.err, errLoop) {
		if !errors.Is(before.err, errLoop) && len(now.through) > len(before.through) {
			g.log.Info("the upstream is another gateway", "address", b.addr(), "gateways", len(now.through))
		}
		return
	}
	if !errors.Is(before.err, errLoop) {
		g.log.Error("the upstream leads back to this gateway; clients are not carried there", "address", b.addr(), "err", now.err)
	}
	g.mu.Lock()
	var lost []*conn
	for c := range g.conns {
		if _, addr := c.leadsTo(); addr == b.addr() {
			lost = append(lost, c)
		}
	}
	g.mu.Unlock()
	for _, c := range lost {
		c.stop()
	}
}

// path is this gateway and all that lie behind it on the way to a broker, or to any, for a question that has come by way of trail.
func (g *Gateway) path(ctx context.Context, id int32, trail []wire.GatewayID) []wire.GatewayID {
	ids := []wire.GatewayID{g.ways.id}
	if slices.Contains(trail, g.ways.id) || len(trail) >= maxChain {
		return ids
	}
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(probesAtOnce)
	for _, b := range g.targets(id) {
		known := g.ways.find(b.addr())
		if known.ok && len(known.through) == 0 {
			continue // a broker
		}
		asking.Go(func() error {
			a := g.probe(ctx, b, trail)
			if !a.ok {
				a.through = known.through // a process that is gone has taken its id along
			}
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, a.through...)
			return nil
		})
	}
	_ = asking.Wait() // none fails
	var unique []wire.GatewayID
	for _, id := range ids {
		if !slices.Contains(unique, id) {
			unique = append(unique, id)
		}
	}
	return unique
}

// probe asks an address what it is, for itself or for those whose question it was.
func (g *Gateway) probe(ctx context.Context, b Broker, trail []wire.GatewayID) answered {
	ctx, cancel := context.WithTimeout(ctx, probePatience-time.Duration(len(trail))*patienceLess)
	defer cancel()
	l, err := g.dialBroker(ctx, b)
	if err != nil {
		return answered{at: time.Now(), err: err}
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	ids, gives, err := l.askGateways(append(slices.Clone(trail), g.ways.id))
	a := answered{at: time.Now(), ok: err == nil, through: ids, gives: gives}
	if slices.Contains(ids, g.ways.id) {
		a.err = fmt.Errorf("connecting to broker %s: %w", b.addr(), errLoop)
	}
	return a
}

// askGateways asks for the gateways behind a connection, and whether locations are given there, in the words of an ApiVersions request: the one that may come before any authentication.
func (l *link) askGateways(trail []wire.GatewayID) (ids []wire.GatewayID, gives bool, err error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "rewind-gateway", "1"
	wire.SetGateways(&req.UnknownTags, trail)
	id := "rewind-gateway"
	if _, err := l.Write(wire.AppendRequest(nil, req, 1, &id)); err != nil {
		return nil, false, err
	}
	frame, err := wire.ReadFrame(l, maxVersionsFrame, nil)
	if err != nil {
		return nil, false, err
	}
	_, body, err := wire.ResponseBody(frame, req.Key(), req.Version)
	if err != nil {
		return nil, false, err
	}
	resp := kmsg.ApiVersionsResponse{Version: versionsOf(req.Version, body)}
	if err := resp.ReadFrom(body); err != nil {
		return nil, false, err
	}
	ids, _, err = wire.Gateways(&resp.UnknownTags)
	return ids, wire.GivesLocations(&resp.UnknownTags), err
}

// askedFor answers that question; false: the request is none.
func (g *Gateway) askedFor(ctx context.Context, id int32, req wire.RequestHeader) ([]byte, bool) {
	if req.Key != keyApiVersions || req.Version < 3 || req.Version > maxVersion(keyApiVersions) {
		return nil, false
	}
	r, err := decode(req)
	if err != nil {
		return nil, false // the broker's to judge
	}
	trail, ok, err := wire.Gateways(&r.(*kmsg.ApiVersionsRequest).UnknownTags)
	if !ok || err != nil {
		return nil, false
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = req.Version
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MaxVersion = keyApiVersions, maxVersion(keyApiVersions)
	resp.ApiKeys = append(resp.ApiKeys, k)
	wire.SetGateways(&resp.UnknownTags, g.path(ctx, id, trail))
	if g.givesLocations(id) {
		wire.SetGivesLocations(&resp.UnknownTags)
	}
	return wire.AppendResponse(nil, resp, req.CorrelationID), true
}

// survey asks several addresses side by side. If all of them lead back, it is an error.
func (g *Gateway) survey(ctx context.Context, brokers []Broker, age time.Duration) error {
	errs := make([]error, len(brokers))
	var asking errgroup.Group
	asking.SetLimit(probesAtOnce)
	for i, b := range brokers {
		asking.Go(func() error { errs[i] = g.follow(ctx, b, age); return nil })
	}
	_ = asking.Wait() // none fails
	for _, err := range errs {
		if !errors.Is(err, errLoop) {
			return nil
		}
	}
	return errors.Join(errs...)
}

// looped is the error of a gateway whose whole upstream leads back to it, by what was heard last.
func (g *Gateway) looped() error {
	var errs []error
	for _, b := range g.seeds() {
		err := g.ways.find(b.addr()).err
		if !errors.Is(err, errLoop) {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// doubtful tells whether a connection for the broker, or for any, might be carried to an address that has not answered yet, or that leads back: whoever asks is to be told.
func (g *Gateway) doubtful(id int32) bool {
	if g.opts.PollInterval < 0 {
		return false
	}
	return slices.ContainsFunc(g.targets(id), g.doubted)
}

// targets are where connections for a broker are carried to; those of one that is not known, to any that was configured.
func (g *Gateway) targets(id int32) []Broker {
	if b, ok := g.nodes.find(id); ok {
		return []Broker{b}
	}
	return g.seeds()
}

func (g *Gateway) doubted(b Broker) bool {
	a := g.ways.find(b.addr())
	return !a.ok || a.err != nil
}
