package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// maxPolled bounds the answer to a question for brokers alone.
const maxPolled = 16 << 20

// unaskedAgain: where the brokers want authentication, they are asked only every so many polls. Each try costs them a line in their logs.
const unaskedAgain = 60

// poll asks for the brokers again and again, so that those that come or move are known before a client hears of them.
func (g *Gateway) poll() {
	tick := time.NewTicker(g.opts.PollInterval)
	defer tick.Stop()
	for skip := 0; ; skip-- {
		select {
		case <-tick.C:
		case <-g.ctx.Done():
			return
		}
		g.reopen()
		g.lookAgain()
		g.noteLocations()
		if skip > 0 {
			g.tryDialling(g.ctx) // it may go meanwhile
			continue
		}
		err := g.ask(g.ctx)
		unasked := errors.Is(err, errUnasked)
		if unasked {
			skip = unaskedAgain
		}
		if err != nil && !unasked && g.ctx.Err() == nil && g.notes.due("poll") {
			g.log.Warn("the cluster does not tell its brokers", "err", err)
		}
	}
}

// lookAgain asks the brokers again whether they lead back here, and those that are gateways each time: where these lead to may have changed.
func (g *Gateway) lookAgain() {
	var brokers, gateways []Broker
	for _, b := range append(g.seeds(), g.nodes.all()...) {
		if len(g.ways.find(b.addr()).through) > 0 {
			gateways = append(gateways, b)
		} else {
			brokers = append(brokers, b)
		}
	}
	_ = errors.Join(g.survey(g.ctx, brokers, wayKept), g.survey(g.ctx, gateways, 0)) // judged has told
}

// reopen tries listeners that could not be opened, and those of brokers that another gateway has put into the map.
func (g *Gateway) reopen() {
	if g.opts.SNIDomain != "" {
		return
	}
	if err := g.ports.refresh(); err != nil && g.notes.due("port file") {
		g.log.Error("the port map cannot be read", "err", err)
	}
	ids := sortedIDs(g.ports.known())
	for _, b := range g.nodes.all() {
		ids = append(ids, b.ID)
	}
	for _, id := range ids {
		if g.BrokerAddr(id) == nil {
			g.learn.Lock()
			g.open(id)
			g.learn.Unlock()
		}
	}
}

// ask asks the cluster for its brokers.
func (g *Gateway) ask(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, 2*g.opts.DialTimeout)
	defer cancel()
	list := g.listBrokers
	if g.opts.Brokers != nil {
		list = g.opts.Brokers
	}
	brokers, err := list(limited)
	switch {
	case errors.Is(err, errUnasked):
		g.answered() // to hang up is an answer
		return err
	case err != nil:
		g.tryDialling(ctx)
		return err
	}
	g.learned(brokers)
	return nil
}

// tryDialling finds out whether clients can be carried to any broker: that the gateway is told nothing may be its own principal's trouble.
func (g *Gateway) tryDialling(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*g.opts.DialTimeout)
	defer cancel()
	l, err := g.dialAny(ctx)
	if err == nil {
		_ = l.Close() // nothing was said
	}
	g.dialled(err)
}

// listBrokers asks any broker, without authentication.
func (g *Gateway) listBrokers(ctx context.Context) ([]Broker, error) {
	l, err := g.dialAny(ctx)
	if err != nil {
		return nil, err
	}
	brokers, err := l.listBrokers(ctx)
	// Apache Kafka sends an alert of TLS, which is no frame; others hang up.
	if errors.Is(err, errUnasked) || errors.Is(err, wire.ErrFrameTooLarge) {
		if mixed := g.mixedUp(ctx, l.broker); mixed != nil {
			return nil, mixed
		}
	}
	return brokers, err
}

func (l *link) listBrokers(ctx context.Context) ([]Broker, error) {
	defer l.Close()
	if until, ok := ctx.Deadline(); ok {
		if err := l.SetDeadline(until); err != nil {
			return nil, err
		}
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 4 // no topic is created; every broker since Kafka 1.0 speaks it, up to those of today
	req.Topics = []kmsg.MetadataRequestTopic{}
	id := "rewind-gateway"
	if _, err := l.Write(wire.AppendRequest(nil, req, 1, &id)); err != nil {
		return nil, fmt.Errorf("asking broker %s for the brokers: %w", l.broker.addr(), err)
	}
	frame, err := wire.ReadFrame(l, maxPolled, nil)
	if err != nil {
		return nil, fmt.Errorf("asking broker %s for the brokers: %w", l.broker.addr(), l.askError(err))
	}
	_, body, err := wire.ResponseBody(frame, req.Key(), req.Version)
	resp := kmsg.MetadataResponse{Version: req.Version}
	if err == nil {
		err = resp.ReadFrom(body)
	}
	if err != nil || binary.BigEndian.Uint32(frame) != 1 {
		return nil, fmt.Errorf("broker %s gave no metadata: %w", l.broker.addr(), errors.Join(err, wire.ErrMalformed))
	}
	return metadataBrokers(&resp), nil
}

// askError tells apart why there is no answer.
func (l *link) askError(err error) error {
	switch {
	case errors.Is(err, errUnfit):
		return err
	case hungUp(err):
		return fmt.Errorf("%w: %w", errUnasked, err)
	case errors.Is(err, wire.ErrFrameTooLarge), errors.Is(err, wire.ErrMalformed):
		return fmt.Errorf("%w: %w", errUnfit, err)
	}
	return err
}

// learned takes note of brokers before a client hears of them: those that came get their listeners, connections to those that moved end. It may be called from
// any goroutine.
func (g *Gateway) learned(brokers []Broker) {
	came, moved := g.nodes.learn(brokers)
	g.answered()
	for _, id := range came {
		b, _ := g.nodes.find(id)
		g.log.Info("broker", "id", id, "address", b.addr())
	}
	if g.opts.SNIDomain == "" {
		g.learn.Lock()
		for _, b := range brokers {
			if b.ID >= 0 && b.Host != "" && g.BrokerAddr(b.ID) == nil {
				g.open(b.ID)
			}
		}
		g.learn.Unlock()
	}
	for _, id := range moved {
		b, _ := g.nodes.find(id)
		g.log.Info("a broker has moved", "id", id, "address", b.addr())
	}
	if len(came)+len(moved) > 0 {
		g.endStrays()
	}
}

// endStrays ends connections for a broker that lead elsewhere than to where it is: it has moved, or was not known when the client came.
func (g *Gateway) endStrays() {
	g.mu.Lock()
	open := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		open = append(open, c)
	}
	g.mu.Unlock()
	for _, c := range open {
		id, addr := c.leadsTo()
		if b, ok := g.nodes.find(id); ok && addr != "" && b.addr() != addr {
			g.log.Info("a connection ends: its broker is elsewhere", "peer", c.peer, "broker", id, "was", addr, "is", b.addr())
			c.drain()
		}
	}
}
