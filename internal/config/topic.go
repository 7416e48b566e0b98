package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Topic is the parsed configuration of a topic. Times are in milliseconds; -1 means no limit where Kafka says so.
type Topic struct {
	Delete, Compact bool
	CompressionType string
	// The levels of the codecs that have some.
	GzipLevel, LZ4Level, ZstdLevel int

	SegmentBytes, SegmentIndexBytes, IndexIntervalBytes int
	SegmentMs, SegmentJitterMs                          int64
	Preallocate                                         bool
	FlushMessages, FlushMs                              int64

	RetentionMs, RetentionBytes int64
	// Local retention as configured: -2 means as the total. See LocalRetention.
	LocalRetentionMs, LocalRetentionBytes int64
	FileDeleteDelayMs                     int64

	RemoteStorage         bool
	RemoteCopyDisable     bool
	RemoteDeleteOnDisable bool
	// How long copying to remote storage is held back, as configured: -1 means as the local retention. See CopyLag.
	RemoteCopyLagMs, RemoteCopyLagBytes int64

	MaxMessageBytes, MaxDecompressedBytes     int
	LogAppendTime                             bool
	TimestampBeforeMaxMs, TimestampAfterMaxMs int64
	MinInsyncReplicas                         int
	MinCleanableRatio                         float64
	DeleteRetentionMs                         int64
	MinCompactionLagMs, MaxCompactionLagMs    int64
}

// LocalRetention resolves local.retention.ms and local.retention.bytes: -2 stands for the total retention.
func (t *Topic) LocalRetention() (ms, bytes int64) {
	ms, bytes = t.LocalRetentionMs, t.LocalRetentionBytes
	if ms == -2 {
		ms = t.RetentionMs
	}
	if bytes == -2 {
		bytes = t.RetentionBytes
	}
	return ms, bytes
}

// CopyLag resolves remote.copy.lag.ms and remote.copy.lag.bytes: -1 stands for the local retention, and is left where that has no limit.
func (t *Topic) CopyLag() (ms, bytes int64) {
	ms, bytes = t.RemoteCopyLagMs, t.RemoteCopyLagBytes
	localMs, localBytes := t.LocalRetention()
	if ms == -1 {
		ms = localMs
	}
	if bytes == -1 {
		bytes = localBytes
	}
	return ms, bytes
}

// ParseTopic puts a topic's configuration together from its own values, the broker's defaults and Kafka's, and validates it. b may be nil.
// Every mistake is in the error, which is ErrUnknownKey or ErrInvalidValue for errors.Is. With an error the result is what the values mean that can be read: a topic that is there
// already is served by them.
func ParseTopic(overrides map[string]string, b *Broker) (Topic, error) {
	var errs []error
	readable := make(map[string]string, len(overrides))
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		k, err := TopicKey(name)
		if err == nil {
			_, err = k.Parse(overrides[name])
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		readable[name] = overrides[name]
	}
	t := newTopic(DescribeTopic(readable, b))
	if len(errs) > 0 {
		return t, errors.Join(errs...)
	}
	return t, t.validate(b)
}

// DescribeTopic returns every topic key with its value and where it comes from. The overrides must have passed ParseTopic. b may be nil.
func DescribeTopic(overrides map[string]string, b *Broker) []Entry {
	if b == nil {
		b = NewBroker()
	}
	entries := make([]Entry, 0, len(topicKeys))
	for _, k := range topicKeys {
		entries = append(entries, describeTopicKey(k, overrides, b))
	}
	return entries
}

