package broker

import (
	"errors"
	"fmt"

	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/logdir"
	"github.com/rewind-kafka/rewind/internal/topics"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// Names of the topics that the broker keeps for itself. Clients may read them; they may not write to, create or delete them.
const (
	offsetsTopic  = "__consumer_offsets"
	metadataTopic = "__remote_log_metadata"
)

func internalTopic(name string) bool {
	return name == offsetsTopic || name == metadataTopic || name == "__transaction_state" || name == shareStateTopicName
}

// createTopic makes a topic: registered first, so that a crash afterwards is mended by the next start, which opens what is registered.
func (b *Broker) createTopic(t topics.Topic) (topics.Topic, error) {
	if _, err := config.ParseTopic(t.Configs, b.config()); err != nil {
		return topics.Topic{}, err
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	if err := errors.Join(b.dropHalfMade(t.Name), b.endDeletions(t.Name)); err != nil {
		return topics.Topic{}, err
	}
	if err := b.topics.Check(t.Name); err != nil {
		return topics.Topic{}, err
	}
	if err := b.forgetCheckpoints(t.Name); err != nil {
		return topics.Topic{}, err
	}
	t, err := b.topics.Create(t)
	if err != nil {
		return topics.Topic{}, err
	}
	tl, err := b.openTopic(&t, nil, checkpoints{})
	if err != nil {
		return topics.Topic{}, errors.Join(err, b.dropTopic(t.Name, func() *topicLogs { return tl }))
	}
	b.logs.put(t.Name, tl)
	b.log.Info("topic created", "topic", t.Name, "id", t.ID.String(), "partitions", t.Partitions)
	return t, nil
}

// dropHalfMade takes away what is left of a topic that could neither be made nor be taken back: it is registered and has no logs. b.changing is held.
func (b *Broker) dropHalfMade(name string) error {
	if _, registered := b.topics.Get(name); !registered || b.logs.topic(name) != nil {
		return nil
	}
	return b.dropTopic(name, func() *topicLogs { return nil })
}

// endDeletions removes the folders of topics of this name that are deleted and could not be removed then. b.changing is held.
func (b *Broker) endDeletions(name string) error {
	for _, t := range b.topics.Deleting() {
		if t.Name != name {
			continue
		}
		err := b.removeFolders(&t, 0)
		if err == nil {
			err = b.topics.Forget(t.ID)
		}
		if err != nil {
			return fmt.Errorf("removing an earlier topic of this name: %w", err)
		}
	}
	return nil
}

// ensureTopic gives the logs of an internal topic, which is made if it is not there.
func (b *Broker) ensureTopic(name string, partitions int32, configs map[string]string) (*topicLogs, error) {
	if tl := b.logs.topic(name); tl != nil {
		return tl, nil
	}
	_, err := b.createTopic(topics.Topic{Name: name, Partitions: partitions, Configs: configs, Internal: true})
	if err != nil && !errors.Is(err, topics.ErrExists) {
		return nil, fmt.Errorf("making internal topic %s: %w", name, err)
	}
	if tl := b.logs.topic(name); tl != nil {
		return tl, nil
	}
	return nil, fmt.Errorf("making internal topic %s: %w", name, topics.ErrUnknown) // deleted at this moment
}

func (b *Broker) growTopic(name string, partitions int32) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	old := b.logs.topic(name)
	t, ok := b.topics.Get(name)
	switch {
	case old == nil || !ok:
		return fmt.Errorf("%w: %s", topics.ErrUnknown, name)
	case partitions <= t.Partitions: // somebody else was faster
		return fmt.Errorf("%w: %s has %d partitions, %d would not be an increase", errNotMore, name, t.Partitions, partitions)
	}
	// Opened first, then registered: partitions that are registered and cannot be opened would be told to clients. A crash in between leaves empty folders, which the next
	// growth takes up.
	grown := t
	grown.Partitions = partitions
	tl, err := b.openTopic(&grown, old, checkpoints{})
	if err == nil {
		_, err = b.topics.SetPartitions(name, partitions)
	}
	if err != nil {
		return errors.Join(err, b.shrinkBack(&grown, tl.parts, len(old.parts)))
	}
	b.logs.put(name, tl)
	return nil
}

// errNotMore: a topic has as many partitions already.
var errNotMore = errors.New("no increase")

// shrinkBack takes away what a growth made that got stuck: partitions are found by their place, so there are all of them or none.
func (b *Broker) shrinkBack(grown *topics.Topic, parts []*partition, before int) error {
	var errs []error
	for _, p := range parts[before:] {
		errs = append(errs, p.log.Delete())
	}
	return errors.Join(append(errs, b.removeFolders(grown, int32(before)))...)
}

// removeFolders takes away what is left of a topic's partitions from one on: those that could not be opened. A folder that stayed would be taken for a topic of
// another broker's by a later start.
func (b *Broker) removeFolders(t *topics.Topic, from int32) error {
	var errs []error
	for n := from; n < t.Partitions; n++ {
		errs = append(errs, b.dir.RemovePartition(t.Name, n))
	}
	return errors.Join(errs...)
}

// deleteTopic begins a deletion, after which the topic is gone for good, and takes the logs away. The remote objects follow in the background. With an id it is that
// topic which goes, and no later one of its name; zero is whichever has the name.
func (b *Broker) deleteTopic(name string, id remotestorage.UUID) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	if t, ok := b.topics.Get(name); ok && !id.IsZero() && t.ID != id {
		return fmt.Errorf("%w: %s has another id", topics.ErrUnknown, name)
	}
	return b.dropTopic(name, func() *topicLogs { return b.logs.take(name) })
}

