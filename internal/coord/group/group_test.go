package group

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var t0 = time.UnixMilli(1_700_000_000_000)

func testConfig() Config {
	return Config{MinSession: time.Second, MaxSession: time.Minute, InitialDelay: 0, MaxSize: 100, MaxMetadata: 8, OffsetsRetention: time.Hour}
}

// rig drives one group as a caller would: it keeps the clock, the parked requests and the log.
type rig struct {
	t       *testing.T
	g       *Group
	now     time.Time
	parked  map[any]bool
	got     map[any]Result
	log     []Record
	cfg     Config
	broken  bool // the log cannot be appended to
	tokens  int
	replies []any // tokens in the order answered
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, now: t0, parked: map[any]bool{}, got: map[any]Result{}, cfg: testConfig()}
	r.g = New("g", func() Config { return r.cfg }, r.now)
	return r
}

func (r *rig) token() int { r.tokens++; return r.tokens }

func (r *rig) do(c Command) {
	r.t.Helper()
	o := r.g.Step(r.now, c)
	if len(o.Records) > 0 && r.broken {
		o = r.g.Failed(r.now, o, ErrNotAvailable)
	} else {
		r.log = append(r.log, o.Records...)
	}
	for _, p := range o.Replies {
		if _, twice := r.got[p.Token]; twice {
			r.t.Fatalf("two replies to %v: %+v and %+v", p.Token, r.got[p.Token], p.Result)
		}
		r.got[p.Token] = p.Result
		r.replies = append(r.replies, p.Token)
	}
}

// pass lets time go by, with the ticks that fall due.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	end := r.now.Add(d)
	for i := 0; ; i++ {
		at, ok := r.g.Deadline()
		if !ok || at.After(end) {
			break
		}
		if i > 1000 {
			r.t.Fatal("a tick does not move the deadline")
		}
		if at.After(r.now) {
			r.now = at
		}
		r.do(Tick{})
	}
	r.now = end
}

func join(token any, id string) *Join {
	return &Join{Token: token, MemberID: id, ClientID: "c", ClientHost: "/h", Session: 10 * time.Second, Rebalance: 30 * time.Second,
		ProtocolType: "consumer", Protocols: []Protocol{{"range", subscription("t")}}}
}

func subscription(topics ...string) []byte {
	s := kmsg.NewConsumerMemberMetadata()
	s.Topics = topics
	return s.AppendTo(nil)
}

func (r *rig) joinNew(id string, change func(*Join)) int {
	j := join(r.token(), "")
	j.NewMemberID = id
	if change != nil {
		change(j)
	}
	r.do(j)
	return j.Token.(int)
}

func (r *rig) rejoin(id string, change func(*Join)) int {
	j := join(r.token(), id)
	if change != nil {
		change(j)
	}
	r.do(j)
	return j.Token.(int)
}

func (r *rig) sync(id string, assignments map[string][]byte) int {
	s := &Sync{Token: r.token(), MemberID: id, Generation: r.g.classic().generation, Assignments: assignments}
	r.do(s)
	return s.Token.(int)
}

func (r *rig) beat(id string) error {
	h := &Heartbeat{Token: r.token(), MemberID: id, Generation: r.g.classic().generation}
	r.do(h)
	return r.got[h.Token].(HeartbeatResult).Err
}

func (r *rig) joined(token int) JoinResult {
	r.t.Helper()
	j, ok := r.got[token].(JoinResult)
	if !ok {
		r.t.Fatalf("join %d is not answered", token)
	}
	if j.Err != nil {
		r.t.Fatalf("join %d: %v", token, j.Err)
	}
	return j
}

func (r *rig) fails(token int, want error) {
	r.t.Helper()
	var got error
	switch p := r.got[token].(type) {
	case JoinResult:
		got = p.Err
	case SyncResult:
		got = p.Err
	case CommitResult:
		got = p.Err
	case DeleteResult:
		got = p.Err
	case LeaveResult:
		got = p.Err
	default:
		r.t.Fatalf("%d is not answered (%T)", token, p)
	}
	if !errors.Is(got, want) {
		r.t.Fatalf("%d: %v, want %v", token, got, want)
	}
}

func (r *rig) waits(token int) {
	r.t.Helper()
	if p, ok := r.got[token]; ok {
		r.t.Fatalf("%d is answered: %+v", token, p)
	}
}

func (r *rig) inState(s State) {
	r.t.Helper()
	if r.g.classic().state != s {
		r.t.Fatalf("state %s, want %s", r.g.classic().state, s)
	}
}

