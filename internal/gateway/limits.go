package gateway

import (
	"sync"
	"time"
)

// principals keeps what is counted for each principal: bytes of the store, against a rate, connections and partitions that read.
type principals struct {
	mu    sync.Mutex
	known map[string]*usage
}

// usage is one principal's. It is forgotten when nothing of it matters any more.
type usage struct {
	debt    float64 // bytes that its rate has not paid for yet
	at      time.Time
	reading int // connections
	reads   int // partitions, on all of them
}

// maxThrottle is the most that a client is held back at once; the rest of its debt stays. Kafka's own is its quota window, 11 s by default.
const maxThrottle = 10 * time.Second

// sweepOver is how many principals are kept before those that no longer matter are looked for.
const sweepOver = 1000

func (p *principals) findLocked(name string) *usage {
	u := p.known[name]
	if u != nil {
		return u
	}
	if len(p.known) >= sweepOver {
		for n, u := range p.known {
			if u.reading == 0 && u.reads == 0 && time.Since(u.at) > time.Minute {
				delete(p.known, n)
			}
		}
	}
	u = &usage{at: time.Now()}
	p.known[name] = u
	return u
}

// charge counts bytes and tells how long the principal is to be held back, so that it keeps to the rate.
func (p *principals) charge(name string, bytes, perSecond int64) time.Duration {
	if perSecond <= 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	u, now := p.findLocked(name), time.Now()
	u.debt = max(u.debt-now.Sub(u.at).Seconds()*float64(perSecond), 0) + float64(bytes)
	u.at = now
	// A second's worth is free: small reads are not held back for each.
	over := u.debt - float64(perSecond)
	if over <= 0 {
		return 0
	}
	return min(time.Duration(over/float64(perSecond)*float64(time.Second)), maxThrottle)
}

const (
	// maxGranted is how long what one location grants may hold its principal back. Asking again after that costs a round trip and an index that is in memory.
	maxGranted = time.Second
	// minGrant is granted whatever is owed: less would be a request for each few batches.
	minGrant = 64 << 10
)

// grant is how many of so many bytes a location may grant.
func (p *principals) grant(name string, bytes, perSecond int64) int64 {
	if perSecond <= 0 {
		return bytes
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	debt := 0.0
	if u := p.known[name]; u != nil {
		debt = max(u.debt-time.Since(u.at).Seconds()*float64(perSecond), 0)
	}
	// What charge holds back for begins behind a second's worth.
	free := float64(perSecond)*(1+maxGranted.Seconds()) - debt
	return min(bytes, max(int64(free), minGrant))
}

// begin counts a connection that reads from the store, unless there are enough.
func (p *principals) begin(name string, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.findLocked(name)
	if most > 0 && u.reading >= most {
		return false
	}
	u.reading++
	return true
}

// beginRead counts a partition that is read from the store, unless there are enough.
func (p *principals) beginRead(name string, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.findLocked(name)
	if most > 0 && u.reads >= most {
		return false
	}
	u.reads++
	return true
}

func (p *principals) endRead(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.known[name] // it is not forgotten while there are any
	u.reads--
	u.at = time.Now()
}

func (p *principals) end(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u := p.known[name]; u != nil {
		u.reading--
		u.at = time.Now()
	}
}

// reading is the part of it that a connection has. Its methods are called by that connection's answers, one at a time, and at its end.
type reading struct {
	p *principals

	mu     sync.Mutex
	name   string    // under which it is counted; "" if it is not
	last   time.Time // records of the store were last given
	denied time.Time // until then it is not
}

const (
	// readingKept is how long a connection counts as reading after it has got its last record.
	readingKept = 10 * time.Second
	// deniedFor is how long it passes through when there are enough.
	deniedFor = 10 * time.Second
)

// may tells whether history may be read from the store for the connection now.
func (r *reading) may() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.name != "" && now.Sub(r.last) > readingKept {
		r.p.end(r.name)
		r.name = ""
	}
	return now.After(r.denied)
}

// got is told that records of the store were given, or a location; false: there are enough that read.
func (r *reading) got(name string, most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
	if r.name != "" {
		return true
	}
	if !r.p.begin(name, most) {
		r.denied = r.last.Add(deniedFor)
		return false
	}
	r.name = name
	return true
}

func (r *reading) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.name != "" {
		r.p.end(r.name)
		r.name = ""
	}
}
