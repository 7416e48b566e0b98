package consumer

import (
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/rewind-kafka/rewind/internal/coord/assignor"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/members"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// subscribing is what one request of a member leads to, before it takes effect.
type subscribing struct {
	g       *Group
	now     time.Time
	records []record

	replaced string // the member whose instance this one takes over
	epoch    int32  // of the group
	seen     int64  // version of the topics

	changed     bool // what the member subscribes to
	targetEpoch int32
	target      assignor.Assignment // of the member
	moved       bool                // it stands elsewhere than before
}

// with are the members with one of them changed, or added.
func (s *subscribing) with(m *Member) []*Member { return s.g.With(m, s.replaced) }

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
	if created := s.replaced == "" && g.Get(next.ID) == nil; created || !next.sameMetadata(before) {
		s.records = append(s.records, memberType.Of(next.ID, next))
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
		bump = bump || g.preferred(g.List()) != g.preferred(s.with(next))
	}
	s.epoch = g.epoch
	if s.seen = g.topics.Version(); !bump && g.seen == s.seen {
		return nil
	}
	if hash := g.summary(s.with(next)).hash; bump || hash != g.hash {
		s.epoch++
		s.records = append(s.records, epochType.Of("", &reached{s.epoch, hash}))
	}
	if g.oldMetadata {
		s.records = append(s.records, metadataType.Of("", nil))
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

func (g *Group) summary(all []*Member) summary {
	s := summary{regexes: map[string]int{}}
	byName, byRegex := map[string]int{}, map[string]int{}
	for _, m := range all {
		for _, t := range m.Topics {
			byName[t]++
		}
		if m.Regex != "" {
			s.regexes[m.Regex]++
		}
	}
	for regex := range s.regexes {
		for _, t := range g.regexes[regex].topics {
			byRegex[t]++
		}
	}
	s.same = homogeneous(len(all), s.regexes, byName, byRegex)
	names := maps.Clone(byName)
	maps.Copy(names, byRegex)
	s.hash = members.HashOf(g.topics, sortedKeys(names))
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

// takeRegex has what regular expressions stand for looked up after this step, if that is due: for a new one, and from time to time.
func (s *subscribing) takeRegex(before, next *Member, allowed func(string) bool) (regexStatus, error) {
	if before.Regex == "" && next.Regex == "" && len(s.g.regexes) == 0 {
		return regexSame, nil
	}
	g, status, due := s.g, regexSame, false
	in := g.summary(g.List()).regexes
	if before.Regex != next.Regex {
		status = regexChanged
		if before.Regex != "" && in[before.Regex] == 1 {
			s.records = append(s.records, regexType.Of(before.Regex, nil))
		}
		_, known := g.regexes[next.Regex]
		switch {
		case next.Regex == "":
			status = regexChangedAndResolved
		case in[next.Regex] == 0:
			if _, err := compile(next.Regex); err != nil {
				return 0, group.Refuse(group.ErrInvalidRegex, "SubscribedTopicRegex `%s` is not a valid regular expression: %s.", next.Regex, err)
			}
			due = true
		case known:
			status = regexChangedAndResolved
		}
	}
	if !due && len(in) == 0 || !g.resolve.IsZero() {
		return status, nil
	}
	at, version := g.lookedUp()
	if !at.IsZero() && !s.now.After(at.Add(regexPause)) {
		return status, nil
	}
	if in = g.summary(s.with(next)).regexes; len(in) == 0 {
		return status, nil
	}
	if due || len(in) != len(g.regexes) || version != g.topics.Version() || s.now.After(at.Add(regexRefresh)) {
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
	for _, regex := range sortedKeys(g.summary(g.List()).regexes) {
		v := resolved{topics: matching(regex, names, allowed), version: version, timestamp: now.UnixMilli()}
		bump = bump || !slices.Equal(before[regex].topics, v.topics)
		g.regexes[regex] = v
		records = append(records, regexType.Of(regex, &v))
	}
	hash := g.summary(g.List()).hash
	g.regexes = before
	if len(records) == 0 {
		return
	}
	if bump || hash != g.hash {
		records = append(records, epochType.Of("", &reached{g.epoch + 1, hash}))
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

// assign makes a new target if the group's epoch has grown, at most as often as the configuration says.
func (s *subscribing) assign(next *Member) {
	g := s.g
	s.targetEpoch = g.Assignment.Epoch
	if s.target = g.target[next.ID]; s.replaced != "" {
		s.target = g.target[s.replaced]
	}
	if g.Assignment.Epoch >= s.epoch || !g.Assignment.MayAssign(s.now, g.config().AssignmentInterval) {
		return
	}
	for _, a := range s.shareOut(s.with(next)) {
		old, had := g.target[a.ID]
		if s.replaced != "" && a.ID == next.ID {
			old, had = g.target[s.replaced]
			had = had || g.Get(s.replaced) != nil
		}
		if !had || !sameTarget(old, a.Assignment) {
			s.records = append(s.records, targetType.Of(a.ID, &a.Assignment))
		}
		if a.ID == next.ID {
			s.target = a.Assignment
		}
	}
	s.targetEpoch = s.epoch
	s.records = append(s.records, assignmentType.Of("", &members.Assignment{Epoch: s.epoch, Made: s.now.UnixMilli()}))
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
	for _, id := range g.HashOrder(members) {
		m := byID[id]
		before := g.target[id]
		if s.replaced != "" && g.Get(id) == nil {
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

// reconcile brings the member one step nearer to its target.
func (s *subscribing) reconcile(m *Member, owns Owned) (*Member, error) {
	if !s.changed && m.Reconciled(s.targetEpoch) {
		return m, nil
	}
	r := reconciling{g: s.g, m: m, epoch: s.targetEpoch, target: s.target, changed: s.changed, owns: owns}
	next, err := r.next()
	if err != nil {
		return nil, err
	}
	if s.moved = !next.Standing.Equal(&m.Standing); s.moved {
		s.records = append(s.records, currentType.Of(next.ID, &next.Standing))
	}
	return next, nil
}

// done lets what was computed take effect. The member's session starts anew, and its time for giving partitions up if it has to.
func (s *subscribing) done(m *Member, session time.Duration, o *group.Output) {
	g := s.g
	g.commit(o, s.records)
	g.seen = s.seen
	g.Alive(s.now, m, session, s.moved && m.Classic == nil)
	if m.Classic == nil {
		c := g.Clocks[m.ID]
		c.Join, c.Sync = time.Time{}, time.Time{}
		g.Clocks[m.ID] = c
	}
}
