package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/coord/txn"
)

// feature is something that the brokers of a cluster agree on. Apache Kafka's clients look at transaction.version, its tools show all of them.
type feature struct {
	name     string
	min, max int16
	fixed    bool // stays at its newest level
}

// supported are Apache Kafka 4.4.0's features, in the order of their names. Each begins at its newest level. Apache Kafka lowers neither kraft.version nor, as every
// level of it from its oldest on has metadata of its own, metadata.version.
var supported = []feature{
	{featureReplicas, 0, 1, false},
	{featureGroup, 0, 1, false}, // groups of KIP-848
	{"kraft.version", 0, 1, true},
	{featureMetadata, 7, 33, true}, // 3.3-IV3 to 4.4-IV2
	{featureShare, 0, 2, false},
	{featureStreams, 0, 1, false},
	{featureTransaction, 0, int16(txn.V2), false}, // KIP-890: clients follow it
}

const (
	featureReplicas    = "eligible.leader.replicas.version"
	featureGroup       = "group.version"
	featureMetadata    = "metadata.version"
	featureShare       = "share.version"
	featureStreams     = "streams.version"
	featureTransaction = "transaction.version"
)

func featureNamed(name string) (feature, bool) {
	i := slices.IndexFunc(supported, func(f feature) bool { return f.name == name })
	if i < 0 {
		return feature{}, false
	}
	return supported[i], true
}

// features keeps the levels. A change is on stable storage before it is in force.
type features struct {
	fs   vfs.FS
	path string

	// changing is held while a change is judged and the file is replaced.
	changing sync.Mutex

	mu  sync.RWMutex
	doc featureDocument // its map is replaced, not changed
}

// featureDocument is the file: the levels that are not the newest.
type featureDocument struct {
	Version int              `json:"version"`
	Epoch   int64            `json:"epoch"` // one more with each change
	Levels  map[string]int16 `json:"levels"`
}

const featureFile = "features.json"

func openFeatures(fs vfs.FS, dataDir string) (*features, error) {
	f := &features{fs: fs, path: fs.PathJoin(dataDir, featureFile), doc: featureDocument{Version: documentVersion, Epoch: 1}}
	text, err := atomicfile.Read(fs, f.path)
	if err == nil && text != nil {
		if err = json.Unmarshal(text, &f.doc); err == nil {
			err = f.doc.check()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the levels of features: %w", err)
	}
	return f, nil
}

func (d *featureDocument) check() error {
	if d.Version != documentVersion {
		return fmt.Errorf("version %d, %d is known", d.Version, documentVersion)
	}
	for name, level := range d.Levels {
		if f, ok := featureNamed(name); !ok || level < f.min || level > f.max || f.fixed {
			return fmt.Errorf("level %d of %q", level, name)
		}
	}
	return nil
}

func (d *featureDocument) level(f feature) int16 {
	if level, ok := d.Levels[f.name]; ok {
		return level
	}
	return f.max
}

// level is that of a feature which there is.
func (f *features) level(name string) int16 {
	known, _ := featureNamed(name)
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.doc.level(known)
}

// update judges all changes, and makes them unless one is refused or they are only to be judged.
func (f *features) update(judge func(level func(feature) int16) (map[string]int16, error), validateOnly bool) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	f.mu.RLock()
	next := f.doc
	f.mu.RUnlock()
	levels, err := judge(next.level)
	if err != nil || validateOnly || len(levels) == 0 {
		return err
	}
	next.Levels = maps.Clone(next.Levels)
	if next.Levels == nil {
		next.Levels = make(map[string]int16)
	}
	maps.Copy(next.Levels, levels)
	next.Epoch++
	text, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the levels of features: %w", err)
	}
	if err := atomicfile.ReplaceOrKeep(f.fs, f.path, append(text, '\n')); err != nil {
		return fmt.Errorf("saving the levels of features: %w", err)
	}
	f.mu.Lock()
	f.doc = next
	f.mu.Unlock()
	return nil
}

func supportedFeatures(version int16) (list []kmsg.ApiVersionsResponseSupportedFeature) {
	for _, f := range supported {
		if version >= firstWithZeroLevels || f.min > 0 {
			list = append(list, kmsg.ApiVersionsResponseSupportedFeature{Name: f.name, MinVersion: f.min, MaxVersion: f.max})
		}
	}
	return list
}

// firstWithZeroLevels: before that version of ApiVersions a smallest level of 0 could not be told.
const firstWithZeroLevels = 4

// finalized lists the levels in force. One of 0 is not there.
func (f *features) finalized() (list []kmsg.ApiVersionsResponseFinalizedFeature, epoch int64) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, known := range supported {
		if level := f.doc.level(known); level > 0 {
			list = append(list, kmsg.ApiVersionsResponseFinalizedFeature{Name: known.name, MaxVersionLevel: level, MinVersionLevel: level})
		}
	}
	return list, f.doc.Epoch
}
