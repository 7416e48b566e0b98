package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/coord/consumer"
	"github.com/rewind-kafka/rewind/internal/coord/group"
	"github.com/rewind-kafka/rewind/internal/coord/streams"
)

// errInvalidGroup: the name of a group is empty.
var errInvalidGroup = errors.New("invalid group id")

// groupService coordinates all groups.
type groupService struct {
	*coordinators[*groupCoordinator]
	// formats are those of the records of every kind of group but the classic one.
	formats []group.Format
	// creations are topics of applications that could not be made.
	creations creations
}

var groupsTopic = stateTopic{
	name:       offsetsTopic,
	partitions: func(cfg *config.Broker) int32 { return cfg.OffsetsPartitions },
	configs: func(cfg *config.Broker) map[string]string {
		return map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": fmt.Sprint(cfg.OffsetsSegmentBytes)}
	},
	sweep: func(cfg *config.Broker) time.Duration { return cfg.OffsetsRetentionCheck },
}

func newGroupService(cfg func() *config.Broker, now func() time.Time, log *slog.Logger, formats ...group.Format) *groupService {
	s := &groupService{coordinators: newCoordinators[*groupCoordinator](groupsTopic, cfg, now, log), formats: formats}
	s.states = s.newCoordinator
	return s
}

func (b *Broker) openGroups() {
	b.groups = newGroupService(b.config, b.now, b.log, b.groupFormats()...)
	b.groups.open(b)
}

// groupFormats are the kinds of groups that there are besides the classic one.
func (b *Broker) groupFormats() []group.Format {
	return []group.Format{
		consumer.Format(b.newConsumerGroup),
		b.shareFormat(),
		streams.Format(b.newStreamsGroup),
	}
}

func (b *Broker) closeGroups() {
	if b.groups != nil {
		b.groups.close()
	}
}

// ask lets a command take effect in its group and waits for its reply, which is on stable storage as far as the configuration asks for it.
// create makes the group if there is none; absent is the reply where it stays absent. The command's token must be the call.
func (s *groupService) ask(ctx context.Context, groupID string, create bool, absent group.Result, command func(*call) group.Command) (group.Result, error) {
	c, err := s.of(groupID)
	if err != nil {
		return nil, err
	}
	k := &call{answer: make(chan answered, 1)}
	cmd := command(k)
	if err := c.do(ctx, func() { c.step(groupID, create, k, cmd, absent) }); err != nil {
		return nil, err
	}
	a, err := answerOf(ctx, c.coordinator, k.answer)
	if err == nil {
		return a.result, c.synced(ctx, groupID, a.end)
	}
	if ctx.Err() != nil {
		// Whoever asked is gone; the group need not wait for it. The coordinator outlives its connections, so this is heard.
		if err := c.do(s.ctx, func() { c.step(groupID, false, nil, group.Vanished{Token: k}, nil) }); err != nil {
			return nil, err
		}
	}
	return nil, err
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
	c, err := s.of(groupID)
	if err != nil {
		return err
	}
	return c.wait(ctx, func() { fn(c.groups[groupID]) })
}

// lookAll runs fn with every group.
func (s *groupService) lookAll(ctx context.Context, fn func(*group.Group)) error {
	if _, err := s.all(); err != nil {
		return err
	}
	return s.eachOf(ctx, func(c *groupCoordinator) {
		for _, g := range c.groups {
			fn(g)
		}
	})
}

// topicDeleted forgets the offsets of a topic that is gone.
func (s *groupService) topicDeleted(name string) {
	for _, c := range s.started() {
		err := c.doRead(s.ctx, func() { c.forgetTopic(name) })
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
		on(0, 1, b.handleConsumerGroupHeartbeat),
		on(0, 1, b.handleConsumerGroupDescribe),
		on(0, 1, b.handleStreamsGroupHeartbeat),
		on(0, 1, b.handleStreamsGroupDescribe),
		on(0, 0, b.handleStreamsTopologyDescription),
	}
}
