package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/topics"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// CreateTopics, versions 2 to 7. There is one node: the replication factor is 1 (or -1, the default), and an assignment may name this node only.
// Names of internal topics are refused; Apache Kafka lets clients create them.

func (b *Broker) handleCreateTopics(_ context.Context, c *conn, req *kmsg.CreateTopicsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrCreateTopicsResponse()
	seen := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		seen[req.Topics[i].Topic]++
	}
	tried := slices.DeleteFunc(slices.Clone(req.Topics), func(t kmsg.CreateTopicsRequestTopic) bool { return seen[t.Topic] > 1 || !b.mayCreate(c, t.Topic) })
	if len(tried) > 0 && timedOut(req.TimeoutMillis) {
		return refusedTopics(req, errRequestTimedOut, outOfTime), nil
	}
	if b.tooManyPartitions(tried) {
		return refusedTopics(req, errPolicyViolation, fmt.Sprintf("more than %d partitions in one request", maxPartitionsPerTopic)), nil
	}
	for i := range req.Topics {
		asked := &req.Topics[i]
		if seen[asked.Topic] > 1 {
			if seen[asked.Topic] = 0; true { // one answer for the name
				resp.Topics = append(resp.Topics, failedTopic(asked.Topic, errInvalidRequest, "the topic is in the request more than once"))
			}
			continue
		}
		if seen[asked.Topic] == 1 {
			resp.Topics = append(resp.Topics, b.createAsked(c, asked, req.ValidateOnly, req.Version >= firstStrictCreate))
		}
	}
	return resp, nil
}

// timedOut tells of a time-out that has passed before anything can be done, as Apache Kafka's controller finds.
func timedOut(millis int32) bool { return millis <= 0 }

const outOfTime = "the time-out of the request has passed"

func refusedTopics(req *kmsg.CreateTopicsRequest, code int16, message string) kmsg.Response {
	resp := kmsg.NewPtrCreateTopicsResponse()
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, failedTopic(req.Topics[i].Topic, code, message))
	}
	return resp
}

func (b *Broker) tooManyPartitions(list []kmsg.CreateTopicsRequestTopic) bool {
	sum := int64(0)
	for i := range list {
		switch t := &list[i]; {
		case len(t.ReplicaAssignment) > 0:
			sum += int64(len(t.ReplicaAssignment))
		case t.NumPartitions == -1:
			sum += int64(b.config().NumPartitions)
		case t.NumPartitions > 0:
			sum += int64(t.NumPartitions)
		}
	}
	return sum > maxPartitionsPerTopic
}

func failedTopic(name string, code int16, message string) kmsg.CreateTopicsResponseTopic {
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic, out.ErrorCode, out.ErrorMessage = name, code, &message
	out.NumPartitions, out.ReplicationFactor, out.Configs = -1, -1, []kmsg.CreateTopicsResponseTopicConfig{}
	return out
}

// firstStrictCreate is the version from which on a client above its controller_mutation_rate is refused (KIP-599); before, it is only made to wait.
const firstStrictCreate = 6

func (b *Broker) createAsked(c *conn, asked *kmsg.CreateTopicsRequestTopic, validateOnly, strict bool) kmsg.CreateTopicsResponseTopic {
	if !b.mayCreate(c, asked.Topic) {
		return failedTopic(asked.Topic, errTopicAuthorization, "Authorization failed.")
	}
	t := topics.Topic{Name: asked.Topic, Partitions: asked.NumPartitions, Configs: make(map[string]string, len(asked.Configs))}
	// The order decides which of several mistakes is named: Apache Kafka's is name, configurations, partitions and replicas.
	err := b.topics.Check(t.Name)
	if errors.Is(err, topics.ErrExists) && b.logs.topic(t.Name) == nil {
		err = nil // it is being made, or could neither be made nor be taken back: createTopic finds out
	}
	if err == nil && internalTopic(t.Name) {
		err = fmt.Errorf("%w: %s is internal", topics.ErrName, t.Name)
	}
	if err == nil {
		for _, kv := range asked.Configs {
			if kv.Value == nil {
				return failedTopic(asked.Topic, errInvalidConfig, fmt.Sprintf("null value for configuration %s", kv.Name))
			}
			t.Configs[kv.Name] = *kv.Value
		}
		if err := checkConfigValues(t.Configs); err != nil {
			return failedTopic(asked.Topic, errInvalidConfig, err.Error())
		}
		_, err = config.ParseTopic(t.Configs, b.config())
	}
	if err != nil {
		return failedTopic(asked.Topic, topicError(err), err.Error())
	}
	if code, err := b.checkReplicas(asked, &t.Partitions); err != nil {
		return failedTopic(asked.Topic, code, err.Error())
	}
	if !c.mayMutate(t.Partitions, strict) {
		return failedTopic(asked.Topic, errThrottlingQuotaExceeded, quotaExceeded)
	}
	if validateOnly {
		t.ID = remotestorage.RandomUUID() // that no topic gets: it is Apache Kafka's answer too
	} else {
		if t, err = b.createTopic(t); err != nil {
			return failedTopic(asked.Topic, topicError(err), err.Error())
		}
	}
	return b.createdTopic(c, &t)
}