// stable brings two members, a (the leader) and b, into a stable group.
func stable(t *testing.T) *rig {
	r := newRig(t)
	r.joinNew("a", nil)
	jb := r.joinNew("b", nil)
	ja := r.rejoin("a", nil)
	if got := r.joined(ja); got.Leader != "a" || len(got.Members) != 2 || got.Generation != 2 || got.Protocol != "range" {
		t.Fatalf("leader was told %+v", got)
	}
	if got := r.joined(jb); got.Leader != "a" || got.Members != nil || got.MemberID != "b" {
		t.Fatalf("follower was told %+v", got)
	}
	sb := r.sync("b", nil)
	r.waits(sb)
	sa := r.sync("a", map[string][]byte{"a": []byte("A"), "b": []byte("B")})
	for token, want := range map[int]string{sa: "A", sb: "B"} {
		if s := r.got[token].(SyncResult); s.Err != nil || string(s.Assignment) != want {
			t.Fatalf("sync was answered %+v, want %s", s, want)
		}
	}
	r.inState(Stable)
	return r
}

func TestTwoMembers(t *testing.T) {
	r := stable(t)
	if err := r.beat("a"); err != nil {
		t.Fatal(err)
	}
	d := r.g.classic().Describe()
	if d.State != Stable || d.Protocol != "range" || len(d.Members) != 2 || string(d.Members[1].Assignment) != "B" || d.Members[0].ClientHost != "/h" {
		t.Errorf("described as %+v", d)
	}
	// A follower that joins again with the same subscription is told of the generation that there is.
	if got := r.joined(r.rejoin("b", nil)); got.Generation != 2 {
		t.Errorf("got %+v", got)
	}
	r.inState(Stable)
	// With another one it begins a rebalance, of which the leader hears by its heartbeat.
	jb := r.rejoin("b", func(j *Join) { j.Protocols[0].Metadata = subscription("t", "u") })
	r.waits(jb)
	if err := r.beat("a"); !errors.Is(err, ErrRebalance) {
		t.Errorf("heartbeat: %v", err)
	}
	r.fails(r.sync("a", nil), ErrRebalance)
	ja := r.rejoin("a", nil)
	if got := r.joined(ja); got.Generation != 3 || len(got.Members) != 2 {
		t.Errorf("got %+v", got)
	}
	r.joined(jb)
}

func TestMemberIDRequired(t *testing.T) {
	r := newRig(t)
	first := r.joinNew("a", func(j *Join) { j.RequireKnownID = true })
	r.fails(first, ErrMemberIDRequired)
	if got := r.got[first].(JoinResult).MemberID; got != "a" {
		t.Fatalf("id %q", got)
	}
	if got := r.joined(r.rejoin("a", func(j *Join) { j.RequireKnownID = true })); got.Leader != "a" {
		t.Errorf("got %+v", got)
	}
	// An id that is never used is forgotten after the session timeout, and holds a rebalance up no longer.
	r.sync("a", nil)
	r.joinNew("b", func(j *Join) { j.RequireKnownID = true })
	ja := r.rejoin("a", nil)
	r.waits(ja)
	r.pass(10 * time.Second)
	r.joined(ja)
	r.fails(r.rejoin("b", nil), ErrUnknownMember)
}

func TestPendingIDsAreBounded(t *testing.T) {
	r := newRig(t)
	for i := range maxPending {
		r.joinNew(fmt.Sprint(i), func(j *Join) { j.RequireKnownID = true })
	}
	r.fails(r.joinNew("more", func(j *Join) { j.RequireKnownID = true }), ErrMaxSize)
	r.pass(time.Minute)
	r.fails(r.joinNew("more", func(j *Join) { j.RequireKnownID = true }), ErrMemberIDRequired)
}

// TestUnusedIDDisturbsNobody: an id that was given out and is not used ends no generation. A rebalance that waits for it goes on.
func TestUnusedIDDisturbsNobody(t *testing.T) {
	ask := func(r *rig) { r.joinNew("unused", func(j *Join) { j.RequireKnownID, j.Session = true, 5*time.Second }) }
	r := stable(t)
	ask(r)
	generation := r.g.classic().generation
	r.pass(6 * time.Second)
	if r.inState(Stable); r.g.classic().generation != generation || len(r.g.classic().pending) != 0 {
		t.Errorf("generation %d after %d, %d ids pending", r.g.classic().generation, generation, len(r.g.classic().pending))
	}
	ask(r)
	ja, jb := r.rejoin("a", nil), r.rejoin("b", nil)
	r.waits(ja)
	r.pass(6 * time.Second)
	r.joined(ja)
	r.joined(jb)
}