func describeTopicKey(k *Key, overrides map[string]string, b *Broker) Entry {
	e := Entry{Key: k, Value: k.Default, Null: k.NoDefault, Source: SourceDefault}
	found, first := false, false
	use := func(value string, s Source) {
		if !found {
			found, e.Value, e.Null, e.Source = true, value, false, s
		}
	}
	if v, ok := overrides[k.Name]; ok {
		if c, err := k.Parse(v); err == nil {
			v = c
		}
		use(v, SourceTopic)
		e.Synonyms = append(e.Synonyms, SynonymValue{Name: k.Name, Value: v, Source: SourceTopic})
	}
	for i, s := range k.Synonyms {
		bk, err := brokerKey(s.Name)
		if err != nil {
			panic("config: synonym without a key: " + s.Name)
		}
		if v, ok := b.topicDefaults[s.Name]; ok {
			use(scale(v, s.Scale), b.source(bk))
			e.Synonyms = append(e.Synonyms, SynonymValue{Name: s.Name, Value: v, Source: b.source(bk)})
			first = first || i == 0
		}
		if !bk.NoDefault && (i == 0 || first) { // Apache Kafka lists others than the first where that one has a value only
			e.Synonyms = append(e.Synonyms, SynonymValue{Name: s.Name, Value: bk.Default, Source: SourceDefault})
		}
	}
	return e
}

// scale converts a broker's value into the topic key's unit. Negative values mean "no limit" in every unit.
func scale(v string, factor int64) string {
	if factor == 1 {
		return v
	}
	n := number(v)
	if n < 0 {
		return "-1"
	}
	if n > math.MaxInt64/factor {
		return strconv.FormatInt(math.MaxInt64, 10)
	}
	return strconv.FormatInt(n*factor, 10)
}

func newTopic(entries []Entry) Topic {
	v := make(map[string]string, len(entries))
	for _, e := range entries {
		v[e.Key.Name] = e.Value
	}
	num := func(name string) int64 { return number(v[name]) }
	flag := func(name string) bool { return v[name] == "true" }
	policy := SplitList(v["cleanup.policy"])
	ratio, _ := strconv.ParseFloat(v["min.cleanable.dirty.ratio"], 64) // passed its check
	t := Topic{
		Delete: slices.Contains(policy, "delete"), Compact: slices.Contains(policy, "compact"), CompressionType: v["compression.type"],
		GzipLevel: int(num("compression.gzip.level")), LZ4Level: int(num("compression.lz4.level")), ZstdLevel: int(num("compression.zstd.level")), MaxDecompressedBytes: int(num("max.decompressed.message.bytes")),
		SegmentBytes: int(num("segment.bytes")), SegmentIndexBytes: int(num("segment.index.bytes")), IndexIntervalBytes: int(num("index.interval.bytes")),
		SegmentMs: num("segment.ms"), SegmentJitterMs: num("segment.jitter.ms"), Preallocate: flag("preallocate"),
		FlushMessages: num("flush.messages"), FlushMs: num("flush.ms"),
		RetentionMs: num("retention.ms"), RetentionBytes: num("retention.bytes"),
		LocalRetentionMs: num("local.retention.ms"), LocalRetentionBytes: num("local.retention.bytes"), FileDeleteDelayMs: num("file.delete.delay.ms"),
		RemoteStorage: flag("remote.storage.enable"), RemoteCopyDisable: flag("remote.log.copy.disable"), RemoteDeleteOnDisable: flag("remote.log.delete.on.disable"),
		RemoteCopyLagMs: num("remote.copy.lag.ms"), RemoteCopyLagBytes: num("remote.copy.lag.bytes"),
		MaxMessageBytes: int(num("max.message.bytes")), LogAppendTime: v["message.timestamp.type"] == "LogAppendTime",
		TimestampBeforeMaxMs: num("message.timestamp.before.max.ms"), TimestampAfterMaxMs: num("message.timestamp.after.max.ms"),
		MinInsyncReplicas: int(num("min.insync.replicas")), MinCleanableRatio: ratio, DeleteRetentionMs: num("delete.retention.ms"),
		MinCompactionLagMs: num("min.compaction.lag.ms"), MaxCompactionLagMs: num("max.compaction.lag.ms"),
	}
	if s := v["internal.segment.bytes"]; s != "" {
		t.SegmentBytes = int(number(s))
	}
	return t
}

