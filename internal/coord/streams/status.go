package streams

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func (b *beat) say(code int8, format string, args ...any) {
	b.status = append(b.status, Status{code, fmt.Sprintf(format, args...)})
}

// statuses are what the member is to know, in Kafka's order.
func (b *beat) statuses(shutdown string, m *Member) []Status {
	if s := b.configured.status; s != nil {
		b.status = append(b.status, *s)
	}
	if shutdown != "" {
		b.say(ShutdownApplication, "Streams group member %s encountered a fatal error and requested a shutdown for the entire application.", shutdown)
	}
	if b.c.Version >= firstVersionOfClientTags {
		if missing := slices.DeleteFunc(slices.Clone(b.cfg.RackTags), func(tag string) bool { _, ok := m.Tags[tag]; return ok }); len(missing) > 0 {
			b.say(MissingClientTags, "Missing required client tags for rack-aware standby assignment: [%s]. Configure them via 'client.tag.<tagKey>' in your Streams config.", strings.Join(missing, ", "))
		}
	}
	return b.status
}

func sortedOffsets(of map[Task]int64) []TaskOffset {
	var out []TaskOffset
	for _, t := range slices.SortedFunc(maps.Keys(of), compareTasks) {
		out = append(out, TaskOffset{t, of[t]})
	}
	return out
}
