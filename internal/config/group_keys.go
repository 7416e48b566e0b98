package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// GroupKind holds what a broker says of one kind of groups: the defaults of their own configurations, and how far these may go.
type GroupKind struct {
	SessionTimeout, MinSessionTimeout, MaxSessionTimeout             time.Duration
	Heartbeat, MinHeartbeat, MaxHeartbeat                            time.Duration
	AssignmentInterval, MinAssignmentInterval, MaxAssignmentInterval time.Duration
	MaxSize                                                          int
	Assignors                                                        string
}

// groupBrokerKeys are the broker's keys about consumer groups of KIP-848, share groups and streams groups.
var groupBrokerKeys = slices.Concat(
	shareStateKeys,
	kindKeys("consumer", "consumer groups (KIP-848)", "2147483647", integer(32, 1, maxInt), func(b *Broker) *GroupKind { return &b.ConsumerGroups }),
	kindKeys("share", "share groups", "200", integer(32, 1, 1000), func(b *Broker) *GroupKind { return &b.ShareGroups }),
	kindKeys("streams", "streams groups", "2147483647", integer(32, 1, maxInt), func(b *Broker) *GroupKind { return &b.StreamsGroups }),
	[]*Key{
		{
			Name: "errors.deadletterqueue.auto.create.topics.enable", Kind: Boolean, Default: "false", check: boolean, Dynamic: true, bind: func(b *Broker) any { return &b.DeadLetterCreate },
			Doc: "Whether the dead letter queue of a share group is made when it is needed and not there.",
		},
		{
			Name: "errors.deadletterqueue.topic.name.prefix", Kind: String, Default: "dlq.", check: anyText, Allowed: "any text, or none", Dynamic: true, bind: func(b *Broker) any { return &b.DeadLetterPrefix },
			Doc: "What the name of a dead letter queue has to begin with.",
		},
		{
			Name: "group.consumer.assignors", Kind: List, Default: "uniform,range", check: someOf("uniform", "range"), Allowed: "uniform, range, or both", bind: func(b *Broker) any { return &b.ConsumerGroups.Assignors },
			Doc: "The assignors of the broker's side; the first is taken where the members do not say.",
		},
		{
			Name: "group.consumer.migration.policy", Kind: String, Default: "bidirectional", check: oneOfAnyCase("bidirectional", "upgrade", "downgrade", "disabled"), Allowed: "bidirectional, upgrade, downgrade, disabled",
			bind: func(b *Broker) any { return &b.ConsumerMigration },
			Doc:  "Whether a group may go over from the classic protocol to KIP-848's while it has members, and back.",
		},
		{
			Name: "group.share.assignors", Kind: List, Default: "simple", check: oneOf("simple"), Allowed: "simple", bind: func(b *Broker) any { return &b.ShareGroups.Assignors },
			Doc: "The assignor of share groups.",
		},
		{
			Name: "group.share.max.share.sessions", Kind: Int, Default: "2000", check: integer(32, 1, maxInt), bind: func(b *Broker) any { return &b.ShareSessions },
			Doc: "The most share sessions.",
		},
		{
			Name: "group.streams.assignors", Kind: List, Default: "sticky", check: oneOf("sticky"), Allowed: "sticky", bind: func(b *Broker) any { return &b.StreamsGroups.Assignors },
			Doc: "The task assignors of streams groups; the first is a group's default.",
		},
		{
			Name: "group.streams.initial.rebalance.delay.ms", Kind: Int, Default: "3000", check: integer(32, 0, maxInt), unit: millisUnit, bind: func(b *Broker) any { return &b.StreamsInitialDelay },
			Doc: "The default of the group configuration streams.initial.rebalance.delay.ms.",
		},
		{
			Name: "group.streams.max.standby.replicas", Kind: Int, Default: "2", check: integer(32, 0, maxInt), bind: func(b *Broker) any { return &b.StreamsMaxStandby },
			Doc: "The most that a group's streams.num.standby.replicas may be.",
		},
		{
			Name: "group.streams.num.standby.replicas", Kind: Int, Default: "0", check: integer(32, 0, maxInt), bind: func(b *Broker) any { return &b.StreamsStandby },
			Doc: "The default of the group configuration streams.num.standby.replicas.",
		},
		{
			Name: "group.streams.rack.aware.assignment.tags", Kind: List, Default: "", check: distinct, Allowed: "names of client tags", bind: func(b *Broker) any { return &b.StreamsRackTags },
			Doc: "The default of the group configuration streams.rack.aware.assignment.tags.",
		},
	},
	boundedKeys("group.share.", "delivery.count.limit", "share.delivery.count.limit", noUnit, [3]string{"5", "2", "10"}, [3]check{integer(32, 2, 10), integer(32, 2, 5), integer(32, 5, 25)},
		func(b *Broker) [3]any {
			return [3]any{&b.ShareDeliveries, &b.MinShareDeliveries, &b.MaxShareDeliveries}
		}),
	boundedKeys("group.share.", "partition.max.record.locks", "share.partition.max.record.locks", noUnit, [3]string{"2000", "100", "4000"}, [3]check{integer(32, 100, 10_000), integer(32, 100, 2000), integer(32, 2000, 10_000)},
		func(b *Broker) [3]any { return [3]any{&b.ShareLocks, &b.MinShareLocks, &b.MaxShareLocks} }),
	boundedKeys("group.share.", "record.lock.duration.ms", "share.record.lock.duration.ms", millisUnit, [3]string{"30000", "15000", "60000"}, [3]check{integer(32, 1000, hour), integer(32, 1000, 30_000), integer(32, 30_000, hour)},
		func(b *Broker) [3]any {
			return [3]any{&b.ShareLockDuration, &b.MinShareLockDuration, &b.MaxShareLockDuration}
		}),
)

