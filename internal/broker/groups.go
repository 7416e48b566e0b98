package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/partlog"
)

// errLoading: the groups of a partition are still being read from its log.
var errLoading = errors.New("coordinator is loading")

// errInvalidGroup: the name of a group is empty.
var errInvalidGroup = errors.New("invalid group id")

// offsetsLog is what a coordinator needs of one partition of __consumer_offsets.
type offsetsLog interface {
	Append(records []byte, origin partlog.Origin) (partlog.AppendInfo, error)
	AppendVerified(records []byte, origin partlog.Origin, g partlog.Guard) (partlog.AppendInfo, error)
	Guard(producerID int64, epoch int16) (g partlog.Guard, open bool)
	Sync(ctx context.Context, offset int64) error
	Read(offset int64, limit int, upTo int64, whole bool) (partlog.Data, error)
	Offsets() partlog.Offsets
}

// groupService coordinates all groups: one coordinator, with one goroutine, for each partition of __consumer_offsets. close waits for them.
type groupService struct {
	config func() *config.Broker
	// make gives the logs of __consumer_offsets, which it makes if they are not there.
	make func() ([]offsetsLog, error)
	now  func() time.Time
	log  *slog.Logger

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	opening sync.Mutex // held while the topic is being made
	mu      sync.Mutex
	parts   []*coordinator // set once
	closed  bool
}

func newGroupService(cfg func() *config.Broker, make func() ([]offsetsLog, error), now func() time.Time, log *slog.Logger) *groupService {
	s := &groupService{config: cfg, make: make, now: now, log: log}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// openGroups takes the groups up that the log knows. They are read in the background; until then their clients are told to wait.
func (b *Broker) openGroups() error {
	logsOf := func(tl *topicLogs) []offsetsLog {
		out := make([]offsetsLog, len(tl.parts))
		for i, p := range tl.parts {
			out[i] = p.log
		}
		return out
	}
	b.groups = newGroupService(b.config, func() ([]offsetsLog, error) {
		tl, err := b.ensureTopic(offsetsTopic, b.config().OffsetsPartitions, offsetsTopicConfigs(b.config()))
		if err != nil {
			return nil, err
		}
		return logsOf(tl), nil
	}, b.now, b.log)
	if tl := b.logs.topic(offsetsTopic); tl != nil {
		b.groups.start(logsOf(tl))
	}
	return nil
}

// offsetsTopicConfigs are Kafka's for __consumer_offsets.
func offsetsTopicConfigs(cfg *config.Broker) map[string]string {
	return map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": fmt.Sprint(cfg.OffsetsSegmentBytes)}
}

func (b *Broker) closeGroups() {
	if b.groups != nil {
		b.groups.close()
	}
}

// start begins to read the groups from their logs.
func (s *groupService) start(logs []offsetsLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.parts != nil {
		return
	}
	for i, l := range logs {
		c := newCoordinator(s, int32(i), l)
		s.parts = append(s.parts, c)
		s.done.Go(c.run)
	}
}

func (s *groupService) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.done.Wait()
}

func (s *groupService) started() []*coordinator {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts
}

// coordinators are all coordinators; the first use of groups on a new node makes their topic.
func (s *groupService) coordinators() ([]*coordinator, error) {
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
		return nil, fmt.Errorf("%w: %w", group.ErrNotAvailable, err)
	}
	s.start(logs)
	if parts := s.started(); parts != nil {
		return parts, nil
	}
	return nil, group.ErrNotAvailable // closing
}

// coordinator is the one that a group belongs to.
func (s *groupService) coordinator(groupID string) (*coordinator, error) {
	parts, err := s.coordinators()
	if err != nil {
		s.log.Error("no group coordinator", "group", groupID, "err", err)
		return nil, group.ErrNotAvailable
	}
	c := parts[groupPartition(groupID, len(parts))]
	return c, c.ready()
}