// checkReplicas applies the rules about partitions and replicas, and gives partitions its default.
func (b *Broker) checkReplicas(asked *kmsg.CreateTopicsRequestTopic, partitions *int32) (int16, error) {
	if len(asked.ReplicaAssignment) > 0 {
		if asked.NumPartitions != -1 || asked.ReplicationFactor != -1 {
			return errInvalidRequest, errors.New("an assignment excludes a partition count and a replication factor")
		}
		*partitions = int32(len(asked.ReplicaAssignment))
		return b.checkAssignment(asked.ReplicaAssignment)
	}
	if *partitions == -1 {
		*partitions = b.config().NumPartitions
	}
	switch n := asked.ReplicationFactor; {
	case n < -1 || n == 0:
		return errInvalidReplicationFactor, fmt.Errorf("replication factor %d", n)
	case *partitions < 1 || *partitions > maxPartitionsPerTopic:
		return errInvalidPartitions, fmt.Errorf("%d partitions, 1 to %d are allowed", *partitions, maxPartitionsPerTopic)
	case n > 1:
		return errInvalidReplicationFactor, fmt.Errorf("replication factor %d, but there is one broker", n)
	}
	return errNone, nil
}

// maxPartitionsPerTopic keeps a slip of the finger from filling the disk with directories.
const maxPartitionsPerTopic = 10_000

func (b *Broker) checkAssignment(list []kmsg.CreateTopicsRequestTopicReplicaAssignment) (int16, error) {
	seen := make(map[int32]bool, len(list))
	for _, a := range list {
		if a.Partition < 0 || int(a.Partition) >= len(list) || seen[a.Partition] {
			return errInvalidReplicaAssignment, errors.New("partitions must be numbered 0, 1, 2 and so on")
		}
		seen[a.Partition] = true
		if len(a.Replicas) != 1 || a.Replicas[0] != b.nodeID {
			return errInvalidReplicaAssignment, fmt.Errorf("partition %d is assigned to %v, the only broker is %d", a.Partition, a.Replicas, b.nodeID)
		}
	}
	if len(list) > maxPartitionsPerTopic {
		return errInvalidPartitions, fmt.Errorf("%d partitions, 1 to %d are allowed", len(list), maxPartitionsPerTopic)
	}
	return errNone, nil
}

func (b *Broker) createdTopic(c *conn, t *topics.Topic) kmsg.CreateTopicsResponseTopic {
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic, out.TopicID, out.NumPartitions, out.ReplicationFactor = t.Name, t.ID, t.Partitions, 1
	if !b.allowedTopic(c, acl.DescribeConfigs, t.Name) {
		out.ConfigErrorCode, out.NumPartitions, out.ReplicationFactor, out.Configs = errTopicAuthorization, -1, -1, []kmsg.CreateTopicsResponseTopicConfig{}
		return out
	}
	for _, e := range config.DescribeTopic(t.Configs, b.config()) {
		if e.Key.Internal && e.Null {
			continue
		}
		kv := kmsg.NewCreateTopicsResponseTopicConfig()
		kv.Name, kv.Source = e.Key.Name, int8(e.Source)
		if !e.Null {
			kv.Value = kmsg.StringPtr(e.Value)
		}
		out.Configs = append(out.Configs, kv)
	}
	return out
}
