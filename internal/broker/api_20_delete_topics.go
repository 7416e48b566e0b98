package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteTopics, versions 1 to 6. Internal topics are refused; Apache Kafka lets clients delete them.

func (b *Broker) handleDeleteTopics(_ context.Context, _ *conn, req *kmsg.DeleteTopicsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDeleteTopicsResponse()
	for _, name := range req.TopicNames {
		resp.Topics = append(resp.Topics, b.deleteAsked(kmsg.DeleteTopicsRequestTopic{Topic: &name}))
	}
	for _, t := range req.Topics {
		resp.Topics = append(resp.Topics, b.deleteAsked(t))
	}
	return resp, nil
}

func (b *Broker) deleteAsked(asked kmsg.DeleteTopicsRequestTopic) kmsg.DeleteTopicsResponseTopic {
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
		out.Topic = kmsg.StringPtr(t.Name)
	} else if t, ok := b.topics.Get(*asked.Topic); ok {
		out.TopicID = t.ID
	}
	switch name := *out.Topic; {
	case !b.config().DeleteTopics:
		return fail(errTopicDeletionDisabled, "delete.topic.enable is false")
	case internalTopic(name):
		return fail(errInvalidTopic, name+" is internal")
	default:
		if err := b.deleteTopic(name); err != nil {
			return fail(topicError(err), err.Error())
		}
	}
	return out
}
