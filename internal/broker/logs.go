package broker

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/logdir"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/topics"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// partition is one partition that this node leads: every one that it has.
type partition struct {
	tp       remotestorage.TopicIDPartition
	log      *partlog.Log
	internal bool
	conf     *atomic.Pointer[config.Topic] // shared by the topic's partitions
}

func (p *partition) config() *config.Topic { return p.conf.Load() }

// logs are the open logs by topic and partition.
type logs struct {
	mu     sync.RWMutex
	topics map[string]*topicLogs
}

// topicLogs is replaced, never changed, when a topic grows.
type topicLogs struct {
	id    remotestorage.UUID
	conf  *atomic.Pointer[config.Topic]
	parts []*partition
}

func (l *logs) get(topic string, n int32) *partition {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t := l.topics[topic]
	if t == nil || n < 0 || int(n) >= len(t.parts) {
		return nil
	}
	return t.parts[n]
}

func (l *logs) topic(name string) *topicLogs {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.topics[name]
}

func (l *logs) put(name string, t *topicLogs) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.topics[name] = t
}

func (l *logs) take(name string) *topicLogs {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.topics[name]
	delete(l.topics, name)
	return t
}

// all are the open partitions, by topic and number.
func (l *logs) all() []*partition {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var out []*partition
	for _, name := range slices.Sorted(maps.Keys(l.topics)) {
		out = append(out, l.topics[name].parts...)
	}
	return out
}

// close closes every log and returns what the checkpoints are to say.
func (l *logs) close() (map[logdir.TopicPartition]partlog.Offsets, error) {
	var mu sync.Mutex
	var errs []error
	offsets := make(map[logdir.TopicPartition]partlog.Offsets)
	var g errgroup.Group
	g.SetLimit(4 * runtime.GOMAXPROCS(0))
	for _, p := range l.all() {
		g.Go(func() error {
			err := p.log.Close()
			o := p.log.Offsets()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("closing partition %s: %w", p.tp, err))
			}
			offsets[checkpointKey(p)] = o
			return nil
		})
	}
	g.Wait()
	return offsets, errors.Join(errs...)
}

func checkpointKey(p *partition) logdir.TopicPartition {
	return logdir.TopicPartition{Topic: p.tp.Topic, Partition: p.tp.Partition}
}

// partition is an open partition, or nil.
func (b *Broker) partition(topic string, n int32) *partition { return b.logs.get(topic, n) }

// partitionByID is a partition of the topic that has an id, or nil.
func (b *Broker) partitionByID(id remotestorage.UUID, n int32) *partition {
	t, ok := b.topics.ByID(id)
	if !ok {
		return nil
	}
	if p := b.partition(t.Name, n); p != nil && p.tp.TopicID == id {
		return p
	}
	return nil
}

// epochOf is a partition's leader epoch, -1 if it is not open.
func (b *Broker) epochOf(topic string, n int32) int32 {
	if p := b.partition(topic, n); p != nil {
		return p.log.LeaderEpoch()
	}
	return -1
}

// openLogs finishes what a crash cut off, takes in logs of another broker, and opens every partition, in parallel.
func (b *Broker) openLogs() (*logs, error) {
	if err := b.removeDeleted(); err != nil {
		return nil, err
	}
	if err := b.adoptFolders(); err != nil {
		return nil, err
	}
	o, err := b.readCheckpoints()
	if err != nil {
		return nil, err
	}
	l := &logs{topics: make(map[string]*topicLogs)}
	for _, t := range b.topics.List() {
		tl, err := b.openTopic(&t, nil, o)
		if tl != nil {
			l.topics[t.Name] = tl // closed by whoever closes l, also after an error
		}
		if err != nil {
			_, cerr := l.close()
			return nil, errors.Join(err, cerr)
		}
	}
	return l, nil
}

// removeDeleted takes away folders of topics whose deletion had begun. Their remote objects are the tiers' business.
func (b *Broker) removeDeleted() error {
	if err := b.dir.RemoveDeleted(); err != nil {
		return err
	}
	dead := make(map[remotestorage.UUID]bool)
	for _, t := range b.topics.Deleting() {
		dead[t.ID] = true
	}
	folders, err := b.dir.Partitions()
	if err != nil {
		return err
	}
	for _, f := range folders {
		if !dead[f.TopicID] {
			continue
		}
		if err := b.dir.RemovePartition(f.Topic, f.Partition); err != nil {
			return err
		}
	}
	for id := range dead {
		if err := b.topics.Forget(id); err != nil {
			return err
		}
	}
	return nil
}

// adoptFolders registers topics whose folders were found without one: a data directory that another broker wrote.
func (b *Broker) adoptFolders() error {
	folders, err := b.dir.Partitions()
	if err != nil {
		return err
	}
	found := make(map[string]*topics.Topic)
	for _, f := range folders {
		if _, known := b.topics.Get(f.Topic); known || f.TopicID.IsZero() {
			continue
		}
		t := found[f.Topic]
		if t == nil {
			t = &topics.Topic{Name: f.Topic, ID: f.TopicID, Internal: internalTopic(f.Topic)}
			found[f.Topic] = t
		}
		if t.ID != f.TopicID {
			return fmt.Errorf("adopting topic %s: its folders have two ids, %s and %s", f.Topic, t.ID, f.TopicID)
		}
		t.Partitions = max(t.Partitions, f.Partition+1)
	}
	if len(found) > 0 {
		// Their producers have ids that another broker gave, counting from 0. Ours must not meet them.
		if err := b.producerIDs.skipTo(adoptedProducerIDs); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if _, err := b.topics.Adopt(*found[name]); err != nil {
			return fmt.Errorf("adopting topic %s: %w", name, err)
		}
		b.log.Info("topic adopted", "topic", name, "id", found[name].ID.String(), "partitions", found[name].Partitions)
	}
	return nil
}

