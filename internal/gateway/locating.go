package gateway

import (
	"errors"
	"slices"
)

// errNoLocations: what a sidecar is told of history, it is told by nobody.
var errNoLocations = errors.New("the upstream does not say that it answers with locations, and none has come: everything is read through it. Let upstream.bootstrap.servers lead to a rewind gateway or " +
	"broker that gives them (remote.fetch.location.enable), or give a store and resolve=metadata here, if it is an Apache Kafka with tiered storage; rewind doctor --upstream tells which it is")

// givesLocations tells whether clients of a broker's listener are answered with locations, here or, where nothing is read here, further up.
func (g *Gateway) givesLocations(id int32) bool {
	if h := g.opts.History; h != nil {
		return h.Offer && h.Resolver != nil
	}
	return slices.ContainsFunc(g.targets(id), func(b Broker) bool { return g.ways.find(b.addr()).gives })
}

// Locations tells, of a gateway that follows locations, why none can come. nil: they do, or may, or nothing is known of the upstream yet.
func (g *Gateway) Locations() error {
	if h := g.opts.History; h == nil || h.Locations == nil || g.metrics.locationsCame.Load() {
		return nil
	}
	answers := false
	for _, b := range g.seeds() {
		a := g.ways.find(b.addr())
		if a.gives {
			return nil
		}
		answers = answers || a.ok && a.err == nil
	}
	if answers {
		return errNoLocations
	}
	return nil
}

// noteLocations tells once that no locations are to come, and once if they do after all.
func (g *Gateway) noteLocations() {
	switch err := g.Locations(); {
	case err != nil && g.missing.CompareAndSwap(false, true):
		g.log.Warn("history is not read from the store", "upstream", g.opts.Upstream, "err", err)
	case err == nil && g.missing.CompareAndSwap(true, false):
		g.log.Info("the upstream answers with locations", "upstream", g.opts.Upstream)
	}
}