// kindKeys are the keys that each kind of groups has.
func kindKeys(kind, groups, maxSize string, size check, of func(*Broker) *GroupKind) []*Key {
	prefix := "group." + kind + "."
	keys := slices.Concat(
		boundedKeys(prefix, "session.timeout.ms", kind+".session.timeout.ms", millisUnit, [3]string{"45000", "45000", "60000"}, [3]check{integer(32, 1, maxInt), integer(32, 1, maxInt), integer(32, 1, maxInt)},
			func(b *Broker) [3]any {
				g := of(b)
				return [3]any{&g.SessionTimeout, &g.MinSessionTimeout, &g.MaxSessionTimeout}
			}),
		boundedKeys(prefix, "heartbeat.interval.ms", kind+".heartbeat.interval.ms", millisUnit, [3]string{"5000", "5000", "15000"}, [3]check{integer(32, 1, maxInt), integer(32, 1, maxInt), integer(32, 1, maxInt)},
			func(b *Broker) [3]any { g := of(b); return [3]any{&g.Heartbeat, &g.MinHeartbeat, &g.MaxHeartbeat} }),
		boundedKeys(prefix, "assignment.interval.ms", kind+".assignment.interval.ms", millisUnit, [3]string{"1000", "0", "15000"}, [3]check{integer(32, 0, maxInt), integer(32, 0, maxInt), integer(32, 0, maxInt)},
			func(b *Broker) [3]any {
				g := of(b)
				return [3]any{&g.AssignmentInterval, &g.MinAssignmentInterval, &g.MaxAssignmentInterval}
			}),
	)
	for _, k := range keys {
		k.Dynamic = k.Name == prefix+"assignment.interval.ms"
	}
	return append(keys, &Key{
		Name: prefix + "max.size", Kind: Int, Default: maxSize, check: size, bind: func(b *Broker) any { return &of(b).MaxSize },
		Doc: "The most members of " + groups + ".",
	})
}

// boundedKeys are the default of a group's configuration, the least and the most that a group may set.
func boundedKeys(prefix, name, group string, u unit, defaults [3]string, checks [3]check, fields func(*Broker) [3]any) []*Key {
	keys := []*Key{
		{Name: prefix + name, Doc: "The default of the group configuration " + group + "."},
		{Name: prefix + "min." + name, Doc: "The least that a group's " + group + " may be."},
		{Name: prefix + "max." + name, Doc: "The most that a group's " + group + " may be."},
	}
	for i, k := range keys {
		k.Kind, k.Default, k.check, k.unit = Int, defaults[i], checks[i], u
		k.bind = func(b *Broker) any { return fields(b)[i] }
	}
	return keys
}

