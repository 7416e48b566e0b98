package metadatatopic

import (
	"context"

	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// History lists the remote segments in which a partition's history lies now, in the order of offsets: those that Resolve would lead through, whatever the policy, from
// the log start offset on. First and Last of each are the offsets that it holds on the lineage. It is for people and tools.
func (r *Resolver) History(ctx context.Context, tp remotestorage.TopicIDPartition) ([]remotelog.Found, error) {
	d := r.reading.Load()
	if !d.ready(tp) {
		return nil, notReady(tp, errReading)
	}
	v, err := wait(ctx, r.facts, tp, (*partition).viewLocked)
	if err != nil {
		return nil, err
	}
	p := d.index.Partition(tp)
	if p == nil {
		return nil, nil
	}
	var all []remotelog.Found
	for offset := v.logStart; ; {
		f, ok := p.Lookup(v.lineage, offset)
		if !ok {
			return all, nil
		}
		all = append(all, f)
		offset = f.Last + 1
	}
}
