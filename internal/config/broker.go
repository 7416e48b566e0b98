package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Broker is the configuration of a broker. NewBroker gives the defaults; LoadFile, Set and plain assignment change them; Validate judges the whole.
//
// It is not safe for use while it is being changed. A running broker replaces it by a changed Clone.
type Broker struct {
	NodeID    int32
	ClusterID string
	DataDir   string

	Listen             string // host:port, or several with names; see Listeners
	AdvertisedListener string // in the same way, "" stands for where a client came to
	HTTPListen         string
	HTTPAdvertised     string
	HTTPKeyStore       string
	HTTPUsersFile      string

	SocketRequestMaxBytes int32
	MaxConnections        int
	MaxConnectionsPerIP   int

	MaxConnectionsPerIPOverrides string

	FetchResponseMemory int64 // bytes
	ConnectionsMaxIdle  time.Duration
	FetchMaxBytes       int32
	FetchSessionSlots   int

	NumPartitions          int32
	AutoCreateTopics       bool
	DeleteTopics           bool
	AcksAllSync            bool
	RetentionCheckInterval time.Duration
	CheckpointInterval     time.Duration
	CleanerEnable          bool
	CleanerBackoff         time.Duration
	ProducerIDExpiration   time.Duration

	GroupInitialRebalanceDelay time.Duration
	GroupMinSessionTimeout     time.Duration
	GroupMaxSessionTimeout     time.Duration
	GroupMaxSize               int
	OffsetsPartitions          int32
	OffsetsSegmentBytes        int32
	OffsetsRetention           time.Duration
	OffsetsRetentionCheck      time.Duration
	OffsetMetadataMaxBytes     int

	TransactionMaxTimeout   time.Duration
	TransactionalIDExpiry   time.Duration
	TransactionExpiryCheck  time.Duration
	TransactionPartitions   int32
	TransactionSegmentBytes int32

	Store              string
	StoreLatency       time.Duration
	StoreStreamRate    int64 // bytes a second of one stream, 0: no limit
	MetadataPartitions int32
	TierInterval       time.Duration
	TierParallelism    int
	RemoteFetchMaxWait time.Duration
	LocationEnable     bool
	LocationExpiry     time.Duration
	IndexCacheBytes    int64

	RemoteReadMemory      int64
	RemoteReadParallelism int
	RemoteReadChunk       int
	RemoteReadAhead       bool
	RemoteReadCache       int64

	ProtocolMap                string
	KeyStore, KeyStoreType     string
	TrustStore, TrustStoreType string
	ClientAuth, PrincipalRules string
	SASLMechanisms             string
	PlainUsersFile             string
	SASLMaxReceive             int32
	FailedAuthDelay            time.Duration
	MaxReauth                  time.Duration
	JWKS                       string
	JWKSRefresh, JWKSRetry     time.Duration
	ExpectedAudience           string
	ExpectedIssuer             string
	SubjectClaim               string
	ClockSkewSeconds           int
	QuotaWindows               int
	QuotaWindow                time.Duration
	ControllerQuotaWindows     int
	ControllerQuotaWindow      time.Duration
	Authorizer, SuperUsers     string
	AllowIfNoACL               bool

	ConsumerGroups, ShareGroups, StreamsGroups                    GroupKind
	ConsumerMigration                                             string
	ShareSessions                                                 int
	DeadLetterCreate                                              bool
	DeadLetterPrefix                                              string
	ShareStatePartitions, ShareStateSegmentBytes                  int32
	ShareUpdatesPerSnapshot                                       int
	ShareColdSnapshot, ShareStatePrune                            time.Duration
	ShareDeliveries, MinShareDeliveries, MaxShareDeliveries       int
	ShareLocks, MinShareLocks, MaxShareLocks                      int
	ShareLockDuration, MinShareLockDuration, MaxShareLockDuration time.Duration
	StreamsInitialDelay                                           time.Duration
	StreamsStandby, StreamsMaxStandby                             int
	StreamsRackTags                                               string

	// listenerKeys are the set keys of single listeners, listener.name.<l>.<key>.
	listenerKeys map[string]string
	// topicDefaults are the set broker keys that only give topic keys their defaults (log.retention.ms and its like).
	topicDefaults map[string]string
	// sources tells where the keys that were set come from; absent is SourceDefault.
	sources map[string]Source
	// below are the values that dynamic ones hide.
	below map[string]below
}

