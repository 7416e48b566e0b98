package killtest

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// rounds are how often the broker is killed: REWIND_KILL_ROUNDS, or as many as a minute allows.
func rounds(t *testing.T) int {
	if s := os.Getenv("REWIND_KILL_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("REWIND_KILL_ROUNDS is %q", s)
		}
		return n
	}
	if testing.Short() {
		return 3
	}
	return 12
}

// seedOf is the random choices' seed: REWIND_KILL_SEED repeats those of an earlier run, though not its timing.
func seedOf(t *testing.T) uint64 {
	seed := rand.Uint64()
	if s := os.Getenv("REWIND_KILL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("REWIND_KILL_SEED is %q", s)
		}
	}
	t.Logf("REWIND_KILL_SEED=%d", seed)
	return seed
}

// run is the load with its readers.
type run struct {
	*load
	group  *group
	churn  *churn
	trim   *trim
	plain  atomic.Int64 // whole passes over history
	direct atomic.Int64
}

func startRun(t *testing.T, s *site, seed uint64) *run {
	l := newLoad(t, s, seed)
	l.createTopics()
	r := &run{load: l}
	all := slices.Concat(placesOf(history), placesOf(short), placesOf(local))
	l.write(1, writer{places: all, codec: kgo.NoCompression(), size: 1000, burst: 3, every: 20 * time.Millisecond})
	l.write(2, writer{places: slices.Concat(placesOf(history), placesOf(local)), codec: kgo.ZstdCompression(), size: 3000, burst: 4, every: 15 * time.Millisecond})
	l.write(3, writer{places: all, codec: kgo.Lz4Compression(), size: 500, burst: 5, every: 25 * time.Millisecond, restarts: true})
	l.write(4, writer{places: placesOf(compacted), codec: kgo.SnappyCompression(), size: 200, burst: 40, every: 20 * time.Millisecond})
	l.write(5, writer{places: slices.Concat(placesOf(history), placesOf(local)), codec: kgo.NoCompression(), size: 1000, burst: 3, every: 20 * time.Millisecond, acks1: true})
	r.churn = l.churn(6)
	r.group = l.group(history)
	l.write(7, writer{places: placesOf(trimmed), codec: kgo.NoCompression(), size: 1500, burst: 5, every: 15 * time.Millisecond})
	r.trim = l.trim(place{trimmed, 0})
	d := newDialer(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(l.end) // before the dialer closes
	l.follow(reading{name: "plain reader under load"}, true, &r.plain, history)
	l.follow(reading{name: "direct reader under load", committed: true, dialer: d}, true, &r.direct, history)
	l.follow(reading{name: "reader of what is being deleted", committed: true}, false, new(atomic.Int64), short, compacted, trimmed)
	l.follow(reading{name: "direct reader of what is being deleted", dialer: d}, false, new(atomic.Int64), short, trimmed)
	return r
}

// faults fails the test on what the clients have found.
func (r *run) faults() {
	r.t.Helper()
	faults := r.ledger.takeFaults()
	for _, f := range faults {
		r.t.Error(f)
	}
	if len(faults) > 0 {
		r.t.FailNow()
	}
}

func TestKill(t *testing.T) {
	seed := seedOf(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	s := newSite(t)
	life := s.serve()
	r := startRun(t, s, seed)
	kills := 0
	for n := range rounds(t) {
		pause(t.Context(), 300*time.Millisecond+time.Duration(rnd.Int64N(int64(3*time.Second))))
		if !life.kill() {
			t.Fatalf("round %d: the broker had ended by itself\n%s", n, tail(life.logs(), 4000))
		}
		kills++
		for rnd.IntN(3) == 0 { // killed again before it is up
			life = s.start()
			pause(t.Context(), time.Duration(rnd.Int64N(int64(400*time.Millisecond))))
			life.kill()
			kills++
		}
		life = s.serve()
		if !strings.Contains(life.logs(), uncleanStart) {
			t.Errorf("the start after a kill does not say %q", uncleanStart)
		}
		r.checkPromises()
		r.faults()
	}
	r.settle(life, kills)
}

const (
	uncleanStart = "the last stop was not clean"
	needsLook    = "needs recovery"
)

// settle ends the load, and checks everything there is. expected are messages that the broker may have logged.
func (r *run) settle(life *life, kills int, expected ...string) {
	t := r.t
	t.Helper()
	r.stopWriting()
	r.writers.Wait()
	r.faults()
	r.checkPromises()
	r.awaitGroup()
	alive, deleted := r.churn.topics()
	segments := r.convergeWithout(deleted, history, short, trimmed)
	topics := append([]string{history, short, local, compacted, trimmed}, alive...)
	records := r.checkRecords(topics)
	r.checkShort(records)
	r.checkDeleted(deleted, segments)
	r.faults()
	r.report(kills, segments, len(alive), len(deleted))
	r.end()

	// A clean stop, and a start that has nothing to recover.
	life.stop()
	dumpLogs(t, r.s.dataDir)
	life = r.s.serve()
	if log := life.logs(); strings.Contains(log, uncleanStart) || strings.Contains(log, needsLook) {
		t.Errorf("the start after a clean stop recovers\n%s", tail(log, 4000))
	}
	again := &load{t: t, s: r.s, ledger: r.ledger, ctx: t.Context()}
	after, err := again.readAll(reading{name: "reader after a clean stop"}, topics...)
	if err != nil {
		t.Fatal(err)
	}
	for p, w := range after {
		if p.topic != compacted && w.digest != records[p].digest {
			t.Errorf("%s: after a clean stop other records are there: %d from %d on, before %d from %d on", p, len(w.offsets), w.start, len(records[p].offsets), records[p].start)
		}
	}
	life.stop()
	r.faults()
	r.s.checkLogs(expected...)
}

// checkPromises asks the broker for what it has confirmed before it was killed.
func (r *run) checkPromises() {
	r.t.Helper()
	err := r.group.check()
	if r.trim != nil && err == nil {
		err = r.trim.check()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// awaitGroup: the group's member, which joined again after every kill, gets to the end.
func (r *run) awaitGroup() {
	r.t.Helper()
	_, ends, err := r.bounds(r.ctx, []string{r.group.topic})
	if err != nil {
		r.t.Fatal(err)
	}
	r.await("the group reaches the end", func() bool {
		r.group.mu.Lock()
		defer r.group.mu.Unlock()
		for p, end := range ends {
			if r.group.committed[p] < end {
				return false
			}
		}
		return true
	})
}

func (r *run) report(kills int, segments map[remotestorage.UUID]remotestorage.RemoteLogSegmentMetadata, alive, deleted int) {
	r.t.Logf("%d kills; %d records acknowledged, %d given up; %d offsets committed; %d times records deleted; history was read %d times plainly and %d times directly; %d remote segments; %d topics made and %d of them deleted",
		kills, r.ledger.acks, r.ledger.failures, r.group.commits, r.trims(), r.plain.Load(), r.direct.Load(), len(segments), alive+deleted, deleted)
	if r.ledger.acks == 0 || r.group.commits == 0 || len(segments) == 0 {
		r.t.Error("the load was none")
	}
}

func (r *run) trims() int {
	if r.trim == nil {
		return 0
	}
	r.trim.mu.Lock()
	defer r.trim.mu.Unlock()
	return r.trim.n
}

// checkShort: retention by size has taken something, and never more than it may.
func (r *run) checkShort(records map[place]*whole) {
	r.t.Helper()
	for _, p := range placesOf(short) {
		// What is read is not compressed, but lacks the framing of records and batches.
		if w := records[p]; w.start > 0 && w.bytes < shortBytes*3/4 {
			r.t.Errorf("%s: %d bytes are left of retention.bytes=%d", p, w.bytes, shortBytes)
		}
	}
}

// checkDeleted: of deleted topics nothing is left anywhere.
func (r *run) checkDeleted(topics []string, segments map[remotestorage.UUID]remotestorage.RemoteLogSegmentMetadata) {
	r.t.Helper()
	gone := map[string]bool{}
	for _, topic := range topics {
		gone[topic] = true
	}
	for _, md := range segments {
		if gone[md.Topic] {
			r.t.Errorf("segment %s is recorded of a topic that was deleted", md.RemoteLogSegmentID)
		}
	}
	entries, err := os.ReadDir(r.s.dataDir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if i := strings.LastIndexByte(name, '-'); i > 0 && gone[name[:i]] || strings.HasSuffix(name, "-delete") {
			r.t.Errorf("folder %s of a deleted topic is left", name)
		}
	}
	if err := filepath.WalkDir(filepath.Join(r.s.dataDir, "topics"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var f struct{ Name string }
		if err := json.Unmarshal(b, &f); err != nil || gone[f.Name] {
			r.t.Errorf("%s is left in the registry: %s (%v)", path, b, err)
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
}
