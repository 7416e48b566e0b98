package gateway

import "slices"

// Policy says whose history is read from the store, and how much of it. It may be replaced while the gateway runs (SetPolicy), which acts with the next fetch. Lists are of
// names with * and ? in them; an empty one is everybody.
type Policy struct {
	// Off is the kill switch: everything is left to the brokers.
	Off bool
	// Topics whose history is read, but for TopicsExcluded.
	Topics, TopicsExcluded []string
	// Principals and ClientIDs for whom it is read. See principal for what the gateway knows of them.
	Principals, ClientIDs []string
	// BytesPerSecond of the store for one principal; no limit if 0.
	BytesPerSecond int64
	// Connections of one principal that may read from the store at one time; no limit if 0. Further ones pass through.
	Connections int
	// Reads of one principal from the store at one time, one for each partition; no limit if 0. Further partitions are the brokers'. What clients read themselves by a
	// location is not among them.
	Reads int
	// ShadowPerMillion of the answers with records from the store are compared with the broker's own; none if 0.
	ShadowPerMillion int
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match([]rune(p), []rune(name)) })
}

// match: * stands for anything, ? for one sign, everything else for itself. Names of users and clients have slashes in them, which path.Match would not let * stand for.
func match(pattern, name []rune) bool {
	star, from := -1, 0 // the last *, and what it stands for so far ends before from
	p := 0
	for n := 0; n < len(name); {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// topic tells whether a topic's history is read from the store.
func (p *Policy) topic(name string) bool {
	return !p.Off && (len(p.Topics) == 0 || matches(p.Topics, name)) && !matches(p.TopicsExcluded, name)
}

// client tells whether it is for this client.
func (p *Policy) client(principal, clientID string) bool {
	return (len(p.Principals) == 0 || matches(p.Principals, principal)) && (len(p.ClientIDs) == 0 || matches(p.ClientIDs, clientID))
}

// SetPolicy replaces the policy.
func (g *Gateway) SetPolicy(p Policy) { g.policy.Store(&p) }

// ReadsOff tells whether the kill switch is in force.
func (g *Gateway) ReadsOff() bool { return g.policy.Load().Off }
