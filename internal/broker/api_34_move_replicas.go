package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// AlterReplicaLogDirs, versions 1 and 2. There is one directory: a replica may be told to be where it is.

func (b *Broker) handleAlterReplicaLogDirs(_ context.Context, c *conn, req *kmsg.AlterReplicaLogDirsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAlterReplicaLogDirsResponse()
	allowed := b.allowedCluster(c, acl.Alter)
	type replica struct {
		topic     string
		partition int32
	}
	seen := make(map[replica]bool) // what is named twice is answered once
	for i := range req.Dirs {
		for _, t := range req.Dirs[i].Topics {
			out := kmsg.NewAlterReplicaLogDirsResponseTopic()
			out.Topic = t.Topic
			for _, n := range t.Partitions {
				if seen[replica{t.Topic, n}] {
					continue
				}
				seen[replica{t.Topic, n}] = true
				p := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				p.Partition = n
				switch {
				case !allowed:
					p.ErrorCode = errClusterAuthorization
				case req.Dirs[i].Dir != b.config().DataDir:
					p.ErrorCode = errLogDirNotFound
				case b.partition(t.Topic, n) == nil:
					p.ErrorCode = errUnknownTopicOrPartition
				}
				out.Partitions = append(out.Partitions, p)
			}
			if len(out.Partitions) > 0 {
				resp.Topics = append(resp.Topics, out)
			}
		}
	}
	return resp, nil
}
