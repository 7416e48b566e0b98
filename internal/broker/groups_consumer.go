package broker

import (
	"reflect"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/coord/consumer"
	"github.com/rewind-kafka/rewind/internal/coord/members"
	"github.com/rewind-kafka/rewind/internal/topics"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// groupTopics is what groups see of the topics.
type groupTopics struct{ registry *topics.Registry }

func (t groupTopics) Version() int64 { return t.registry.Version() }

func (t groupTopics) ByName(name string) (members.Topic, bool) {
	return groupTopic(t.registry.Get(name))
}

func (t groupTopics) ByID(id consumer.TopicID) (members.Topic, bool) {
	return groupTopic(t.registry.ByID(remotestorage.UUID(id)))
}

func groupTopic(t topics.Topic, ok bool) (members.Topic, bool) {
	return members.Topic{Name: t.Name, ID: t.ID, Partitions: t.Partitions}, ok
}

func (t groupTopics) Names() []string {
	all := t.registry.List()
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// newConsumerGroup makes a consumer group without members.
func (b *Broker) newConsumerGroup(id string) *consumer.Group {
	return consumer.New(id, groupConfig(b, id, consumerConfigOf), groupTopics{b.topics})
}

// groupConfig gives a group's configuration as it is in force. It is put together anew only when one of the two that it comes from has been replaced. What it
// gives belongs to the one goroutine of the group.
func groupConfig[C any](b *Broker, id string, put func(config.Group, *config.Broker) C) func() C {
	var of *config.Broker
	var overrides uintptr
	var made C
	return func() C {
		cfg, own := b.config(), b.resourceConfigs.group(id)
		if at := reflect.ValueOf(own).Pointer(); cfg != of || at != overrides {
			of, overrides = cfg, at
			made = put(config.ParseGroup(own, cfg), cfg)
		}
		return made
	}
}

func consumerConfigOf(g config.Group, cfg *config.Broker) consumer.Config {
	times := g.Consumer
	return consumer.Config{Session: times.SessionTimeout, Heartbeat: times.Heartbeat, AssignmentInterval: times.AssignmentInterval,
		MaxSize: cfg.ConsumerGroups.MaxSize, ClassicMaxSize: cfg.GroupMaxSize, Assignors: config.SplitList(cfg.ConsumerGroups.Assignors),
		Upgrade: cfg.ConsumerMigration == "bidirectional" || cfg.ConsumerMigration == "upgrade", Downgrade: cfg.ConsumerMigration == "bidirectional" || cfg.ConsumerMigration == "downgrade"}
}
