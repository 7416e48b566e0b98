package history

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/resolve"
	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	keyDeleteRecords = 21
	maxDeleteRecords = 2
)

// WantsResponse is the carrier's question which responses to forwarded requests are to be shown to FilterResponse. It and FilterResponse make a Conn a clientconn.Filter.
func (c *Conn) WantsResponse(key, version int16) bool {
	return key == keyDeleteRecords && version <= maxDeleteRecords && c.h.opts.Resolver != nil
}

// FilterResponse changes nothing. It takes note of log starts that the client has just moved: what it deleted is hidden from readers at once.
func (c *Conn) FilterResponse(key, version int16, frame []byte) ([]byte, error) {
	if key != keyDeleteRecords {
		return frame, nil
	}
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.Version = version
	_, body, err := wire.ResponseBody(frame[4:], key, version)
	if err == nil {
		err = resp.ReadFrom(body)
	}
	if err != nil {
		return frame, nil // the client's to judge: nothing is learnt from it
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && p.LowWatermark >= 0 {
				c.h.logStart(t.Topic, p.Partition, p.LowWatermark)
			}
		}
	}
	return frame, nil
}

// logStart passes a log start on to the resolver.
func (h *History) logStart(topic string, partition int32, at int64) {
	if id, ok := h.topics.named(topic); ok {
		tp := remotestorage.TopicIDPartition{Topic: topic, TopicID: id, Partition: partition}
		h.opts.Resolver.Learn(tp, resolve.Learnt{LogStart: at, HighWatermark: -1, LastStable: -1})
	}
}
