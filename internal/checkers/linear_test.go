package checkers

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// ask is what a client asks of one log, or of one group's offset.
type ask struct {
	kind  string // "produce", "end", "start", "fetch"; "commit", "read"
	value int64  // that is produced or committed; the offset that is fetched
}

// told is the answer: an offset, or a value.
type told struct {
	n    int64
	none bool // a fetch at the end of the log, a group that has no offset
}

// forever is when an operation ends of which nobody knows whether it was done: it may take effect at any time.
const forever = math.MaxInt64

// recorder takes a history down. Clients use it side by side.
type recorder struct {
	began time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

func newRecorder() *recorder { return &recorder{began: time.Now()} }

func (r *recorder) now() int64 { return int64(time.Since(r.began)) }

func (r *recorder) add(client int, call int64, a ask, t told) {
	end := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: a, Call: call, Output: t, Return: end})
}

// lost is an operation whose answer never came.
func (r *recorder) lost(client int, call int64, a ask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: a, Call: call, Output: told{n: -1}, Return: forever})
}

// checkLog judges a history of one log. final is what is in it in the end: each produce that was never answered is one of these records, or it never was.
func checkLog(ops []porcupine.Operation, final []int64) error {
	at := map[int64]int64{} // value to offset
	for o, v := range final {
		if _, twice := at[v]; twice {
			return fmt.Errorf("value %d is in the log twice", v)
		}
		at[v] = int64(o)
	}
	var kept []porcupine.Operation
	produced := map[int64]bool{}
	for _, op := range ops {
		a, t := op.Input.(ask), op.Output.(told)
		if a.kind == "produce" {
			produced[a.value] = true
			o, there := at[a.value]
			switch {
			case op.Return != forever && !there:
				return fmt.Errorf("value %d was acknowledged at offset %d and is lost", a.value, t.n)
			case op.Return != forever && o != t.n:
				return fmt.Errorf("value %d was acknowledged at offset %d and is at %d", a.value, t.n, o)
			case op.Return == forever && !there:
				continue
			}
			op.Output = told{n: o}
		}
		kept = append(kept, op)
	}
	for _, v := range final {
		if !produced[v] {
			return fmt.Errorf("value %d is in the log and was never produced", v)
		}
	}
	// What was produced at an offset is known, so a log's state is its length.
	return linearisable(porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			end, a, t := state.(int64), input.(ask), output.(told)
			switch a.kind {
			case "produce":
				return t.n == end, end + 1
			case "end":
				return t.n == end, end
			case "start":
				return t.n == 0, end
			case "fetch":
				if t.none {
					return a.value >= end, end
				}
				return a.value < end && final[a.value] == t.n, end
			}
			return false, end
		},
		DescribeOperation: describe,
	}, kept)
}

// checkRegister judges a history of one group's offset. What was committed without an answer and is never seen may never have been.
func checkRegister(ops []porcupine.Operation) error {
	seen := map[int64]bool{}
	for _, op := range ops {
		if t := op.Output.(told); op.Input.(ask).kind == "read" && !t.none {
			seen[t.n] = true
		}
	}
	var kept []porcupine.Operation
	for _, op := range ops {
		if a := op.Input.(ask); a.kind == "commit" && op.Return == forever && !seen[a.value] {
			continue
		}
		kept = append(kept, op)
	}
	return linearisable(porcupine.Model{
		Init: func() any { return int64(-1) },
		Step: func(state, input, output any) (bool, any) {
			now, a, t := state.(int64), input.(ask), output.(told)
			if a.kind == "commit" {
				return true, a.value
			}
			return t.none && now == -1 || !t.none && t.n == now, now
		},
		DescribeOperation: describe,
	}, kept)
}

func describe(input, output any) string {
	return fmt.Sprintf("%+v gives %+v", input, output)
}

// judgeLimit is more than a history of a few thousand operations needs by far.
const judgeLimit = 2 * time.Minute

func linearisable(m porcupine.Model, ops []porcupine.Operation) error {
	result, info := porcupine.CheckOperationsVerbose(m, ops, judgeLimit)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("no judgement about %d operations after %v", len(ops), judgeLimit)
	}
	// The longest part that can be put in order, and what comes where it ends.
	longest := 0
	for _, p := range info.PartialLinearizations() {
		for _, l := range p {
			longest = max(longest, len(l))
		}
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Return>>20) - int(b.Return>>20) })
	text := ""
	for _, op := range ops[max(0, min(longest, len(ops))-6):min(longest+6, len(ops))] {
		text += fmt.Sprintf("\n  client %d, %v to %v: %s", op.ClientId, time.Duration(op.Call), time.Duration(op.Return), describe(op.Input, op.Output))
	}
	return fmt.Errorf("not linearisable: %d of %d operations can be put in order; around there:%s", longest, len(ops), text)
}

