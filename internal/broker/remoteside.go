package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/segment"
	"github.com/rewind-kafka/rewind/internal/tier"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// maxPooledReaders and pooledReaderIdle bound the remote readers that are kept between fetches.
	maxPooledReaders = 4096
	pooledReaderIdle = 30 * time.Second
)

// remoteSide is all that a broker with an object store has more than one without: metadata, tiering, remote reads, locations.
type remoteSide struct {
	b          *Broker
	rsm        remotestorage.RemoteStorageManager
	registerer prometheus.Registerer
	passive    bool

	metadata  *tier.MetadataLog
	tier      *tier.Tier
	resolver  *locate.Resolver
	budget    *remote.Budget
	cache     *remote.Cache
	readers   *remote.Reader
	pool      *remote.Pool
	locations *locations

	failMu    sync.Mutex
	failSince map[remotestorage.TopicIDPartition]time.Time // when a failure was last logged
}

// errNoStore: what is asked for is in a store, and the broker was not given one.
var errNoStore = errors.New("history is in a store, and the broker has none")

// historyLost tells whether what lies below the local log start is in a store that this broker was not given. Who asks for it gets an error: nothing, or what is local, would
// be no answer.
func (b *Broker) historyLost(p *partition) bool {
	o := p.log.Offsets()
	return b.remote == nil && o.LocalLogStart > o.LogStart
}

// warnOfLostHistory names the partitions whose history cannot be read.
func (b *Broker) warnOfLostHistory() {
	for _, p := range b.logs.all() {
		if b.historyLost(p) {
			o := p.log.Offsets()
			b.log.Error("history is in a store, and the broker was not given one: it cannot be read", "partition", p.tp.String(), "from", o.LogStart, "local.from", o.LocalLogStart)
		}
	}
}

func newRemoteSide(b *Broker, o *Options) *remoteSide {
	return &remoteSide{b: b, rsm: o.RSM, registerer: o.Registerer, passive: o.passive, failSince: make(map[remotestorage.TopicIDPartition]time.Time)}
}

// open replays the metadata and starts tiering. Remote data is readable when it returns; before, nothing is served, so no client is ever told that
// history does not exist (docs/cases.md, 15).
func (r *remoteSide) open() error {
	cfg := r.b.config()
	if err := r.openMetadata(cfg.MetadataPartitions); err != nil {
		return err
	}
	if err := r.settleStarts(); err != nil {
		return err
	}
	o := readOptions(cfg)
	o.Metrics, o.Logger = r.b.metrics.remoteReads(), r.b.log
	r.budget, r.cache = o.Budget, o.Cache
	r.readers = remote.NewReader(o)
	r.pool = remote.NewPool(r.readers, maxPooledReaders, pooledReaderIdle)
	r.resolver = locate.New(locate.Options{
		RSM: r.rsm, Index: r.metadata.Index(), Logger: r.b.log, IndexCacheBytes: cfg.IndexCacheBytes, TxnIndexEmptyKnown: true,
	})
	r.locations = newLocations(r)
	var err error
	r.tier, err = tier.New(tier.Options{
		RSM: r.rsm, Metadata: r.metadata, Partitions: r.partitions, TopicExists: r.topicExists, BrokerID: r.b.nodeID, Interval: cfg.TierInterval,
		Parallelism: cfg.TierParallelism, Clock: r.b.now, Logger: r.b.log, Registerer: r.registerer,
	})
	if err != nil || r.passive {
		return err
	}
	r.tier.Start()
	return nil
}

// readOptions are the keys remote.read.*. There 0 switches a thing off, whereas the reader takes it for its default.
func readOptions(cfg *config.Broker) remote.Options {
	const unlimited = 1 << 62
	memory := cfg.RemoteReadMemory
	if memory == 0 {
		memory = unlimited
	}
	o := remote.Options{
		Budget: remote.NewBudget(memory), ChunkSize: cfg.RemoteReadChunk, Parallelism: max(cfg.RemoteReadParallelism, 1), ReadAhead: cfg.RemoteReadAhead,
		Deadline: cfg.RemoteFetchMaxWait,
	}
	if o.ChunkSize == 0 {
		// What a fetch wants is the size of a GET then. It is not known before the fetch comes, and the next one may cut otherwise: nothing is read ahead or shared.
		o.ChunkSize, o.ReadAhead = 1<<30, false
		return o
	}
	if cfg.RemoteReadCache > 0 {
		o.Cache = remote.NewCache(o.Budget, cfg.RemoteReadCache)
	}
	return o
}

