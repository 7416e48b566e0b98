package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/topics"
)

// configHandlers are the keys that describe and alter configurations.
func (b *Broker) configHandlers() []api {
	return []api{
		on(1, 4, b.handleDescribeConfigs),
		on(0, 2, b.handleAlterConfigs),
		on(0, 1, b.handleIncrementalAlterConfigs),
		on(0, 1, b.handleListConfigResources),
		on(0, 1, b.handleDescribeClientQuotas),
		on(0, 1, b.handleAlterClientQuotas),
	}
}

// configError is a refusal with its error code.
type configError struct {
	code    int16
	message string
}

func (e *configError) Error() string { return e.message }

// configCode is the error code and the text for a client.
func configCode(err error) (int16, *string) {
	if err == nil {
		return errNone, nil
	}
	text := err.Error()
	var refused *configError
	switch {
	case errors.As(err, &refused):
		return refused.code, &refused.message
	case errors.Is(err, config.ErrInvalidValue), errors.Is(err, config.ErrUnknownKey):
		return errInvalidConfig, &text
	case errors.Is(err, config.ErrReadOnly):
		return errInvalidRequest, &text
	case errors.Is(err, topics.ErrUnknown):
		return errUnknownTopicOrPartition, &text
	case errors.Is(err, errTooManyResources), errors.Is(err, errTooManyQuotas):
		return errPolicyViolation, &text
	}
	return errUnknown, &text
}

// resource is what configurations belong to: a topic or this broker.
type resource interface {
	// overrides are the values that were set for it, not to be changed.
	overrides() map[string]string
	describe() []config.Entry
	key(name string) (*config.Key, error)
	splits() bool // something can be appended to its lists, and subtracted
	// replace puts other values in force, or only judges them.
	replace(overrides map[string]string, validateOnly bool) error
}

// resource finds what a request names. The cluster-wide defaults of brokers (an empty name) are this broker's: it is the only one.
func (b *Broker) resource(kind kmsg.ConfigResourceType, name string) (resource, error) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if err := topics.CheckName(name); err != nil {
			return nil, &configError{errInvalidTopic, err.Error()}
		}
		t, ok := b.topics.Get(name)
		if !ok {
			return nil, fmt.Errorf("%w: %s", topics.ErrUnknown, name)
		}
		return &topicResource{b, t}, nil
	case kmsg.ConfigResourceTypeBroker:
		if name != "" && name != strconv.Itoa(int(b.nodeID)) {
			return nil, &configError{errInvalidRequest, fmt.Sprintf("unexpected broker id, expected %d or the empty string, but received %s", b.nodeID, name)}
		}
		return &brokerResource{b, name == ""}, nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		if err := b.loggersOf(name); err != nil {
			return nil, err
		}
		return &loggerResource{b}, nil
	case kmsg.ConfigResourceTypeGroupConfig:
		if name == "" {
			return nil, &configError{errInvalidRequest, "the group has no name"}
		}
		return &groupResource{b, name}, nil
	case kmsg.ConfigResourceTypeClientMetrics:
		if name == "" {
			return nil, &configError{errInvalidRequest, "the subscription has no name"}
		}
		return &subscriptionResource{b, name}, nil
	}
	return nil, &configError{errInvalidRequest, fmt.Sprintf("configurations of %s are not supported", strings.ToLower(kind.String()))}
}

// mayConfigure tells whether a client may describe or alter what a request names.
func (b *Broker) mayConfigure(c *conn, op acl.Operation, kind kmsg.ConfigResourceType, name string) error {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if !b.allowedTopic(c, op, name) {
			return &configError{errTopicAuthorization, topicDenied}
		}
	case kmsg.ConfigResourceTypeGroupConfig:
		if !b.allowedGroup(c, op, name) {
			return &configError{errGroupAuthorization, groupDenied}
		}
	case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeClientMetrics:
		if !b.allowedCluster(c, op) {
			return &configError{errClusterAuthorization, clusterDenied}
		}
	}
	return nil
}

type topicResource struct {
	b *Broker
	t topics.Topic
}

func (r *topicResource) overrides() map[string]string { return r.t.Configs }
func (r *topicResource) describe() []config.Entry {
	return config.DescribeTopic(r.t.Configs, r.b.config())
}
func (r *topicResource) splits() bool { return true }

func (r *topicResource) key(name string) (*config.Key, error) { return config.TopicKey(name) }

