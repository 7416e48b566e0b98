package tier

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/remotelog"
)

// metadataPartition commits in groups. The publisher that finds nobody at work takes the lead: it appends all that is queued, syncs once, applies, and hands
// the lead to the first of those who queued meanwhile. So nobody works for others for longer than one group, and the disk is not touched under mu.
type metadataPartition struct {
	number int32
	log    RecordLog
	apply  func(remotelog.Record) error

	mu     sync.Mutex
	queue  []*publication
	busy   bool
	failed error // set once, by a failed sync
}

type publication struct {
	record remotelog.Record
	batch  []byte
	err    error
	turn   chan bool // true: take the lead, false: it is done and err says how
}

func (p *metadataPartition) publish(pub *publication) error {
	p.mu.Lock()
	p.queue = append(p.queue, pub)
	lead := !p.busy
	p.busy = true
	p.mu.Unlock()
	if !lead {
		lead = <-pub.turn
	}
	if lead {
		p.lead()
	}
	return pub.err
}

// lead commits one group, which holds the caller's own publication, and passes the lead on.
func (p *metadataPartition) lead() {
	p.mu.Lock()
	group, failed := p.queue, p.failed
	p.queue = nil
	p.mu.Unlock()

	if failed == nil {
		failed = p.commit(group)
	} else {
		for _, pub := range group {
			pub.err = failed
		}
	}
	p.mu.Lock()
	p.failed = failed
	if len(p.queue) > 0 {
		p.queue[0].turn <- true
	} else {
		p.busy = false
	}
	p.mu.Unlock()
	for _, pub := range group[1:] { // the first is the leader itself
		pub.turn <- false
	}
}

// commit returns an error only if the log is in doubt from now on.
func (p *metadataPartition) commit(group []*publication) error {
	end := int64(-1)
	for _, pub := range group {
		info, err := p.log.Append(pub.batch, partlog.Internal)
		if err != nil {
			pub.err = fmt.Errorf("appending remote log metadata, partition %d: %w", p.number, err)
			continue
		}
		end = info.LastOffset + 1
	}
	if end < 0 {
		return nil
	}
	if err := p.sync(end); err != nil {
		err = fmt.Errorf("%w: partition %d: %w", ErrMetadataFailed, p.number, err)
		for _, pub := range group {
			if pub.err == nil {
				pub.err = err
			}
		}
		return err
	}
	for _, pub := range group {
		if pub.err == nil {
			pub.err = p.apply(pub.record)
		}
	}
	return nil
}

const (
	syncPause    = 50 * time.Millisecond // doubles each time
	syncAttempts = 8
)

// sync asks again where the disk was not even reached: records that are appended and not known to be durable end the partition's publishing for good.
func (p *metadataPartition) sync(end int64) (err error) {
	for i := range syncAttempts {
		if err = p.log.Sync(context.Background(), end); !partlog.Passes(err) {
			return err
		}
		time.Sleep(syncPause << i)
	}
	return err
}
