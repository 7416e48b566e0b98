package killtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestStoreVanishes takes the store away under a broker at work, with copies under way and readers in the middle of history, and brings it back later, in a
// broker that was started without it.
// Tiering says that it is delayed, whatever needs only the local log goes on, over a kill and a start without a store too, and in the end all
// is where it belongs.
func TestStoreVanishes(t *testing.T) {
	for _, w := range waysToVanish {
		t.Run(w.name, func(t *testing.T) { vanish(t, w) })
	}
}

// wayToVanish is what becomes of a store: what of it is moved away, and what is put in its place.
type wayToVanish struct {
	name    string
	what    func(s *site) string
	replace func(path string) error
	// check looks at the place before the store is brought back, which begins with removing what is there.
	check func(path string) error
}

func directory(s *site) string { return s.storeDir }

var waysToVanish = []wayToVanish{
	// The store is there, but nothing can be put into it.
	{
		"folder", func(s *site) string { return filepath.Join(s.storeDir, prefix) },
		func(path string) error { return os.WriteFile(path, nil, 0o644) },
		func(string) error { return nil },
	},
	{
		"missing", directory,
		func(string) error { return nil },
		func(path string) error {
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("the broker has made the directory anew: %w", err)
			}
			return nil
		},
	},
	// What an unmounted file system leaves.
	{
		"empty", directory,
		func(path string) error { return os.Mkdir(path, 0o755) },
		func(path string) error {
			if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
				return fmt.Errorf("the broker has put something into the wrong directory: %v, %w", entries, err)
			}
			return nil
		},
	},
}

func vanish(t *testing.T, w wayToVanish) {
	seed := seedOf(t)
	s := newSite(t)
	life := s.serve()
	l := newLoad(t, s, seed)
	l.createTopics()
	l.write(1, writer{places: slices.Concat(placesOf(history), placesOf(local), placesOf(short)), codec: kgo.NoCompression(), size: 1500, burst: 5, every: 15 * time.Millisecond})
	l.write(2, writer{places: placesOf(compacted), codec: kgo.NoCompression(), size: 200, burst: 5, every: 20 * time.Millisecond})
	r := &run{load: l, churn: l.churn(3), group: l.group(local)}
	d := newDialer(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(l.end)
	l.follow(reading{name: "plain reader of history"}, true, &r.plain, history)
	l.follow(reading{name: "direct reader of history", committed: true, dialer: d}, true, &r.direct, history)
	newest := l.tail(history)
	goesOn := func(when string) {
		t.Helper()
		acks, commits, read := r.acks(), r.group.count(), newest.Load()
		r.await("the local part goes on "+when, func() bool {
			return r.acks() > acks+1000 && r.group.count() > commits+2 && newest.Load() > read+300
		})
	}
	r.await("history is tiered and read", func() bool { return r.plain.Load() > 1 && r.direct.Load() > 1 && s.hasObjects() })

	bringBack := s.takeStoreAway(w)
	r.await("tiering says that it is delayed", func() bool { return strings.Contains(life.logs(), "tiering is delayed") })
	goesOn("without a store")
	life.kill()
	life = s.serve()
	goesOn("after a start without a store")
	r.await("tiering says again that it is delayed", func() bool { return strings.Contains(life.logs(), "tiering is delayed") })
	bringBack()
	plain, direct := r.plain.Load(), r.direct.Load()
	r.await("tiering says that it goes on", func() bool { return strings.Contains(life.logs(), "tiering goes on") })
	r.await("history is read again", func() bool { return r.plain.Load() > plain+1 && r.direct.Load() > direct+1 })
	r.settle(life, 1, "remote read failed", "the store does not answer as it should")
}

func (r *run) acks() int64 {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	return r.ledger.acks
}

func (g *group) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.commits
}

const awaitLimit = time.Minute

func (r *run) await(what string, ok func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), awaitLimit)
	defer cancel()
	for !ok() {
		r.faults()
		if !pause(ctx, 20*time.Millisecond) {
			r.t.Fatalf("waited %v: %s", awaitLimit, what)
		}
	}
}

// tail reads what is new in a topic, which is local, and counts it.
func (l *load) tail(topic string) *atomic.Int64 {
	var n atomic.Int64
	l.wg.Go(func() {
		c, err := l.client(kgo.ConsumeTopics(topic), kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd()), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
		if err != nil {
			l.ledger.fault("making the newest records' reader: %v", err)
			return
		}
		defer c.Close()
		for l.ctx.Err() == nil {
			fetches := c.PollFetches(l.ctx)
			if err := fault(fetches); err != nil {
				l.ledger.fault("the newest records' reader: %v", err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				l.ledger.read("the newest records' reader", r)
				n.Add(1)
			})
		}
	})
	return &n
}

func (s *site) hasObjects() bool {
	objects, _, err := s.stored()
	return err == nil && len(objects) > 10
}

// takeStoreAway moves all objects to where the broker does not find them.
func (s *site) takeStoreAway(w wayToVanish) (bringBack func()) {
	s.t.Helper()
	here, away := w.what(s), s.storeDir+"-away"
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	must(os.Rename(here, away))
	must(w.replace(here))
	return func() {
		s.t.Helper()
		must(w.check(here))
		must(os.RemoveAll(here))
		must(os.Rename(away, here))
	}
}
