package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rewind-kafka/rewind/internal/batch"
	"github.com/rewind-kafka/rewind/internal/config"
	"github.com/rewind-kafka/rewind/internal/partlog"
	"github.com/rewind-kafka/rewind/internal/sharepart"
	"github.com/rewind-kafka/rewind/internal/topics"
)

var (
	errNoLetters = errors.New("no dead letter queue")
	// errQueueNotMade: there may be room for it the next time.
	errQueueNotMade = errors.New("making a dead letter queue")
)

// letterRound is a batch of letters on its way, and then the next one.
type letterRound struct {
	d       *deadLetters
	key     shareKey
	letters []sharepart.Letter
	at      int64 // of the first letter: what comes before was sent
	last    bool  // it is not tried again
}

// send writes one batch. It gives how many letters are finished with it; with an error, how many it is about.
func (r *letterRound) send(ctx context.Context) (done int, err error) {
	b, cfg := r.d.s.b, r.d.s.b.groupConfigs(r.key.group)
	source := b.partitionByID(r.key.topicID, r.key.partition)
	if source == nil {
		return len(r.letters), fmt.Errorf("%w: the topic was deleted", errNoLetters)
	}
	to, err := b.letterPartition(r.key.group, cfg.DeadLetterTopic, r.key.partition)
	if err != nil {
		return len(r.letters), err
	}
	limit := to.config().MaxMessageBytes
	copies := letterCopies{resolved: r.letters[len(r.letters)-1].Last}
	if cfg.DeadLetterCopies {
		copies, err = r.d.read(ctx, source, r.rest(), limit, r.last)
		if err := ctx.Err(); err != nil {
			return len(r.letters), err // the next start reads what is missing
		}
		if err != nil {
			return len(r.letters), err
		}
	}
	w := letterWriter{now: b.now().UnixMilli(), limit: limit, source: source.tp.Topic, group: r.key.group, partition: source.tp.Partition}
	next := r.at
	for l := &r.letters[0]; next <= l.Last && (w.records == 0 || next <= copies.resolved) && w.add(next, l, copies.of[next]); {
		next++
	}
	if next > r.letters[0].Last {
		for done = 1; done < len(r.letters) && r.letters[done].Last <= copies.resolved && w.addAll(&r.letters[done], &copies); {
			done++
		}
	}
	info, err := to.log.Append(w.batch(), partlog.Client)
	if err == nil && b.config().AcksAllSync {
		err = to.log.Sync(ctx, info.LastOffset+1)
	}
	if err != nil {
		return max(done, 1), fmt.Errorf("appending to %s: %w", to.tp.String(), err)
	}
	b.metrics.letters.Add(float64(w.records))
	r.at = next
	return done, nil
}

// rest are the letters without what was sent.
func (r *letterRound) rest() []sharepart.Letter {
	out := append([]sharepart.Letter(nil), r.letters...)
	out[0].First = r.at
	return out
}