func op(client int, call, end int64, a ask, t told) porcupine.Operation {
	return porcupine.Operation{ClientId: client, Input: a, Output: t, Call: call, Return: end}
}

// TestLogChecker: good histories are accepted, and each kind of bad one is found.
func TestLogChecker(t *testing.T) {
	good := []porcupine.Operation{
		op(0, 0, 10, ask{"produce", 100}, told{n: 0}),
		op(1, 5, 20, ask{"produce", 101}, told{n: 1}),
		op(2, 6, 9, ask{kind: "end"}, told{n: 1}), // while both are under way
		op(0, 21, 22, ask{kind: "end"}, told{n: 2}),
		op(2, 23, 24, ask{"fetch", 1}, told{n: 101}),
		op(2, 25, 26, ask{"fetch", 2}, told{none: true}),
		op(2, 25, 26, ask{kind: "start"}, told{n: 0}),
		op(1, 30, forever, ask{"produce", 102}, told{n: -1}), // never answered, and there
		op(1, 31, forever, ask{"produce", 103}, told{n: -1}), // never answered, and not there
		op(2, 40, 41, ask{kind: "end"}, told{n: 2}),
		op(2, 42, 43, ask{kind: "end"}, told{n: 3}),
	}
	final := []int64{100, 101, 102}
	if err := checkLog(good, final); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		more  []porcupine.Operation
		final []int64
	}{
		"a record that was acknowledged is lost":        {[]porcupine.Operation{op(0, 50, 51, ask{"produce", 104}, told{n: 3})}, final},
		"a record that moved":                           {[]porcupine.Operation{op(0, 50, 51, ask{"produce", 104}, told{n: 3})}, []int64{100, 101, 102, 0, 104}},
		"a record twice":                                {nil, []int64{100, 101, 102, 100}},
		"a record from nowhere":                         {nil, []int64{100, 101, 102, 7}},
		"an end that goes back":                         {[]porcupine.Operation{op(0, 50, 51, ask{kind: "end"}, told{n: 2})}, final},
		"an end before what was acknowledged":           {[]porcupine.Operation{op(0, 23, 24, ask{kind: "end"}, told{n: 1})}, final},
		"an end beyond what was produced":               {[]porcupine.Operation{op(0, 50, 51, ask{kind: "end"}, told{n: 4})}, final},
		"a fetch that misses what was acknowledged":     {[]porcupine.Operation{op(0, 50, 51, ask{"fetch", 1}, told{none: true})}, final},
		"a fetch that gives something else":             {[]porcupine.Operation{op(0, 50, 51, ask{"fetch", 1}, told{n: 100})}, final},
		"a fetch of what was not there yet":             {[]porcupine.Operation{op(0, 1, 2, ask{"fetch", 2}, told{n: 102})}, final},
		"a start that moved":                            {[]porcupine.Operation{op(0, 50, 51, ask{kind: "start"}, told{n: 1})}, final},
		"offsets against the order of acknowledgements": {[]porcupine.Operation{op(0, 50, 51, ask{"produce", 104}, told{n: 4}), op(0, 60, 61, ask{"produce", 105}, told{n: 3})}, []int64{100, 101, 102, 105, 104}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkLog(append(slices.Clone(good), tc.more...), tc.final); err == nil {
				t.Error("was not found")
			}
		})
	}
}

// TestRegisterChecker: the same for a group's offset.
func TestRegisterChecker(t *testing.T) {
	good := []porcupine.Operation{
		op(0, 0, 1, ask{kind: "read"}, told{none: true}),
		op(0, 2, 9, ask{"commit", 5}, told{}),
		op(1, 3, 8, ask{"commit", 6}, told{}),
		op(2, 4, 5, ask{kind: "read"}, told{n: 6}),
		op(2, 10, 11, ask{kind: "read"}, told{n: 5}),
		op(0, 12, forever, ask{"commit", 7}, told{n: -1}),
		op(1, 13, forever, ask{"commit", 8}, told{n: -1}),
		op(2, 20, 21, ask{kind: "read"}, told{n: 7}),
	}
	if err := checkRegister(good); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]porcupine.Operation{
		"a commit that is lost":     op(2, 22, 23, ask{kind: "read"}, told{n: 5}),
		"an offset from nowhere":    op(2, 22, 23, ask{kind: "read"}, told{n: 77}),
		"an offset that is gone":    op(2, 22, 23, ask{kind: "read"}, told{none: true}),
		"a read before its commit":  op(2, 0, 1, ask{kind: "read"}, told{n: 5}),
		"a commit that is not seen": op(2, 10, 11, ask{kind: "read"}, told{none: true}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkRegister(append(slices.Clone(good), bad)); err == nil {
				t.Error("was not found")
			}
		})
	}
}