func TestInitialDelay(t *testing.T) {
	r := newRig(t)
	r.cfg.InitialDelay = 3 * time.Second
	ja := r.joinNew("a", nil)
	r.pass(2 * time.Second)
	jb := r.joinNew("b", nil)
	r.pass(time.Second) // prolonged, for b came
	r.waits(ja)
	r.pass(2 * time.Second)
	r.waits(jb)
	r.pass(time.Second)
	if got := r.joined(ja); got.Generation != 1 || len(got.Members) != 2 {
		t.Errorf("got %+v", got)
	}
	r.joined(jb)

	// Members that keep arriving prolong it to the rebalance timeout at most.
	r = newRig(t)
	r.cfg.InitialDelay = 3 * time.Second
	ja = r.joinNew("0", nil)
	for i := range 14 {
		r.pass(2 * time.Second)
		r.joinNew(string(rune('a'+i)), nil)
	}
	r.waits(ja)
	r.pass(2 * time.Second)
	if got := r.joined(ja); len(got.Members) != 15 {
		t.Errorf("%d members", len(got.Members))
	}
}

func TestJoinRefused(t *testing.T) {
	r := stable(t)
	for name, c := range map[string]struct {
		change func(*Join)
		want   error
	}{
		"session too short": {func(j *Join) { j.Session = time.Millisecond }, ErrSessionTimeout},
		"session too long":  {func(j *Join) { j.Session = time.Hour }, ErrSessionTimeout},
		"protocol type":     {func(j *Join) { j.ProtocolType = "connect" }, ErrInconsistent},
		"protocol":          {func(j *Join) { j.Protocols[0].Name = "sticky" }, ErrInconsistent},
		"no protocol":       {func(j *Join) { j.Protocols = nil }, ErrInconsistent},
		"unknown member":    {func(j *Join) { j.MemberID = "x" }, ErrUnknownMember},
		"unknown instance":  {func(j *Join) { j.MemberID, j.InstanceID = "a", "i" }, ErrUnknownMember},
		"too many members":  {func(j *Join) { r.cfg.MaxSize = 2 }, ErrMaxSize},
	} {
		t.Run(name, func(t *testing.T) {
			r.cfg = testConfig()
			r.fails(r.joinNew("n", c.change), c.want)
			r.inState(Stable)
		})
	}
}

func TestMaxSizeLetsMembersRejoin(t *testing.T) {
	r := stable(t)
	r.cfg.MaxSize = 2
	ja := r.rejoin("a", nil)
	jb := r.rejoin("b", nil)
	r.joined(ja)
	r.joined(jb)
}

func TestProtocolIsVotedFor(t *testing.T) {
	offer := func(names ...string) func(*Join) {
		return func(j *Join) {
			j.Protocols = nil
			for _, n := range names {
				j.Protocols = append(j.Protocols, Protocol{n, []byte(n + j.NewMemberID)})
			}
		}
	}
	r := newRig(t)
	r.cfg.InitialDelay = time.Second
	ja := r.joinNew("a", offer("only-a", "range", "sticky"))
	r.joinNew("b", offer("sticky", "range"))
	r.joinNew("c", offer("sticky", "range"))
	r.pass(3 * time.Second)
	got := r.joined(ja)
	if got.Protocol != "sticky" || string(got.Members[1].Metadata) != "stickyb" {
		t.Errorf("got %+v", got)
	}
}

func TestSessionEnds(t *testing.T) {
	r := stable(t)
	for range 4 {
		r.pass(5 * time.Second)
		if err := r.beat("a"); err != nil && !errors.Is(err, ErrRebalance) {
			t.Fatal(err)
		}
	}
	r.inState(PreparingRebalance)
	ja := r.rejoin("a", nil)
	if got := r.joined(ja); len(got.Members) != 1 || got.Generation != 3 {
		t.Errorf("got %+v", got)
	}
	r.pass(time.Minute) // the rest leaves in silence
	r.inState(Empty)
	if r.g.classic().generation != 4 {
		t.Errorf("generation %d", r.g.classic().generation)
	}
}

func TestLateMemberIsLeftBehind(t *testing.T) {
	r := stable(t)
	ja := r.rejoin("a", nil)
	r.waits(ja)
	for range 6 { // b says that it lives but does not join
		r.pass(5 * time.Second)
		r.beat("b")
	}
	if got := r.joined(ja); len(got.Members) != 1 || got.Leader != "a" {
		t.Errorf("got %+v", got)
	}
	if err := r.beat("b"); !errors.Is(err, ErrUnknownMember) {
		t.Errorf("b: %v", err)
	}
}

