package broker

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// AlterPartitionReassignments, versions 0 and 1. A partition may be told to be where it is, on the one node; there is nothing to cancel.

func (b *Broker) handleAlterReassignments(_ context.Context, c *conn, req *kmsg.AlterPartitionAssignmentsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	resp.AllowReplicationFactorChange = req.Version == 0 || req.AllowReplicationFactorChange || len(req.Topics) == 0
	allowed := b.allowedCluster(c, acl.Alter)
	if !allowed {
		resp.ErrorCode, resp.ErrorMessage, resp.AllowReplicationFactorChange = errClusterAuthorization, kmsg.StringPtr(clusterDenied), true
	} else if timedOut(req.TimeoutMillis) && len(req.Topics) > 0 {
		allowed = false
		resp.ErrorCode, resp.ErrorMessage, resp.AllowReplicationFactorChange = errRequestTimedOut, kmsg.StringPtr(outOfTime), true
	}
	for _, t := range req.Topics {
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = t.Topic
		for i := range t.Partitions {
			p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			p.Partition, p.ErrorCode = t.Partitions[i].Partition, resp.ErrorCode
			if allowed {
				if code, why := b.reassign(t.Topic, &t.Partitions[i]); code != errNone {
					p.ErrorCode, p.ErrorMessage = code, &why
				}
			}
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

func (b *Broker) reassign(topic string, asked *kmsg.AlterPartitionAssignmentsRequestTopicPartition) (int16, string) {
	switch {
	case b.partition(topic, asked.Partition) == nil:
		return errUnknownTopicOrPartition, "no such topic or partition"
	case asked.Replicas == nil:
		return errNoReassignment, "no reassignment is in progress"
	case !slices.Equal(asked.Replicas, []int32{b.nodeID}):
		return errInvalidReplicaAssignment, fmt.Sprintf("it is to be on %v, but the only broker is %d", asked.Replicas, b.nodeID)
	}
	return errNone, ""
}