func (r *topicResource) replace(overrides map[string]string, validateOnly bool) error {
	if validateOnly {
		_, err := r.b.checkTopicConfigs(&r.t, overrides)
		return err
	}
	return r.b.setTopicConfigs(r.t.Name, r.t.ID, overrides)
}

type brokerResource struct {
	b        *Broker
	defaults bool // asked for by the empty name: only what was set
}

func (r *brokerResource) overrides() map[string]string         { return r.b.config().Dynamic() }
func (r *brokerResource) splits() bool                         { return true }
func (r *brokerResource) key(name string) (*config.Key, error) { return config.BrokerKey(name) }

func (r *brokerResource) describe() []config.Entry {
	entries := r.b.config().Describe()
	if r.defaults {
		entries = slices.DeleteFunc(entries, func(e config.Entry) bool { return e.Source != config.SourceDynamicBroker })
	}
	return entries
}

func (r *brokerResource) replace(overrides map[string]string, validateOnly bool) error {
	err := r.put(overrides, validateOnly)
	if errors.Is(err, config.ErrInvalidValue) {
		return &configError{errInvalidRequest, err.Error()} // of a topic it would be INVALID_CONFIG
	}
	return err
}

func (r *brokerResource) put(overrides map[string]string, validateOnly bool) error {
	next := r.b.config().Clone()
	if err := next.SetDynamic(overrides); err != nil {
		return err
	}
	if validateOnly {
		return next.Validate()
	}
	// Written down first: what a client was told is in force must be so after the next start.
	if err := next.Validate(); err != nil {
		return err
	}
	if err := saveDynamic(r.b.fs, next.DataDir, overrides); err != nil {
		return err
	}
	return r.b.setConfig(next)
}

// dynamicFile holds the broker configurations that clients have altered, over those of the configuration file.
const dynamicFile = "dynamic-configs.json"

func saveDynamic(fs vfs.FS, dir string, values map[string]string) error {
	text, err := json.MarshalIndent(values, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding altered configurations: %w", err)
	}
	path := fs.PathJoin(dir, dynamicFile)
	if err := atomicfile.ReplaceOrKeep(fs, path, append(text, '\n')); err != nil {
		return fmt.Errorf("saving altered configurations: %w", err)
	}
	return nil
}

// loadDynamic puts altered configurations in force again at the start of the broker. Ones that are not accepted any more are left out, aloud.
func (b *Broker) loadDynamic() error {
	cfg := b.config()
	text, err := atomicfile.Read(b.fs, b.fs.PathJoin(cfg.DataDir, dynamicFile))
	if err != nil {
		return fmt.Errorf("reading altered configurations: %w", err)
	}
	if text == nil {
		return nil
	}
	var values map[string]string
	if err := json.Unmarshal(text, &values); err != nil {
		return fmt.Errorf("reading altered configurations: %w", err)
	}
	next, left := withDynamic(cfg, values)
	for _, name := range slices.Sorted(maps.Keys(left)) {
		b.log.Error("an altered configuration is not valid any more and is left out", "key", name, "err", left[name])
	}
	b.conf.Store(next)
	return nil
}

// withDynamic puts as many altered values in force as there can be, and says what is wrong with the others. They were valid together: one by itself may not be, where it is
// judged beside another one's default. So they are taken one by one only where it cannot be together.
func withDynamic(cfg *config.Broker, values map[string]string) (next *config.Broker, left map[string]error) {
	next, left = cfg, make(map[string]error)
	try := func(values map[string]string) error {
		trial := cfg.Clone()
		err := errors.Join(trial.SetDynamic(values), trial.Validate())
		if err == nil {
			next = trial
		}
		return err
	}
	rest := maps.Clone(values)
	for name, value := range values {
		if err := cfg.Clone().SetDynamic(map[string]string{name: value}); err != nil {
			left[name] = err
			delete(rest, name)
		}
	}
	if try(rest) == nil {
		return next, left
	}
	taken := make(map[string]string)
	for more := true; more; { // until none of those that are left can follow those that are taken
		more = false
		for _, name := range slices.Sorted(maps.Keys(rest)) {
			taken[name] = rest[name]
			if left[name] = try(taken); left[name] != nil {
				delete(taken, name)
				continue
			}
			delete(left, name)
			delete(rest, name)
			more = true
		}
	}
	return next, left
}
