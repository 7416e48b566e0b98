package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

var (
	// errLoading: the state of a partition is still being read from its log.
	errLoading = errors.New("coordinator is loading")
	// errNotAvailable: there is no coordinator, because its topic cannot be made, its log not be read, or the node is going down.
	errNotAvailable = errors.New("coordinator not available")
)

// stateLog is what a coordinator needs of one partition of the topic that holds its state.
type stateLog interface {
	Append(records []byte, origin partlog.Origin) (partlog.AppendInfo, error)
	AppendVerified(records []byte, origin partlog.Origin, g partlog.Guard) (partlog.AppendInfo, error)
	Guard(producerID int64, epoch int16) (g partlog.Guard, open bool)
	Sync(ctx context.Context, offset int64) error
	Read(offset int64, limit int, upTo int64, whole bool) (partlog.Data, error)
	Offsets() partlog.Offsets
	LeaderEpoch() int32
}

// states are the state machines whose records one partition holds. Whoever implements it embeds *coordinator, on whose goroutine every method runs.
type states interface {
	base() *coordinator
	// replay lets one batch of the log take effect.
	replay(h *batch.Header, raw []byte) error
	// loaded comes after the last batch of the log.
	loaded()
	// reset comes when the log could be read in part only: half a state tells what was true once, and whatever were written by it would be true from then on.
	reset()
	// timeout comes when the timer of an id is due, which is not set any more then.
	timeout(id string)
	// sweep comes from time to time, to look for what has outlived its retention.
	sweep()
}

// stateTopic says where a kind of state is kept.
type stateTopic struct {
	name       string
	partitions func(*config.Broker) int32
	configs    func(*config.Broker) map[string]string
	// sweep is how often states are swept.
	sweep func(*config.Broker) time.Duration
}

// coordinators run the state machines of one topic: a coordinator, with one goroutine, for each of its partitions. close waits for them.
type coordinators[S states] struct {
	topic  stateTopic
	config func() *config.Broker
	// make gives the logs of the topic, which it makes if they are not there.
	make func() ([]stateLog, error)
	// states makes the state machines of a partition.
	states func(*coordinator) S
	now    func() time.Time
	log    *slog.Logger

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	opening sync.Mutex // held while the topic is being made
	mu      sync.Mutex
	parts   []S // set once
	closed  bool
}

func newCoordinators[S states](topic stateTopic, cfg func() *config.Broker, now func() time.Time, log *slog.Logger) *coordinators[S] {
	s := &coordinators[S]{topic: topic, config: cfg, now: now, log: log}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// open has the state kept in the broker's own topic, and takes up what the log knows. It is read in the background; until then clients are told to wait.
func (s *coordinators[S]) open(b *Broker) {
	s.make = func() ([]stateLog, error) {
		tl, err := b.ensureTopic(s.topic.name, s.topic.partitions(b.config()), s.topic.configs(b.config()))
		if err != nil {
			return nil, err
		}
		return stateLogs(tl), nil
	}
	if tl := b.logs.topic(s.topic.name); tl != nil {
		s.start(stateLogs(tl))
	}
}

func stateLogs(tl *topicLogs) []stateLog {
	out := make([]stateLog, len(tl.parts))
	for i, p := range tl.parts {
		out[i] = p.log
	}
	return out
}

// start begins to read the state from its logs.
func (s *coordinators[S]) start(logs []stateLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.parts != nil {
		return
	}
	for i, l := range logs {
		c := newCoordinator(s.ctx, s.topic, int32(i), l, s.config, s.now, s.log)
		st := s.states(c)
		s.parts = append(s.parts, st)
		s.done.Go(func() { c.run(st) })
	}
}

func (s *coordinators[S]) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.done.Wait()
}

func (s *coordinators[S]) started() []S {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts
}

// all are all coordinators; the first use on a new node makes their topic.
func (s *coordinators[S]) all() ([]S, error) {
	if parts := s.started(); parts != nil {
		return parts, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if parts := s.started(); parts != nil {
		return parts, nil
	}
	logs, err := s.make()
	if err != nil {
		s.log.Error("no coordinator", "topic", s.topic.name, "err", err)
		return nil, fmt.Errorf("%w: %w", errNotAvailable, err)
	}
	s.start(logs)
	if parts := s.started(); parts != nil {
		return parts, nil
	}
	return nil, errNotAvailable // closing
}

// maxName is how long a name of a client's may be that stands in a coordinator's log: a group's, a member's, a transaction's. The lengths of strings are two bytes in most records
// of Apache Kafka's. One that did not fit would be read as something else, or keep the whole log from being read.
const maxName = 32767

// errNameTooLong: a name would not fit into a record.
var errNameTooLong = fmt.Errorf("the name is longer than %d bytes", maxName)

// of is the coordinator that a client's name belongs to.
func (s *coordinators[S]) of(id string) (S, error) {
	if len(id) > maxName {
		var none S
		return none, errNameTooLong
	}
	return s.at(id)
}

// at is the coordinator that a key belongs to, however long it is.
func (s *coordinators[S]) at(id string) (S, error) {
	var none S
	parts, err := s.all()
	if err != nil {
		return none, err
	}
	c := parts[partitionOf(id, len(parts))]
	return c, c.base().ready()
}

// partitionOf is Kafka's choice: the hash of Java's String without its sign, modulo the partitions. The smallest int32, whose sign cannot be taken away, counts as 0.
func partitionOf(id string, partitions int) int {
	var h int32
	for _, u := range utf16.Encode([]rune(id)) {
		h = 31*h + int32(u)
	}
	if h == math.MinInt32 {
		return 0
	}
	return int(max(h, -h)) % partitions
}

// eachOf runs fn on every coordinator that has started, one after the other.
func (s *coordinators[S]) eachOf(ctx context.Context, fn func(S)) error {
	for _, c := range s.started() {
		if err := c.base().ready(); err != nil {
			return err
		}
		if err := c.base().wait(ctx, func() { fn(c) }); err != nil {
			return err
		}
	}
	return nil
}
