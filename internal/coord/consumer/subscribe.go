package consumer

import (
	"encoding/binary"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
)

var emptyTarget = assignor.Assignment{}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// subscribing is what one request of a member leads to, before it takes effect.
type subscribing struct {
	g       *Group
	now     time.Time
	records []record

	created  bool   // the member is new
	replaced string // the member whose instance this one takes over
	epoch    int32  // of the group
	seen     int64  // version of the topics

	changed     bool // what the member subscribes to
	targetEpoch int32
	target      assignor.Assignment // of the member
	moved       bool                // it stands elsewhere than before
}

// list are the members in the order of joining.
func (g *Group) list() []*Member {
	out := make([]*Member, 0, len(g.order))
	for _, id := range g.order {
		out = append(out, g.members[id])
	}
	return out
}

// with are the members with one of them changed, or added.
func (s *subscribing) with(m *Member) []*Member {
	members := s.g.list()
	if s.replaced != "" && s.replaced != m.ID {
		members = slices.DeleteFunc(members, func(o *Member) bool { return o.ID == s.replaced })
	}
	if i := slices.IndexFunc(members, func(o *Member) bool { return o.ID == m.ID }); i >= 0 {
		members[i] = m
		return members
	}
	return append(members, m)
}

// regexStatus is what became of a member's regular expression.
type regexStatus int

const (
	regexSame regexStatus = iota
	regexChanged
	regexChangedAndResolved
)

// take lets the group know what a member says of itself. The epoch grows if members may have to have other partitions for it.
func (s *subscribing) take(before, next *Member, allowed func(string) bool) error {
	g := s.g
	names := false
	if s.created || !next.sameMetadata(before) {
		s.records = append(s.records, &memberRecord{next.ID, next})
		names = !slices.Equal(next.Topics, before.Topics)
	}
	regex, err := s.takeRegex(before, next, allowed)
	if err != nil {
		return err
	}
	s.changed = names || regex != regexSame
	bump := names || regex == regexChangedAndResolved
	if next.Classic != nil {
		bump = s.changed
	} else if before.Assignor != next.Assignor {
		bump = bump || g.preferred(g.list()) != g.preferred(s.with(next))
	}
	s.epoch = g.epoch
	if s.seen = g.topics.Version(); !bump && g.seen == s.seen {
		return nil
	}
	if hash := g.summary(s.with(next)).hash; bump || hash != g.hash {
		s.epoch++
		s.records = append(s.records, &epochRecord{&epochValue{s.epoch, hash}})
	}
	if g.oldMetadata {
		s.records = append(s.records, &metadataRecord{})
	}
	return nil
}