// dropTopic takes the logs away once the deletion is written down: if it cannot be, the topic is as it was.
func (b *Broker) dropTopic(name string, take func() *topicLogs) error {
	t, err := b.topics.Delete(name)
	if err != nil {
		return err
	}
	tl := take()
	var errs []error
	var tps []remotestorage.TopicIDPartition
	if tl != nil {
		for _, p := range tl.parts {
			tps = append(tps, p.tp)
			if err := p.log.Delete(); err != nil {
				errs = append(errs, fmt.Errorf("deleting partition %s: %w", p.tp, err))
			}
		}
	}
	errs = append(errs, b.removeFolders(&t, 0))
	b.log.Info("topic deleted", "topic", name, "id", t.ID.String())
	if b.groups != nil {
		b.groups.topicDeleted(name)
	}
	if b.shares != nil {
		b.shares.topicDeleted(t.ID)
	}
	if err := errors.Join(errs...); err != nil {
		// The topic is gone whatever happened to its files; the next start removes them.
		b.log.Error("removing the logs of a deleted topic", "topic", name, "err", err)
		return nil
	}
	if err := b.topics.Forget(t.ID); err != nil {
		b.log.Error("the next start ends the deletion of a topic", "topic", name, "err", err)
	}
	if b.remote != nil {
		b.remote.deleteTopic(tps)
	}
	return nil
}

// setTopicConfigs replaces a topic's overrides: judged, made durable, then in force. They are those of the topic with the id, and of no later one of its name.
func (b *Broker) setTopicConfigs(name string, id remotestorage.UUID, overrides map[string]string) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	t, ok := b.topics.Get(name)
	if !ok || t.ID != id {
		return fmt.Errorf("%w: %s", topics.ErrUnknown, name)
	}
	next, err := b.checkTopicConfigs(&t, overrides)
	if err != nil {
		return err
	}
	if t, err = b.topics.SetConfigs(name, overrides); err != nil {
		return err
	}
	b.applyTopicConfig(b.logs.topic(name), &next)
	return nil
}

// checkTopicConfigs tells whether a topic may get these overrides, and what they mean.
func (b *Broker) checkTopicConfigs(t *topics.Topic, overrides map[string]string) (config.Topic, error) {
	next, err := config.ParseTopic(overrides, b.config())
	if err != nil {
		return next, err
	}
	if tl := b.logs.topic(t.Name); tl != nil {
		err = tl.conf.Load().ValidateChange(next)
	}
	return next, err
}

func (b *Broker) applyTopicConfig(tl *topicLogs, next *config.Topic) {
	if tl == nil {
		return
	}
	old := tl.conf.Swap(next)
	for _, p := range tl.parts {
		p.log.SetConfig(b.logConfig(next))
		switch {
		case b.remote == nil || b.remote.tier == nil:
		case old.RemoteStorage && !next.RemoteStorage:
			b.remote.disable(p)
		case next.RemoteStorage:
			b.remote.kick(p.tp)
		}
	}
}

// setConfig puts a changed broker configuration in force; topics that take defaults from it follow.
func (b *Broker) setConfig(next *config.Broker) error {
	if err := next.Validate(); err != nil {
		return err
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	b.conf.Store(next.Clone())
	for _, t := range b.topics.List() {
		conf, err := config.ParseTopic(t.Configs, next)
		if err != nil {
			b.log.Error("topic configuration is not valid any more; the old one stays in force", "topic", t.Name, "err", err)
			continue
		}
		b.applyTopicConfig(b.logs.topic(t.Name), &conf)
	}
	return nil
}

// checkpointMaps sorts what the logs say into the three checkpoint files.
func checkpointMaps(offsets map[logdir.TopicPartition]logOffsets) (recovery, starts, high map[logdir.TopicPartition]int64) {
	recovery, starts, high = map[logdir.TopicPartition]int64{}, map[logdir.TopicPartition]int64{}, map[logdir.TopicPartition]int64{}
	for k, o := range offsets {
		recovery[k], starts[k], high[k] = o.Recovery, o.LogStart, o.HighWatermark
	}
	return recovery, starts, high
}