// validate holds Kafka's rules about values beside each other.
func (t *Topic) validate(b *Broker) error {
	var errs []error
	wrong := func(key string, value any, reason string, args ...any) {
		errs = append(errs, &Invalid{Key: key, Value: fmt.Sprint(value), Reason: fmt.Sprintf(reason, args...)})
	}
	if t.MinCompactionLagMs > t.MaxCompactionLagMs {
		wrong("min.compaction.lag.ms", t.MinCompactionLagMs, "must not exceed max.compaction.lag.ms, %d", t.MaxCompactionLagMs)
	}
	if !t.RemoteStorage {
		return errors.Join(errs...)
	}
	if t.Compact {
		wrong("remote.storage.enable", true, "remote storage is not supported for a compacted topic (cleanup.policy has compact)")
	}
	if b != nil && b.Store == "" {
		wrong("remote.storage.enable", true, "remote storage is disabled in the broker: it has no store")
	}
	t.validateRetention("local.retention.ms", t.LocalRetentionMs, "retention.ms", t.RetentionMs, wrong)
	t.validateRetention("local.retention.bytes", t.LocalRetentionBytes, "retention.bytes", t.RetentionBytes, wrong)
	t.validateCopyLag("", wrong)
	return errors.Join(errs...)
}

func (t *Topic) validateRetention(localKey string, local int64, totalKey string, total int64, wrong func(string, any, string, ...any)) {
	switch {
	case local == -2:
	case t.RemoteCopyDisable && local != total:
		wrong(localKey, local, "with remote.log.copy.disable it must be -2 or the same as %s, %d", totalKey, total)
	case total == -1:
	case local == -1:
		wrong(localKey, local, "must not be -1 (no limit) as %s is %d", totalKey, total)
	case local > total:
		wrong(localKey, local, "must not be more than %s, %d", totalKey, total)
	}
}

// validateCopyLag: a segment stays here until it has been copied, so a lag longer than local retention would only undo that. The broker's keys have a prefix.
func (t *Topic) validateCopyLag(prefix string, wrong func(string, any, string, ...any)) {
	ms, bytes := t.LocalRetention()
	for _, x := range []struct {
		name, local string
		lag, kept   int64
	}{
		{"remote.copy.lag.ms", "local.retention.ms", t.RemoteCopyLagMs, ms},
		{"remote.copy.lag.bytes", "local.retention.bytes", t.RemoteCopyLagBytes, bytes},
	} {
		if x.lag > 0 && x.kept >= 0 && x.lag > x.kept {
			wrong(prefix+x.name, x.lag, "Value must not exceed %s (effective value: %d)", prefix+x.local, x.kept)
		}
	}
}

// ValidateChange holds the rules about changing a living topic's configuration from t to next, beyond those for next by itself.
func (t *Topic) ValidateChange(next Topic) error {
	if t.RemoteStorage && !next.RemoteStorage && !next.RemoteDeleteOnDisable {
		return &Invalid{Key: "remote.storage.enable", Value: "false",
			Reason: "switching it off deletes the remote data, which needs remote.log.delete.on.disable=true in the same change; to keep the data and only stop copying, set remote.log.copy.disable=true instead"}
	}
	return nil
}

// TopicKeys returns the definitions of all topic keys in the order of the names.
func TopicKeys() []*Key { return slices.Clone(topicKeys) }

// TopicKey returns the definition of a topic key, or ErrUnknownKey.
func TopicKey(name string) (*Key, error) {
	if k, ok := topicIndex[name]; ok {
		return k, nil
	}
	return nil, unknownKey(name, topicKeys)
}

func mustTopicKey(name string) *Key {
	k, err := TopicKey(name)
	if err != nil {
		panic("config: " + err.Error())
	}
	return k
}

// unitOf tells the unit of a number from the end of its key, as Kafka names them.
func unitOf(name string) unit {
	switch {
	case strings.HasSuffix(name, ".ms"):
		return millisUnit
	case strings.HasSuffix(name, ".bytes"):
		return bytesUnit
	}
	return noUnit
}

// minutes is a duration that its key has in minutes, seconds in seconds.
type (
	minutes time.Duration
	seconds time.Duration
)