// adoptedProducerIDs is where producer ids begin in a data directory that another broker wrote.
const adoptedProducerIDs = 1_000_000_000_000

// checkpoints are what the last run knew of the logs.
type checkpoints struct {
	recovery, logStart map[logdir.TopicPartition]int64
}

func (b *Broker) readCheckpoints() (checkpoints, error) {
	var c checkpoints
	var err error
	if c.recovery, err = b.dir.RecoveryPoints(); err != nil {
		return c, fmt.Errorf("reading recovery points: %w", err)
	}
	if c.logStart, err = b.dir.LogStartOffsets(); err != nil {
		return c, fmt.Errorf("reading log starts: %w", err)
	}
	b.checkpointed = make(map[string]bool)
	for _, m := range []map[logdir.TopicPartition]int64{c.recovery, c.logStart} {
		for k := range m {
			b.checkpointed[k.Topic] = true
		}
	}
	return c, nil
}

// openTopic opens the partitions of a topic that old has not open yet. On an error the result holds those that were opened.
func (b *Broker) openTopic(t *topics.Topic, old *topicLogs, c checkpoints) (*topicLogs, error) {
	conf, err := config.ParseTopic(t.Configs, b.config())
	if err != nil {
		// A configuration that an older broker accepted, or a store that is no longer configured: the data is still served.
		b.log.Error("topic configuration is not valid", "topic", t.Name, "err", err)
	}
	tl := &topicLogs{id: t.ID, conf: new(atomic.Pointer[config.Topic])}
	if old != nil {
		tl.conf, tl.parts = old.conf, slices.Clone(old.parts)
	} else {
		tl.conf.Store(&conf)
	}
	first := len(tl.parts)
	tl.parts = append(tl.parts, make([]*partition, int(t.Partitions)-first)...)
	var g errgroup.Group
	g.SetLimit(4 * runtime.GOMAXPROCS(0))
	for i := first; i < int(t.Partitions); i++ {
		g.Go(func() error {
			p, err := b.openPartition(t, int32(i), tl.conf, c)
			tl.parts[i] = p
			return err
		})
	}
	err = g.Wait()
	if err != nil {
		tl.parts = slices.DeleteFunc(tl.parts, func(p *partition) bool { return p == nil })
	}
	return tl, err
}

func (b *Broker) openPartition(t *topics.Topic, n int32, conf *atomic.Pointer[config.Topic], c checkpoints) (*partition, error) {
	tp := t.TopicIDPartition(n)
	path, err := b.dir.CreatePartition(tp)
	if err != nil {
		return nil, fmt.Errorf("opening partition %s: %w", tp, err)
	}
	key := logdir.TopicPartition{Topic: tp.Topic, Partition: n}
	log, err := partlog.Open(partlog.Options{
		FS: b.fs, Dir: path, TP: tp, Config: b.logConfig(conf.Load()), Clean: b.dir.Clean(), RecoveryPoint: c.recovery[key],
		LogStartOffset: c.logStart[key], MayBeRemote: b.remote != nil && !t.Internal, LeaderEpoch: b.dir.LeaderEpoch(), Files: b.files, Logger: b.log, Clock: b.now,
		OnRoll: func() { b.segmentClosed(tp, conf.Load()) },
	})
	if err != nil {
		return nil, fmt.Errorf("opening partition %s: %w", tp, err)
	}
	return &partition{tp: tp, log: log, internal: t.Internal, conf: conf}, nil
}

// logConfig is what a topic's configuration means to its logs.
func (b *Broker) logConfig(t *config.Topic) partlog.Config {
	c := partlog.DefaultConfig()
	c.SegmentBytes, c.SegmentIndexBytes, c.IndexIntervalBytes, c.SegmentMs = t.SegmentBytes, t.SegmentIndexBytes, t.IndexIntervalBytes, t.SegmentMs
	c.SegmentJitterMs, c.Preallocate, c.FlushMessages, c.FlushMs = t.SegmentJitterMs, t.Preallocate, t.FlushMessages, t.FlushMs
	c.RetentionMs, c.RetentionBytes = t.RetentionMs, t.RetentionBytes
	c.LocalRetentionMs, c.LocalRetentionBytes = t.LocalRetentionMs, t.LocalRetentionBytes
	c.RemoteStorage, c.Delete, c.Compact = t.RemoteStorage, t.Delete, t.Compact
	c.MaxMessageBytes, c.LogAppendTime = t.MaxMessageBytes, t.LogAppendTime
	c.Recompress, c.Codec, c.Level, c.MaxRecordBytes = compressionOf(t)
	c.TimestampBeforeMaxMs, c.TimestampAfterMaxMs = t.TimestampBeforeMaxMs, t.TimestampAfterMaxMs
	c.MinCleanableRatio, c.DeleteRetentionMs = t.MinCleanableRatio, t.DeleteRetentionMs
	c.MinCompactionLagMs, c.MaxCompactionLagMs, c.FileDeleteDelayMs = t.MinCompactionLagMs, t.MaxCompactionLagMs, t.FileDeleteDelayMs
	c.ProducerExpiryMs = b.config().ProducerIDExpiration.Milliseconds()
	return c
}
