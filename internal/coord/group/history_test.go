package group

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// history runs a group through random commands and holds its invariants after each.
type history struct {
	*rig
	rt         *rapid.T
	names      int
	parkedBy   map[any]string // token of a parked request to what it was
	generation int32
}

func (h *history) command() Command {
	member := func() string {
		return rapid.SampledFrom(append(slices.Clone(h.g.classic().order), "stranger")).Draw(h.rt, "member")
	}
	instance := func() string { return rapid.SampledFrom([]string{"", "", "", "i", "j"}).Draw(h.rt, "instance") }
	generation := func() int32 {
		return h.g.classic().generation - int32(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(h.rt, "stale"))
	}
	token := h.token()
	switch rapid.IntRange(0, 11).Draw(h.rt, "command") {
	case 0, 1, 2:
		j := join(token, "")
		h.names++
		j.NewMemberID = fmt.Sprintf("m%d", h.names)
		j.InstanceID = instance()
		j.RequireKnownID = rapid.Bool().Draw(h.rt, "require")
		j.CanSkip = rapid.Bool().Draw(h.rt, "skip")
		j.Rebalance = time.Duration(rapid.IntRange(1, 20).Draw(h.rt, "rebalance")) * time.Second
		return j
	case 3, 4:
		ids := append(slices.Clone(h.g.classic().order), "stranger")
		for id := range h.g.classic().pending {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		id := rapid.SampledFrom(ids).Draw(h.rt, "rejoin")
		j := join(token, id)
		if m := h.g.classic().members[id]; m != nil {
			j.InstanceID = m.instance
		}
		if rapid.Bool().Draw(h.rt, "other") {
			j.Protocols = append(j.Protocols, Protocol{"sticky", []byte{byte(h.names)}})
		}
		return j
	case 5, 6:
		s := &Sync{Token: token, MemberID: member(), Generation: generation(), Assignments: map[string][]byte{}}
		if s.MemberID == h.g.classic().leader {
			for _, id := range h.g.classic().order {
				s.Assignments[id] = []byte(id)
			}
		}
		return s
	case 7:
		return &Heartbeat{Token: token, MemberID: member(), Generation: generation()}
	case 8:
		return &Leave{Token: token, Members: []LeaveMember{{MemberID: member()}, {InstanceID: instance()}}}
	case 9:
		return &Commit{Token: token, MemberID: member(), Generation: generation(), Offsets: []OffsetOf{at("t", int32(token%3), int64(token), h.now)}}
	case 10:
		if len(h.parkedBy) == 0 {
			return Tick{}
		}
		tokens := []int{}
		for t := range h.parkedBy {
			tokens = append(tokens, t.(int))
		}
		slices.Sort(tokens)
		gone := rapid.SampledFrom(tokens).Draw(h.rt, "gone")
		delete(h.parkedBy, gone)
		return Vanished{Token: gone}
	default:
		return Expire{}
	}
}

func (h *history) step() {
	if rapid.IntRange(0, 3).Draw(h.rt, "what") == 0 {
		h.pass(time.Duration(rapid.IntRange(1, 12000).Draw(h.rt, "ms")) * time.Millisecond)
	} else {
		h.broken = rapid.IntRange(0, 15).Draw(h.rt, "broken") == 0
		c := h.command()
		before := len(h.replies)
		h.do(c)
		h.broken = false
		switch c := c.(type) {
		case *Join:
			h.park(c.Token, "join")
		case *Sync:
			h.park(c.Token, "sync")
		case *Heartbeat, *Leave, *Commit:
			if len(h.replies) == before {
				h.rt.Fatalf("%T is not answered", c)
			}
		}
	}
	for token := range h.parkedBy {
		if _, ok := h.got[token]; ok {
			delete(h.parkedBy, token)
		}
	}
	if h.g.classic().state == Dead { // as a coordinator does
		h.g = New("g", func() Config { return h.cfg }, h.now)
		h.generation = 0
	}
	h.hold()
}

func (h *history) park(token any, what string) {
	if _, ok := h.got[token]; !ok {
		h.parkedBy[token] = what
	}
}

func (h *history) hold() {
	g := h.g
	if g.classic().generation < h.generation {
		h.rt.Fatalf("generation went from %d back to %d", h.generation, g.classic().generation)
	}
	h.generation = g.classic().generation
	if len(g.classic().order) != len(g.classic().members) {
		h.rt.Fatalf("%d members, %d in order", len(g.classic().members), len(g.classic().order))
	}
	parked := 0
	for id, m := range g.classic().members {
		if m.id != id || m.instance != "" && g.classic().static[m.instance] != id {
			h.rt.Fatalf("member %s is known as %s, instance %q of %q", m.id, id, m.instance, g.classic().static[m.instance])
		}
		if m.joining != nil && g.classic().state != PreparingRebalance {
			h.rt.Fatalf("%s has a parked join in state %s", id, g.classic().state)
		}
		if m.syncing != nil && g.classic().state != CompletingRebalance {
			h.rt.Fatalf("%s has a parked sync in state %s", id, g.classic().state)
		}
		for _, token := range []any{m.syncing, joinToken(m)} {
			if token == nil {
				continue
			}
			parked++
			if _, ok := h.parkedBy[token]; !ok {
				h.rt.Fatalf("%s holds request %v, which nobody waits for", id, token)
			}
		}
	}
	if parked != len(h.parkedBy) {
		h.rt.Fatalf("%d requests are parked, %d wait: %v", parked, len(h.parkedBy), h.parkedBy)
	}
	switch g.classic().state {
	case Empty:
		if len(g.classic().members) != 0 || g.classic().leader != "" {
			h.rt.Fatalf("empty with %d members, leader %q", len(g.classic().members), g.classic().leader)
		}
	case Stable, CompletingRebalance:
		if g.classic().members[g.classic().leader] == nil {
			h.rt.Fatalf("%s without its leader %q", g.classic().state, g.classic().leader)
		}
		if _, ok := g.classic().votes()[g.classic().protocol]; !ok && g.classic().state == Stable {
			h.rt.Fatalf("protocol %q is not everybody's", g.classic().protocol)
		}
	}
	if _, ok := g.Deadline(); !ok && (len(g.classic().members) > 0 || len(g.classic().pending) > 0) {
		h.rt.Fatalf("%d members and no deadline in state %s", len(g.classic().members), g.classic().state)
	}
	if g.classic().state == Stable && len(h.log) > 0 {
		h.holdReplay()
	}
}

// holdReplay: what the log tells of a stable group is what it is.
func (h *history) holdReplay() {
	g := New("g", testConfig, t0)
	for _, r := range h.log {
		e, err := ParseRecord(r.Key, r.Value)
		if err != nil {
			h.rt.Fatal(err)
		}
		g.Replay(e, t0)
	}
	if g.classic().generation != h.g.classic().generation || g.classic().leader != h.g.classic().leader || !slices.Equal(g.Offsets(), h.g.Offsets()) {
		h.rt.Fatalf("replayed: generation %d leader %s offsets %v, is: %d %s %v", g.classic().generation, g.classic().leader, g.Offsets(), h.g.classic().generation, h.g.classic().leader, h.g.Offsets())
	}
	for id, m := range h.g.classic().members {
		if r := g.classic().members[id]; r == nil || !bytes.Equal(r.assignment, m.assignment) {
			h.rt.Fatalf("member %s was replayed as %+v, is %+v", id, r, m)
		}
	}
}

func joinToken(m *member) any {
	if m.joining == nil {
		return nil
	}
	return m.joining.Token
}

func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{rig: newRig(t), rt: rt, parkedBy: map[any]string{}}
		if rapid.Bool().Draw(rt, "delay") {
			h.cfg.InitialDelay = 2 * time.Second
		}
		h.cfg.MaxSize = 5
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			h.step()
		}
		// Left alone, everything that waits is answered, and the group empties.
		h.pass(time.Hour)
		for token := range h.parkedBy {
			if _, ok := h.got[token]; !ok {
				rt.Fatalf("%s %v was never answered", h.parkedBy[token], token)
			}
		}
		if n := len(h.g.classic().members); n != 0 {
			rt.Fatalf("%d members live without a sign of life", n)
		}
		// And is of use again.
		if len(h.g.classic().pending) != 0 {
			rt.Fatalf("ids are pending for ever: %v", h.g.classic().pending)
		}
		j := h.joinNew("last", nil)
		h.pass(10 * time.Second)
		if got := h.got[j].(JoinResult); got.Err != nil && !errors.Is(got.Err, ErrInconsistent) {
			rt.Fatalf("joining afterwards: %v", got.Err)
		}
	})
}
