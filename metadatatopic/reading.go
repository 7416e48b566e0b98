package metadatatopic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// fetchWait is how long a broker holds a fetch of the metadata topic when there is nothing. A record ends the wait at once, but a metadata partition that has just
	// moved to the broker is not in the fetch that waits.
	fetchWait = 500 * time.Millisecond
	// fetchBytes bounds what one broker sends at once, and so what the reading holds beside the index.
	fetchBytes = 8 << 20
)

// reading is one run through one incarnation of the metadata topic, from its beginning on and without end. A topic that was deleted and created again is
// read anew, into a new index.
type reading struct {
	r        *Resolver
	log      *slog.Logger
	topicID  remotestorage.UUID
	index    *remotelog.Index
	locate   *locate.Resolver
	client   *kgo.Client
	cancel   context.CancelFunc
	done     sync.WaitGroup
	progress []progress // by metadata partition
	// unread counts the metadata partitions that have not been read to the end that they had when the reading began.
	unread atomic.Int32
	// grown: the topic has more partitions than the reading began with. Which of them holds whose records cannot be told any more.
	grown atomic.Bool
	// gone: the topic is not there any more, or must not be read. What was read of it cannot be told from what has changed since.
	gone    atomic.Bool
	applied atomic.Int64
	skipped atomic.Int64
	err     atomic.Pointer[error] // why the topic cannot be read now
	doubt   chan struct{}         // holds something when the topic is to be looked at soon

	once struct{ unknown, malformed, tags, torn, refused sync.Once }
}

// progress is how far one metadata partition has been read. Its fields are written by the reading's goroutines and read by everybody.
type progress struct {
	next atomic.Int64
	end  atomic.Int64 // at the beginning of the reading; -1 while nobody has said
	high atomic.Int64 // as last heard
	read atomic.Bool  // next has reached end
	// torn: records are missing (the topic was cut at its beginning, or records were lost), so that segments may exist of which the index does not know.
	torn atomic.Bool
	// lost: for lostAfter nothing new could have been read. Its topics are the brokers' until it can.
	lost atomic.Bool

	// Of the goroutine that looks, see judge.
	answered     bool      // the leader has told its end at this look
	told         int64     // that end
	before, upTo int64     // next and told, as of the look before
	good         time.Time // when it was last known to be read
}

func (r *Resolver) newReading(topicID remotestorage.UUID, partitions int) (*reading, error) {
	d := &reading{
		r: r, log: r.log.With("topic", r.opts.Topic), topicID: topicID, index: remotelog.NewIndex(), progress: make([]progress, partitions), doubt: make(chan struct{}, 1),
	}
	d.locate = locate.New(locate.Options{
		RSM: r.opts.Storage, Index: d.index, Metrics: indexMetrics{r.opts.Metrics}, Logger: r.log,
		IndexCacheBytes: r.opts.IndexCacheBytes, TxnIndexEmptyKnown: r.opts.TxnIndexEmptyKnown,
	})
	from := make(map[int32]kgo.Offset, partitions)
	for i := range d.progress {
		d.progress[i].end.Store(-1)
		from[int32(i)] = kgo.NewOffset().AtStart()
	}
	d.unread.Store(int32(partitions))
	var err error
	d.client, err = r.opts.newClient(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.opts.Topic: from}), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(fetchWait), kgo.FetchMinBytes(1), kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(fetchBytes),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()), kgo.KeepControlRecords(),
	)
	if err != nil {
		return nil, fmt.Errorf("making the reader's client: %w", err)
	}
	return d, nil
}

// start begins to read. Ends that are known go into progress before.
func (d *reading) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	now := time.Now()
	for i := range d.progress {
		d.progress[i].good = now
		d.settle(&d.progress[i])
	}
	d.done.Go(func() { d.read(ctx) })
	d.done.Go(func() { d.watch(ctx) })
}

func (d *reading) close() {
	d.cancel()
	d.done.Wait()
	d.client.Close()
}

func (d *reading) read(ctx context.Context) {
	for {
		fetches := d.client.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		fetches.EachError(d.failed)
		d.applyAll(fetches)
	}
}

// applyAll applies what came, metadata partitions side by side: within one the order counts, and no segment's records are in two.
func (d *reading) applyAll(fetches kgo.Fetches) {
	var applied, skipped atomic.Int64
	var appliers errgroup.Group
	appliers.SetLimit(runtime.GOMAXPROCS(0))
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if !d.has(p.Partition) { // kgo tells of a topic that is not there as of partition -1
			return
		}
		appliers.Go(func() error {
			d.cut(p.Partition, p.LogStartOffset)
			a, s := d.apply(p.Partition, p.Records)
			applied.Add(int64(a))
			skipped.Add(int64(s))
			storeMax(&d.progress[p.Partition].high, p.HighWatermark)
			return nil
		})
	})
	_ = appliers.Wait() // none fails: what cannot be applied is counted
	a, s := applied.Load(), skipped.Load()
	d.applied.Add(a)
	d.skipped.Add(s)
	if a+s > 0 {
		d.err.Store(nil)
		d.r.opts.Metrics.Records(int(a), int(s))
	}
}

func (d *reading) has(partition int32) bool {
	return partition >= 0 && int(partition) < len(d.progress)
}

func storeMax(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old; old = a.Load() {
		if a.CompareAndSwap(old, v) {
			return
		}
	}
}

