package history

import (
	"time"

	"github.com/rewind-kafka/rewind/internal/wire"
)

const (
	// maxPasses and passesFor bound how often, and for how long, a broker is asked for a location that it neither gives nor has records instead of. It may be looking for the
	// segment still; or whoever stands in between has taken the location out of its answer, and would do so for ever.
	maxPasses = 3
	passesFor = time.Second
)

// passedOver takes note of an answer that had nothing of the partition. If that goes on though there are records, the partition is left to the broker for a while.
func (p *partition) passedOver(a asked, committed bool) {
	if locate, err := wire.LocationRequested(&a.part.FetchRequestTopicPartition); err != nil || !locate {
		return
	}
	p.mu.Lock()
	end := p.hw
	if committed {
		end = p.lso
	}
	switch {
	case p.held != nil || a.part.FetchOffset >= end: // it has something, or there is nothing
		p.passes = 0
	case p.passes == 0:
		p.passes, p.passed = 1, time.Now()
	default:
		p.passes++
	}
	tooMany := p.passes >= maxPasses && time.Since(p.passed) >= passesFor
	if tooMany {
		p.passes = 0
	}
	p.mu.Unlock()
	if tooMany {
		p.ended(errUnanswered)
	}
}
