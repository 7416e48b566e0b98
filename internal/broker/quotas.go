package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rewind-kafka/rewind/internal/atomicfile"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/quota"
)

// quotas keeps clients' quotas (docs/format/security.md), and the meters that connections are held to. A change is on stable storage before it is in force.
type quotas struct {
	*quota.Meters
	fs   vfs.FS
	path string

	// changing is held while the file is replaced, so that the changes come one after the other.
	changing sync.Mutex

	mu    sync.RWMutex
	table quota.Table // what is in it is replaced, not changed
}

const (
	quotasFile = "quotas.json"
	// maxQuotaEntities bounds the file, which every change writes anew.
	maxQuotaEntities = 20_000
)

var errTooManyQuotas = errors.New("too many entities have quotas")

// storedQuotas are the quotas of one entity in the file. A part that is null stands for the default.
type storedQuotas struct {
	Entity map[string]*string `json:"entity"`
	Values map[string]float64 `json:"values"`
}

type quotaDocument struct {
	Version int            `json:"version"`
	Quotas  []storedQuotas `json:"quotas"`
}

func openQuotas(fs vfs.FS, cfg *config.Broker) (*quotas, error) {
	q := &quotas{
		fs: fs, path: fs.PathJoin(cfg.DataDir, securityDir, quotasFile), table: quota.Table{},
		Meters: quota.NewMeters(quota.Windows{Num: cfg.QuotaWindows, Size: cfg.QuotaWindow}, quota.Windows{Num: cfg.ControllerQuotaWindows, Size: cfg.ControllerQuotaWindow}),
	}
	text, err := atomicfile.Read(fs, q.path)
	if err != nil {
		return nil, fmt.Errorf("reading quotas: %w", err)
	}
	if text != nil {
		if q.table, err = parseQuotas(text); err != nil {
			return nil, fmt.Errorf("reading quotas: %w", err)
		}
		q.Use(quota.NewRules(q.table))
	}
	return q, nil
}

func parseQuotas(text []byte) (quota.Table, error) {
	var doc quotaDocument
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if doc.Version != documentVersion {
		return nil, fmt.Errorf("version %d, %d is known", doc.Version, documentVersion)
	}
	table := make(quota.Table, len(doc.Quotas))
	for i, s := range doc.Quotas {
		var e quota.Entity
		for kind, name := range s.Entity {
			part := e.Part(kind)
			if part == nil {
				return nil, fmt.Errorf("number %d: entities have no %q", i+1, kind)
			}
			*part = partOf(name)
		}
		err := e.Check()
		for name, value := range s.Values {
			err = errors.Join(err, e.CheckValue(name, value))
		}
		if err != nil {
			return nil, fmt.Errorf("number %d: %w", i+1, err)
		}
		table[e] = s.Values
	}
	return table, nil
}

func partOf(name *string) quota.Part {
	if name == nil {
		return quota.ByDefault()
	}
	return quota.Named(*name)
}

// nameOf is the name of a part that is there, nil for the default.
func nameOf(p *quota.Part) *string {
	if p.Default {
		return nil
	}
	return &p.Name
}

// all is every quota, not to be changed.
func (q *quotas) all() quota.Table {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.table
}

// alter changes quotas: each entity's to what is given, none where that is empty.
func (q *quotas) alter(change func(quota.Table)) error {
	q.changing.Lock()
	defer q.changing.Unlock()
	next := q.all().Clone()
	change(next)
	if len(next) > maxQuotaEntities {
		return fmt.Errorf("%w: %d, %d are allowed", errTooManyQuotas, len(next), maxQuotaEntities)
	}
	doc := quotaDocument{Version: documentVersion, Quotas: []storedQuotas{}}
	for _, e := range next.Entities() {
		doc.Quotas = append(doc.Quotas, storedQuotas{Entity: partsOf(&e), Values: next[e]})
	}
	text, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return fmt.Errorf("encoding quotas: %w", err)
	}
	if err := atomicfile.ReplaceOrKeep(q.fs, q.path, append(text, '\n')); err != nil {
		return fmt.Errorf("saving quotas: %w", err)
	}
	q.mu.Lock()
	q.table = next
	q.mu.Unlock()
	q.Use(quota.NewRules(next))
	return nil
}

func partsOf(e *quota.Entity) map[string]*string {
	parts := make(map[string]*string)
	for _, kind := range quota.Types() {
		if p := e.Part(kind); p.Given {
			parts[kind] = nameOf(p)
		}
	}
	return parts
}
