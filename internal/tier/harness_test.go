package tier

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

func goldenDir(t testing.TB, pattern string) string {
	t.Helper()
	return filepath.Join("..", "..", "testdata", "golden", "kafka", pattern)
}

// rig is a tier over fakes.
type rig struct {
	t     testing.TB
	logs  []*fakeRecordLog
	meta  *MetadataLog
	store *memStore
	tier  *Tier
	out   *lines

	mu    sync.Mutex
	parts []Partition
	gone  map[remotestorage.UUID]bool
}

func newRig(t testing.TB, logs []*fakeRecordLog, store *memStore, parts ...Partition) *rig {
	return newRigWith(t, logs, store, Options{}, parts...)
}

func newRigWith(t testing.TB, logs []*fakeRecordLog, store *memStore, o Options, parts ...Partition) *rig {
	t.Helper()
	r := &rig{t: t, logs: logs, meta: openMetadata(t, logs), store: store, out: &lines{}, parts: parts, gone: map[remotestorage.UUID]bool{}}
	o.RSM, o.Metadata, o.BrokerID = store, r.meta, 1
	o.Logger = slog.New(slog.NewTextHandler(r.out, nil))
	o.Partitions = func() []Partition {
		r.mu.Lock()
		defer r.mu.Unlock()
		return append([]Partition(nil), r.parts...)
	}
	o.TopicExists = func(id remotestorage.UUID) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.gone[id]
	}
	var err error
	if r.tier, err = New(o); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) setParts(parts ...Partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts = parts
}

// settle adopts and then takes turns, in this goroutine, until nothing is left to do.
func (r *rig) settle() {
	r.t.Helper()
	r.tier.scan(true)
	r.tier.adoptDeletedTopics()
	for range 1000 {
		if !r.step() {
			return
		}
	}
	r.t.Fatal("there is always more to do")
}

// step takes the turn of the first in the queue.
func (r *rig) step() bool {
	r.t.Helper()
	r.tier.mu.Lock()
	empty := len(r.tier.queue) == 0
	r.tier.mu.Unlock()
	if empty {
		return false
	}
	w, _ := r.tier.next()
	if err := r.tier.takeTurn(w); err != nil {
		r.t.Errorf("a turn failed: %v", err)
	}
	return true
}

func (r *rig) turn(p Partition) error {
	_, err := r.tier.maintain(context.Background(), p)
	return err
}

func (r *rig) segments(tp remotestorage.TopicIDPartition) []remotestorage.RemoteLogSegmentMetadata {
	return r.tier.segments(tp)
}

// record is what the metadata log holds of one partition, in order: "C0 10-19", "C1", "D2", "D3", by state.
func (r *rig) record(tp remotestorage.TopicIDPartition) []string {
	var out []string
	replayed := replay{logger: slog.New(slog.DiscardHandler), apply: func(rec remotelog.Record) error {
		if owner, err := partitionOf(rec); err != nil || owner != tp {
			return err
		}
		switch rec := rec.(type) {
		case *remotelog.SegmentRecord:
			out = append(out, rec.State.String())
		case *remotelog.UpdateRecord:
			out = append(out, rec.State.String())
		}
		return nil
	}}
	for n, l := range r.logs {
		if err := replayed.partition(int32(n), l); err != nil {
			r.t.Fatal(err)
		}
	}
	return out
}

// restart is a new tier over what survived a loss of power: synced records, and the store.
func (r *rig) restart(parts ...Partition) *rig {
	r.t.Helper()
	var logs []*fakeRecordLog
	for _, l := range r.logs {
		logs = append(logs, l.clone())
	}
	return newRig(r.t, logs, r.store.clone(), parts...)
}

type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