// failed takes note of what the client could not mend itself; it goes on trying.
func (d *reading) failed(_ string, partition int32, err error) {
	var lost *kgo.ErrDataLoss
	if errors.As(err, &lost) && d.has(partition) {
		d.tear(partition, "records were lost to the reader", "err", err)
		return
	}
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		err = fmt.Errorf("%w: Read on topic %s is missing", ErrNotAllowed, d.r.opts.Topic)
		d.once.refused.Do(func() { d.log.Error("the metadata topic may not be read any more", "err", err) })
	}
	d.err.Store(&err)
	select {
	case d.doubt <- struct{}{}:
	default:
	}
}

// tear notes that a metadata partition has lost records.
func (d *reading) tear(partition int32, why string, args ...any) {
	d.progress[partition].torn.Store(true)
	d.once.torn.Do(func() {
		d.log.Warn("the metadata topic is not whole: "+why+"; history of which nothing is known is left to the brokers",
			append([]any{"partition", partition}, args...)...)
	})
}

// cut notes it if a metadata partition begins behind what was read of it.
func (d *reading) cut(partition int32, logStart int64) {
	if at := d.progress[partition].next.Load(); at < logStart {
		d.tear(partition, "it was cut at its beginning", "log start offset", logStart, "read up to", at)
	}
}

// apply folds records of one metadata partition in, in their order.
func (d *reading) apply(partition int32, records []*kgo.Record) (applied, skipped int) {
	if len(records) == 0 {
		return 0, 0
	}
	var parser remotelog.Parser
	var warned remotelog.Warnings
	for _, rec := range records {
		if rec.Attrs.IsControl() {
			continue
		}
		w, ok := d.applyOne(partition, rec, &parser)
		if ok {
			applied++
		} else {
			skipped++
		}
		warned.OrphanUpdates += w.OrphanUpdates
		warned.UnknownTags += w.UnknownTags
	}
	if warned.OrphanUpdates > 0 {
		d.tear(partition, "a segment was finished that had not been announced", "before offset", records[len(records)-1].Offset)
	}
	if warned.UnknownTags > 0 {
		d.once.tags.Do(func() {
			d.log.Warn("records have tagged fields that are not known here; they are skipped", "partition", partition)
		})
	}
	p := &d.progress[partition]
	storeMax(&p.next, records[len(records)-1].Offset+1)
	d.settle(p)
	return applied, skipped
}

func (d *reading) applyOne(partition int32, rec *kgo.Record, parser *remotelog.Parser) (w remotelog.Warnings, ok bool) {
	m, err := parser.Parse(rec.Value)
	if err == nil {
		w, err = d.index.ApplyCounting(m)
	}
	switch {
	case err == nil:
		return w, true
	case errors.Is(err, remotelog.ErrUnknown), errors.Is(err, remotelog.ErrNoPartition):
		d.once.unknown.Do(func() {
			d.log.Warn("record is not understood; it and others like it are skipped", "partition", partition, "offset", rec.Offset, "err", err)
		})
	default:
		d.progress[partition].torn.Store(true) // whose it was cannot be told
		d.once.malformed.Do(func() {
			d.log.Error("record is damaged; it and others like it are skipped", "partition", partition, "offset", rec.Offset, "err", err)
		})
	}
	return w, false
}

// settle notes it when a metadata partition has been read to the end that it had at the beginning.
func (d *reading) settle(p *progress) {
	end := p.end.Load()
	if end < 0 || p.next.Load() < end || !p.read.CompareAndSwap(false, true) {
		return
	}
	if d.unread.Add(-1) == 0 {
		d.log.Info("the metadata topic has been read to its end", "records", d.total(), "segments", d.index.Segments())
	}
}

func (d *reading) total() (n int64) {
	for i := range d.progress {
		n += d.progress[i].next.Load()
	}
	return n
}

// home is the metadata partition that holds the records of tp.
func (d *reading) home(tp remotestorage.TopicIDPartition) *progress {
	return &d.progress[remotelog.MetadataPartition(tp, int32(len(d.progress)))]
}

// ready tells whether everything that the metadata topic said of tp when the reading began is in the index, and whether what it says now comes to be.
func (d *reading) ready(tp remotestorage.TopicIDPartition) bool {
	if d.gone.Load() {
		return false
	}
	home := d.home(tp)
	return !home.lost.Load() && (d.unread.Load() == 0 || !d.grown.Load() && home.read.Load())
}

// lostPartitions are the metadata partitions that cannot be read any more.
func (d *reading) lostPartitions() (lost []int32) {
	for i := range d.progress {
		if d.progress[i].lost.Load() {
			lost = append(lost, int32(i))
		}
	}
	return lost
}

// segments is how many are known that might be read.
func (d *reading) segments() int {
	if d.gone.Load() {
		return 0
	}
	return d.index.Segments()
}

// holds tells whether anything at or after the offset was ever copied.
func (d *reading) holds(tp remotestorage.TopicIDPartition, offset int64) bool {
	p := d.index.Partition(tp)
	return p != nil && offset <= p.LastCopied()
}

// whole tells whether no record of tp is known to be missing.
func (d *reading) whole(tp remotestorage.TopicIDPartition) bool { return !d.home(tp).torn.Load() }

// lag is how many records the reading is behind, as far as it has heard.
func (d *reading) lag() (n int64) {
	for i := range d.progress {
		p := &d.progress[i]
		n += max(p.high.Load()-p.next.Load(), p.end.Load()-p.next.Load(), 0)
	}
	return n
}

// indexMetrics passes on what internal/locate tells.
type indexMetrics struct{ m Metrics }

func (i indexMetrics) IndexFetched(t remotestorage.IndexType, bytes int, err error) {
	i.m.IndexFetched(t, bytes, err)
}
func (i indexMetrics) Scanned(bytes int64) { i.m.Scanned(bytes) }
