package checkers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// place of a record.
type place struct {
	partition int32
	offset    int64
}

// record is one of a transaction's: the n-th of its producer's tx-th transaction.
type record struct {
	producer, tx, n int
}

// transaction is what its producer knows of it.
type transaction struct {
	producer, tx int
	sent         map[int32]int // partition to how many records it was sent
	acknowledged int           // of all records, those that were
	outcome      string        // "committed", "aborted"; "": nobody knows
}

// seen is a record as a reader was given it.
type seen struct {
	place
	record
}

// transactions are a history: what producers know, what each reader was given, in its order, and what is there in the end.
type transactions struct {
	all     []transaction
	readers map[string][]seen // read_committed, each with the partitions from their beginning on
	final   []seen            // by a read_committed reader from beginning to end, when no transaction was open
	// others are the transactions that in a partition another's marker ended, and whether it committed them: see checkMarkers.
	others map[[2]int]map[int32]bool
}

// check gives what must not be.
func (h *transactions) check() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	known := map[[2]int]*transaction{}
	for i := range h.all {
		t := &h.all[i]
		known[[2]int{t.producer, t.tx}] = t
	}
	at := map[place]record{}
	count := map[[2]int]map[int32]int{}
	places := map[record]place{}
	for _, s := range h.final {
		tx := [2]int{s.producer, s.tx}
		if p, twice := places[s.record]; twice {
			fault("%+v is there twice, at %+v and %+v", s.record, p, s.place)
		}
		places[s.record], at[s.place] = s.place, s.record
		if count[tx] == nil {
			count[tx] = map[int32]int{}
		}
		count[tx][s.partition]++
		switch t := known[tx]; {
		case t == nil:
			fault("%+v is of a transaction that nobody began", s.record)
		case t.sent[s.partition] == 0:
			fault("%+v is in partition %d, where it was not sent", s.record, s.partition)
		case !h.mayBeThere(t, s.partition):
			fault("%+v of an aborted transaction is there", s.record)
		}
	}
	for _, t := range known {
		faults = append(faults, h.whole(t, count[[2]int{t.producer, t.tx}])...)
	}
	faults = append(faults, inOrder("the end", h.final)...)
	for name, r := range h.readers {
		faults = append(faults, inOrder(name, r)...)
		faults = append(faults, h.agrees(name, r, at)...)
	}
	return faults
}

// mayBeThere: records of a transaction in a partition.
func (h *transactions) mayBeThere(t *transaction, partition int32) bool {
	if committed, other := h.others[[2]int{t.producer, t.tx}][partition]; other {
		return committed
	}
	return t.outcome != "aborted"
}

// whole: a transaction is there with all its records, where it is there.
func (h *transactions) whole(t *transaction, count map[int32]int) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	id := [2]int{t.producer, t.tx}
	n := 0
	for p, sent := range t.sent {
		n += count[p]
		if count[p] > sent {
			fault("transaction %v has %d records in partition %d, and was sent %d", id, count[p], p, sent)
		}
		if t.outcome == "committed" && h.mayBeThere(t, p) && count[p] < sent {
			fault("of committed transaction %v %d of %d records are in partition %d", id, count[p], sent, p)
		}
	}
	if t.outcome == "" && len(h.others[id]) == 0 && n != 0 && n < t.acknowledged {
		fault("of transaction %v, whose end nobody knows, %d records are there, and %d were acknowledged", id, n, t.acknowledged)
	}
	return faults
}

// inOrder: a reader is given rising offsets, and of each producer the transactions and their records in the order in which it sent them.
func inOrder(name string, list []seen) (faults []string) {
	next := map[int32]int64{}
	last := map[[2]int]record{}
	for _, s := range list {
		if s.offset < next[s.partition] {
			faults = append(faults, fmt.Sprintf("%s: partition %d: offset %d comes where %d is next", name, s.partition, s.offset, next[s.partition]))
		}
		next[s.partition] = s.offset + 1
		of := [2]int{s.producer, int(s.partition)}
		if l, ok := last[of]; ok && (s.tx < l.tx || s.tx == l.tx && s.n <= l.n) {
			faults = append(faults, fmt.Sprintf("%s: partition %d: %+v comes after %+v", name, s.partition, s.record, l))
		}
		last[of] = s.record
	}
	return faults
}

// agrees: what a reader was given on its way is there in the end, and it was given all of it up to where it came: nothing that was open when it passed is
// committed behind its back.
func (h *transactions) agrees(name string, list []seen, at map[place]record) (faults []string) {
	came := map[int32]int64{}
	got := map[place]bool{}
	for _, s := range list {
		if r, ok := at[s.place]; !ok {
			faults = append(faults, fmt.Sprintf("%s was given %+v at %+v, which is not there in the end", name, s.record, s.place))
		} else if r != s.record {
			faults = append(faults, fmt.Sprintf("%s was given %+v at %+v, where in the end %+v is", name, s.record, s.place, r))
		}
		came[s.partition] = max(came[s.partition], s.offset)
		got[s.place] = true
	}
	for p, r := range at {
		if end, any := came[p.partition]; any && p.offset < end && !got[p] {
			faults = append(faults, fmt.Sprintf("%s came to offset %d of partition %d without having been given %+v at %d", name, end, p.partition, r, p.offset))
		}
	}
	return faults
}

