package bench

import (
	"strings"
	"testing"
)

// TestValidate: what cannot work is said before gigabytes are loaded.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want string // in the error; "" for none
	}{
		{"zero value", Options{}, ""},
		{"one figure without a peer", Options{Figures: []string{"ranges"}}, ""},
		{"one of two needs a peer", Options{Figures: []string{"direct", "ranges"}}, ""},
		{"a peer's figure without a peer", Options{Figures: []string{"direct"}}, "--peer"},
		{"a peer's figure with it", Options{Figures: []string{"direct"}, PeerScript: "x"}, ""},
		{"unknown figure", Options{Figures: []string{"nope"}}, "nope"},
		{"runs", Options{Runs: -1}, "--runs"},
		{"parallelism", Options{Parallelism: -1}, "Parallelism"},
		{"memory", Options{Memory: 1}, "MemoryBudget"},
		{"less than a segment", Options{Size: 1}, "--size"},
	} {
		err := c.o.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want it to say %q", c.name, err, c.want)
		}
	}
}
