package difftest

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// difference is one that is on purpose.
type difference struct {
	key         int16          // -1: any
	what        *regexp.Regexp // names of mutations
	kafka, ours *regexp.Regexp
	row         string // of docs/differences.md: a part of it
	fleeting    bool   // Apache Kafka answers so at times
}

// table holds what was found with what is listed.
type table struct {
	mu     sync.Mutex
	listed []difference
	met    []bool
	tried  []bool // a case that a listed difference is about was sent
	others []found
}

func diff(key int16, what, kafka, ours, row string) difference {
	return difference{key, regexp.MustCompile(what), regexp.MustCompile("^(?:" + kafka + ")$"), regexp.MustCompile("^(?:" + ours + ")$"), row, false}
}

func fleeting(key int16, kafka, ours string) difference {
	d := diff(key, ``, kafka, ours, "")
	d.fleeting = true
	return d
}

func newTable() *table {
	l := differences()
	return &table{listed: l, met: make([]bool, len(l)), tried: make([]bool, len(l))}
}

func (d *difference) about(key int16, what string) bool {
	return (d.key < 0 || d.key == key) && slices.ContainsFunc(strings.Split(what, " and "), d.what.MatchString)
}

// wants tells whether a short run must not leave a mutation out.
func (tb *table) wants(key int16, what string) bool {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for i := range tb.listed {
		if d := &tb.listed[i]; d.about(key, what) && !tb.met[i] && !d.fleeting {
			return true
		}
	}
	return false
}

func (tb *table) same(key int16, what string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for i := range tb.listed {
		tb.tried[i] = tb.tried[i] || tb.listed[i].about(key, what)
	}
}

// knows tells whether a difference is listed.
func (tb *table) knows(key int16, f *found) bool {
	return slices.ContainsFunc(tb.listed, func(d difference) bool {
		return d.about(key, f.what) && d.kafka.MatchString(f.kafka) && d.ours.MatchString(f.ours)
	})
}

func (tb *table) add(key int16, f found) {
	tb.same(key, f.what)
	tb.mu.Lock()
	defer tb.mu.Unlock()
	known := false
	for i := range tb.listed {
		if d := &tb.listed[i]; d.about(key, f.what) && d.kafka.MatchString(f.kafka) && d.ours.MatchString(f.ours) {
			tb.met[i], known = true, true
		}
	}
	if !known {
		tb.others = append(tb.others, f)
	}
}

func (tb *table) judge(t *testing.T, part bool) {
	for _, f := range tb.others {
		t.Error(f)
	}
	page := readDoc(t)
	for i, d := range tb.listed {
		if !strings.Contains(page, d.row) {
			t.Errorf("%q is not in docs/differences.md", d.row)
		}
		if tb.met[i] || d.fleeting || part && !tb.tried[i] {
			continue
		}
		complain := t.Errorf
		if d.row == "" && !long() {
			complain = t.Logf
		}
		complain("a listed difference that does not occur: %s, %v: Apache Kafka %v, ours %v", kmsg.NameForKey(d.key), d.what, d.kafka, d.ours)
	}
}
