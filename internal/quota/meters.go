package quota

import (
	"crypto/sha256"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Windows are quota.window.num and quota.window.size.seconds, or the controller's.
type Windows struct {
	Num  int
	Size time.Duration
}

// span is for how long a client may use at once what its quota gives it: the windows but for the one that is not full yet.
func (w Windows) span() float64 { return float64(max(1, w.Num-1)) * w.Size.Seconds() }

// Meters hold what clients have used, against the rules in force.
type Meters struct {
	rules   atomic.Pointer[Rules]
	spans   [kinds]float64 // seconds
	longest time.Duration  // that a client waits for time of requests, or for a connection

	mu          sync.Mutex
	buckets     [kinds]map[owner]*bucket
	connections map[netip.Addr]*bucket
	sweepAt     int       // so many buckets: those that are empty go
	swept       time.Time // not again at once: it takes as long as there are buckets
}

const (
	firstSweep = 1024
	sweepEvery = time.Second
	// maxBuckets bounds the memory that clients which change their ids can take: whoever comes after shares one bucket. maxName bounds what is kept of a name, which
	// may have 32 KiB: of a longer one it is a digest.
	maxBuckets = 200_000
	maxName    = 128
)

// overflow is who has found no place.
var overflow = owner{"\x00", "\x00"}

// bucket is how much was used and has not leaked yet.
type bucket struct {
	level float64
	at    time.Time
	rate  float64 // where a name of the owner is a digest, which no rule knows: the last that there was; else 0
}

// NewMeters makes meters without rules.
func NewMeters(clients, controller Windows) *Meters {
	m := &Meters{longest: clients.Size, connections: make(map[netip.Addr]*bucket), sweepAt: firstSweep}
	for k := range m.buckets {
		m.buckets[k], m.spans[k] = make(map[owner]*bucket), clients.span()
	}
	m.spans[Mutation] = float64(max(1, controller.Num)) * controller.Size.Seconds() // a bucket of tokens there too
	m.rules.Store(NewRules(nil))
	return m
}

// Use puts other rules in force. What was used stays.
func (m *Meters) Use(r *Rules) { m.rules.Store(r) }

// Take counts an amount for a client, and gives how long it has to wait: until what it used is within its quota again.
func (m *Meters) Take(k Kind, user, client string, amount float64, now time.Time) time.Duration {
	rate, who, ok := m.rules.Load().limit(k, user, client)
	if !ok {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.bucketLocked(k, who, rate, now)
	wait := b.take(rate, m.spans[k], amount, now)
	if k == Request {
		wait = min(wait, m.longest)
	}
	return wait
}

// TakeIfWithin is Take for a client that is within its quota; otherwise nothing is counted, and it has to wait.
func (m *Meters) TakeIfWithin(k Kind, user, client string, amount float64, now time.Time) time.Duration {
	rate, who, ok := m.rules.Load().limit(k, user, client)
	if !ok {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.bucketLocked(k, who, rate, now)
	if wait := b.take(rate, m.spans[k], 0, now); wait > 0 {
		return wait
	}
	b.level += amount
	return 0
}

// Most is how much a client may use at once, as its quota and the windows have it.
func (m *Meters) Most(k Kind, user, client string) float64 {
	rate, _, ok := m.rules.Load().limit(k, user, client)
	if !ok {
		return math.Inf(1)
	}
	return rate * m.spans[k]
}

// Limited tells whether a client has a quota of the kind.
func (m *Meters) Limited(k Kind, user, client string) bool {
	_, _, ok := m.rules.Load().limit(k, user, client)
	return ok
}

// Connect counts a connection from an address. Above 0: it is one too many and not counted, and is to be closed after that time.
func (m *Meters) Connect(a netip.Addr, now time.Time) time.Duration {
	a = a.Unmap().WithZone("")
	rate, ok := m.rules.Load().ipLimit(a)
	if !ok {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.connections[a]
	if b == nil {
		if len(m.connections) >= m.sweepAt {
			m.sweepLocked(now)
		}
		if len(m.connections) >= maxBuckets {
			return m.longest
		}
		b = &bucket{at: now}
		m.connections[a] = b
	}
	if wait := b.take(rate, m.spans[Produce], 1, now); wait > 0 {
		b.level--
		return min(wait, m.longest)
	}
	return 0
}

func (m *Meters) bucketLocked(k Kind, who owner, rate float64, now time.Time) *bucket {
	long := len(who.user) > maxName || len(who.client) > maxName
	if long {
		who = owner{digest(who.user), digest(who.client)}
	}
	if b := m.buckets[k][who]; b != nil {
		if long {
			b.rate = rate
		}
		return b
	}
	if len(m.buckets[k]) >= m.sweepAt {
		m.sweepLocked(now)
	}
	if len(m.buckets[k]) >= maxBuckets {
		who = overflow
		if b := m.buckets[k][who]; b != nil {
			return b
		}
	}
	b := &bucket{at: now}
	if long && who != overflow {
		b.rate = rate
	}
	m.buckets[k][who] = b
	return b
}

// digest is what stands for a name.
func digest(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "\x00" + string(sum[:])
}

// sweepLocked takes away the buckets that were not used for so long that they are empty, at whatever rate they leak: nothing is forgotten with them.
func (m *Meters) sweepLocked(now time.Time) {
	if d := now.Sub(m.swept); d >= 0 && d < sweepEvery {
		return
	}
	m.swept = now
	most := 0
	r := m.rules.Load()
	for k := range m.buckets {
		for who, b := range m.buckets[k] {
			rate, ok := b.rate, true
			if rate == 0 {
				rate, _, ok = r.limit(Kind(k), who.user, who.client)
			}
			if !ok || b.leaked(rate, now) <= 0 {
				delete(m.buckets[k], who)
			}
		}
		most = max(most, len(m.buckets[k]))
	}
	for a, b := range m.connections {
		rate, ok := r.ipLimit(a)
		if !ok || b.leaked(rate, now) <= 0 {
			delete(m.connections, a)
		}
	}
	m.sweepAt = min(maxBuckets, max(firstSweep, 2*max(most, len(m.connections))))
}

func (b *bucket) leaked(rate float64, now time.Time) float64 {
	return b.level - rate*max(0, now.Sub(b.at).Seconds())
}

// take lets leak what has leaked, adds an amount, and gives how long it takes until the bucket holds no more than it should.
func (b *bucket) take(rate, span, amount float64, now time.Time) time.Duration {
	if now.After(b.at) {
		b.level, b.at = max(0, b.leaked(rate, now)), now
	}
	b.level += amount
	over := (b.level - rate*span) / rate
	if over <= 0 {
		return 0
	}
	// Whole milliseconds are what a client is told; a client that waits them must be within its quota then.
	return time.Duration(min(math.Ceil(over*1000), math.MaxInt32)) * time.Millisecond
}