func (r *remoteSide) openMetadata(partitions int32) error {
	tl, err := r.b.ensureTopic(metadataTopic, partitions, map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"})
	if err != nil {
		return err
	}
	logs := make([]*partlog.Log, len(tl.parts))
	for i, p := range tl.parts {
		logs[i] = p.log
	}
	r.metadata, err = tier.NewMetadataLog(logs, remotelog.NewIndex(), tier.MetadataOptions{Logger: r.b.log, Clock: r.b.now})
	return err
}

// settleStarts moves the log starts of partitions that have no remote storage, by their configuration, to the first offset that is held anywhere. History of a topic that
// was adopted without its configuration is; what retention took right before a crash is not.
func (r *remoteSide) settleStarts() error {
	for _, p := range r.b.logs.all() {
		c, o := p.config(), p.log.Offsets()
		if c.RemoteStorage || o.LocalLogStart <= o.LogStart {
			continue
		}
		first := o.LocalLogStart
		if x := r.metadata.Index().Partition(p.tp); x != nil && !c.RemoteDeleteOnDisable {
			first = tier.FirstHeld(x.All(), o)
		}
		if err := p.log.AdvanceLogStart(first, "offsets below are in neither tier"); err != nil {
			return fmt.Errorf("moving the log start of %s to %d: %w", p.tp, first, err)
		}
	}
	return nil
}

func (r *remoteSide) close() {
	if r.tier != nil {
		r.tier.Close()
	}
	if r.locations != nil {
		r.locations.close()
	}
	if r.pool != nil {
		r.pool.Close()
	}
	if r.readers != nil {
		r.readers.Close()
	}
	if r.cache != nil {
		r.cache.Close()
	}
}

// partitions is what the tiers work on.
func (r *remoteSide) partitions() []tier.Partition {
	var out []tier.Partition
	for _, p := range r.b.logs.all() {
		c := p.config()
		if p.internal || !c.RemoteStorage && !r.knows(p) {
			continue
		}
		// Remote data goes only with the owner's word for it: a topic that was adopted has no configuration at all, and must not lose its history.
		off := !c.RemoteStorage && c.RemoteDeleteOnDisable
		t := tier.Partition{TP: p.tp, Log: p.log, CopyDisabled: c.RemoteCopyDisable || !c.RemoteStorage, RemoteOff: off}
		t.CopyLag.Ms, t.CopyLag.Bytes = c.CopyLag()
		if c.Delete {
			t.Retention = &tier.Retention{Ms: c.RetentionMs, Bytes: c.RetentionBytes}
		}
		out = append(out, t)
	}
	return out
}

func (r *remoteSide) topicExists(id remotestorage.UUID) bool {
	_, ok := r.b.topics.ByID(id)
	return ok
}

// knows tells whether anything of the partition is, or was, remote.
func (r *remoteSide) knows(p *partition) bool {
	return r.metadata != nil && r.metadata.Index().Partition(p.tp) != nil
}

func (r *remoteSide) kick(tp remotestorage.TopicIDPartition) {
	if r.tier != nil {
		r.tier.Kick(tp)
	}
}

// segmentClosed has a closed segment copied soon. It is called in the middle of a producer's request.
func (b *Broker) segmentClosed(tp remotestorage.TopicIDPartition, c *config.Topic) {
	if b.remote != nil && c.RemoteStorage {
		b.remote.kick(tp)
	}
}

// disable gives up what is remote of a topic that was taken off remote storage.
func (r *remoteSide) disable(p *partition) {
	if err := r.tier.DisableRemote(p.tp); err != nil {
		r.b.log.Error("switching remote storage off", "partition", p.tp.String(), "err", err)
	}
}

// deleteTopic has the objects of a topic removed, which must be out of the registry by now: a crash from here on is mended by the records in the metadata
// log, which name a topic that does not exist.
func (r *remoteSide) deleteTopic(tps []remotestorage.TopicIDPartition) {
	if r.tier != nil {
		r.tier.DeleteTopic(tps)
	}
}

// view is a partition's log as the resolver needs to know it.
type view struct{ log *partlog.Log }

func (v view) Lineage() *epoch.Cache { return v.log.Epochs() }
func (v view) LogStart() int64       { return v.log.Offsets().LogStart }
func (v view) LocalLogStart() int64  { return v.log.Offsets().LocalLogStart }

// LocalAborted looks from the local log start on: the resolver has looked through all that is below it, and is told of every marker that is local.
func (v view) LocalAborted(from, upTo int64) (entries []segment.AbortedTxn, complete bool) {
	for range 3 { // retention may move the start between the two calls
		if entries, complete = v.log.AbortedEntries(max(from, v.LocalLogStart()), upTo); complete {
			break
		}
	}
	return entries, complete
}

func (v view) OffsetForTimestamp(ts int64) (offset, timestamp int64, leaderEpoch int32, ok bool, err error) {
	return v.log.OffsetForTimestamp(ts)
}

// reader is the remote reader that stands at the offset for this owner.
func (r *remoteSide) reader(p *partition, owner uint64, offset int64, committed bool) *remote.PartitionReader {
	v := view{p.log}
	return r.pool.Get(remote.PoolKey{TP: p.tp, Committed: committed, Owner: owner}, offset,
		func(ctx context.Context, offset int64, _ error) (remote.Range, error) {
			asOf := v.LocalLogStart()
			rng, err := r.resolver.Resolve(ctx, p.tp, v, offset, committed)
			if err != nil && offset < v.LogStart() {
				return rng, locate.ErrBelowLogStart // deleted while it was looked for
			}
			if errors.Is(err, remote.ErrLocal) {
				err = localError{err, asOf}
			}
			return rng, err
		})
}

// localError is a resolver's ErrLocal with the local log start as it was before: a segment that has moved to the remote tier since makes it void. Readers
// resolve ahead, so there may be a while in between.
type localError struct {
	error
	asOf int64
}

func (e localError) Unwrap() error { return e.error }

// outdated tells whether the offset may have left the local log since err, an ErrLocal, was found.
func outdated(err error, offset, localLogStart int64) bool {
	var l localError
	return offset < localLogStart && errors.As(err, &l) && l.asOf < localLogStart
}

// offers tells whether a client that reads these formats may be sent to the store.
func (r *remoteSide) offers(formats []string) bool {
	return r.b.config().LocationEnable && slices.Contains(formats, remotestorage.StorageFormatApacheKafkaV1)
}

// failureLogInterval is how often the failing remote reads of one partition are worth a line.
const failureLogInterval = time.Minute

// failed logs a failed remote read, once a minute for each partition.
func (r *remoteSide) failed(tp remotestorage.TopicIDPartition, err error) {
	r.b.metrics.remoteFailed()
	now := r.b.now()
	r.failMu.Lock()
	last, known := r.failSince[tp]
	again := !known || now.Sub(last) >= failureLogInterval
	if again {
		r.failSince[tp] = now
	}
	r.failMu.Unlock()
	if again {
		r.b.log.Error("remote read failed", "partition", tp.String(), "err", err)
	}
}

// findLocation resolves an offset and makes its location. nil without an error: the server is to read it.
func (r *remoteSide) findLocation(ctx context.Context, p *partition, offset int64, committed bool) (*locationAnswer, error) {
	v := view{p.log}
	rng, err := r.resolver.Resolve(ctx, p.tp, v, offset, committed)
	if err != nil {
		return nil, fmt.Errorf("resolving offset %d of %s: %w", offset, p.tp, err)
	}
	l, err := r.resolver.Location(ctx, v, &rng)
	if errors.Is(err, locate.ErrNotOffered) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &locationAnswer{location: *l, aborted: rng.Aborted}, nil
}
