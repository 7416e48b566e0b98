package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Group is the configuration of a group as it is in force.
type Group struct {
	Consumer, Share, Streams GroupTimes

	ShareReset        ShareReset
	ShareDeliveries   int // share.delivery.count.limit
	ShareLocks        int // share.partition.max.record.locks
	ShareLockDuration time.Duration
	ShareCommitted    bool // share.isolation.level is read_committed
	ShareRenew        bool
	DeadLetterTopic   string // empty: none
	DeadLetterCopies  bool

	StreamsInitialDelay       time.Duration
	StreamsStandby            int
	StreamsRackTags           []string
	StreamsAssignor           string
	StreamsTaskOffsetInterval time.Duration
	StreamsAcceptableLag      int64
}

// GroupTimes are what a group of one kind is told.
type GroupTimes struct{ SessionTimeout, Heartbeat, AssignmentInterval time.Duration }

// ShareReset is where a share group begins: at the earliest record, at the first that is not older than Age, or else at the end.
type ShareReset struct {
	Earliest bool
	Age      time.Duration // with ByAge
	ByAge    bool
}

var (
	groupIndex = index(groupKeys)
	groupKinds = []string{"consumer", "share", "streams"}
)

// GroupKeys returns the definitions of all keys of groups in the order of the names.
func GroupKeys() []*Key { return slices.Clone(groupKeys) }

// GroupKey returns the definition of a group's key, or ErrUnknownKey.
func GroupKey(name string) (*Key, error) {
	if k, ok := groupIndex[name]; ok {
		return k, nil
	}
	return nil, unknownKey(name, groupKeys)
}