// letterPartition gives where the letters of a partition go, as the configurations are now: of the group, of the queue's topic, and of the broker.
func (b *Broker) letterPartition(group, name string, partition int32) (*partition, error) {
	cfg := b.config()
	t, exists := b.topics.Get(name)
	switch {
	case name == "":
		return nil, fmt.Errorf("%w: the group has no errors.deadletterqueue.topic.name any more", errNoLetters)
	case exists && !strings.EqualFold(t.Configs["errors.deadletterqueue.group.enable"], "true"):
		return nil, fmt.Errorf("%w: topic %s has errors.deadletterqueue.group.enable=false", errNoLetters, name)
	case !exists && !cfg.DeadLetterCreate:
		return nil, fmt.Errorf("%w: there is no topic %s, and errors.deadletterqueue.auto.create.topics.enable=false", errNoLetters, name)
	case !strings.HasPrefix(name, cfg.DeadLetterPrefix):
		return nil, fmt.Errorf("%w: the name of topic %s does not begin with %s, which is errors.deadletterqueue.topic.name.prefix", errNoLetters, name, cfg.DeadLetterPrefix)
	}
	if !exists || cfg.DeadLetterCreate && b.logs.topic(name) == nil { // or it could neither be made nor be taken back the last time
		// The time of a letter is that at which it was written.
		configs := map[string]string{"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
		_, err := b.createTopic(topics.Topic{Name: name, Partitions: cfg.NumPartitions, Configs: configs})
		switch {
		case err == nil, errors.Is(err, topics.ErrExists):
		case errors.Is(err, topics.ErrName), errors.Is(err, topics.ErrCollision), errors.Is(err, config.ErrInvalidValue), errors.Is(err, config.ErrUnknownKey):
			return nil, fmt.Errorf("%w: making %s: %w", errNoLetters, name, err)
		default:
			return nil, fmt.Errorf("%w: %s of group %s: %w", errQueueNotMade, name, group, err)
		}
	}
	tl := b.logs.topic(name)
	if tl == nil || len(tl.parts) == 0 {
		return nil, fmt.Errorf("%w: topic %s is not open", partlog.ErrClosed, name) // it is being made, or deleted
	}
	return tl.parts[int(partition)%len(tl.parts)], nil
}

// letterWriter puts a batch of letters together.
type letterWriter struct {
	now       int64
	limit     int // of the batch
	source    string
	group     string
	partition int32

	payload []byte
	records int
}

// Texts of __dlq.errors.message.
const (
	letterRejected = "Offset rejected by client."
	letterExceeded = "Offset delivery count exceeded the threshold."
)

// add adds a record; false: the batch is full. A record that is too large to be copied even into a batch of its own comes without key and value.
func (w *letterWriter) add(offset int64, l *sharepart.Letter, c *letterCopy) bool {
	message := letterExceeded
	if l.Rejected {
		message = letterRejected
	}
	headers := [...][2]string{
		{"__dlq.errors.topic", w.source}, {"__dlq.errors.partition", strconv.Itoa(int(w.partition))}, {"__dlq.errors.offset", strconv.FormatInt(offset, 10)},
		{"__dlq.errors.group", w.group}, {"__dlq.errors.delivery.count", strconv.Itoa(int(l.Count))}, {"__dlq.errors.message", message},
	}
	before := len(w.payload)
	w.payload = appendLetter(w.payload, int32(w.records), c, headers[:])
	switch full := batch.HeaderSize+len(w.payload) > w.limit; {
	case full && w.records > 0:
		w.payload = w.payload[:before]
		return false
	case full && c != nil:
		w.payload = appendLetter(w.payload[:before], 0, nil, headers[:])
	}
	w.records++
	return true
}

// addAll adds all of a letter; false: it does not go into the batch, and nothing of it is added.
func (w *letterWriter) addAll(l *sharepart.Letter, copies *letterCopies) bool {
	payload, records := len(w.payload), w.records
	for offset := l.First; offset <= l.Last; offset++ {
		if !w.add(offset, l, copies.of[offset]) {
			w.payload, w.records = w.payload[:payload], records
			return false
		}
	}
	return true
}

// appendLetter appends a record, all of whose batch have one time.
func appendLetter(dst []byte, offsetDelta int32, c *letterCopy, headers [][2]string) []byte {
	if c == nil {
		c = &letterCopy{}
	}
	body := []byte{0, 0} // attributes, the time's delta
	body = binary.AppendVarint(body, int64(offsetDelta))
	for _, field := range [][]byte{c.key, c.value} {
		if field == nil {
			body = binary.AppendVarint(body, -1)
			continue
		}
		body = append(binary.AppendVarint(body, int64(len(field))), field...)
	}
	body = binary.AppendVarint(body, int64(len(headers)))
	for _, h := range headers {
		for _, text := range h {
			body = append(binary.AppendVarint(body, int64(len(text))), text...)
		}
	}
	return append(binary.AppendVarint(dst, int64(len(body))), body...)
}

func (w *letterWriter) batch() []byte {
	h := batch.Header{LeaderEpoch: -1, LastOffsetDelta: int32(w.records - 1), BaseTimestamp: w.now, MaxTimestamp: w.now, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, NumRecords: int32(w.records)}
	return batch.AppendHeader(nil, &h, w.payload)
}
