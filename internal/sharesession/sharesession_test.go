package sharesession

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

func part(n int32) Part { return Part{[16]byte{1}, n} }

func slots(n int) func() int { return func() int { return n } }

func TestSession(t *testing.T) {
	c, k := New(slots(2)), Key{"g", "m"}
	expect := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) || err == nil && want != nil {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	parts := func(got []Part, err error, want ...int32) {
		t.Helper()
		var numbers []int32
		for _, p := range got {
			numbers = append(numbers, p.Partition)
		}
		if err != nil || !slices.Equal(numbers, want) {
			t.Fatalf("%v, %v, want %v", numbers, err, want)
		}
	}
	_, err := c.Next(k, 1, nil, nil)
	expect(err, ErrNotFound)
	expect(c.Acknowledge(k, 1), ErrNotFound)
	expect(c.Open(k, 7, []Part{part(0), part(1), part(1)}), nil)
	_, err = c.Next(k, 2, nil, nil)
	expect(err, ErrInvalidEpoch)
	got, err := c.Next(k, 1, []Part{part(2)}, nil)
	parts(got, err, 1, 2, 0)
	expect(c.Acknowledge(k, 0), ErrInvalidEpoch)
	expect(c.Acknowledge(k, 1), ErrInvalidEpoch)
	expect(c.Acknowledge(k, 2), nil)
	got, err = c.Next(k, 3, nil, []Part{part(1)})
	parts(got, err, 2, 0)
	if c.News(k, part(0), false, false) || !c.News(k, part(2), false, false) || c.News(k, part(2), false, false) {
		t.Error("only what was added is news")
	}
	if !c.News(k, part(0), false, true) || !c.News(k, part(0), false, false) {
		t.Error("an error is news, and so is its end")
	}
	expect(c.Acknowledge(k, Final), nil)
	if ended, ok := c.Close(k); !ok || len(ended) != 2 {
		t.Error(ended, ok)
	}
	if _, ok := c.Close(k); ok || c.InUse("g") || c.partitions != 0 || len(c.conns) != 0 {
		t.Errorf("something is left: %+v", c)
	}
}

func TestConnectionsAndLimits(t *testing.T) {
	c := New(slots(2))
	for i, m := range []string{"a", "b"} {
		if err := c.Open(Key{"g", m}, uint64(i), []Part{part(0)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Open(Key{"g", "c"}, 3, nil); !errors.Is(err, ErrLimit) {
		t.Error(err)
	}
	if err := c.Open(Key{"g", "a"}, 5, []Part{part(0)}); err != nil { // elsewhere
		t.Error(err)
	}
	if ended, groups := c.Gone(0); len(ended) != 0 || len(groups) != 1 {
		t.Errorf("%v went with a connection that it has left", ended)
	}
	if ended, _ := c.Gone(5); len(ended) != 1 || ended[0].Member != "a" {
		t.Error(ended)
	}
	if !c.InUse("g") {
		t.Error("b is there still")
	}
	many := make([]Part, 2*maxPartitionsPerSlot)
	for i := range many {
		many[i] = part(int32(i))
	}
	if _, err := c.Next(Key{"g", "b"}, 1, many, nil); err != nil {
		t.Error(err)
	}
	if _, err := c.Next(Key{"g", "b"}, 2, []Part{part(-1)}, nil); !errors.Is(err, ErrLimit) {
		t.Error(err)
	}
	if after(math.MaxInt32) != 1 {
		t.Error("epochs begin anew at 1")
	}
}

// TestForgottenIsForgotten: whatever a client adds and takes away again, a session keeps nothing of what is not in it, and a request that does so with very many partitions
// holds others up for no longer than it must.
func TestForgottenIsForgotten(t *testing.T) {
	c, k := New(slots(100)), Key{"g", "m"}
	if err := c.Open(k, 7, []Part{part(0)}); err != nil {
		t.Fatal(err)
	}
	const n = 80_000
	many := func(from int32) (list []Part) {
		for i := range int32(n) {
			list = append(list, part(from+i))
		}
		return list
	}
	began := time.Now()
	for i := range int32(5) {
		got, err := c.Next(k, i+1, many(1+i*n), many(1+i*n))
		if err != nil || !slices.Equal(got, []Part{part(0)}) {
			t.Fatalf("%d parts, %v", len(got), err)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	if _, err := c.Next(k, 6, append(many(0), many(n)...), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Next(k, 7, append(many(2*n), many(3*n)...), nil); !errors.Is(err, ErrLimit) {
		t.Errorf("more than there may be: %v", err)
	}
	s := c.sessions[k]
	if len(s.told) > len(s.parts) || len(s.parts) != 2*n || c.partitions != len(s.parts) {
		t.Errorf("%d parts, %d counted, %d to be told of", len(s.parts), c.partitions, len(s.told))
	}
}
