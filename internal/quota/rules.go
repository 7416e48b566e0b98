package quota

import "net/netip"

// Kind is what a client's quota limits.
type Kind uint8

const (
	Produce  Kind = iota // bytes of Produce requests, a second
	Fetch                // bytes of Fetch answers and of what locations in them say
	Request              // percents of one processor's time
	Mutation             // partitions made or deleted, a second
	kinds
)

func (k Kind) String() string {
	return [...]string{"produce", "fetch", "request", "controller_mutation"}[k]
}

var names = [kinds]string{ProducerByteRate, ConsumerByteRate, RequestPercentage, ControllerMutationRate}

// Rules are a table made ready for use. They do not change.
type Rules struct {
	clients [kinds]map[pair]float64
	ips     map[netip.Addr]float64
	ip      float64 // of addresses without a quota of their own
	hasIP   bool
}

// pair is a user and a client id; either may be left out, or stand for all.
type pair struct{ user, client Part }

// NewRules makes a table ready.
func NewRules(t Table) *Rules {
	r := &Rules{ips: make(map[netip.Addr]float64)}
	for e, values := range t {
		if e.IP.Given {
			r.addIP(&e, values[ConnectionCreationRate])
			continue
		}
		for k, name := range names {
			if v, ok := values[name]; ok {
				if r.clients[k] == nil {
					r.clients[k] = make(map[pair]float64)
				}
				r.clients[k][pair{e.User, e.ClientID}] = v
			}
		}
	}
	return r
}

func (r *Rules) addIP(e *Entity, rate float64) {
	if rate <= 0 {
		return
	}
	if e.IP.Default {
		r.ip, r.hasIP = rate, true
	} else if a, err := netip.ParseAddr(e.IP.Name); err == nil {
		r.ips[a.Unmap().WithZone("")] = rate
	}
}

// owner is who shares a bucket: a user with all its client ids, a client id whatever its user, or one client id of one user.
type owner struct{ user, client string }

// limit finds the quota of a client: the most particular goes first, and one about the user goes before one about the client id.
func (r *Rules) limit(k Kind, user, client string) (float64, owner, bool) {
	m := r.clients[k]
	if len(m) == 0 {
		return 0, owner{}, false
	}
	var none Part
	u, c, all := Named(user), Named(client), ByDefault()
	both, justUser, justClient := owner{user, client}, owner{user: user}, owner{client: client}
	for _, try := range [...]struct {
		pair
		owner owner
	}{
		{pair{u, c}, both}, {pair{u, all}, both}, {pair{u, none}, justUser}, {pair{all, c}, both},
		{pair{all, all}, both}, {pair{all, none}, justUser}, {pair{none, c}, justClient}, {pair{none, all}, justClient},
	} {
		if client == "" && try.client.Given {
			continue // who has no client id has no quota by it
		}
		if v, ok := m[try.pair]; ok {
			return v, try.owner, true
		}
	}
	return 0, owner{}, false
}

// ipLimit is how many connections a second an address may make.
func (r *Rules) ipLimit(a netip.Addr) (float64, bool) {
	if v, ok := r.ips[a]; ok {
		return v, true
	}
	return r.ip, r.hasIP
}
