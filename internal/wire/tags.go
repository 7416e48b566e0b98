package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The tagged fields that KIP-1248 and KIP-1178 add. A tag's number is its KIP's number x 100 + n, far above what Apache Kafka has assigned.
// All are ignorable and absent when they have their default, so a peer that does not know them skips them, from Fetch v12 on.
//
//	message        where      tag     field                            type                              default
//	FetchRequest   partition  124800  RemoteLogSegmentLocationRequested  bool                            false
//	FetchRequest   top level  124801  SupportedStorageFormatVersions   compact array of compact string   empty
//	FetchRequest   partition  117800  RemotePartitionMaxBytes          int32                             -1: use PartitionMaxBytes
//	FetchResponse  partition  124802  RemoteLogSegment                 struct, see AppendLocation        absent
const (
	TagRemoteLogSegmentLocationRequested = 124800
	TagSupportedStorageFormatVersions    = 124801
	TagRemotePartitionMaxBytes           = 117800
	TagRemoteLogSegment                  = 124802
)

// maxFormatVersions bounds the list of storage formats: nobody has more than a few, and each is a string to keep.
const maxFormatVersions = 64

// OwnTags drops the tags of a request's partitions that mean nothing to us, and copies the others: a fetch session outlives the request, and is to keep neither its
// frame nor what a client puts beside a partition.
func OwnTags(req *kmsg.FetchRequest) {
	const most = 16 // bytes of one of ours; a longer one is wrong, and stays so
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			tags := &req.Topics[i].Partitions[j].UnknownTags
			if tags.Len() == 0 {
				continue
			}
			var own kmsg.Tags
			tags.Each(func(key uint32, value []byte) {
				if key == TagRemoteLogSegmentLocationRequested || key == TagRemotePartitionMaxBytes {
					own.Set(key, bytes.Clone(value[:min(len(value), most)]))
				}
			})
			*tags = own
		}
	}
}

// SetLocationRequested asks for the partition's location, or, false, drops the question.
func SetLocationRequested(p *kmsg.FetchRequestTopicPartition, v bool) {
	if !v {
		dropTag(&p.UnknownTags, TagRemoteLogSegmentLocationRequested)
		return
	}
	p.UnknownTags.Set(TagRemoteLogSegmentLocationRequested, []byte{1})
}

// LocationRequested tells whether the request asks for the partition's location.
func LocationRequested(p *kmsg.FetchRequestTopicPartition) (bool, error) {
	b, ok := findTag(&p.UnknownTags, TagRemoteLogSegmentLocationRequested)
	if !ok {
		return false, nil
	}
	if len(b) != 1 {
		return false, fmt.Errorf("%w: RemoteLogSegmentLocationRequested has %d bytes", ErrMalformed, len(b))
	}
	return b[0] != 0, nil
}

// SetRemotePartitionMaxBytes sets KIP-1178's limit; below 0 unsets it.
func SetRemotePartitionMaxBytes(p *kmsg.FetchRequestTopicPartition, n int32) {
	if n < 0 {
		dropTag(&p.UnknownTags, TagRemotePartitionMaxBytes)
		return
	}
	p.UnknownTags.Set(TagRemotePartitionMaxBytes, binary.BigEndian.AppendUint32(nil, uint32(n)))
}

// RemotePartitionMaxBytes returns KIP-1178's limit, -1 if unset: PartitionMaxBytes then holds for remote reads too.
func RemotePartitionMaxBytes(p *kmsg.FetchRequestTopicPartition) (int32, error) {
	b, ok := findTag(&p.UnknownTags, TagRemotePartitionMaxBytes)
	if !ok {
		return -1, nil
	}
	if len(b) != 4 {
		return -1, fmt.Errorf("%w: RemotePartitionMaxBytes has %d bytes", ErrMalformed, len(b))
	}
	return max(-1, int32(binary.BigEndian.Uint32(b))), nil
}

// SetSupportedStorageFormatVersions lists the segment formats that the sender reads; an empty list unsets it.
func SetSupportedStorageFormatVersions(r *kmsg.FetchRequest, v []string) {
	if len(v) == 0 {
		dropTag(&r.UnknownTags, TagSupportedStorageFormatVersions)
		return
	}
	b := kbin.AppendCompactArrayLen(nil, len(v))
	for _, s := range v {
		b = kbin.AppendCompactString(b, s)
	}
	r.UnknownTags.Set(TagSupportedStorageFormatVersions, b)
}

// SupportedStorageFormatVersions returns the segment formats that the sender reads; nil if it lists none.
func SupportedStorageFormatVersions(r *kmsg.FetchRequest) ([]string, error) {
	raw, ok := findTag(&r.UnknownTags, TagSupportedStorageFormatVersions)
	if !ok {
		return nil, nil
	}
	b := kbin.Reader{Src: raw}
	n := b.CompactArrayLen()
	if n > maxFormatVersions {
		return nil, fmt.Errorf("%w: %d storage format versions, limit %d", ErrMalformed, n, maxFormatVersions)
	}
	var out []string
	for ; n > 0 && b.Ok(); n-- {
		out = append(out, b.CompactString())
	}
	if err := b.Complete(); err != nil {
		return nil, fmt.Errorf("%w: SupportedStorageFormatVersions: %w", ErrMalformed, err)
	}
	if len(b.Src) > 0 {
		return nil, fmt.Errorf("%w: SupportedStorageFormatVersions has %d bytes too many", ErrMalformed, len(b.Src))
	}
	return out, nil
}

func findTag(t *kmsg.Tags, key uint32) (val []byte, ok bool) {
	if t.Len() == 0 {
		return nil, false
	}
	t.Each(func(k uint32, v []byte) {
		if k == key {
			val, ok = v, true
		}
	})
	return val, ok
}

// dropTag builds the tags anew without one: kmsg.Tags has no removal.
func dropTag(t *kmsg.Tags, key uint32) {
	if _, ok := findTag(t, key); !ok {
		return
	}
	var kept kmsg.Tags
	t.Each(func(k uint32, v []byte) {
		if k != key {
			kept.Set(k, v)
		}
	})
	*t = kept
}
