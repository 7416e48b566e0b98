package tier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Options of a Tier. RSM, Metadata and Partitions must be set.
type Options struct {
	RSM      remotestorage.RemoteStorageManager
	Metadata *MetadataLog
	// Partitions lists the partitions of every topic as they are configured now, those whose remote part is to go too (RemoteOff). It is called by Start, and
	// on each interval and after each Kick from a goroutine of the Tier.
	Partitions func() []Partition
	// TopicExists asks the registry of topics. At start, what is recorded of a topic that does not exist any more is deleted; a nil function deletes
	// nothing. It is a question of its own because a topic whose folder could not be opened is not in Partitions, and must not lose its history.
	TopicExists func(id remotestorage.UUID) bool
	BrokerID    int32
	// Interval is remote.log.manager.task.interval.ms; 30 s if zero.
	Interval time.Duration
	// Parallelism is how many partitions are worked on at once; 4 if zero.
	Parallelism int
	// BackoffMin and BackoffMax bound the pause after a failure of the store, per partition; 500 ms and 30 s if zero, as in Kafka.
	BackoffMin, BackoffMax time.Duration
	// StallTimeout ends a store operation in which nothing has moved for so long; 2 minutes if zero.
	StallTimeout time.Duration
	Clock        func() time.Time
	Logger       *slog.Logger
	Registerer   prometheus.Registerer // nil: no metrics are exported
}

func (o Options) withDefaults() (Options, error) {
	if o.RSM == nil || o.Metadata == nil || o.Partitions == nil {
		return o, errors.New("tiering needs a store, a metadata log and partitions")
	}
	setDefault(&o.Interval, 30*time.Second)
	setDefault(&o.Parallelism, 4)
	setDefault(&o.BackoffMin, 500*time.Millisecond)
	setDefault(&o.BackoffMax, 30*time.Second)
	setDefault(&o.StallTimeout, 2*time.Minute)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Tier copies, retains and deletes the remote segments of all partitions. Its workers take one partition at a time for one turn, a bounded piece of work,
// and put it back at the end of the queue if there is more: a partition with a long backlog does not keep the others waiting.
type Tier struct {
	o       Options
	metrics *metrics
	episode *episode

	stop    context.CancelFunc
	stopped context.Context
	wg      sync.WaitGroup
	refresh chan struct{} // capacity 1: a Kick is pending

	mu     sync.Mutex
	ready  *sync.Cond // the queue is not empty, or closed
	tasks  map[remotestorage.TopicIDPartition]*task
	queue  []*task
	kicked map[remotestorage.TopicIDPartition]bool
	closed bool
}

// New makes a Tier that does nothing until Start.
func New(o Options) (*Tier, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Tier{
		o:       o,
		episode: newEpisode(o.Logger, o.Clock),
		refresh: make(chan struct{}, 1),
		tasks:   map[remotestorage.TopicIDPartition]*task{},
		kicked:  map[remotestorage.TopicIDPartition]bool{},
	}
	t.ready = sync.NewCond(&t.mu)
	t.stopped, t.stop = context.WithCancel(context.Background())
	if t.metrics, err = newMetrics(o.Registerer, t); err != nil {
		return nil, fmt.Errorf("registering the metrics of tiering: %w", err)
	}
	return t, nil
}

// Start takes up every partition from what is recorded of it and begins to work. It does not touch the store before it returns, so a store that is away
// does not delay a broker's start; but when it returns, log starts and what local retention may delete are right.
func (t *Tier) Start() {
	t.scan(true)
	t.adoptDeletedTopics()
	t.wg.Add(1 + t.o.Parallelism)
	go func() {
		defer t.wg.Done()
		t.watch()
	}()
	for range t.o.Parallelism {
		go func() {
			defer t.wg.Done()
			t.work()
		}()
	}
}

// Close cuts off what is under way, which the next start cleans up, and waits for the workers.
func (t *Tier) Close() {
	t.stop()
	t.mu.Lock()
	t.closed = true
	for _, k := range t.tasks {
		if k.timer != nil {
			k.timer.Stop()
		}
	}
	t.ready.Broadcast()
	t.mu.Unlock()
	t.wg.Wait()
}

// Kick asks for a turn of the partition soon: a segment was closed, the log start or the configuration has changed. It never blocks. A partition that is
// backing off from a failure keeps waiting.
func (t *Tier) Kick(tp remotestorage.TopicIDPartition) {
	t.mu.Lock()
	t.kicked[tp] = true
	t.mu.Unlock()
	select {
	case t.refresh <- struct{}{}:
	default:
	}
}

// DeleteTopic deletes, in the background, what is remote of partitions whose topic has been deleted. The topic must be out of the registry for good before:
// a crash then leaves it to the next start, which finds records of a topic that does not exist.
func (t *Tier) DeleteTopic(tps []remotestorage.TopicIDPartition) {
	for _, tp := range tps {
		t.doom(tp)
	}
}

// DisableRemote moves the log start to the local log start, since what is below is given up, and deletes the remote segments in the background. The topic's
// new configuration must be durable before: Partitions reports RemoteOff for it from then on, at the next start too.
func (t *Tier) DisableRemote(tp remotestorage.TopicIDPartition) error {
	t.mu.Lock()
	var log Log
	if k := t.tasks[tp]; k != nil {
		log = k.part.Log
	}
	t.mu.Unlock()
	if log != nil { // else nothing is remote that a reader could find
		if err := giveUpRemote(log); err != nil {
			return fmt.Errorf("switching remote storage off for %s: %w", tp, err)
		}
	}
	t.Kick(tp)
	return nil
}

// HighestTiered is the last offset that was ever copied and lies on the partition's lineage, with its leader epoch: ListOffsets -5, and one before -6. It
// stays where it is when retention deletes the segments.
func (t *Tier) HighestTiered(p Partition) (offset int64, leaderEpoch int32, ok bool) {
	return t.o.Metadata.memory.highest(p.TP, p.Log.Epochs())
}

// watch turns the interval and kicks into work.
func (t *Tier) watch() {
	tick := time.NewTicker(t.o.Interval)
	defer tick.Stop()
	for {
		select {
		case <-t.stopped.Done():
			return
		case <-tick.C:
			t.scan(true)
		case <-t.refresh:
			t.scan(false)
		}
	}
}

// scan brings the tasks in line with the partitions and queues them: all, or those kicked.
func (t *Tier) scan(all bool) {
	parts := t.o.Partitions()
	index := t.o.Metadata.Index()
	t.mu.Lock()
	kicked := t.kicked
	t.kicked = map[remotestorage.TopicIDPartition]bool{}
	t.mu.Unlock()

	seen := make(map[remotestorage.TopicIDPartition]bool, len(parts))
	for _, p := range parts {
		if p.RemoteOff && index.Partition(p.TP) == nil {
			continue // never had anything remote
		}
		if !p.RemoteOff && !p.Log.Config().RemoteStorage {
			// Its configuration may just be lost, as that of an adopted folder is. Such a log begins with its first local file, so its log start says
			// nothing about what is remote.
			continue
		}
		seen[p.TP] = true
		if !t.known(p) {
			t.adopt(p)
		}
		t.update(p, all || kicked[p.TP])
	}
	t.dropUnlisted(seen)
}