// preferred is the assignor that most members ask for. Of those that as many ask for, Apache Kafka takes now one, now the other, and begins a rebalance with every
// heartbeat; here it is the one that the configuration names first.
func (g *Group) preferred(members []*Member) string {
	votes := map[string]int{}
	for _, m := range members {
		if m.Assignor != "" {
			votes[m.Assignor]++
		}
	}
	names := g.config().Assignors
	best := names[0]
	for _, name := range names[1:] {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// summary is what a group's members subscribe to.
type summary struct {
	regexes map[string]int // members by regular expression
	same    bool
	hash    int64
}

func (g *Group) summary(members []*Member) summary {
	s := summary{regexes: map[string]int{}}
	byName, byRegex := map[string]int{}, map[string]int{}
	for _, m := range members {
		for _, t := range m.Topics {
			byName[t]++
		}
		if m.Regex != "" {
			s.regexes[m.Regex]++
		}
	}
	for regex := range s.regexes {
		if r := g.regexes[regex]; r != nil {
			for _, t := range r.topics {
				byRegex[t]++
			}
		}
	}
	s.same = homogeneous(len(members), s.regexes, byName, byRegex)
	all := maps.Clone(byName)
	maps.Copy(all, byRegex)
	s.hash = g.hashOf(sortedKeys(all))
	return s
}

func homogeneous(members int, regexes, byName, byRegex map[string]int) bool {
	if len(regexes) == 0 {
		for _, n := range byName {
			if n != members {
				return false
			}
		}
		return true
	}
	if len(regexes) > 1 || len(byName) > 0 {
		return false
	}
	for _, n := range regexes {
		if n != members {
			return false
		}
	}
	return true
}

// hashOf tells whether topics have changed: their ids, or how many partitions they have. It is not the hash that Apache Kafka takes, which would then see a
// change where there is none, and assign once more. 0: none of them is there.
func (g *Group) hashOf(names []string) int64 {
	h, any := xxhash.New(), false
	for _, name := range names {
		t, ok := g.topics.ByName(name)
		if !ok {
			continue
		}
		any = true
		b := append([]byte(nil), t.ID[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(t.Partitions))
		h.Write(b) // which gives no error
	}
	if !any {
		return 0
	}
	return int64(h.Sum64())
}

// takeRegex has what regular expressions stand for looked up after this step, if that is due: for a new one, and from time to time.
func (s *subscribing) takeRegex(before, next *Member, allowed func(string) bool) (regexStatus, error) {
	if before.Regex == "" && next.Regex == "" && len(s.g.regexes) == 0 {
		return regexSame, nil
	}
	g, status, due := s.g, regexSame, false
	members := g.summary(g.list()).regexes
	if before.Regex != next.Regex {
		status = regexChanged
		if before.Regex != "" && members[before.Regex] == 1 {
			s.records = append(s.records, &regexRecord{regex: before.Regex})
		}
		switch {
		case next.Regex == "":
			status = regexChangedAndResolved
		case members[next.Regex] == 0:
			if _, err := compile(next.Regex); err != nil {
				return 0, group.Refuse(group.ErrInvalidRegex, "SubscribedTopicRegex `%s` is not a valid regular expression: %s.", next.Regex, err)
			}
			due = true
		case g.regexes[next.Regex] != nil:
			status = regexChangedAndResolved
		}
	}
	if !due && len(members) == 0 || !g.resolve.IsZero() {
		return status, nil
	}
	at, version := g.lookedUp()
	if !at.IsZero() && !s.now.After(at.Add(regexPause)) {
		return status, nil
	}
	if members = g.summary(s.with(next)).regexes; len(members) == 0 {
		return status, nil
	}
	if due || len(members) != len(g.regexes) || version != g.topics.Version() || s.now.After(at.Add(regexRefresh)) {
		g.resolve, g.allowed = s.now, allowed
	}
	return status, nil
}

// lookedUp is when regular expressions were looked up last, zero if never, and in which topics.
func (g *Group) lookedUp() (time.Time, int64) {
	for _, regex := range sortedKeys(g.regexes) {
		return time.UnixMilli(g.regexes[regex].timestamp), g.regexes[regex].version
	}
	return time.Time{}, 0
}

func compile(regex string) (*regexp.Regexp, error) { return regexp.Compile(`\A(?:` + regex + `)\z`) }

// lookUp finds the topics that all regular expressions stand for.
func (g *Group) lookUp(now time.Time, o *group.Output) {
	allowed := g.allowed
	g.resolve, g.allowed = time.Time{}, nil
	var records []record
	names, version, bump := g.topics.Names(), g.topics.Version(), false
	before := g.regexes
	g.regexes = maps.Clone(before)
	for regex := range g.summary(g.list()).regexes {
		v := &resolved{topics: matching(regex, names, allowed), version: version, timestamp: now.UnixMilli()}
		old := before[regex]
		bump = bump || old == nil && len(v.topics) > 0 || old != nil && !slices.Equal(old.topics, v.topics)
		g.regexes[regex] = v
		records = append(records, &regexRecord{regex, v})
	}
	hash := g.summary(g.list()).hash
	g.regexes = before
	slices.SortFunc(records, func(a, b record) int {
		return compareStrings(a.(*regexRecord).regex, b.(*regexRecord).regex)
	})
	if len(records) == 0 {
		return
	}
	if bump || hash != g.hash {
		records = append(records, &epochRecord{&epochValue{g.epoch + 1, hash}})
	}
	g.commit(o, records)
}

func matching(regex string, names []string, allowed func(string) bool) []string {
	re, err := compile(regex)
	if err != nil {
		return nil // written by somebody with other rules
	}
	var out []string
	for _, name := range names {
		if re.MatchString(name) && (allowed == nil || allowed(name)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// assign makes a new target if the group's epoch has grown, at most as often as the configuration says.
func (s *subscribing) assign(next *Member) {
	g := s.g
	s.targetEpoch = g.assignmentEpoch
	if s.target = g.target[next.ID]; s.replaced != "" {
		s.target = g.target[s.replaced]
	}
	if g.assignmentEpoch >= s.epoch || !g.mayAssign(s.now) {
		return
	}
	for _, a := range s.shareOut(s.with(next)) {
		old, had := g.target[a.ID]
		if s.replaced != "" && a.ID == next.ID {
			old, had = g.target[s.replaced]
			had = had || g.members[s.replaced] != nil
		}
		if !had || !sameTarget(old, a.Assignment) {
			s.records = append(s.records, &targetRecord{a.ID, a.Assignment})
		}
		if a.ID == next.ID {
			s.target = a.Assignment
		}
	}
	s.targetEpoch = s.epoch
	s.records = append(s.records, &targetEpochRecord{&targetEpochValue{s.epoch, s.now.UnixMilli()}})
}

func (g *Group) mayAssign(now time.Time) bool {
	interval := g.config().AssignmentInterval
	return g.assignedAt == 0 || interval == 0 || !now.Before(time.UnixMilli(g.assignedAt).Add(interval))
}

func sameTarget(a, b assignor.Assignment) bool {
	return maps.EqualFunc(a, b, func(x, y []int32) bool {
		if slices.Equal(x, y) {
			return true
		}
		return slices.Equal(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)))
	})
}

// shareOut asks the assignor.
func (s *subscribing) shareOut(members []*Member) []assignor.Assigned {
	g := s.g
	spec := &assignor.Group{Homogeneous: g.summary(members).same, Assigned: func(t TopicID, p int32) bool { _, ok := g.targetOwner[t][p]; return ok }}
	counts := map[TopicID]int32{}
	spec.Partitions = func(t TopicID) int32 { return counts[t] }
	byID := map[string]*Member{}
	for _, m := range members {
		byID[m.ID] = m
	}
	for _, id := range s.memberOrder(members) {
		m := byID[id]
		before := g.target[id]
		if s.replaced != "" && g.members[id] == nil {
			before = g.target[s.replaced]
		}
		topics := assignor.TopicSet(g.subscribedNames(m), func(name string) (TopicID, bool) {
			t, ok := g.topics.ByName(name)
			if ok {
				counts[t.ID] = t.Partitions
			}
			return t.ID, ok
		})
		spec.Members = append(spec.Members, assignor.Member{ID: id, InstanceID: m.InstanceID, Topics: topics, Before: before})
	}
	return assignor.ByName(g.preferred(members))(spec)
}

// memberOrder is the order in which Apache Kafka goes through the members: those that it knew, then the one that comes.
func (s *subscribing) memberOrder(members []*Member) []string {
	known := assignor.MemberOrder(s.g.order, s.g.peak)
	out := make([]string, 0, len(members))
	present := map[string]bool{}
	for _, m := range members {
		present[m.ID] = true
	}
	for _, id := range known {
		if present[id] {
			out = append(out, id)
			delete(present, id)
		}
	}
	for _, m := range members {
		if present[m.ID] {
			out = append(out, m.ID)
		}
	}
	return out
}

// reconcile brings the member one step nearer to its target.
func (s *subscribing) reconcile(m *Member, owns Owned) (*Member, error) {
	if !s.changed && m.reconciled(s.targetEpoch) {
		return m, nil
	}
	r := reconciling{g: s.g, m: m, epoch: s.targetEpoch, target: s.target, changed: s.changed, owns: owns}
	next, err := r.next()
	if err != nil {
		return nil, err
	}
	if s.moved = !next.sameCurrent(m); s.moved {
		s.records = append(s.records, &currentRecord{next.ID, next})
	}
	return next, nil
}

// done lets what was computed take effect. The member's session starts anew, and its time for giving partitions up if it has to.
func (s *subscribing) done(m *Member, session time.Duration, o *group.Output) {
	g := s.g
	g.commit(o, s.records)
	g.seen = s.seen
	c := g.clocks[m.ID]
	c.session = s.now.Add(session)
	if m.Classic == nil {
		c.join, c.sync = time.Time{}, time.Time{}
		if s.moved {
			c.rebalance = time.Time{}
		}
		if s.moved && m.State == Unrevoked {
			c.rebalance, c.rebalanceEpoch = s.now.Add(m.rebalanceTimeout()), m.Epoch
		}
	}
	g.clocks[m.ID] = c
}
