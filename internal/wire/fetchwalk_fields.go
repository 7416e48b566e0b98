package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// next is called when a field is complete, and starts the one that follows it.
func (w *FetchWalker) next() error {
	switch w.field {
	case walkSize:
		size := w.int32(0)
		if size < 4 {
			return fmt.Errorf("%w: Fetch response of %d bytes", ErrMalformed, size)
		}
		w.frame, w.started = int(size), true
		w.fixed(walkCorrelation, 4)
	case walkCorrelation:
		if w.flexible {
			w.uvarint(walkHeaderTags)
			return nil
		}
		w.fixed(walkThrottle, 4)
	case walkThrottle:
		w.throttle = w.int32(0)
		if w.version < 7 {
			w.count(walkTopics, 4)
			return nil
		}
		w.fixed(walkError, 2)
	case walkError:
		w.errCode = int16(binary.BigEndian.Uint16(w.buf[:]))
		w.fixed(walkSession, 4)
	case walkSession:
		w.session = w.int32(0)
		w.count(walkTopics, 4)
	case walkTopics, walkTopicName, walkTopicNameBytes, walkTopicID, walkPartitions:
		return w.nextInTopic()
	case walkHeaderTags, walkAbortedTags, walkPartitionTags, walkTopicTags, walkTopTags, walkTagKey, walkTagSize, walkTagBytes:
		return w.nextInTags()
	default:
		return w.nextInPartition()
	}
	return nil
}

func (w *FetchWalker) nextInTopic() error {
	switch w.field {
	case walkTopics:
		w.topics = w.elements()
		w.topic()
	case walkTopicName:
		n := w.counted()
		if n > maxTopicName {
			return fmt.Errorf("%w: a topic name of %d bytes", ErrMalformed, n)
		}
		w.name = w.name[:0]
		return w.bytes(walkTopicNameBytes, walkName, n)
	case walkTopicNameBytes:
		if w.part.Topic != string(w.name) {
			w.part.Topic = string(w.name)
		}
		w.count(walkPartitions, 4)
	case walkTopicID:
		w.part.TopicID = remotestorage.UUID(w.buf[:16])
		w.uvarint(walkPartitions)
	case walkPartitions:
		w.parts = w.elements()
		w.partition()
	}
	return nil
}

// topic starts the next topic, or what follows the last.
func (w *FetchWalker) topic() {
	switch {
	case w.topics == 0 && w.flexible:
		w.uvarint(walkTopTags)
	case w.topics == 0:
		w.field = walkEnd
	case w.version >= 13:
		w.topics--
		w.fixed(walkTopicID, 16)
	default:
		w.topics--
		w.count(walkTopicName, 2)
	}
}

// partition starts the next partition, or what follows the topic's last.
func (w *FetchWalker) partition() {
	switch {
	case w.parts > 0:
		w.parts--
		n := 22 // partition, error, high watermark, last stable offset
		if w.version >= 5 {
			n += 8 // log start offset
		}
		w.fixed(walkPartitionHead, n)
	case w.flexible:
		w.uvarint(walkTopicTags)
	default:
		w.topic()
	}
}

func (w *FetchWalker) nextInPartition() error {
	switch w.field {
	case walkPartitionHead:
		p := &w.part
		p.Partition = w.int32(0)
		p.ErrorCode = int16(binary.BigEndian.Uint16(w.buf[4:]))
		p.HighWatermark, p.LastStableOffset = w.int64(6), w.int64(14)
		if w.version >= 5 {
			p.LogStartOffset = w.int64(22)
		}
		w.count(walkAborted, 4)
	case walkAborted:
		w.aborted = w.elements()
		return w.abortedEntries()
	case walkAbortedEntry:
		if !w.flexible {
			w.aborted = 0
			return w.abortedEntries()
		}
		w.uvarint(walkAbortedTags)
	case walkReplica:
		w.part.PreferredReadReplica = w.int32(0)
		w.count(walkRecords, 4)
	case walkRecords:
		w.part.RecordBytes = max(0, w.counted())
		// Told only of what can be true: the length is checked first.
		if w.part.RecordBytes > w.frame {
			return fmt.Errorf("%w: %d record bytes announced, %d left in the Fetch response", ErrMalformed, w.part.RecordBytes, w.frame)
		}
		if w.OnPartition != nil {
			if err := w.OnPartition(&w.part); err != nil {
				return err
			}
		}
		return w.bytes(walkRecordBytes, walkSkip, w.part.RecordBytes)
	case walkRecordBytes:
		if !w.flexible {
			w.partition()
			return nil
		}
		w.uvarint(walkPartitionTags)
	}
	return nil
}

// abortedEntries steps over the list of aborted transactions: at once, or entry by entry where each has tags.
func (w *FetchWalker) abortedEntries() error {
	switch {
	case w.aborted > 0 && w.flexible:
		w.aborted--
		return w.bytes(walkAbortedEntry, walkSkip, 16)
	case w.aborted > 0:
		return w.bytes(walkAbortedEntry, walkSkip, 16*w.aborted)
	case w.version >= 11:
		w.fixed(walkReplica, 4)
	default:
		w.count(walkRecords, 4)
	}
	return nil
}

// nextInTags: a section is the number of tags, then number, size and bytes of each.
func (w *FetchWalker) nextInTags() error {
	switch w.field {
	case walkHeaderTags, walkAbortedTags, walkPartitionTags, walkTopicTags, walkTopTags:
		w.home, w.tags = w.field, int(w.varint)
		return w.tag()
	case walkTagKey:
		w.uvarint(walkTagSize)
	case walkTagSize:
		return w.bytes(walkTagBytes, walkSkip, int(w.varint))
	case walkTagBytes:
		return w.tag()
	}
	return nil
}

// tag starts the next tag of a section, or what follows the section.
func (w *FetchWalker) tag() error {
	if w.tags > 0 {
		w.tags--
		w.uvarint(walkTagKey)
		return nil
	}
	switch w.home {
	case walkHeaderTags:
		w.fixed(walkThrottle, 4)
	case walkAbortedTags:
		return w.abortedEntries()
	case walkPartitionTags:
		w.partition()
	case walkTopicTags:
		w.topic()
	case walkTopTags:
		w.field = walkEnd
	}
	return nil
}
