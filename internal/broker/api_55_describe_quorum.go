package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
	"github.com/rewind-kafka/rewind/remotestorage"
)

// DescribeQuorum, versions 0 to 2. This node is its own controller and the one voter. There is no log of metadata, so its end and its high watermark are 0.

const clusterMetadataTopic = "__cluster_metadata"

func (b *Broker) handleDescribeQuorum(_ context.Context, c *conn, req *kmsg.DescribeQuorumRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeQuorumResponse()
	if !b.allowedCluster(c, acl.Describe) {
		resp.ErrorCode, resp.ErrorMessage = errClusterAuthorization, kmsg.StringPtr(clusterDenied)
		return resp, nil
	}
	resp.ErrorMessage = kmsg.StringPtr("")
	whole := len(req.Topics) == 1 && req.Topics[0].Topic == clusterMetadataTopic && len(req.Topics[0].Partitions) == 1 && req.Topics[0].Partitions[0].Partition == 0
	for i := range req.Topics {
		out := kmsg.NewDescribeQuorumResponseTopic()
		out.Topic = req.Topics[i].Topic
		for _, asked := range req.Topics[i].Partitions {
			p := kmsg.NewDescribeQuorumResponseTopicPartition()
			p.Partition = asked.Partition
			if whole {
				b.describeQuorum(&p)
			} else { // of one partition too many none is described, as in Apache Kafka
				p.ErrorCode, p.ErrorMessage = errUnknownTopicOrPartition, kmsg.StringPtr("no such partition of a quorum's log, or more than that one")
			}
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if whole {
		node := kmsg.NewDescribeQuorumResponseNode()
		node.NodeID = b.nodeID
		l := kmsg.NewDescribeQuorumResponseNodeListener()
		host, port := b.advertised(c)
		l.Name, l.Host, l.Port = c.door.name, host, uint16(port)
		node.Listeners = append(node.Listeners, l)
		resp.Nodes = append(resp.Nodes, node)
	}
	return resp, nil
}

func (b *Broker) describeQuorum(p *kmsg.DescribeQuorumResponseTopicPartition) {
	p.ErrorMessage = kmsg.StringPtr("")
	p.LeaderID, p.LeaderEpoch = b.nodeID, b.dir.LeaderEpoch()
	v := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
	now := b.now().UnixMilli()
	v.ReplicaID, v.LastFetchTimestamp, v.LastCaughtUpTimestamp = b.nodeID, now, now
	if id, err := remotestorage.ParseUUID(b.dir.Meta().DirectoryID); err == nil {
		v.ReplicaDirectoryID = id
	}
	p.CurrentVoters = append(p.CurrentVoters, v)
}