// groupKeys are the configurations of groups, in the order of their names.
var groupKeys = slices.SortedFunc(slices.Values([]*Key{
	{
		Name: "consumer.assignment.interval.ms", Kind: Int, Default: "1000", check: integer(32, 0, maxInt), Synonyms: own("group.consumer.assignment.interval.ms"),
		Doc: "The least time between two assignments of a consumer group.",
	},
	{Name: "consumer.assignor.offload.enable", Kind: Boolean, Default: "true", check: boolean, Internal: true, Doc: "Accepted for Kafka's sake."},
	{
		Name: "consumer.heartbeat.interval.ms", Kind: Int, Default: "5000", check: integer(32, 1, maxInt), Synonyms: own("group.consumer.heartbeat.interval.ms"),
		Doc: "How often the members of a consumer group are told to send heartbeats.",
	},
	{
		Name: "consumer.session.timeout.ms", Kind: Int, Default: "45000", check: integer(32, 1, maxInt), Synonyms: own("group.consumer.session.timeout.ms"),
		Doc: "After how long without a heartbeat a member of a consumer group counts as gone.",
	},
	{
		Name: "errors.deadletterqueue.copy.record.enable", Kind: Boolean, Default: "false", check: boolean,
		Doc: "Whether the dead letter queue of a share group gets keys and values, and not only headers that say where the record is.",
	},
	{
		Name: "errors.deadletterqueue.topic.name", Kind: String, Default: "", check: deadLetterTopic, Allowed: "empty, or a name that does not begin with `__`",
		Doc: "The topic that a share group's records go to which cannot be delivered. Empty: none.",
	},
	{
		Name: "share.assignment.interval.ms", Kind: Int, Default: "1000", check: integer(32, 0, maxInt), Synonyms: own("group.share.assignment.interval.ms"),
		Doc: "The least time between two assignments of a share group.",
	},
	{Name: "share.assignor.offload.enable", Kind: Boolean, Default: "true", check: boolean, Internal: true, Doc: "Accepted for Kafka's sake."},
	{
		Name: "share.auto.offset.reset", Kind: String, Default: "latest", check: shareReset, Allowed: "latest, earliest, by_duration:<ISO 8601>",
		Doc: "Where a share group begins in a partition that it has not read yet.",
	},
	{
		Name: "share.delivery.count.limit", Kind: Int, Default: "5", check: integer(32, 2, maxInt), Synonyms: own("group.share.delivery.count.limit"),
		Doc: "How often a share group is given one record at most.",
	},
	{
		Name: "share.heartbeat.interval.ms", Kind: Int, Default: "5000", check: integer(32, 1, maxInt), Synonyms: own("group.share.heartbeat.interval.ms"),
		Doc: "How often the members of a share group are told to send heartbeats.",
	},
	{
		Name: "share.isolation.level", Kind: String, Default: "read_uncommitted", check: oneOf("read_committed", "read_uncommitted"), Allowed: "read_committed, read_uncommitted",
		Doc: "Whether a share group is given records of aborted transactions.",
	},
	{
		Name: "share.partition.max.record.locks", Kind: Int, Default: "2000", check: integer(32, 100, maxInt), Synonyms: own("group.share.partition.max.record.locks"),
		Doc: "How many records of one partition a share group may hold.",
	},
	{
		Name: "share.record.lock.duration.ms", Kind: Int, Default: "30000", check: integer(32, 1000, maxInt), Synonyms: own("group.share.record.lock.duration.ms"),
		Doc: "How long a member of a share group may hold a record.",
	},
	{
		Name: "share.renew.acknowledge.enable", Kind: Boolean, Default: "true", check: boolean,
		Doc: "Whether a member of a share group may hold a record for longer by renewing it.",
	},
	{
		Name: "share.session.timeout.ms", Kind: Int, Default: "45000", check: integer(32, 1, maxInt), Synonyms: own("group.share.session.timeout.ms"),
		Doc: "After how long without a heartbeat a member of a share group counts as gone.",
	},
	{Name: "streams.acceptable.recovery.lag", Kind: Long, Default: "10000", check: integer(64, 0, maxLong), Internal: true, Doc: "Told to the members of a streams group."},
	{
		Name: "streams.assignment.interval.ms", Kind: Int, Default: "1000", check: integer(32, 0, maxInt), Synonyms: own("group.streams.assignment.interval.ms"),
		Doc: "The least time between two assignments of a streams group.",
	},
	{Name: "streams.assignor.offload.enable", Kind: Boolean, Default: "true", check: boolean, Internal: true, Doc: "Accepted for Kafka's sake."},
	{
		Name: "streams.assignor.name", Kind: String, Default: "sticky", check: oneOf("sticky"), Allowed: "sticky", Synonyms: own("group.streams.assignors"),
		Doc: "The task assignor of a streams group.",
	},
	{
		Name: "streams.heartbeat.interval.ms", Kind: Int, Default: "5000", check: integer(32, 1, maxInt), Synonyms: own("group.streams.heartbeat.interval.ms"),
		Doc: "How often the members of a streams group are told to send heartbeats.",
	},
	{
		Name: "streams.initial.rebalance.delay.ms", Kind: Int, Default: "3000", check: integer(32, 0, maxInt), Synonyms: own("group.streams.initial.rebalance.delay.ms"),
		Doc: "How long the first assignment of a streams group waits for more members.",
	},
	{
		Name: "streams.num.standby.replicas", Kind: Int, Default: "0", check: integer(32, 0, maxInt), Synonyms: own("group.streams.num.standby.replicas"),
		Doc: "How many standby copies of each task a streams group keeps.",
	},
	{Name: "streams.num.warmup.replicas", Kind: Int, Default: "2", check: integer(32, 0, 20), Internal: true, Doc: "Accepted for Kafka's sake."},
	{
		Name: "streams.rack.aware.assignment.tags", Kind: List, Default: "", check: distinct, Allowed: "names of client tags", Synonyms: own("group.streams.rack.aware.assignment.tags"),
		Doc: "The client tags over which standby tasks are spread.",
	},
	{
		Name: "streams.session.timeout.ms", Kind: Int, Default: "45000", check: integer(32, 1, maxInt), Synonyms: own("group.streams.session.timeout.ms"),
		Doc: "After how long without a heartbeat a member of a streams group counts as gone.",
	},
	{Name: "streams.task.offset.interval.ms", Kind: Int, Default: "60000", check: integer(32, 15_000, maxInt), Internal: true, Doc: "Told to the members of a streams group."},
}), func(a, b *Key) int { return strings.Compare(a.Name, b.Name) })