// CheckGroup judges what is to be set for a group: each value, that they are within the broker's bounds, and that no session ends before its heartbeat.
func CheckGroup(overrides map[string]string, b *Broker) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		k, err := GroupKey(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v, err := k.Parse(overrides[name])
		if err == nil {
			err = withinBounds(name, v, b)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, kind := range groupKinds {
		errs = append(errs, checkSession(kind, overrides, b))
	}
	return errors.Join(errs...)
}

// withinBounds holds a group's value against the broker's least and most.
func withinBounds(name, value string, b *Broker) error {
	if low, high, ok := groupBounds(name, b); ok {
		if n := number(value); n < low || n > high {
			return &Invalid{Key: name, Value: value, Reason: fmt.Sprintf("it must be in the range %d to %d", low, high)}
		}
	}
	return nil
}

func groupBounds(name string, b *Broker) (low, high int64, ok bool) {
	if name == "streams.num.standby.replicas" {
		return 0, int64(b.StreamsMaxStandby), true
	}
	least, ok := brokerIndex[boundName(name, "min")]
	if !ok {
		return 0, 0, false
	}
	most := brokerIndex[boundName(name, "max")]
	return number(format(least.bind(b))), number(format(most.bind(b))), true
}

// boundName is the broker's key that bounds a group's: group.<kind>.min.<rest> of <kind>.<rest>.
func boundName(name, bound string) string {
	for i := range name {
		if name[i] == '.' {
			return "group." + name[:i] + "." + bound + name[i:]
		}
	}
	return ""
}

func checkSession(kind string, overrides map[string]string, b *Broker) error {
	session, heartbeat := kind+".session.timeout.ms", kind+".heartbeat.interval.ms"
	_, one := overrides[session]
	_, other := overrides[heartbeat]
	if !one && !other {
		return nil
	}
	v := func(name string) int64 { return number(describeGroupKey(groupIndex[name], overrides, b).Value) }
	if v(session) <= v(heartbeat) {
		return &Invalid{Key: session, Value: fmt.Sprint(v(session)), Reason: fmt.Sprintf("it must be greater than %s, %d", heartbeat, v(heartbeat))}
	}
	return nil
}

// DescribeGroup returns every key of a group with its value and where it comes from. The overrides must have passed CheckGroup. Internal keys that are not set are null.
func DescribeGroup(overrides map[string]string, b *Broker) []Entry {
	entries := make([]Entry, 0, len(groupKeys))
	for _, k := range groupKeys {
		e := describeGroupKey(k, overrides, b)
		if _, set := overrides[k.Name]; k.Internal && !set {
			e.Null = true
		}
		entries = append(entries, e)
	}
	return entries
}

func describeGroupKey(k *Key, overrides map[string]string, b *Broker) Entry {
	e := Entry{Key: k, Value: k.Default, Source: SourceDefault}
	switch {
	case k.Internal: // the broker's key of the same kind is internal too, and not among ours
		e.Synonyms = []SynonymValue{{Name: "group." + k.Name, Value: k.Default, Source: SourceDefault}}
	case len(k.Synonyms) == 0:
		e.Synonyms = []SynonymValue{{Name: k.Name, Value: k.Default, Source: SourceDefault}}
	}
	for _, s := range k.Synonyms {
		bk := brokerIndex[s.Name]
		e.Value, _ = b.value(bk)
		if e.Source = b.source(bk); e.Source != SourceDefault {
			e.Synonyms = append(e.Synonyms, SynonymValue{Name: s.Name, Value: e.Value, Source: e.Source})
		}
		e.Synonyms = append(e.Synonyms, SynonymValue{Name: s.Name, Value: bk.Default, Source: SourceDefault})
	}
	if v, ok := overrides[k.Name]; ok {
		if c, err := k.Parse(v); err == nil {
			v = c
		}
		e.Value, e.Source = v, SourceGroup
		e.Synonyms = append([]SynonymValue{{Name: k.Name, Value: v, Source: SourceGroup}}, e.Synonyms...)
	}
	return e
}

// ParseGroup gives a group's configuration. The overrides must have passed CheckGroup once; where the broker's bounds have changed since, they are kept.
func ParseGroup(overrides map[string]string, b *Broker) Group {
	v := make(map[string]string, len(groupKeys))
	for _, k := range groupKeys {
		v[k.Name] = describeGroupKey(k, overrides, b).Value
	}
	num := func(name string) int64 {
		n := number(v[name])
		if low, high, ok := groupBounds(name, b); ok {
			n = min(max(n, low), high)
		}
		return n
	}
	millis := func(name string) time.Duration { return time.Duration(num(name)) * time.Millisecond }
	times := func(kind string) GroupTimes {
		return GroupTimes{SessionTimeout: millis(kind + ".session.timeout.ms"), Heartbeat: millis(kind + ".heartbeat.interval.ms"), AssignmentInterval: millis(kind + ".assignment.interval.ms")}
	}
	return Group{
		Consumer: times("consumer"), Share: times("share"), Streams: times("streams"),
		ShareReset: parseReset(v["share.auto.offset.reset"]), ShareDeliveries: int(num("share.delivery.count.limit")), ShareLocks: int(num("share.partition.max.record.locks")),
		ShareLockDuration: millis("share.record.lock.duration.ms"), ShareCommitted: v["share.isolation.level"] == "read_committed", ShareRenew: v["share.renew.acknowledge.enable"] == "true",
		DeadLetterTopic: v["errors.deadletterqueue.topic.name"], DeadLetterCopies: v["errors.deadletterqueue.copy.record.enable"] == "true",
		StreamsInitialDelay: millis("streams.initial.rebalance.delay.ms"), StreamsStandby: int(num("streams.num.standby.replicas")),
		StreamsRackTags: SplitList(v["streams.rack.aware.assignment.tags"]), StreamsAssignor: SplitList(v["streams.assignor.name"])[0],
		StreamsTaskOffsetInterval: millis("streams.task.offset.interval.ms"), StreamsAcceptableLag: num("streams.acceptable.recovery.lag"),
	}
}

func parseReset(v string) ShareReset {
	if len(v) > len(byDuration) && v[:len(byDuration)] == byDuration {
		age, _ := parseISODuration(v[len(byDuration):]) // passed its check
		return ShareReset{ByAge: true, Age: age}
	}
	return ShareReset{Earliest: v == "earliest"}
}

// validateGroups holds Kafka's rules about the broker's keys of groups beside each other.
func (b *Broker) validateGroups(wrong func(key, value, reason string, args ...any)) {
	for _, k := range groupKeys {
		if len(k.Synonyms) == 0 {
			continue
		}
		low, high, ok := groupBounds(k.Name, b)
		if !ok {
			continue
		}
		name := k.Synonyms[0].Name
		v := format(brokerIndex[name].bind(b))
		if n := number(v); n < low || n > high {
			wrong(name, v, "it must be between %s, %d, and %s, %d", boundName(k.Name, "min"), low, boundName(k.Name, "max"), high)
		}
	}
	for _, kind := range groupKinds {
		session, heartbeat := brokerIndex["group."+kind+".session.timeout.ms"], brokerIndex["group."+kind+".heartbeat.interval.ms"]
		if s, h := format(session.bind(b)), format(heartbeat.bind(b)); number(h) >= number(s) {
			wrong(heartbeat.Name, h, "it must be less than %s, %s", session.Name, s)
		}
	}
	if b.ShareSessions < b.ShareGroups.MaxSize {
		wrong("group.share.max.share.sessions", format(&b.ShareSessions), "it must not be less than group.share.max.size, %d", b.ShareGroups.MaxSize)
	}
}
