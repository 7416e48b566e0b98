package golden_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/internal/golden"
)

// every set of a family has these files. Tests go through the sets that they find, so one that lost a file, or went missing, would only make them quieter.
var (
	kafkaFiles = []string{
		"aborted.jsonl.gz", "batches.jsonl.gz", "facts.json.gz", "metadata.jsonl", "probes.jsonl.gz", "records-committed.jsonl.gz", "records-uncommitted.jsonl.gz",
	}
	aivenFiles = []string{"metadata.jsonl", "offsets.json", "records.jsonl.gz", "segments.jsonl", "topic-configs.txt"}
)

func TestNothingIsMissing(t *testing.T) {
	for _, c := range []struct {
		family string
		sets   []*golden.Set
		want   string
		files  []string
	}{
		{"kafka", golden.KafkaSets(t), "a-plain b-txn c-epochs d-unclean d-unclean-roll d-unclean-roll-round1 d-unclean-round1 e-deleted f-gaps f-gaps-edge", kafkaFiles},
		{"aiven", golden.AivenSets(t), "aes mixed plain zstd zstd-aes", aivenFiles},
	} {
		var names []string
		for _, s := range c.sets {
			names = append(names, strings.TrimPrefix(s.Name, c.family+"/"))
			for _, f := range c.files {
				if !s.Has(f) {
					t.Errorf("%s has no %s", s.Name, f)
				}
			}
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("sets of family %s: %s, want %s", c.family, got, c.want)
		}
	}
}