func own(brokerKey string) []Synonym { return []Synonym{{brokerKey, 1}} }

// someOf is a list that is not empty, in which nothing is twice.
func someOf(allowed ...string) check {
	of := listOf(allowed...)
	return func(v string) (string, error) {
		c, err := of(v)
		if err == nil && c == "" {
			return "", errors.New("must not be empty")
		}
		if err == nil && len(SplitList(c)) != len(SplitList(v)) {
			return "", errors.New("must not contain duplicates")
		}
		return c, err
	}
}

func oneOfAnyCase(allowed ...string) check {
	of := oneOf(allowed...)
	return func(v string) (string, error) { return of(strings.ToLower(v)) }
}

// distinct is a list of any names, none of them twice.
func distinct(v string) (string, error) {
	items := SplitList(v)
	for i, item := range items {
		if slices.Contains(items[:i], item) {
			return "", fmt.Errorf("%q is there twice", item)
		}
	}
	return strings.Join(items, ","), nil
}

func deadLetterTopic(v string) (string, error) {
	if strings.HasPrefix(v, "__") {
		return "", errors.New("the name of a dead letter queue must not begin with '__'")
	}
	return v, nil
}

// isoDuration is what Java's Duration.parse takes, but for signs.
var isoDuration = regexp.MustCompile(`^(?i)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{1,9}))?S)?)?$`)

const byDuration = "by_duration:"

func shareReset(v string) (string, error) {
	switch {
	case v == "latest" || v == "earliest":
		return v, nil
	case strings.HasPrefix(v, byDuration):
		if _, err := parseISODuration(v[len(byDuration):]); err != nil {
			return "", err
		}
		return v, nil
	}
	return "", errors.New("must be one of: latest, earliest, by_duration:<duration>")
}

func parseISODuration(v string) (time.Duration, error) {
	m := isoDuration.FindStringSubmatch(v)
	if m == nil || v[len(v)-1] == 'P' || v[len(v)-1] == 'T' || v[len(v)-1] == 'p' || v[len(v)-1] == 't' {
		return 0, fmt.Errorf("%q is no duration (PnDTnHnMn.nS)", v)
	}
	var sum time.Duration
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if m[i+1] == "" {
			continue
		}
		c, err := integer(64, 0, int64((1<<63-1-sum)/unit))(m[i+1])
		if err != nil {
			return 0, fmt.Errorf("duration %q: %w", v, err)
		}
		sum += time.Duration(number(c)) * unit
	}
	if m[5] != "" {
		nanos := number((m[5] + "000000000")[:9])
		if int64(sum) > maxLong-nanos {
			return 0, fmt.Errorf("duration %q is too long", v)
		}
		sum += time.Duration(nanos)
	}
	return sum, nil
}
