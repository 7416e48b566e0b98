package tier

import (
	"path/filepath"
	"testing"

	"github.com/rewind-kafka/rewind/internal/golden"
)

// What every broker of the golden data said of its latest tiered offset (ListOffsets -5), from its records and its lineage alone: after deletions, unclean
// elections and restarts.
func TestCase17_HighestTieredIsWhatTheRealBrokerSaid(t *testing.T) {
	checked := 0
	for _, set := range golden.KafkaSets(t) {
		t.Run(filepath.Base(set.Dir), func(t *testing.T) {
			logs := goldenLogs(t, readGolden(t, filepath.Join(set.Dir, "metadata.jsonl")))
			m := openMetadata(t, logs)
			for _, p := range set.Facts(t).Partitions(t) {
				v := set.View(t, &p)
				offset, _, ok := m.memory.highest(p.TopicIDPartition, v.Lineage())
				if !ok {
					offset = -1
				}
				if offset != p.LatestTieredOffset {
					t.Errorf("%s: %d, the broker said %d; lineage %v", p.TopicIDPartition, offset, p.LatestTieredOffset, v.Lineage().Entries())
				}
				checked++
			}
		})
	}
	if checked < 10 {
		t.Errorf("%d partitions checked only", checked)
	}
}
