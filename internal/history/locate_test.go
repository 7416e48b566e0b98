package history

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/remote"
)

// What a broker answers to a question for the next location, where it gives none.
func TestNoNextLocation(t *testing.T) {
	d := newDialer(t, dialOptions{})
	c := newConn(d.h, nil, Peer{})
	defer c.Close()
	q := &locator{p: c.partition(partKey{topic: "history"}), demand: &demand{}}
	var be brokerError
	for name, tt := range map[string]struct {
		change func(*kmsg.FetchResponseTopicPartition)
		want   func(error) bool
	}{
		"records":    {func(r *kmsg.FetchResponseTopicPartition) { r.RecordBatches = []byte{1} }, func(err error) bool { return errors.Is(err, remote.ErrLocal) }},
		"the end":    {func(r *kmsg.FetchResponseTopicPartition) { r.HighWatermark = 150 }, func(err error) bool { return errors.Is(err, remote.ErrLocal) }},
		"a follower": {func(r *kmsg.FetchResponseTopicPartition) { r.PreferredReadReplica = 7 }, func(err error) bool { return errors.Is(err, remote.ErrLocal) }},
		"not yet":    {func(*kmsg.FetchResponseTopicPartition) {}, func(err error) bool { return errors.Is(err, errNotYet) }},
		"an error":   {func(r *kmsg.FetchResponseTopicPartition) { r.ErrorCode = 6 }, func(err error) bool { return errors.As(err, &be) && be.code == 6 }},
	} {
		part := kmsg.NewFetchResponseTopicPartition()
		part.HighWatermark, part.LastStableOffset, part.PreferredReadReplica = 200, 200, -1
		tt.change(&part)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.Partitions = "history", append(topic.Partitions, part)
		resp := kmsg.NewPtrFetchResponse()
		resp.Topics = append(resp.Topics, topic)
		if l, _, err := q.answer(resp, 150); l != nil || !tt.want(err) {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}
