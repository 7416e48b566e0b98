package broker

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/internal/topics"
)

// DeleteTopics, versions 1 to 6. Internal topics are refused; Apache Kafka lets clients delete them.

func (b *Broker) handleDeleteTopics(_ context.Context, c *conn, req *kmsg.DeleteTopicsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteTopicsResponse()
	asked := req.Topics
	for _, name := range req.TopicNames {
		asked = append(asked, kmsg.DeleteTopicsRequestTopic{Topic: &name})
	}
	names, ids := b.countDeletions(asked)
	if timedOut(req.TimeoutMillis) && slices.ContainsFunc(asked, func(t kmsg.DeleteTopicsRequestTopic) bool {
		return t.Topic != nil && names[*t.Topic] == 1 || t.TopicID != [16]byte{} && ids[t.TopicID] == 1
	}) {
		for _, t := range asked {
			out := kmsg.NewDeleteTopicsResponseTopic()
			out.Topic, out.TopicID, out.ErrorCode, out.ErrorMessage = t.Topic, t.TopicID, errRequestTimedOut, kmsg.StringPtr(outOfTime)
			resp.Topics = append(resp.Topics, out)
		}
		return resp, nil
	}
	for _, t := range asked {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		refuse := func(message string) {
			out.ErrorCode, out.ErrorMessage = errInvalidRequest, &message
			resp.Topics = append(resp.Topics, out)
		}
		byName, byID := t.Topic != nil, t.TopicID != [16]byte{}
		switch {
		case byName == byID:
			refuse("a topic is named either by its name or by its id")
		case byName && names[*t.Topic] == 1, byID && ids[t.TopicID] == 1:
			resp.Topics = append(resp.Topics, b.deleteAsked(c, t, req.Version >= firstStrictDelete))
		// One answer for what is there more than once.
		case byName && names[*t.Topic] > 1:
			names[*t.Topic] = 0
			if there, ok := b.topics.Get(*t.Topic); ok && slices.ContainsFunc(asked, func(t kmsg.DeleteTopicsRequestTopic) bool { return t.TopicID == there.ID }) {
				out.TopicID = there.ID // as its id is in the request too
			}
			refuse("the topic is in the request more than once")
		case byID && ids[t.TopicID] > 1:
			ids[t.TopicID] = 0
			refuse("the topic is in the request more than once")
		}
	}
	return resp, nil
}

// countDeletions tells how often each topic is named, and by which id. A topic that is asked for by id and by name counts as named twice, and not by id.
func (b *Broker) countDeletions(asked []kmsg.DeleteTopicsRequestTopic) (names map[string]int, ids map[[16]byte]int) {
	names, ids = make(map[string]int, len(asked)), make(map[[16]byte]int)
	for _, t := range asked {
		switch {
		case t.Topic != nil && t.TopicID == [16]byte{}:
			names[*t.Topic]++
		case t.Topic == nil:
			ids[t.TopicID]++
		}
	}
	for id := range ids {
		if t, ok := b.topics.ByID(id); ok && names[t.Name] > 0 {
			names[t.Name]++
			ids[id] = 0
		}
	}
	return names, ids
}

// mayDelete tells whether a client may delete any topic, or do that to this one.
func (b *Broker) mayDelete(c *conn, name string, op acl.Operation) bool {
	return b.allowedCluster(c, acl.Delete) || b.allowedTopic(c, op, name)
}

const firstStrictDelete = 5

func (b *Broker) deleteAsked(c *conn, asked kmsg.DeleteTopicsRequestTopic, strict bool) kmsg.DeleteTopicsResponseTopic {
	out := kmsg.NewDeleteTopicsResponseTopic()
	out.Topic, out.TopicID = asked.Topic, asked.TopicID
	fail := func(code int16, message string) kmsg.DeleteTopicsResponseTopic {
		out.ErrorCode, out.ErrorMessage = code, &message
		return out
	}
	if asked.Topic == nil {
		t, ok := b.topics.ByID(asked.TopicID)
		if !ok {
			return fail(errUnknownTopicID, "no topic has this id")
		}
		if !b.mayDelete(c, t.Name, acl.Describe) {
			return fail(errTopicAuthorization, topicDenied) // and not what it is called
		}
		out.Topic = kmsg.StringPtr(t.Name)
	}
	if !b.mayDelete(c, *out.Topic, acl.Describe) {
		return fail(errTopicAuthorization, topicDenied)
	}
	t, there := b.topics.Get(*out.Topic)
	if there && !b.mayDelete(c, *out.Topic, acl.Delete) {
		return fail(errTopicAuthorization, topicDenied)
	}
	if there {
		out.TopicID = t.ID
	}
	switch name := *out.Topic; {
	case !b.config().DeleteTopics:
		return fail(errTopicDeletionDisabled, "delete.topic.enable is false")
	case internalTopic(name):
		return fail(errInvalidTopic, name+" is internal")
	case there && !c.mayMutate(t.Partitions, strict):
		return fail(errThrottlingQuotaExceeded, quotaExceeded)
	default:
		err := b.deleteTopic(name, asked.TopicID)
		if asked.Topic == nil && errors.Is(err, topics.ErrUnknown) {
			return fail(errUnknownTopicID, err.Error())
		}
		if err != nil {
			return fail(topicError(err), err.Error())
		}
	}
	return out
}
