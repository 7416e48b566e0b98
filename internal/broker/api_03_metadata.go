package broker

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/topics"
)

// Metadata, versions 0 to 13. A topic that is created on the way (auto.create.topics.enable) is answered with its leader at once; Apache Kafka says
// UNKNOWN_TOPIC_OR_PARTITION first.

func (b *Broker) handleMetadata(_ context.Context, c *conn, req *kmsg.MetadataRequest) (kmsg.Response, error) {
	if misusesIDs(req) {
		return refusedMetadata(req, errInvalidRequest), nil
	}
	if slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool { return t.Topic == nil && t.TopicID == [16]byte{} }) {
		return refusedMetadata(req, errUnknown), nil // as in Apache Kafka
	}
	resp := kmsg.NewPtrMetadataResponse()
	node := kmsg.NewMetadataResponseBroker()
	node.NodeID = b.nodeID
	node.Host, node.Port = b.advertised(c)
	resp.Brokers = append(resp.Brokers, node)
	resp.ClusterID, resp.ControllerID = kmsg.StringPtr(b.clusterID), b.nodeID
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = b.clusterOperations(c)
	}
	create := b.config().AutoCreateTopics && (req.Version < 4 || req.AllowAutoTopicCreation)
	switch {
	case req.Topics == nil, req.Version == 0 && len(req.Topics) == 0: // version 0 had no null list
		for _, t := range b.topics.List() {
			if b.allowedTopic(c, acl.Describe, t.Name) {
				resp.Topics = append(resp.Topics, b.metadataTopic(&t))
			}
		}
	default:
		for _, asked := range askedTopics(req.Topics) {
			resp.Topics = append(resp.Topics, b.metadataFor(c, &asked, create))
		}
	}
	if req.IncludeTopicAuthorizedOperations {
		for i := range resp.Topics {
			if t := &resp.Topics[i]; t.ErrorCode != errUnknownTopicID && t.ErrorCode != errTopicAuthorization {
				t.AuthorizedOperations = b.operations(c, acl.Topic, *t.Topic)
			}
		}
	}
	return resp, nil
}

// misusesIDs: topics can be asked for by id from version 12 on, though the fields are there from version 10 on.
func misusesIDs(req *kmsg.MetadataRequest) bool {
	return req.Version < 12 && slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool { return t.Topic == nil || t.TopicID != [16]byte{} })
}

func refusedMetadata(req *kmsg.MetadataRequest, code int16) kmsg.Response {
	resp := kmsg.NewPtrMetadataResponse()
	resp.ErrorCode = code
	for _, asked := range req.Topics {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID, t.ErrorCode = kmsg.StringPtr(deref(asked.Topic)), asked.TopicID, code
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// askedTopics gives each topic once; where one is asked for by its id, names do not count.
func askedTopics(list []kmsg.MetadataRequestTopic) []kmsg.MetadataRequestTopic {
	byID := slices.ContainsFunc(list, func(t kmsg.MetadataRequestTopic) bool { return t.TopicID != [16]byte{} })
	type asked struct {
		name string
		id   [16]byte
	}
	seen := make(map[asked]bool, len(list))
	var out []kmsg.MetadataRequestTopic
	for _, t := range list {
		key := asked{id: t.TopicID}
		switch {
		case t.TopicID != [16]byte{}:
			t.Topic = nil
		case byID && t.Topic != nil:
			continue
		case t.Topic != nil:
			key.name = *t.Topic
		}
		if !seen[key] {
			seen[key] = true
			out = append(out, t)
		}
	}
	return out
}

func (b *Broker) metadataFor(c *conn, asked *kmsg.MetadataRequestTopic, create bool) kmsg.MetadataResponseTopic {
	failed := kmsg.NewMetadataResponseTopic()
	failed.Topic, failed.TopicID = asked.Topic, asked.TopicID
	if asked.Topic == nil {
		t, ok := b.topics.ByID(asked.TopicID)
		if !ok {
			failed.ErrorCode = errUnknownTopicID
			return failed
		}
		if !b.allowedTopic(c, acl.Describe, t.Name) {
			failed.ErrorCode = errTopicAuthorization
			return failed
		}
		return b.metadataTopic(&t)
	}
	name := *asked.Topic
	if !b.allowedTopic(c, acl.Describe, name) {
		failed.ErrorCode = errTopicAuthorization
		return failed
	}
	t, ok := b.topics.Get(name)
	if !ok || b.logs.topic(name) == nil { // or it is being made, or could neither be made nor be taken back
		if create && !b.mayCreate(c, name) {
			failed.ErrorCode = errTopicAuthorization
			return failed
		}
		if err := topics.CheckName(name); err != nil {
			failed.ErrorCode = errInvalidTopic
			return failed
		}
		if !create || internalTopic(name) {
			failed.ErrorCode = errUnknownTopicOrPartition
			return failed
		}
		if !c.mayMutateAside(b.config().NumPartitions) {
			failed.ErrorCode = errUnknownTopicOrPartition // which its client asks for again, as of Apache Kafka
			return failed
		}
		var err error
		if t, err = b.createTopic(topics.Topic{Name: name, Partitions: b.config().NumPartitions}); err != nil {
			if !errors.Is(err, topics.ErrExists) { // somebody else was faster
				b.log.Warn("creating a topic that a client asked for", "topic", name, "err", err)
				failed.ErrorCode = topicError(err)
				return failed
			}
			t, _ = b.topics.Get(name)
		}
	}
	return b.metadataTopic(&t)
}

// mayCreate tells whether a client may make a topic: any, or this one.
func (b *Broker) mayCreate(c *conn, name string) bool {
	return b.allowedCluster(c, acl.Create) || b.allowedTopic(c, acl.Create, name)
}

func (b *Broker) metadataTopic(t *topics.Topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = kmsg.StringPtr(t.Name), t.ID, t.Internal
	for i := range t.Partitions {
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Partition, p.Leader, p.LeaderEpoch = i, b.nodeID, b.epochOf(t.Name, i)
		p.Replicas, p.ISR, p.OfflineReplicas = []int32{b.nodeID}, []int32{b.nodeID}, []int32{}
		out.Partitions = append(out.Partitions, p)
	}
	return out
}
