package group

import "time"

// CheckCommit: a member commits for its generation; whoever is no member may commit only while the group has none.
func (g *Classic) CheckCommit(now time.Time, c *Commit) error {
	if g.state == Dead {
		return ErrNotAvailable
	}
	if c.Generation < 0 && g.state == Empty {
		return nil
	}
	if c.Generation < 0 && c.MemberID == "" && c.InstanceID == "" {
		return ErrUnknownMember
	}
	m, err := g.check(c.MemberID, c.InstanceID)
	switch {
	case err != nil:
		return err
	case c.Generation != g.generation:
		return ErrIllegalGeneration
	case g.state == CompletingRebalance:
		return ErrRebalance
	}
	m.alive(now)
	return nil
}

// CheckTxnCommit: who names itself must be a member of the generation (KIP-447); a producer that says nothing of a group is taken at its word.
func (g *Classic) CheckTxnCommit(now time.Time, c *Commit) error {
	if g.state == Dead {
		return ErrNotAvailable
	}
	if c.Generation < 0 && (g.state == Empty || c.MemberID == "" && c.InstanceID == "") {
		return nil
	}
	m, err := g.check(c.MemberID, c.InstanceID)
	if err != nil {
		return err
	}
	if c.Generation != g.generation {
		return ErrIllegalGeneration
	}
	m.alive(now)
	return nil
}

// CheckFetch refuses nobody.
func (g *Classic) CheckFetch(*string, int32) error { return nil }

// CheckDeleteOffsets: what the members of other than "consumer" groups subscribe to is not known.
func (g *Classic) CheckDeleteOffsets() error {
	switch {
	case g.state == Dead:
		return ErrNotFound
	case g.state != Empty && g.protocolType != "consumer":
		return ErrNonEmpty
	}
	return nil
}

// Subscribed tells whether a member subscribes to a topic, or might.
func (g *Classic) Subscribed(topic string) bool {
	if g.state == Empty {
		return false
	}
	if g.subscribed == nil {
		return true
	}
	_, ok := g.subscribed[topic]
	return ok
}

// RetainedFrom is KIP-211: the offsets of an empty group are kept since it is empty, those of a topic that nobody in the group subscribes to any more and
// those of a group that never had members since they were committed.
func (g *Classic) RetainedFrom(topic string, committed time.Time) (time.Time, bool) {
	if g.state != Empty && (g.state != Stable || g.Subscribed(topic)) {
		return time.Time{}, false
	}
	if g.state == Empty && g.protocolType != "" && g.since.After(committed) {
		return g.since, true
	}
	return committed, true
}

// Awaited tells whether ids were given out that may yet be used.
func (g *Classic) Awaited() bool { return len(g.pending) > 0 }
