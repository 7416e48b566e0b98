package metadatatopic

import "github.com/rewind-kafka/rewind/internal/remotelog"

// Index is what the reading fills.
func (r *Resolver) Index() *remotelog.Index { return r.reading.Load().index }
