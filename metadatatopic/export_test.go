package metadatatopic

import (
	"time"

	"github.com/rewind-kafka/rewind/internal/remotelog"
)

// Index is what the reading fills.
func (r *Resolver) Index() *remotelog.Index { return r.reading.Load().index }

// Consumed are the topics that the client which asks consumes.
func (r *Resolver) Consumed() []string { return r.client.GetConsumeTopics() }

// WithLostAfter is o with less patience for metadata partitions that cannot be read.
func (o Options) WithLostAfter(d time.Duration) Options {
	o.lostAfter = d
	return o
}
