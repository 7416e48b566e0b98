package wire

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestOwnTags: of what a client puts beside a partition a session keeps only what it understands, in memory of its own.
func TestOwnTags(t *testing.T) {
	req := kmsg.NewPtrFetchRequest()
	req.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{{}}}}
	p := &req.Topics[0].Partitions[0]
	junk := make([]byte, 1<<20)
	p.UnknownTags.Set(1000, junk)
	SetLocationRequested(p, true)
	SetRemotePartitionMaxBytes(p, 7)
	OwnTags(req)
	wanted, err := LocationRequested(p)
	limit, err2 := RemotePartitionMaxBytes(p)
	if !wanted || limit != 7 || errors.Join(err, err2) != nil || p.UnknownTags.Len() != 2 {
		t.Errorf("wanted %v, limit %d, %v, %d tags", wanted, limit, errors.Join(err, err2), p.UnknownTags.Len())
	}
	p.UnknownTags.Set(TagRemotePartitionMaxBytes, junk)
	OwnTags(req)
	kept := 0
	p.UnknownTags.Each(func(_ uint32, value []byte) { kept += cap(value) })
	if _, err := RemotePartitionMaxBytes(p); !errors.Is(err, ErrMalformed) || kept > 1000 {
		t.Errorf("one of a wrong size: %v, %d bytes are kept", err, kept)
	}
}