// NewBroker returns the default configuration.
func NewBroker() *Broker {
	b := &Broker{listenerKeys: map[string]string{}, topicDefaults: map[string]string{}, sources: map[string]Source{}, below: map[string]below{}}
	for _, k := range brokerKeys {
		if k.bind != nil {
			assign(k.bind(b), k.Default)
		}
	}
	return b
}

// Clone returns a copy that shares nothing with b.
func (b *Broker) Clone() *Broker {
	c := *b
	c.listenerKeys, c.topicDefaults, c.sources, c.below = maps.Clone(b.listenerKeys), maps.Clone(b.topicDefaults), maps.Clone(b.sources), maps.Clone(b.below)
	return &c
}

// Set gives a key a value as a person writes it: sizes and durations may carry a unit. Flags and the file end here.
func (b *Broker) Set(name, value string) error {
	k, err := brokerKey(name)
	if err != nil {
		return err
	}
	v, err := k.parseHuman(value)
	if err != nil {
		return err
	}
	b.put(k, v, SourceStaticBroker)
	return nil
}

// SetDynamic replaces the values that clients have altered while the broker ran; keys that are not among them fall back to what they were before.
// Values are plain numbers in Kafka's unit. Only dynamic keys can be changed. On an error nothing has changed.
func (b *Broker) SetDynamic(values map[string]string) error {
	var errs []error
	next := b.Clone()
	for name := range b.Dynamic() {
		k, err := brokerKey(name)
		if err != nil {
			return err
		}
		next.reset(k)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := next.setDynamic(name, values[name]); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	*b = *next
	return nil
}

func (b *Broker) setDynamic(name, value string) error {
	k, err := brokerKey(name)
	if err != nil {
		return err
	}
	if !k.Dynamic {
		return fmt.Errorf("%s cannot be altered: %w", name, ErrReadOnly)
	}
	v, err := k.Parse(value)
	if err != nil {
		return err
	}
	before := below{source: b.source(k)}
	before.value, before.ok = b.value(k)
	b.below[k.Name] = before
	b.put(k, v, SourceDynamicBroker)
	return nil
}

// below is what a dynamic value hides.
type below struct {
	value  string
	ok     bool
	source Source
}

// reset takes a dynamic value back.
func (b *Broker) reset(k *Key) {
	before := b.below[k.Name]
	delete(b.below, k.Name)
	switch {
	case before.source != SourceDefault:
		b.put(k, before.value, before.source)
	case k.bind != nil:
		assign(k.bind(b), k.Default)
		delete(b.sources, k.Name)
	default:
		delete(b.topicDefaults, k.Name)
		delete(b.sources, k.Name)
	}
}

// Dynamic returns the values that clients have altered.
func (b *Broker) Dynamic() map[string]string {
	values := map[string]string{}
	for name := range b.below {
		if k, err := brokerKey(name); err == nil {
			values[name], _ = b.value(k)
		}
	}
	return values
}

func (b *Broker) put(k *Key, value string, s Source) {
	switch {
	case k.bind != nil:
		assign(k.bind(b), value)
	case strings.HasPrefix(k.Name, scopedPrefix):
		b.listenerKeys[k.Name] = value
	default:
		b.topicDefaults[k.Name] = value
	}
	b.sources[k.Name] = s
}

// value returns the value of a key. ok is false for a key without one.
func (b *Broker) value(k *Key) (v string, ok bool) {
	if k.bind != nil {
		v = format(k.bind(b))
		return v, v != "" || !k.NoDefault
	}
	if v, ok = b.listenerKeys[k.Name]; ok {
		return v, true
	}
	if v, ok = b.topicDefaults[k.Name]; ok {
		return v, true
	}
	return k.Default, !k.NoDefault
}

func (b *Broker) source(k *Key) Source {
	if s, ok := b.sources[k.Name]; ok {
		return s
	}
	// A field that a program assigned itself counts as static configuration.
	if k.bind != nil && format(k.bind(b)) != k.Default {
		return SourceStaticBroker
	}
	return SourceDefault
}

// FlushScheduler is how often logs are looked at for records older than flush.ms.
func (b *Broker) FlushScheduler() time.Duration {
	if v, set := b.topicDefaults["log.flush.scheduler.interval.ms"]; set && number(v) <= maxMillis {
		return time.Duration(number(v)) * time.Millisecond
	}
	return time.Second
}

// Describe returns every broker key with its value, in the order of the names.
func (b *Broker) Describe() []Entry {
	keys := slices.Clone(brokerKeys)
	for name := range b.listenerKeys {
		if k, err := scopedKey(name); err == nil {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b *Key) int { return strings.Compare(a.Name, b.Name) })
	entries := make([]Entry, 0, len(keys))
	for _, k := range keys {
		v, ok := b.value(k)
		e := Entry{Key: k, Value: v, Null: !ok, Source: b.source(k)}
		if e.Source != SourceDefault {
			e.Synonyms = append(e.Synonyms, SynonymValue{Name: k.Name, Value: v, Null: !ok, Source: e.Source})
		}
		if !k.NoDefault {
			e.Synonyms = append(e.Synonyms, SynonymValue{Name: k.Name, Value: k.Default, Source: SourceDefault})
		}
		entries = append(entries, e)
	}
	return entries
}

// BrokerKeys returns the definitions of all broker keys in the order of the names.
func BrokerKeys() []*Key { return slices.Clone(brokerKeys) }

// BrokerKey returns the definition of a broker key, or ErrUnknownKey.
func BrokerKey(name string) (*Key, error) { return brokerKey(name) }

func brokerKey(name string) (*Key, error) {
	if alias, ok := brokerAliases[name]; ok {
		name = alias
	}
	if strings.HasPrefix(name, scopedPrefix) {
		return scopedKey(name)
	}
	if k, ok := brokerIndex[name]; ok {
		return k, nil
	}
	if err := gatewayOnly(name); err != nil {
		return nil, err
	}
	return nil, unknownKey(name, brokerKeys)
}

// Validate judges the values beside each other and gives all mistakes at once.
func (b *Broker) Validate() error {
	var errs []error
	wrong := func(key, value, reason string, args ...any) {
		errs = append(errs, &Invalid{Key: key, Value: value, Reason: fmt.Sprintf(reason, args...)})
	}
	for _, k := range brokerKeys {
		// Fields may have been assigned by a program, past Set's checks.
		if v, ok := b.value(k); ok {
			if _, err := k.check(v); err != nil {
				wrong(k.Name, v, "%v", err)
			}
		}
	}
	if b.DataDir == "" {
		wrong("log.dirs", `""`, "a directory is needed")
	}
	if b.Listen == "" {
		wrong("listeners", `""`, "an address is needed")
	}
	if _, err := b.Listeners(); err != nil {
		errs = append(errs, err)
	}
	if b.GroupMinSessionTimeout > b.GroupMaxSessionTimeout {
		wrong("group.min.session.timeout.ms", format(&b.GroupMinSessionTimeout), "must not exceed group.max.session.timeout.ms, %s", format(&b.GroupMaxSessionTimeout))
	}
	if b.RemoteReadCache > b.RemoteReadMemory && b.RemoteReadMemory > 0 {
		wrong("remote.read.cache.bytes", format(&b.RemoteReadCache), "must not exceed remote.read.memory.bytes, %d, of which it is a part", b.RemoteReadMemory)
	}
	b.validateGroups(wrong)
	t, err := ParseTopic(nil, b)
	if err != nil {
		errs = append(errs, fmt.Errorf("defaults of topics: %w", err))
	} else if b.Store != "" {
		t.validateCopyLag("log.", func(key string, value any, reason string, args ...any) {
			wrong(key, fmt.Sprint(value), reason, args...)
		})
	}
	return errors.Join(errs...)
}

func assign(field any, value string) {
	switch f := field.(type) {
	case *string:
		*f = value
	case *bool:
		*f = value == "true"
	case *int:
		*f = int(number(value))
	case *int32:
		*f = int32(number(value))
	case *int64:
		*f = number(value)
	case *time.Duration:
		*f = time.Duration(number(value)) * time.Millisecond
	case *seconds:
		*f = seconds(number(value)) * seconds(time.Second)
	case *minutes:
		*f = minutes(number(value)) * minutes(time.Minute)
	default:
		panic(fmt.Sprintf("config: no assignment to %T", field))
	}
}

func format(field any) string {
	switch f := field.(type) {
	case *string:
		return *f
	case *bool:
		return strconv.FormatBool(*f)
	case *int:
		return strconv.Itoa(*f)
	case *int32:
		return strconv.FormatInt(int64(*f), 10)
	case *int64:
		return strconv.FormatInt(*f, 10)
	case *time.Duration:
		return strconv.FormatInt(f.Milliseconds(), 10)
	case *seconds:
		return strconv.FormatInt(int64(time.Duration(*f)/time.Second), 10)
	case *minutes:
		return strconv.FormatInt(int64(time.Duration(*f)/time.Minute), 10)
	}
	panic(fmt.Sprintf("config: no format of %T", field))
}

// number reads a canonical value, which a check has passed.
func number(value string) int64 {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("config: canonical number %q: %v", value, err))
	}
	return n
}
