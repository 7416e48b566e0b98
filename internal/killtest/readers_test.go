package killtest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind"
)

// reading is one way to read.
type reading struct {
	name      string
	committed bool
	dialer    *rewind.Dialer // nil: a plain consumer
}

func (r *reading) options() (opts []kgo.Opt) {
	if r.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if r.dialer != nil {
		opts = append(opts, kgo.Dialer(r.dialer.DialContext))
	}
	return opts
}

// follow reads topics from their beginning over and over, beside everything else, until the load stops. dense says that no offset may be missing.
func (l *load) follow(r reading, dense bool, passes *atomic.Int64, topics ...string) {
	l.wg.Go(func() {
		for l.ctx.Err() == nil {
			ends, err := l.ends(l.ctx, topics)
			if err == nil {
				err = l.pass(&r, dense, topics, ends)
			}
			if err == nil {
				passes.Add(1)
			} else if l.ctx.Err() == nil {
				l.ledger.fault("%s of %v: %v", r.name, topics, err)
				return
			}
		}
	})
}

// pass reads once up to ends.
func (l *load) pass(r *reading, dense bool, topics []string, ends map[place]int64) error {
	reset := kgo.NewOffset().AtStart()
	c, err := l.client(append(r.options(), kgo.ConsumeTopics(topics...), kgo.ConsumeStartOffset(reset), kgo.ConsumeResetOffset(resetOf(dense)))...)
	if err != nil {
		return err
	}
	defer c.Close()
	next := map[place]int64{}
	for left := len(ends); left > 0; {
		fetches := c.PollFetches(l.ctx)
		if l.ctx.Err() != nil {
			return nil
		}
		if err := fault(fetches); err != nil {
			return err
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			p := place{rec.Topic, rec.Partition}
			if before, ok := next[p]; ok && (rec.Offset < before || dense && rec.Offset != before) {
				l.ledger.fault("%s, %s: offset %d came where %d was next", r.name, p, rec.Offset, before)
			} else if !ok && dense && rec.Offset != 0 {
				l.ledger.fault("%s, %s: history begins at offset %d", r.name, p, rec.Offset)
			}
			next[p] = rec.Offset + 1
			l.ledger.read(r.name, rec)
			if end, ok := ends[p]; ok && rec.Offset+1 >= end {
				delete(ends, p)
				left--
			}
		})
	}
	return nil
}

// resetOf: where nothing is deleted, an offset that is out of range is a fault.
func resetOf(dense bool) kgo.Offset {
	if dense {
		return kgo.NoResetOffset()
	}
	return kgo.NewOffset().AtStart()
}

// fault is the first error of a poll that a reader need not expect while the broker goes down and comes back.
func fault(fetches kgo.Fetches) error {
	var first error
	fetches.EachError(func(topic string, partition int32, err error) {
		var answered *kerr.Error
		var loss *kgo.ErrDataLoss
		var session *kgo.ErrGroupSession // a generation that was not finished before the kill is gone; the member joins again
		if errors.As(err, &session) {
			return
		}
		if first == nil && (errors.As(err, &answered) && !answered.Retriable || errors.As(err, &loss)) {
			first = fmt.Errorf("%s-%d: %w", topic, partition, err)
		}
	})
	return first
}

// whenUp asks again for as long as the broker does not answer.
func whenUp(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		var answered *kerr.Error
		if err == nil || errors.As(err, &answered) && !answered.Retriable || !pause(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// ends are the partitions that hold something, with the log ends.
func (l *load) ends(ctx context.Context, topics []string) (map[place]int64, error) {
	starts, ends, err := l.bounds(ctx, topics)
	for p, end := range ends {
		if end == starts[p] {
			delete(ends, p)
		}
	}
	return ends, err
}

func (l *load) bounds(ctx context.Context, topics []string) (starts, ends map[place]int64, err error) {
	c, err := l.client()
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	// Starts first: they only move up.
	for _, list := range []struct {
		to   *map[place]int64
		from func(context.Context, ...string) (kadm.ListedOffsets, error)
	}{{&starts, adm.ListStartOffsets}, {&ends, adm.ListEndOffsets}} {
		var got kadm.ListedOffsets
		if err := whenUp(ctx, func() (err error) {
			if got, err = list.from(ctx, topics...); err == nil {
				err = got.Error()
			}
			return err
		}); err != nil {
			return nil, nil, err
		}
		*list.to = map[place]int64{}
		got.Each(func(o kadm.ListedOffset) { (*list.to)[place{o.Topic, o.Partition}] = o.Offset })
	}
	return starts, ends, nil
}

// whole is everything of a partition as one reader saw it.
type whole struct {
	start   int64
	ids     map[int64]id
	offsets []int64 // in the order of reading
	bytes   int64
	digest  string
}

const readLimit = 3 * time.Minute

// readAll reads topics from beginning to end once nothing is written any more.
func (l *load) readAll(r reading, topics ...string) (map[place]*whole, error) {
	ctx, cancel := context.WithTimeout(l.ctx, readLimit)
	defer cancel()
	starts, ends, err := l.bounds(ctx, topics)
	if err != nil {
		return nil, err
	}
	all, sums := map[place]*whole{}, map[place]hash.Hash{}
	at := map[string]map[int32]kgo.Offset{}
	for p, start := range starts {
		all[p], sums[p] = &whole{start: start, ids: map[int64]id{}}, sha256.New()
		if ends[p] == start {
			delete(ends, p)
			continue
		}
		if at[p.topic] == nil {
			at[p.topic] = map[int32]kgo.Offset{}
		}
		at[p.topic][p.partition] = kgo.NewOffset().At(start)
	}
	c, err := l.client(append(r.options(), kgo.ConsumePartitions(at), kgo.ConsumeResetOffset(kgo.NoResetOffset()))...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for len(ends) > 0 {
		fetches := c.PollFetches(ctx)
		if err := errors.Join(ctx.Err(), fault(fetches)); err != nil {
			return nil, fmt.Errorf("%s, with %v still to come: %w", r.name, ends, err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			p := place{rec.Topic, rec.Partition}
			l.ledger.read(r.name, rec)
			all[p].take(sums[p], rec)
			if rec.Offset+1 >= ends[p] {
				delete(ends, p)
			}
		})
	}
	for p, w := range all {
		w.digest = hex.EncodeToString(sums[p].Sum(nil))
	}
	return all, nil
}

func (w *whole) take(sum hash.Hash, r *kgo.Record) {
	i, _ := idOf(r) // the ledger says what is wrong
	w.ids[r.Offset] = i
	w.offsets = append(w.offsets, r.Offset)
	w.bytes += int64(len(r.Key) + len(r.Value))
	var head [24]byte
	binary.BigEndian.PutUint64(head[:], uint64(r.Offset))
	binary.BigEndian.PutUint64(head[8:], uint64(r.Timestamp.UnixMilli()))
	binary.BigEndian.PutUint32(head[16:], uint32(len(r.Key)))
	binary.BigEndian.PutUint32(head[20:], uint32(len(r.Value)))
	sum.Write(head[:])
	sum.Write(r.Key)
	sum.Write(r.Value)
}