func TestLeaderIsElectedAnew(t *testing.T) {
	r := stable(t)
	jb := r.rejoin("b", func(j *Join) { j.Protocols[0].Metadata = subscription("u") })
	r.pass(31 * time.Second) // a has gone
	if got := r.joined(jb); got.Leader != "b" || len(got.Members) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestWhoNeverSyncsIsGivenUp(t *testing.T) {
	r := newRig(t)
	r.joinNew("a", nil)
	jb := r.joinNew("b", nil)
	r.rejoin("a", nil)
	r.joined(jb)
	sb := r.sync("b", nil)
	for range 6 {
		r.pass(5 * time.Second)
		r.beat("a")
	}
	r.fails(sb, ErrRebalance)
	if got := r.joined(r.rejoin("b", nil)); got.Leader != "b" || len(got.Members) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestLeave(t *testing.T) {
	r := stable(t)
	token := r.token()
	r.do(&Leave{Token: token, Members: []LeaveMember{{MemberID: "b"}, {MemberID: "x"}, {InstanceID: "i"}}})
	got := r.got[token].(LeaveResult)
	if got.Err != nil || got.Members[0] != nil || !errors.Is(got.Members[1], ErrUnknownMember) || !errors.Is(got.Members[2], ErrUnknownMember) {
		t.Fatalf("got %+v", got)
	}
	r.inState(PreparingRebalance)
	token = r.token()
	r.do(&Leave{Token: token, Members: []LeaveMember{{MemberID: "a"}}})
	r.inState(Empty)
	if len(r.g.classic().members) != 0 || r.g.classic().leader != "" || r.g.classic().protocolType != "consumer" {
		t.Errorf("left over: %+v", r.g)
	}
}

func TestSyncRefused(t *testing.T) {
	r := stable(t)
	wrong := "sticky"
	for name, c := range map[string]struct {
		sync Sync
		want error
	}{
		"member":     {Sync{MemberID: "x", Generation: 2}, ErrUnknownMember},
		"generation": {Sync{MemberID: "a", Generation: 1}, ErrIllegalGeneration},
		"protocol":   {Sync{MemberID: "a", Generation: 2, Protocol: &wrong}, ErrInconsistent},
		"type":       {Sync{MemberID: "a", Generation: 2, ProtocolType: &wrong}, ErrInconsistent},
	} {
		t.Run(name, func(t *testing.T) {
			c.sync.Token = r.token()
			r.do(&c.sync)
			r.fails(c.sync.Token.(int), c.want)
		})
	}
	if s := r.got[r.sync("b", nil)].(SyncResult); string(s.Assignment) != "B" {
		t.Errorf("a repeated sync gave %+v", s)
	}
}

func TestVanishedJoin(t *testing.T) {
	r := stable(t)
	jb := r.rejoin("b", func(j *Join) { j.Protocols[0].Metadata = subscription("u") })
	r.do(Vanished{Token: jb})
	r.pass(9 * time.Second)
	r.beat("a")
	ja := r.rejoin("a", nil)
	r.waits(ja) // b may come back
	r.pass(time.Second)
	if got := r.joined(ja); len(got.Members) != 1 {
		t.Errorf("got %+v", got)
	}
	r.waits(jb)
}

func TestJoinTwice(t *testing.T) {
	r := stable(t)
	change := func(j *Join) { j.Protocols[0].Metadata = subscription("u") }
	first := r.rejoin("b", change)
	second := r.rejoin("b", change) // over another connection
	r.fails(first, ErrRebalance)
	r.rejoin("a", nil)
	r.joined(second)
}

func TestFailedAssignment(t *testing.T) {
	r := newRig(t)
	r.joined(r.joinNew("a", nil))
	r.broken = true
	r.fails(r.sync("a", map[string][]byte{"a": []byte("A")}), ErrNotAvailable)
	r.inState(PreparingRebalance)
	r.broken = false
	r.joined(r.rejoin("a", nil))
	if s := r.got[r.sync("a", map[string][]byte{"a": []byte("A")})].(SyncResult); s.Err != nil || string(s.Assignment) != "A" {
		t.Errorf("got %+v", s)
	}
}

func TestDisposable(t *testing.T) {
	r := newRig(t)
	r.joinNew("a", func(j *Join) { j.Session = 0 })
	if !r.g.Disposable() {
		t.Error("a refused join left a group behind")
	}
	r.joinNew("a", func(j *Join) { j.RequireKnownID = true })
	if r.g.Disposable() {
		t.Error("a pending member was forgotten")
	}
	r.pass(time.Minute)
	if !r.g.Disposable() {
		t.Error("a pending member that never came left a group behind")
	}
	if stable(t).g.Disposable() {
		t.Error("a stable group is disposable")
	}
}

// classic is the membership of a group that has never been of another kind.
func (g *Group) classic() *Classic { return g.kind.(*Classic) }
