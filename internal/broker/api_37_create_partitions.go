package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// CreatePartitions, versions 0 to 3.

func (b *Broker) handleCreatePartitions(_ context.Context, c *conn, req *kmsg.CreatePartitionsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrCreatePartitionsResponse()
	times := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		times[req.Topics[i].Topic]++
	}
	if timedOut(req.TimeoutMillis) && slices.ContainsFunc(req.Topics, func(t kmsg.CreatePartitionsRequestTopic) bool {
		return times[t.Topic] == 1 && b.allowedTopic(c, acl.Alter, t.Topic)
	}) {
		for i := range req.Topics {
			out := kmsg.NewCreatePartitionsResponseTopic()
			out.Topic, out.ErrorCode, out.ErrorMessage = req.Topics[i].Topic, errRequestTimedOut, kmsg.StringPtr(outOfTime)
			resp.Topics = append(resp.Topics, out)
		}
		return resp, nil
	}
	for i := range req.Topics {
		asked := &req.Topics[i]
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = asked.Topic
		if n := times[asked.Topic]; n != 1 {
			if n > 1 { // one answer for the name
				times[asked.Topic] = 0
				out.ErrorCode, out.ErrorMessage = errInvalidRequest, kmsg.StringPtr("the topic is in the request more than once")
				resp.Topics = append(resp.Topics, out)
			}
			continue
		}
		if code, err := b.morePartitions(c, asked, req.ValidateOnly, req.Version >= firstStrictPartitions); err != nil {
			out.ErrorCode, out.ErrorMessage = code, kmsg.StringPtr(err.Error())
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

const firstStrictPartitions = 3

func (b *Broker) morePartitions(c *conn, asked *kmsg.CreatePartitionsRequestTopic, validateOnly, strict bool) (int16, error) {
	if !b.allowedTopic(c, acl.Alter, asked.Topic) {
		return errTopicAuthorization, errors.New(topicDenied)
	}
	t, ok := b.topics.Get(asked.Topic)
	switch {
	case !ok:
		return errUnknownTopicOrPartition, fmt.Errorf("topic %q does not exist", asked.Topic)
	case t.Internal:
		return errInvalidTopic, fmt.Errorf("%s is internal", t.Name)
	case asked.Count <= t.Partitions:
		return errInvalidPartitions, fmt.Errorf("the topic has %d partitions, %d would not be an increase", t.Partitions, asked.Count)
	case asked.Count > maxPartitionsPerTopic:
		return errPolicyViolation, fmt.Errorf("%d partitions, 1 to %d are allowed", asked.Count, maxPartitionsPerTopic)
	case asked.Assignment != nil && len(asked.Assignment) != int(asked.Count-t.Partitions):
		return errInvalidReplicaAssignment, fmt.Errorf("%d new partitions, but %d assignments", asked.Count-t.Partitions, len(asked.Assignment))
	}
	for _, a := range asked.Assignment {
		if len(a.Replicas) != 1 || a.Replicas[0] != b.nodeID {
			return errInvalidReplicaAssignment, fmt.Errorf("assignment to %v, the only broker is %d", a.Replicas, b.nodeID)
		}
	}
	if !c.mayMutate(asked.Count-t.Partitions, strict) {
		return errThrottlingQuotaExceeded, errors.New(quotaExceeded)
	}
	if validateOnly {
		return errNone, nil
	}
	if err := b.growTopic(t.Name, asked.Count); err != nil {
		return topicError(err), err
	}
	return errNone, nil
}
