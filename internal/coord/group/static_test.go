package group

import (
	"errors"
	"testing"
	"time"
)

func static(instance string) func(*Join) { return func(j *Join) { j.InstanceID = instance } }

func TestStaticMembers(t *testing.T) {
	r := newRig(t)
	r.cfg.InitialDelay = time.Second
	r.joinNew("a1", static("a"))
	r.joinNew("b1", static("b"))
	r.pass(2 * time.Second)
	r.sync("b1", nil)
	r.sync("a1", map[string][]byte{"a1": []byte("A"), "b1": []byte("B")})
	r.inState(Stable)

	// b starts again: it keeps its place and its assignment, nobody rebalances.
	records := len(r.log)
	got := r.joined(r.joinNew("b2", static("b")))
	if got.Generation != 1 || got.MemberID != "b2" || got.Leader != "a1" || got.SkipAssignment {
		t.Errorf("got %+v", got)
	}
	if len(r.log) != records+1 {
		t.Errorf("%d records", len(r.log)-records)
	}
	if s := r.got[r.sync("b2", nil)].(SyncResult); string(s.Assignment) != "B" {
		t.Errorf("assignment %+v", s)
	}
	r.inState(Stable)

	// Its old self is fenced wherever it shows up.
	h := &Heartbeat{Token: r.token(), MemberID: "b1", InstanceID: "b", Generation: 1}
	r.do(h)
	if err := r.got[h.Token].(HeartbeatResult).Err; !errors.Is(err, ErrFenced) {
		t.Errorf("heartbeat: %v", err)
	}
	r.fails(r.rejoin("b1", static("b")), ErrFenced)
	c := &Commit{Token: r.token(), MemberID: "b1", InstanceID: "b", Generation: 1}
	r.do(c)
	r.fails(c.Token.(int), ErrFenced)

	// The leader starts again. A client that knows of SkipAssignment stays leader; an older one believes that another one is.
	got = r.joined(r.joinNew("a2", func(j *Join) { j.InstanceID, j.CanSkip = "a", true }))
	if got.Leader != "a2" || !got.SkipAssignment || len(got.Members) != 2 {
		t.Errorf("got %+v", got)
	}
	got = r.joined(r.joinNew("a3", static("a")))
	if got.Leader != "a2" || got.SkipAssignment || got.Members != nil || r.g.classic().leader != "a3" {
		t.Errorf("got %+v", got)
	}

	// It leaves by its instance id.
	token := r.token()
	r.do(&Leave{Token: token, Members: []LeaveMember{{InstanceID: "a"}, {InstanceID: "b", MemberID: "b1"}}})
	if l := r.got[token].(LeaveResult); l.Members[0] != nil || !errors.Is(l.Members[1], ErrFenced) {
		t.Errorf("got %+v", l)
	}
	r.inState(PreparingRebalance)
}

// patient is an instance whose session is much longer than a rebalance.
func patient(instance string) func(*Join) {
	return func(j *Join) { j.InstanceID, j.Session, j.Rebalance = instance, time.Minute, 5*time.Second }
}

// newPatient is a group of two of them that are to ask for what they are assigned.
func newPatient(t *testing.T) *rig {
	r := newRig(t)
	r.cfg.InitialDelay = time.Second
	r.joinNew("a", patient("a"))
	r.joinNew("b", patient("b"))
	r.pass(2 * time.Second)
	return r
}

func TestStaticMemberAwayKeepsItsPlace(t *testing.T) {
	r := newPatient(t)
	r.sync("b", nil)
	r.sync("a", map[string][]byte{"a": []byte("A"), "b": []byte("B")})
	ja := r.rejoin("a", patient("a"))
	r.pass(5 * time.Second) // b is silent: the join phase ends without it, it keeps its place
	if got := r.joined(ja); len(got.Members) != 2 {
		t.Fatalf("got %+v", got)
	}
	r.sync("a", map[string][]byte{"a": []byte("A2"), "b": []byte("B2")})
	r.inState(Stable)
	if got := r.joined(r.joinNew("b2", patient("b"))); got.Generation != 2 {
		t.Errorf("got %+v", got)
	}
	if s := r.got[r.sync("b2", nil)].(SyncResult); string(s.Assignment) != "B2" {
		t.Errorf("got %+v", s)
	}
}

// A static member that has not asked for its assignment is not given up for that once the next rebalance has gone by without it.
func TestStaticMemberAwayIsNotAskedToSync(t *testing.T) {
	r := newPatient(t)
	r.sync("a", map[string][]byte{"a": []byte("A"), "b": []byte("B")})
	ja := r.rejoin("a", patient("a"))
	r.pass(5 * time.Second)
	r.joined(ja)
	r.sync("a", map[string][]byte{"a": []byte("A"), "b": []byte("B")})
	r.pass(20 * time.Second)
	r.inState(Stable)
	if len(r.g.classic().members) != 2 {
		t.Errorf("%d members", len(r.g.classic().members))
	}
}

func TestStaticReplacedWhileJoining(t *testing.T) {
	r := newRig(t)
	r.cfg.InitialDelay = time.Second
	first := r.joinNew("a1", static("a"))
	second := r.joinNew("a2", static("a"))
	r.fails(first, ErrFenced)
	r.pass(time.Second)
	if got := r.joined(second); got.Leader != "a2" || len(got.Members) != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestStaticMembersWithoutPatience: a rebalance to which no member comes, all of which are static and give it no time, is not looked at all the time.
func TestStaticMembersWithoutPatience(t *testing.T) {
	r := newRig(t)
	of := func(instance string, session time.Duration) func(*Join) {
		return func(j *Join) { j.InstanceID, j.Session, j.Rebalance = instance, session, 0 }
	}
	r.joinNew("a", of("i", 5*time.Second))
	r.sync("a", nil)
	r.joinNew("b", of("j", 50*time.Second))
	ja := r.rejoin("a", of("i", 5*time.Second))
	r.joined(ja)
	r.sync("b", nil)
	r.sync("a", nil)
	r.inState(Stable)
	r.pass(10 * time.Second) // a is gone
	r.inState(PreparingRebalance)
	r.pass(time.Minute)
	r.inState(Empty)
}
