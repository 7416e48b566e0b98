package session

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Client is the sending side of one session. It is not safe for concurrent use: a session has one request on its way at a time.
type Client struct {
	id, epoch int32
	known     map[key]Part // what the server remembers, once the request on its way is answered
}

// Request is the part of a Fetch that depends on the session.
type Request struct {
	Topics    []kmsg.FetchRequestTopic
	Forgotten []kmsg.FetchRequestForgottenTopic
	ID, Epoch int32
}

// Set writes r into a fetch request.
func (r *Request) Set(req *kmsg.FetchRequest) {
	req.Topics, req.ForgottenTopics, req.SessionID, req.SessionEpoch = r.Topics, r.Forgotten, r.ID, r.Epoch
}

// Build makes the request that leaves the server with exactly the wanted partitions: everything if there is no session yet, else what is new,
// changed or gone. Answer must follow, or Reset if no answer came.
func (c *Client) Build(want []Part) Request {
	if c.epoch == epochInitial {
		c.known = make(map[key]Part, len(want))
		for i := range want {
			c.known[want[i].key()] = want[i]
		}
		return Request{Topics: groupTopics(want), ID: c.id, Epoch: epochInitial}
	}
	var send []Part
	wanted := make(map[key]struct{}, len(want))
	for i := range want {
		k := want[i].key()
		wanted[k] = struct{}{}
		if old, ok := c.known[k]; !ok || !same(&old, &want[i]) {
			send = append(send, want[i])
			c.known[k] = want[i]
		}
	}
	var gone []key
	for k := range c.known {
		if _, ok := wanted[k]; !ok {
			gone = append(gone, k)
			delete(c.known, k)
		}
	}
	return Request{Topics: groupTopics(send), Forgotten: groupForgotten(gone), ID: c.id, Epoch: c.epoch}
}

// Answer takes note of the response to the last Build. It reports false if the response is about the session only (70, 71, 106 or another error of
// the whole fetch): nothing was read, and the next Build starts anew.
func (c *Client) Answer(resp *kmsg.FetchResponse) bool {
	if resp.ErrorCode != 0 {
		// The id goes with the next full request, so that the server frees the old session; an id it does not know does no harm there.
		c.epoch = epochInitial
		if resp.ErrorCode == ErrSessionIDNotFound {
			c.id = 0
		}
		return false
	}
	if resp.SessionID == 0 { // the server gave no session: the next request is a full one again
		c.id, c.epoch = 0, epochInitial
		return true
	}
	if c.epoch == epochInitial {
		c.id, c.epoch = resp.SessionID, 1
		return true
	}
	c.epoch = nextEpoch(c.epoch)
	return true
}

// Renew starts anew with an answer still to come that tells everything; the server frees the session that was.
func (c *Client) Renew() { c.epoch, c.known = epochInitial, nil }

// Reset starts anew: the connection was lost, or a request was sent whose answer is not known.
func (c *Client) Reset() { c.id, c.epoch, c.known = 0, epochInitial, nil }

func same(a, b *Part) bool {
	if a.Partition != b.Partition || a.CurrentLeaderEpoch != b.CurrentLeaderEpoch || a.FetchOffset != b.FetchOffset ||
		a.LastFetchedEpoch != b.LastFetchedEpoch || a.LogStartOffset != b.LogStartOffset || a.PartitionMaxBytes != b.PartitionMaxBytes {
		return false
	}
	return bytes.Equal(a.UnknownTags.AppendEach(nil), b.UnknownTags.AppendEach(nil))
}

func groupTopics(parts []Part) []kmsg.FetchRequestTopic {
	var out []kmsg.FetchRequestTopic
	at := make(map[key]int)
	for i := range parts {
		k := key{topic: parts[i].Topic, id: parts[i].TopicID}
		n, ok := at[k]
		if !ok {
			n = len(out)
			at[k] = n
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = parts[i].Topic, parts[i].TopicID
			out = append(out, t)
		}
		out[n].Partitions = append(out[n].Partitions, parts[i].FetchRequestTopicPartition)
	}
	return out
}

func groupForgotten(gone []key) []kmsg.FetchRequestForgottenTopic {
	var out []kmsg.FetchRequestForgottenTopic
	type topic struct {
		name string
		id   remotestorage.UUID
	}
	at := make(map[topic]int)
	for _, k := range gone {
		n, ok := at[topic{k.topic, k.id}]
		if !ok {
			n = len(out)
			at[topic{k.topic, k.id}] = n
			t := kmsg.NewFetchRequestForgottenTopic()
			t.Topic, t.TopicID = k.topic, k.id
			out = append(out, t)
		}
		out[n].Partitions = append(out[n].Partitions, k.partition)
	}
	return out
}
