package history

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// idsFrom is the first Metadata version that tells the ids of topics.
const idsFrom = 10

// endAnew ends the reading of topics that were deleted and made anew, with as many records or more: offsets are asked for by name, and tell nothing of that. It asks where all is due
// to be looked at, and where the id of a topic that the client calls by its name is not known yet.
func (c *Conn) endAnew(ctx context.Context, parts []*partition, all bool) error {
	byName := make(map[string][]*partition)
	for _, p := range parts {
		id, reads := p.readID()
		if all = all || reads && id.IsZero(); !reads {
			continue
		}
		name, err := c.topicName(ctx, p.key)
		if err != nil {
			continue
		}
		byName[name] = append(byName[name], p)
	}
	if !all || len(byName) == 0 {
		return nil
	}
	ids, err := c.topicIDs(ctx, byName)
	if err != nil {
		return err
	}
	for name, id := range ids {
		for _, p := range byName[name] {
			if p.isAnew(id) {
				p.end(brokerError{codeInconsistentTopicID})
			}
		}
	}
	return nil
}

// topicIDs asks for the ids of topics. Brokers that know none tell none.
func (c *Conn) topicIDs(ctx context.Context, byName map[string][]*partition) (map[string]remotestorage.UUID, error) {
	v, ok, err := c.version(ctx, keyMetadata)
	if err != nil || !ok || v.max < idsFrom {
		return nil, err
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = min(v.max, operationsByName), false
	for name := range byName {
		q := kmsg.NewMetadataRequestTopic()
		q.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, q)
	}
	resp, err := c.carrier.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	ids := make(map[string]remotestorage.UUID, len(byName))
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		if id := remotestorage.UUID(t.TopicID); t.ErrorCode == 0 && t.Topic != nil && !id.IsZero() {
			ids[*t.Topic] = id
		}
	}
	return ids, nil
}

// readID is the id of the topic of a partition that is read directly, as far as it is known.
func (p *partition) readID() (id remotestorage.UUID, reads bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.direct == nil {
		return id, false
	}
	return p.direct.tp.TopicID, true
}

// isAnew tells whether the topic has another id than when the reader began. The first that is told for a name is taken for that.
func (p *partition) isAnew(id remotestorage.UUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.direct == nil:
		return false
	case p.direct.tp.TopicID.IsZero():
		p.direct.tp.TopicID = id
	}
	return p.direct.tp.TopicID != id
}
