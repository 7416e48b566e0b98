package metadatatopic

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// run asks a leader with this history until the walk has all. It gives the number of rounds and of questions.
func (w *walk) run(leader *epoch.Cache, end int64, ask []int32) (rounds, questions int, err error) {
	for len(ask) > 0 {
		rounds++
		questions += len(ask)
		var ends []epochEnd
		for _, e := range ask {
			if e == -1 {
				panic("-1 stands for no epoch")
			}
			found, at := leader.EndOffsetFor(e, end)
			ends = append(ends, epochEnd{asked: e, found: found, end: at})
		}
		if ask, err = w.take(ends); err != nil {
			return rounds, questions, err
		}
	}
	return rounds, questions, nil
}

// TestWalk: whatever the history, whichever epochs segments name, dead ones among them, the lineage is learnt whole.
func TestWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var history []remotestorage.EpochStart
		e, start := int32(rapid.IntRange(0, 50).Draw(t, "first")), int64(rapid.IntRange(0, 1000).Draw(t, "begin"))
		for range rapid.IntRange(1, 60).Draw(t, "epochs") {
			history = append(history, remotestorage.EpochStart{LeaderEpoch: e, StartOffset: start})
			e += int32(rapid.IntRange(1, 9).Draw(t, "step"))
			start += int64(rapid.IntRange(1, 9).Draw(t, "length"))
		}
		leader := epoch.New(history)
		named := rapid.SliceOfNDistinct(rapid.Int32Range(0, 600), 0, 40, rapid.ID).Draw(t, "named")
		w, ask := newWalk(history[len(history)-1].LeaderEpoch, named)
		rounds, _, err := w.run(leader, start, ask)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.cache().Entries(); !slices.Equal(got, history) {
			t.Fatalf("after %d rounds: %v, want %v", rounds, got, history)
		}
		if w.begin != history[0].StartOffset {
			t.Errorf("begins at %d, want %d", w.begin, history[0].StartOffset)
		}
	})
}

// TestWalkIsShort: a partition whose segments name its epochs is learnt at once; one with many epochs that no segment names in a few rounds.
func TestWalkIsShort(t *testing.T) {
	var history []remotestorage.EpochStart
	var named []int32
	for e := range int32(1000) {
		history = append(history, remotestorage.EpochStart{LeaderEpoch: 3 * e, StartOffset: int64(e) * 100})
		named = append(named, 3*e)
	}
	leader := epoch.New(history)
	for _, c := range []struct {
		what              string
		named             []int32
		rounds, questions int
	}{{"all named", named, 1, 2100}, {"none named", nil, 8, 3200}, {"the older half", named[:500], 6, 3100}} {
		w, ask := newWalk(2997, c.named)
		rounds, questions, err := w.run(leader, 1e6, ask)
		if err != nil || rounds > c.rounds || questions > c.questions {
			t.Errorf("%s: %d rounds, %d questions, %v; want at most %d and %d", c.what, rounds, questions, err, c.rounds, c.questions)
		}
	}
}

// TestWalkWhileRetentionRuns: between two rounds the history may lose its beginning.
func TestWalkWhileRetentionRuns(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var history []remotestorage.EpochStart
		for e := range int32(300) {
			history = append(history, remotestorage.EpochStart{LeaderEpoch: 2 * e, StartOffset: int64(e) * 10})
		}
		leader := epoch.New(history)
		w, ask := newWalk(598, nil)
		for len(ask) > 0 {
			var ends []epochEnd
			for _, e := range ask {
				found, at := leader.EndOffsetFor(e, 3000)
				ends = append(ends, epochEnd{asked: e, found: found, end: at})
			}
			var err error
			if ask, err = w.take(ends); err != nil {
				t.Fatal(err)
			}
			if len(ask) > 0 {
				first := leader.Entries()[0].StartOffset
				leader.TruncateFromStart(first + rnd.Int64N(2900-first))
			}
		}
		// All that the walk was told last is right; what retention took since is below the log start.
		got, want := w.cache().Entries(), leader.Entries()
		if n := len(got); n == 0 || got[n-1] != want[len(want)-1] {
			t.Fatalf("seed %d: %v, want an end like %v", seed, got, want)
		}
		for offset := want[0].StartOffset; offset < 3000; offset++ {
			a, _ := w.cache().EpochFor(offset)
			if b, _ := leader.EpochFor(offset); a != b {
				t.Fatalf("seed %d: offset %d is of epoch %d, want %d", seed, offset, a, b)
			}
		}
	}
}

func TestWalkRefusesNonsense(t *testing.T) {
	for _, c := range []struct {
		what string
		ends []epochEnd
	}{
		{"no beginning", []epochEnd{{belowAll, -1, -1}, {5, 5, 100}, {4, 3, 50}}},
		{"the leader does not know its own epoch", []epochEnd{{belowAll, belowAll, 0}, {5, -1, -1}, {4, 3, 50}}},
		{"an epoch before that comes after", []epochEnd{{belowAll, belowAll, 0}, {5, 5, 100}, {4, 7, 50}}},
		{"no epoch before, though there is a beginning", []epochEnd{{belowAll, belowAll, 0}, {5, 5, 100}, {4, -1, 50}}},
	} {
		w, _ := newWalk(5, nil)
		if ask, err := w.take(c.ends); err == nil {
			t.Errorf("%s: %v asked next, and lineage %v", c.what, ask, w.lineage)
		}
	}
}
