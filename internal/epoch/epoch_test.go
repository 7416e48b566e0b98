package epoch

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rewind-kafka/rewind/remotestorage"
)

type es = remotestorage.EpochStart

// history builds entries from epoch, start, epoch, start...
func history(v ...int64) (entries []es) {
	for i := 0; i < len(v); i += 2 {
		entries = append(entries, es{LeaderEpoch: int32(v[i]), StartOffset: v[i+1]})
	}
	return entries
}

func TestCheckpointGolden(t *testing.T) {
	// As Apache Kafka wrote it for a log with three epochs.
	golden := []byte("0\n3\n0 0\n2 88\n4 166\n")
	entries, err := ParseCheckpoint(golden)
	if err != nil || !slices.Equal(entries, history(0, 0, 2, 88, 4, 166)) {
		t.Fatalf("%v, %v", entries, err)
	}
	if got := AppendCheckpoint(nil, entries); !bytes.Equal(got, golden) {
		t.Errorf("written: %q", got)
	}
	if entries, err := ParseCheckpoint([]byte("0\n0\n")); err != nil || len(entries) != 0 {
		t.Errorf("empty: %v, %v", entries, err)
	}
}

func TestCheckpointRefuses(t *testing.T) {
	for _, s := range []string{"", "0", "1\n0\n", "0\n1\n", "0\n1\n0 0\n1 1\n", "0\n-1\n", "0\n1\n0\n", "0\n1\na 0\n", "0\n1\n0 b\n", "0\n2\n1 5\n1 6\n", "0\n2\n1 5\n2 5\n",
		"0\n1\n-1 0\n", "0\n1\n0 -1\n", "0\n99999999999999999999\n", "0\n1\n0 0 0\n"} {
		if _, err := ParseCheckpoint([]byte(s)); !errors.Is(err, ErrCheckpoint) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzParseCheckpoint(f *testing.F) {
	f.Add([]byte("0\n3\n0 0\n2 88\n4 166\n"))
	f.Add([]byte("0\n0\n"))
	f.Add([]byte("0\n1\n2147483647 9223372036854775807"))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := ParseCheckpoint(b)
		if err != nil {
			return
		}
		again, err := ParseCheckpoint(AppendCheckpoint(nil, entries))
		if err != nil || !slices.Equal(entries, again) {
			t.Fatalf("%v became %v, %v", entries, again, err)
		}
		if c := New(entries); !slices.Equal(c.Entries(), entries) {
			t.Fatalf("cache has %v of %v", c.Entries(), entries)
		}
	})
}

// TestEndOffsetFor is Apache Kafka's rule for OffsetForLeaderEpoch.
func TestEndOffsetFor(t *testing.T) {
	c := New(history(2, 10, 4, 30, 7, 50))
	for asked, want := range map[int32][2]int64{-1: {-1, -1}, 0: {0, 10}, 1: {1, 10}, 2: {2, 30}, 3: {2, 30}, 4: {4, 50}, 6: {4, 50}, 7: {7, 99}, 8: {-1, -1}} {
		if e, end := c.EndOffsetFor(asked, 99); int64(e) != want[0] || end != want[1] {
			t.Errorf("epoch %d: (%d, %d), want %v", asked, e, end, want)
		}
	}
	if e, end := New(nil).EndOffsetFor(0, 5); e != -1 || end != -1 {
		t.Errorf("empty: (%d, %d)", e, end)
	}
}

func TestTruncate(t *testing.T) {
	for _, x := range []struct {
		name string
		do   func(c *Cache) bool
		want []es
		same bool
	}{
		{"start inside an epoch", func(c *Cache) bool { return c.TruncateFromStart(35) }, history(4, 35, 7, 50), false},
		{"start at an epoch", func(c *Cache) bool { return c.TruncateFromStart(30) }, history(4, 30, 7, 50), false},
		{"start at the first", func(c *Cache) bool { return c.TruncateFromStart(10) }, history(2, 10, 4, 30, 7, 50), true},
		{"start below", func(c *Cache) bool { return c.TruncateFromStart(3) }, history(2, 10, 4, 30, 7, 50), true},
		{"start above all", func(c *Cache) bool { return c.TruncateFromStart(80) }, history(7, 80), false},
		{"end at an epoch", func(c *Cache) bool { return c.TruncateFromEnd(50) }, history(2, 10, 4, 30), false},
		{"end inside", func(c *Cache) bool { return c.TruncateFromEnd(51) }, history(2, 10, 4, 30, 7, 50), true},
		{"assign later start of the latest", func(c *Cache) bool { return c.Assign(7, 60) }, history(2, 10, 4, 30, 7, 50), true},
		{"assign an earlier start", func(c *Cache) bool { return c.Assign(8, 40) }, history(2, 10, 4, 30, 8, 40), false},
		{"assign an older epoch", func(c *Cache) bool { return c.Assign(3, 60) }, history(2, 10, 3, 60), false},
		{"assign nonsense", func(c *Cache) bool { return c.Assign(-1, 60) }, history(2, 10, 4, 30, 7, 50), true},
	} {
		c := New(history(2, 10, 4, 30, 7, 50))
		if changed := x.do(c); changed == x.same || !slices.Equal(c.Entries(), x.want) {
			t.Errorf("%s: %v %v, want %v", x.name, changed, c.Entries(), x.want)
		}
	}
}

func TestRanges(t *testing.T) {
	c := New(history(2, 10, 4, 30, 7, 50))
	if got := c.Range(35, 50); !slices.Equal(got, history(4, 35)) {
		t.Error(got)
	}
	if got := c.Range(20, 51); !slices.Equal(got, history(2, 20, 4, 30, 7, 50)) {
		t.Error(got)
	}
	if got := c.EntriesUpTo(50); !slices.Equal(got, history(2, 10, 4, 30)) {
		t.Error(got)
	}
	if e, ok := c.EpochFor(9); ok {
		t.Errorf("below the first: %d", e)
	}
	if e, ok := c.Latest(); !ok || e != history(7, 50)[0] {
		t.Error(e)
	}
}

// TestAgainstModel compares with the history spelled out offset by offset.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, model, epoch := New(nil), []int32{}, int32(0)
		start := 0
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				epoch += int32(rapid.IntRange(0, 2).Draw(t, "step"))
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					c.Assign(epoch, int64(len(model)))
					model = append(model, epoch)
				}
			},
			"truncate": func(t *rapid.T) {
				model = model[:rapid.IntRange(start, len(model)).Draw(t, "end")]
				c.TruncateFromEnd(int64(len(model)))
				epoch++
			},
			"delete": func(t *rapid.T) {
				start = rapid.IntRange(start, len(model)).Draw(t, "start")
				c.TruncateFromStart(int64(start))
			},
			"": func(t *rapid.T) {
				for o := start; o < len(model); o++ {
					if e, ok := c.EpochFor(int64(o)); !ok || e != model[o] {
						t.Fatalf("offset %d: %d, want %d; %v", o, e, model[o], c.Entries())
					}
				}
			},
		})
	})
}
