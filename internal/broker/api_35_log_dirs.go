package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/acl"
)

// DescribeLogDirs, versions 1 to 5. There is one directory; sizes are those of the local logs.

func (b *Broker) handleDescribeLogDirs(_ context.Context, c *conn, req *kmsg.DescribeLogDirsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	if !b.allowedCluster(c, acl.Describe) {
		resp.ErrorCode = errClusterAuthorization
		return resp, nil
	}
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir, dir.TotalBytes, dir.UsableBytes = b.dir.Path(), -1, -1
	if usage, err := b.fs.GetDiskUsage(b.dir.Path()); err == nil {
		dir.TotalBytes, dir.UsableBytes = int64(usage.TotalBytes), int64(usage.AvailBytes)
	}
	wanted := wantedPartitions(req)
	for _, p := range b.logs.all() {
		if wanted != nil && !wanted[p.tp.Topic][p.tp.Partition] {
			continue
		}
		if n := len(dir.Topics); n == 0 || dir.Topics[n-1].Topic != p.tp.Topic {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = p.tp.Topic
			dir.Topics = append(dir.Topics, t)
		}
		out := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		out.Partition, out.Size = p.tp.Partition, p.log.Stats().Size
		t := &dir.Topics[len(dir.Topics)-1]
		t.Partitions = append(t.Partitions, out)
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp, nil
}

// wantedPartitions is nil where the request asks for all.
func wantedPartitions(req *kmsg.DescribeLogDirsRequest) map[string]map[int32]bool {
	if req.Topics == nil {
		return nil
	}
	wanted := make(map[string]map[int32]bool, len(req.Topics))
	for _, t := range req.Topics {
		if wanted[t.Topic] == nil {
			wanted[t.Topic] = make(map[int32]bool, len(t.Partitions))
		}
		for _, n := range t.Partitions {
			wanted[t.Topic][n] = true
		}
	}
	return wanted
}
