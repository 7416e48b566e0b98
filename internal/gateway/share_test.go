package gateway

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// walkShare lets a frame go by in chunks of n bytes, with skipping where the walker allows it.
func walkShare(version int16, frame []byte, n int) ([]byte, error) {
	w := newShareWalker(version)
	out := bytes.Clone(frame)
	for at := 0; at < len(out); {
		if k := w.Skip(min(n, len(out)-at)); k > 0 {
			at += k
			continue
		}
		end := min(at+n, len(out))
		if err := w.Walk(out[at:end]); err != nil {
			return nil, err
		}
		at = end
	}
	return out, w.Walk(nil)
}

func shareResponse(version int16, nodes, records int) *kmsg.ShareFetchResponse {
	resp := kmsg.NewPtrShareFetchResponse()
	resp.Version = version
	for range 2 {
		topic := kmsg.NewShareFetchResponseTopic()
		for i := range int32(2) {
			p := kmsg.NewShareFetchResponseTopicPartition()
			p.Partition, p.Records = i, bytes.Repeat([]byte{0xff}, records)
			p.AcquiredRecords = append(p.AcquiredRecords, kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord(), kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord())
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	for i := range int32(nodes) {
		n := kmsg.NewShareFetchResponseNodeEndpoint()
		n.NodeID, n.Host, n.Port = i, leakHost, 9092
		resp.NodeEndpoints = append(resp.NodeEndpoints, n)
	}
	return resp
}

// Every cut gives the same, whatever the lists' lengths do to the lengths of their numbers, and the frame keeps its length.
func TestShareWalker(t *testing.T) {
	for _, version := range []int16{1, 2} {
		for nodes := range 16 {
			for _, records := range []int{0, 1, 200} {
				resp := shareResponse(version, nodes, records)
				frame := wire.AppendResponse(nil, resp, 4711)
				for _, n := range []int{1, 2, 3, 7, 64, len(frame)} {
					out, err := walkShare(version, frame, n)
					if err != nil {
						t.Fatalf("%d nodes, chunks of %d: %v", nodes, n, err)
					}
					if bytes.Contains(out, []byte(leakHost)) {
						t.Fatalf("%d nodes, chunks of %d: an address gets out", nodes, n)
					}
					got := parse(t, out[4:], keyShareFetch, version).(*kmsg.ShareFetchResponse)
					if len(out) != len(frame) || len(got.NodeEndpoints) != 0 || len(got.Topics) != 2 || len(got.Topics[1].Partitions[1].Records) != records {
						t.Fatalf("%d nodes, chunks of %d: %+v", nodes, n, got)
					}
				}
			}
		}
	}
}

func FuzzShareWalker(f *testing.F) {
	f.Add(wire.AppendResponse(nil, shareResponse(1, 0, 3), 1), 3)
	f.Add(wire.AppendResponse(nil, shareResponse(2, 2, 3), 1), 5)
	f.Add([]byte{0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 1, 1}, 1)
	f.Fuzz(func(t *testing.T, frame []byte, n int) {
		if n < 1 || len(frame) < 4 {
			return
		}
		frame = bytes.Clone(frame)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		for _, version := range []int16{1, 2} {
			var want kmsg.ShareFetchResponse
			want.Version = version
			_, body, err := wire.ResponseBody(frame[4:], keyShareFetch, version)
			if err == nil {
				err = want.ReadFrom(body)
			}
			out, werr := walkShare(version, frame, n)
			if werr != nil || err != nil {
				continue // one of them reads more strictly; what counts is what both take
			}
			var got kmsg.ShareFetchResponse
			got.Version = version
			_, body, _ = wire.ResponseBody(out[4:], keyShareFetch, version)
			if err := got.ReadFrom(body); err != nil || len(got.NodeEndpoints) > 0 || len(got.Topics) != len(want.Topics) {
				t.Fatalf("%v: %+v, was %+v", err, got, want)
			}
		}
	})
}