// groupPartition is Kafka's choice: the hash of Java's String, its sign bit cleared, modulo the partitions.
func groupPartition(groupID string, partitions int) int {
	var h int32
	for _, u := range utf16.Encode([]rune(groupID)) {
		h = 31*h + int32(u)
	}
	return int(h&0x7fffffff) % partitions
}

// ask lets a command take effect in its group and waits for its reply, which is on stable storage as far as the configuration asks for it.
// create makes the group if there is none; absent is the reply where it stays absent. The command's token must be the call.
func (s *groupService) ask(ctx context.Context, groupID string, create bool, absent group.Result, command func(*call) group.Command) (group.Result, error) {
	c, err := s.coordinator(groupID)
	if err != nil {
		return nil, err
	}
	k := &call{answer: make(chan answered, 1)}
	cmd := command(k)
	if err := c.do(ctx, func() { c.step(groupID, create, k, cmd, absent) }); err != nil {
		return nil, err
	}
	select {
	case a := <-k.answer:
		if a.end > 0 && s.config().AcksAllSync {
			if err := c.log.Sync(ctx, a.end); err != nil {
				s.log.Error("syncing the log of group offsets", "group", groupID, "err", err)
				return nil, group.ErrNotAvailable
			}
		}
		return a.result, nil
	case <-ctx.Done():
		// Whoever asked is gone; the group need not wait for it. The coordinator outlives its connections, so this is heard.
		if err := c.do(s.ctx, func() { c.step(groupID, false, nil, group.Vanished{Token: k}, nil) }); err != nil {
			return nil, err
		}
		return nil, ctx.Err()
	case <-s.ctx.Done():
		return nil, group.ErrNotAvailable
	}
}

// askMember is ask for requests whose group must have a name. Offsets may be committed without one, as ever.
func (s *groupService) askMember(ctx context.Context, groupID string, create bool, absent group.Result, command func(*call) group.Command) (group.Result, error) {
	if groupID == "" {
		return nil, errInvalidGroup
	}
	return s.ask(ctx, groupID, create, absent, command)
}

// look runs fn with a group, nil if there is none, where nothing changes it.
func (s *groupService) look(ctx context.Context, groupID string, fn func(*group.Group)) error {
	c, err := s.coordinator(groupID)
	if err != nil {
		return err
	}
	return c.wait(ctx, func() { fn(c.group(groupID)) })
}

// lookAll runs fn with every group.
func (s *groupService) lookAll(ctx context.Context, fn func(*group.Group)) error {
	parts, err := s.coordinators()
	if err != nil {
		s.log.Error("no group coordinator", "err", err)
		return group.ErrNotAvailable
	}
	for _, c := range parts {
		if err := c.ready(); err != nil {
			return err
		}
		if err := c.wait(ctx, func() { c.each(fn) }); err != nil {
			return err
		}
	}
	return nil
}

// topicDeleted forgets the offsets of a topic that is gone.
func (s *groupService) topicDeleted(name string) {
	for _, c := range s.started() {
		err := c.do(s.ctx, func() { c.forgetTopic(name) })
		if err != nil && s.ctx.Err() == nil {
			s.log.Error("forgetting the offsets of a deleted topic", "topic", name, "err", err)
		}
	}
}

// call is one command on its way. answer has room for the one reply that it gets.
type call struct{ answer chan answered }

type answered struct {
	result group.Result
	end    int64 // the log must be on stable storage up to here first; 0: nothing was written
}

// groupHandlers are the keys of consumer groups and committed offsets.
func (b *Broker) groupHandlers() []api {
	return []api{
		on(2, 10, b.handleOffsetCommit),
		on(1, 10, b.handleOffsetFetch),
		on(0, 9, b.handleJoinGroup),
		on(0, 4, b.handleHeartbeat),
		on(0, 5, b.handleLeaveGroup),
		on(0, 5, b.handleSyncGroup),
		on(0, 6, b.handleDescribeGroups),
		on(0, 5, b.handleListGroups),
		on(0, 3, b.handleDeleteGroups),
		on(0, 0, b.handleOffsetDelete),
	}
}
