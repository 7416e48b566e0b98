package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/config"
)

// resourceConfigs keeps the configurations of what is neither a topic nor a broker: groups, and subscriptions to clients' metrics. A change is on stable storage
// before it is in force.
type resourceConfigs struct {
	fs   vfs.FS
	path string

	// changing is held while the file is replaced, so that the changes come one after the other.
	changing sync.Mutex

	mu  sync.RWMutex
	doc resourceDocument // what is in its maps is replaced, not changed
}

// resourceDocument is the file: name, then key and value.
type resourceDocument struct {
	Version       int                          `json:"version"`
	Groups        map[string]map[string]string `json:"groups"`
	ClientMetrics map[string]map[string]string `json:"clientMetrics"`
}

const (
	resourceFile = "resource-configs.json"
	// maxResources bounds the file, which every change writes anew; maxResourceName a name in it.
	maxResources    = 20_000
	maxResourceName = 1000
)

var errTooManyResources = errors.New("too many groups and subscriptions have configurations of their own")

func openResourceConfigs(fs vfs.FS, dataDir string) (*resourceConfigs, error) {
	r := &resourceConfigs{fs: fs, path: fs.PathJoin(dataDir, resourceFile)}
	text, err := atomicfile.Read(fs, r.path)
	if err == nil && text != nil {
		err = json.Unmarshal(text, &r.doc)
		if err == nil && r.doc.Version != documentVersion {
			err = fmt.Errorf("version %d, %d is known", r.doc.Version, documentVersion)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configurations of groups: %w", err)
	}
	return r, nil
}

// group is what was set for a group, not to be changed.
func (r *resourceConfigs) group(id string) map[string]string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.doc.Groups[id]
}

// subscription is what was set for a subscription to metrics, not to be changed.
func (r *resourceConfigs) subscription(name string) map[string]string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.doc.ClientMetrics[name]
}

// names are the groups and the subscriptions with configurations of their own.
func (r *resourceConfigs) names() (groups, subscriptions []string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.doc.Groups)), slices.Sorted(maps.Keys(r.doc.ClientMetrics))
}

func (r *resourceConfigs) setGroup(id string, values map[string]string) error {
	return r.set(func(d *resourceDocument) *map[string]map[string]string { return &d.Groups }, id, values)
}

func (r *resourceConfigs) setSubscription(name string, values map[string]string) error {
	return r.set(func(d *resourceDocument) *map[string]map[string]string { return &d.ClientMetrics }, name, values)
}

func (r *resourceConfigs) set(kind func(*resourceDocument) *map[string]map[string]string, name string, values map[string]string) error {
	if len(name) > maxResourceName {
		return &configError{errInvalidRequest, fmt.Sprintf("the name is %d bytes long, %d are allowed", len(name), maxResourceName)}
	}
	if !utf8.ValidString(name) { // it would be another one after the next start
		return &configError{errInvalidRequest, "the name is not UTF-8"}
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.RLock()
	next := r.doc
	r.mu.RUnlock()
	next.Version = documentVersion
	of := kind(&next)
	*of = maps.Clone(*of)
	if len(values) == 0 {
		delete(*of, name)
	} else {
		if *of == nil {
			*of = make(map[string]map[string]string)
		}
		(*of)[name] = maps.Clone(values)
	}
	if n := len(next.Groups) + len(next.ClientMetrics); n > maxResources {
		return fmt.Errorf("%w: %d are allowed", errTooManyResources, maxResources)
	}
	text, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the configurations of groups: %w", err)
	}
	if err := atomicfile.ReplaceOrKeep(r.fs, r.path, append(text, '\n')); err != nil {
		return fmt.Errorf("saving the configurations of groups: %w", err)
	}
	r.mu.Lock()
	r.doc = next
	r.mu.Unlock()
	return nil
}

// groupConfigs is a group's configuration as it is in force, whether the group is there or not.
func (b *Broker) groupConfigs(groupID string) config.Group {
	return config.ParseGroup(b.resourceConfigs.group(groupID), b.config())
}

type groupResource struct {
	b  *Broker
	id string
}

func (r *groupResource) overrides() map[string]string { return r.b.resourceConfigs.group(r.id) }
func (r *groupResource) describe() []config.Entry {
	return config.DescribeGroup(r.overrides(), r.b.config())
}
func (r *groupResource) splits() bool                         { return false }
func (r *groupResource) key(name string) (*config.Key, error) { return config.GroupKey(name) }

func (r *groupResource) replace(overrides map[string]string, validateOnly bool) error {
	if err := config.CheckGroup(overrides, r.b.config()); err != nil || validateOnly {
		return err
	}
	return r.b.resourceConfigs.setGroup(r.id, overrides)
}

type subscriptionResource struct {
	b    *Broker
	name string
}

func (r *subscriptionResource) overrides() map[string]string {
	return r.b.resourceConfigs.subscription(r.name)
}
func (r *subscriptionResource) describe() []config.Entry {
	return config.DescribeClientMetrics(r.overrides())
}
func (r *subscriptionResource) splits() bool { return false }
func (r *subscriptionResource) key(name string) (*config.Key, error) {
	return config.ClientMetricsKey(name)
}

func (r *subscriptionResource) replace(overrides map[string]string, validateOnly bool) error {
	if err := config.CheckClientMetrics(overrides); err != nil {
		return subscriptionError(err)
	}
	if validateOnly {
		return nil
	}
	return r.b.resourceConfigs.setSubscription(r.name, overrides)
}

// subscriptionError: an unknown key or an interval out of bounds is an invalid request there, and the rest an invalid configuration.
func subscriptionError(err error) error {
	var invalid *config.Invalid
	outOfBounds := false
	if errors.As(err, &invalid) && invalid.Key == "interval.ms" {
		_, notANumber := strconv.ParseInt(invalid.Value, 10, 32)
		outOfBounds = notANumber == nil
	}
	if errors.Is(err, config.ErrUnknownKey) || outOfBounds {
		return &configError{errInvalidRequest, err.Error()}
	}
	return err
}
