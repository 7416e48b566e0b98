package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const metadataTopic = "__remote_log_metadata"

// deleteWait bounds how long the objects of a store that is not the demo's own may take to go.
const deleteWait = time.Minute

// deleteTopic takes the objects out of a store that is not the demo's own, and waits until they have gone: the broker deletes in the background, and
// would not get to it after its data directory is removed.
func (d *demo) deleteTopic() error {
	if d.Store == "" || !d.created {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), deleteWait) // also after Ctrl-C
	defer cancel()
	if d.broker == nil { // interrupted between two reads
		if err := d.startBroker(ctx, ""); err != nil {
			return err
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(d.broker.Ready.Addr), kgo.ConsumeTopics(metadataTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	d.say.step("deleting the objects", 0)
	switch _, err := kadm.NewClient(cl).DeleteTopic(ctx, topic); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return nil // interrupted before it was made
	case err != nil:
		return fmt.Errorf("deleting topic %s and its objects: %w", topic, err)
	}
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, metadataTopic)
	if err != nil {
		return fmt.Errorf("asking for the end of %s: %w", metadataTopic, err)
	}
	copied := false
	ends.Each(func(o kadm.ListedOffset) { copied = copied || o.Offset > 0 })
	if !copied {
		return nil
	}
	// What the broker records of its deletions says when they are done.
	left := make(map[remotestorage.UUID]bool)
	for seen := false; !seen || len(left) > 0; {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("after %v %d segments of topic %s are still in %s: %w", deleteWait, len(left), topic, d.Store, err)
		}
		var bad error
		fetches.EachRecord(func(r *kgo.Record) {
			rec, err := remotelog.Parse(r.Value)
			if err != nil {
				bad = err
				return
			}
			switch rec := rec.(type) {
			case *remotelog.SegmentRecord:
				seen, left[rec.ID] = true, true
			case *remotelog.UpdateRecord:
				if rec.State == remotestorage.DeleteSegmentFinished {
					delete(left, rec.ID)
				}
			}
		})
		if bad != nil {
			return fmt.Errorf("reading the broker's records of its segments: %w", bad)
		}
	}
	return nil
}
