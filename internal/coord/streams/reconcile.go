package streams

import (
	"maps"

	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

// reconciling brings a member one step nearer to what it is to have.
type reconciling struct {
	g      *Group
	m      *Member
	epoch  int32 // of the target
	target Tasks
	owns   *Tasks // nil: the member does not say
}

// next is the member as it stands then.
func (r *reconciling) next() (*Member, error) {
	m := r.m
	switch m.State {
	case members.Stable:
		if m.Epoch != r.epoch {
			return r.compute(m.Epoch), nil
		}
	case members.Unrevoked:
		if !r.mayHold(m.Revoking) {
			return r.compute(m.Epoch + 1), nil
		}
	case members.Unreleased:
		return r.compute(m.Epoch), nil
	default:
		if r.owns == nil || !r.owns.empty() {
			return nil, group.Refuse(group.ErrFencedEpoch, "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.")
		}
		return r.compute(r.epoch), nil
	}
	return m, nil
}

// mayHold tells whether the member may have some of these tasks still.
func (r *reconciling) mayHold(h Held) bool { return r.owns == nil || r.owns.touches(h) }

// difference is how what a member has is to become what it is to have.
type difference struct {
	keep, lose, gain Set
	unreleased       bool // there is more that it is to have, and that others have still
}

func differ(has, wants Set, taken func(Task) bool) difference {
	d := difference{keep: Set{}, lose: Set{}, gain: Set{}}
	for t := range has {
		if wants.has(t) {
			d.keep[t] = struct{}{}
		} else {
			d.lose[t] = struct{}{}
		}
	}
	for t := range wants {
		switch {
		case d.keep.has(t):
		case taken(t):
			d.unreleased = true
		default:
			d.gain[t] = struct{}{}
		}
	}
	return d
}

// convert lets a copy of the state that a member has as one kind become another kind at once.
func convert(from Set, out, in *difference) {
	for t := range from {
		if in.gain.has(t) {
			delete(in.gain, t)
			in.keep[t] = struct{}{}
			if out != nil {
				delete(out.lose, t)
			}
		}
	}
}

// compute takes what is the member's and is to stay so. What is not is to be given up first; only then comes what is free of the rest, and the epoch.
func (r *reconciling) compute(epoch int32) *Member {
	has := r.m.Assigned
	active := differ(has.Active.set(), r.target.Active, r.activeTaken)
	standby := differ(has.Standby, r.target.Standby, r.standbyTaken)
	warmup := differ(has.Warmup, r.target.Warmup, r.warmupTaken)
	convert(has.Active.set(), nil, &standby)
	convert(has.Standby, &standby, &warmup)
	convert(has.Warmup, &warmup, &standby)

	// A copy that is to become active stays until it does.
	for t := range r.target.Active {
		delete(standby.lose, t)
		delete(warmup.lose, t)
	}
	revoking := Held{Active: pick(has.Active, active.lose), Standby: standby.lose, Warmup: warmup.lose}
	revokes := !revoking.empty() && r.mayHold(revoking)
	stays := func(copies Set, d *difference) {
		for t := range copies {
			if r.target.Active.has(t) && (revokes || !active.gain.has(t)) {
				d.keep[t] = struct{}{}
			}
		}
	}
	stays(has.Standby, &standby)
	stays(has.Warmup, &warmup)

	keep := Held{Active: pick(has.Active, active.keep), Standby: standby.keep, Warmup: warmup.keep}
	if revokes {
		next := r.m.At(r.m.In(epoch))
		next.State, next.Assigned, next.Revoking = members.Unrevoked, keep, revoking
		return next
	}
	next := r.m.At(r.m.In(r.epoch))
	next.State, next.Revoking = members.Stable, Held{}
	if active.unreleased || standby.unreleased || warmup.unreleased {
		next.State = members.Unreleased
	}
	for t := range active.gain {
		keep.Active[t] = r.epoch
	}
	maps.Copy(keep.Standby, standby.gain)
	maps.Copy(keep.Warmup, warmup.gain)
	next.Assigned = keep
	return next
}

func pick(e Epochs, s Set) Epochs {
	out := make(Epochs, len(s))
	for t := range s {
		out[t] = e[t]
	}
	return out
}

// A process has one copy of a task's state: its threads may not have the task twice.

func (r *reconciling) activeTaken(t Task) bool {
	_, owned := r.g.active[t]
	return owned || r.elsewhere(r.g.standby, r.m.Assigned.Standby, t) || r.elsewhere(r.g.warmup, r.m.Assigned.Warmup, t)
}

func (r *reconciling) standbyTaken(t Task) bool {
	return r.runs(t) && !r.m.Assigned.Active.has(t) || r.g.standby.has(t, r.m.ProcessID) || r.elsewhere(r.g.warmup, r.m.Assigned.Warmup, t)
}

func (r *reconciling) warmupTaken(t Task) bool {
	return r.runs(t) || r.elsewhere(r.g.standby, r.m.Assigned.Standby, t) || r.g.warmup.has(t, r.m.ProcessID)
}

// runs tells whether a member of this process has the task.
func (r *reconciling) runs(t Task) bool {
	p, ok := r.g.active[t]
	return ok && p == r.m.ProcessID
}

// elsewhere tells whether another member of the same process has a copy.
func (r *reconciling) elsewhere(c copies, own Set, t Task) bool {
	return c.has(t, r.m.ProcessID) && !own.has(t)
}