// goodHistory has a committed transaction over two partitions, an aborted one, one that nobody knows of, and two readers.
func goodHistory() *transactions {
	s := func(partition int32, offset int64, producer, tx, n int) seen {
		return seen{place{partition, offset}, record{producer, tx, n}}
	}
	return &transactions{
		all: []transaction{
			{0, 1, map[int32]int{0: 2, 1: 1}, 3, "committed"},
			{0, 2, map[int32]int{0: 1}, 1, "aborted"},
			{1, 1, map[int32]int{0: 2}, 2, ""},
			{1, 2, map[int32]int{0: 2}, 1, ""},
			{0, 3, map[int32]int{0: 1}, 1, "committed"},
		},
		final: []seen{s(0, 0, 0, 1, 0), s(0, 2, 0, 1, 1), s(1, 0, 0, 1, 2), s(0, 4, 1, 1, 0), s(0, 5, 1, 1, 1), s(0, 9, 0, 3, 0)},
		readers: map[string][]seen{
			"one": {s(0, 0, 0, 1, 0), s(0, 2, 0, 1, 1), s(0, 4, 1, 1, 0)},
			"two": {s(1, 0, 0, 1, 2), s(0, 0, 0, 1, 0), s(0, 2, 0, 1, 1), s(0, 4, 1, 1, 0), s(0, 5, 1, 1, 1), s(0, 9, 0, 3, 0)},
		},
	}
}

// TestTransactionChecker: a good history is accepted, and each kind of bad one is found.
func TestTransactionChecker(t *testing.T) {
	if faults := goodHistory().check(); len(faults) > 0 {
		t.Fatal(faults)
	}
	// What another's marker ended comes out as that one says.
	h := goodHistory()
	h.others = map[[2]int]map[int32]bool{{0, 1}: {1: false}, {0, 2}: {0: true}}
	h.final, h.readers["two"] = slices.Delete(h.final, 2, 3), h.readers["two"][1:]
	h.final = append(h.final, seen{place{0, 10}, record{0, 2, 0}})
	if faults := h.check(); len(faults) != 1 || !strings.Contains(faults[0], "comes after") { // the order alone is as made up as it is
		t.Fatal(faults)
	}
	for name, spoil := range map[string]func(h *transactions){
		"a committed record is lost":      func(h *transactions) { h.final = slices.Delete(h.final, 2, 3); h.readers["two"] = h.readers["two"][1:] },
		"a committed transaction is lost": func(h *transactions) { h.final = h.final[:5]; h.readers["two"] = h.readers["two"][:5] },
		"half of an unknown one is there": func(h *transactions) {
			h.final = slices.Delete(h.final, 4, 5)
			h.readers["two"] = slices.Delete(h.readers["two"], 4, 5)
		},
		"an aborted record is there":              func(h *transactions) { h.final = append(h.final, seen{place{0, 10}, record{0, 2, 0}}) },
		"an aborted record was read on the way":   func(h *transactions) { h.readers["one"] = append(h.readers["one"], seen{place{0, 7}, record{0, 2, 0}}) },
		"a record is there twice":                 func(h *transactions) { h.final = append(h.final, seen{place{0, 10}, record{0, 3, 0}}) },
		"a record that nobody sent":               func(h *transactions) { h.final = append(h.final, seen{place{0, 10}, record{5, 1, 0}}) },
		"records in another order":                func(h *transactions) { h.final[0].record, h.final[1].record = h.final[1].record, h.final[0].record },
		"transactions in another order":           func(h *transactions) { h.final[0].record, h.final[5].record = h.final[5].record, h.final[0].record },
		"a reader goes back":                      func(h *transactions) { h.readers["one"] = append(h.readers["one"], h.readers["one"][0]) },
		"a reader passes what is committed later": func(h *transactions) { h.readers["two"] = slices.Delete(h.readers["two"], 3, 4) },
		"a reader saw another record there":       func(h *transactions) { h.readers["one"][2].record = record{1, 2, 0} },
		"a record in another partition":           func(h *transactions) { h.all[4].sent = map[int32]int{1: 1} },
		"a record that another's marker aborted":  func(h *transactions) { h.others = map[[2]int]map[int32]bool{{0, 1}: {1: false}} },
		"a record that another's marker was to commit is lost": func(h *transactions) {
			h.others = map[[2]int]map[int32]bool{{0, 1}: {1: true}}
			h.final, h.readers["two"] = slices.Delete(h.final, 2, 3), h.readers["two"][1:]
		},
		"a reader saw what was lost": func(h *transactions) {
			h.readers["one"] = append(h.readers["one"], seen{place{0, 20}, record{1, 2, 0}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := goodHistory()
			spoil(h)
			if len(h.check()) == 0 {
				t.Error("was not found")
			}
		})
	}
}
