package members

import (
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/group"
)

// Unknown is the error for an id that no member has.
func (r *Roster[M, H]) Unknown(id string) error {
	return group.Refuse(group.ErrUnknownMember, "Member %s is not a member of group %s.", id, r.id)
}

// Stale is the error for an epoch that is not the member's, in the words of its protocol.
func (r *Roster[M, H]) Stale(m M, format string, args ...any) error {
	if m.IsClassic() {
		return group.Refuse(group.ErrIllegalGeneration, format, args...)
	}
	return group.Refuse(group.ErrStaleEpoch, format, args...)
}

// Full refuses one more member than there may be.
func (r *Roster[M, H]) Full(id string, instance *string, limit int) error {
	if instance != nil && r.static[*instance] != "" {
		return nil
	}
	if _, known := r.members[id]; len(r.members) >= limit && !known {
		return group.Refuse(group.ErrMaxSize, "The %s group has reached its maximum capacity of %d members.", r.rules.Type, limit)
	}
	return nil
}

// Named is the member that names itself by an instance id, and must be the one that has it.
func (r *Roster[M, H]) Named(id, instance string) (M, error) {
	var none M
	m := r.Instance(instance)
	switch {
	case m == none:
		return none, group.Refuse(group.ErrUnknownMember, "Instance id %s is unknown.", instance)
	case m.base().ID != id:
		return none, group.Refuse(group.ErrFenced, "Static member %s with instance id %s was fenced by member %s.", id, instance, m.base().ID)
	}
	return m, nil
}

// Member is the member that names itself by its id, and by an instance id unless that is nil.
func (r *Roster[M, H]) Member(id string, instance *string) (M, error) {
	if instance != nil {
		return r.Named(id, *instance)
	}
	m, known := r.members[id]
	if !known {
		return m, r.Unknown(id)
	}
	return m, nil
}

// Beat is the member of a heartbeat: one that joins, with the one whose instance it takes over (nil: none), or one that stands in the epoch that it says.
func (r *Roster[M, H]) Beat(id string, instance *string, epoch int32, owned interface{ Within(H) bool }) (m, old M, err error) {
	var none M
	switch {
	case epoch != EpochJoin:
		if m, err = r.Member(id, instance); err == nil {
			err = r.checkEpoch(m.base(), epoch, owned)
		}
	case instance != nil:
		return r.Claim(id, *instance, false)
	default:
		if m = r.members[id]; m == none {
			m = r.rules.New(id)
		}
	}
	return m, none, err
}

// Claim lets a member come as an instance: the member that it was before, or a new one, and old, the one whose place it takes. Who has the instance must have
// left it, unless it may be taken over.
func (r *Roster[M, H]) Claim(id, instance string, takeOver bool) (m, old M, err error) {
	var none M
	if old = r.Instance(instance); old == none {
		if m = r.members[id]; m == none {
			m = r.rules.New(id)
		}
		return m, none, nil
	}
	at := old.base().Standing
	if at.Epoch != EpochLeaveStatic && !takeOver && !old.IsClassic() {
		return none, none, group.Refuse(group.ErrUnreleased, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", id, instance, old.base().ID)
	}
	at.Epoch, at.Previous = 0, 0
	m = old.At(at)
	m.base().ID = id
	return m, old, nil
}

// checkEpoch: a member that did not hear of its last epoch may come with the one before, as long as it owns no more than it was given.
func (r *Roster[M, H]) checkEpoch(m *Member[H], epoch int32, owned interface{ Within(H) bool }) error {
	how := "greater"
	switch {
	case epoch > m.Epoch:
	case epoch < m.Epoch && (epoch != m.Previous || !owned.Within(m.Assigned)):
		how = "smaller"
	default:
		return nil
	}
	return group.Refuse(group.ErrFencedEpoch, "The %s group member has a %s member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", r.rules.Type, how, epoch, m.Epoch)
}

// CheckDeleteOffsets refuses nobody.
func (r *Roster[M, H]) CheckDeleteOffsets() error { return nil }

// CheckFetch: who says that it is a member must be one, of the epoch that it says.
func (r *Roster[M, H]) CheckFetch(memberID *string, epoch int32) error {
	if memberID == nil && epoch < 0 {
		return nil
	}
	id := ""
	if memberID != nil {
		id = *memberID
	}
	m, known := r.members[id]
	switch {
	case !known:
		return r.Unknown(id)
	case m.base().Epoch != epoch:
		return r.Stale(m, "the member epoch is %d, not %d", m.base().Epoch, epoch)
	}
	return nil
}

// versionOfEpochs is the first version of OffsetCommit in which a member can be told that its epoch is stale.
const versionOfEpochs = 9

// CheckCommit: a member commits in its epoch, or in an earlier one as far as it has had what the offsets belong to since then. Whoever is no member may commit while
// there is none.
func (r *Roster[M, H]) CheckCommit(_ time.Time, c *group.Commit) error {
	if c.Generation < 0 && len(r.members) == 0 {
		return nil
	}
	m, known := r.members[c.MemberID]
	if !known {
		return r.Unknown(c.MemberID)
	}
	if !m.IsClassic() && c.Version < versionOfEpochs {
		return group.Refuse(group.ErrUnsupportedVersion, "members of the %s group protocol commit with OffsetCommit version %d or above", r.rules.Type, versionOfEpochs)
	}
	return r.checkEpochs(m, c)
}

// CheckTxnCommit is CheckCommit, but that a producer that says nothing of a group is taken at its word.
func (r *Roster[M, H]) CheckTxnCommit(_ time.Time, c *group.Commit) error {
	if c.Generation < 0 && len(r.members) == 0 || c.Generation == -1 && c.MemberID == "" && c.InstanceID == "" {
		return nil
	}
	m, known := r.members[c.MemberID]
	if !known {
		return r.Unknown(c.MemberID)
	}
	return r.checkEpochs(m, c)
}

func (r *Roster[M, H]) checkEpochs(m M, c *group.Commit) error {
	switch epoch := m.base().Epoch; {
	case c.Generation == epoch:
		return nil
	case c.Generation > epoch:
		return r.Stale(m, "the member epoch is %d, not %d", epoch, c.Generation)
	}
	for i := range c.Offsets {
		what, since, err := r.rules.Since(m, &c.Offsets[i])
		if err != nil {
			return err
		}
		if c.Generation < since {
			return r.Stale(m, "%s is the member's since epoch %d, the commit is of %d", what, since, c.Generation)
		}
	}
	return nil
}
