package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// MinWalkedFetch and MaxWalkedFetch are the versions that a FetchWalker knows.
	MinWalkedFetch = 4
	MaxWalkedFetch = 18

	// neutralTag takes the place of a tag that a client must not see. Apache Kafka has not assigned it, readers skip what they do not know, and it is as
	// long as tag 0.
	neutralTag = 127

	maxTopicName = 1<<15 - 1 // what a string of the old encoding may hold
)

// WalkedPartition is what a FetchWalker tells of a partition before its records go by. Topic is set up to v12, TopicID from v13 on.
type WalkedPartition struct {
	Topic                                           string
	TopicID                                         remotestorage.UUID
	Partition                                       int32
	ErrorCode                                       int16
	HighWatermark, LastStableOffset, LogStartOffset int64 // LogStartOffset is -1 below v5
	PreferredReadReplica                            int32 // -1 below v11
	RecordBytes                                     int
}

// FetchWalker steps through a Fetch response while its bytes go by in chunks of any cut. It keeps none of them: memory is that of one topic name.
// Record bytes are stepped over and never looked at. Set the exported fields before the first chunk.
type FetchWalker struct {
	// Session is put in place of the response's session id if SetSession says so (from v7 on).
	Session    int32
	SetSession bool
	// HideNodes changes the number of the top-level NodeEndpoints tag into one that clients skip.
	HideNodes bool
	// OnPartition is called for each partition; nil: nobody wants to know. Its error is Walk's. The argument is the walker's, good until OnPartition returns.
	OnPartition func(*WalkedPartition) error

	version  int16
	flexible bool

	field    walkField
	kind     walkKind
	left     int // bytes of the field that are still to come
	frame    int // bytes of the frame that are still to come, once its size is known
	started  bool
	buf      [32]byte // a field of fixed size, as far as it has come
	got      int
	varint   uint64
	shift    uint
	name     []byte
	tags     int       // left in the section under way
	home     walkField // whose section it is
	topics   int
	parts    int
	aborted  int
	part     WalkedPartition
	throttle int32
	errCode  int16
	session  int32
}

// walkField is what is being read, walkKind how.
type walkField uint8

const (
	walkSize walkField = iota
	walkCorrelation
	walkHeaderTags
	walkThrottle
	walkError
	walkSession
	walkTopics
	walkTopicName
	walkTopicNameBytes
	walkTopicID
	walkPartitions
	walkPartitionHead
	walkAborted
	walkAbortedEntry
	walkAbortedTags
	walkReplica
	walkRecords
	walkRecordBytes
	walkPartitionTags
	walkTopicTags
	walkTopTags
	walkTagKey
	walkTagSize
	walkTagBytes
	walkEnd
)

type walkKind uint8

const (
	walkFixed walkKind = iota
	walkVarint
	walkSkip
	walkName
)

// NewFetchWalker makes a walker for one response of a version, MinWalkedFetch to MaxWalkedFetch.
func NewFetchWalker(version int16) (*FetchWalker, error) {
	if version < MinWalkedFetch || version > MaxWalkedFetch {
		return nil, fmt.Errorf("%w: a Fetch response of version %d cannot be walked", ErrMalformed, version)
	}
	w := &FetchWalker{version: version, flexible: version >= 12, part: WalkedPartition{LogStartOffset: -1, PreferredReadReplica: -1}}
	w.fixed(walkSize, 4)
	return w, nil
}

// ThrottleMillis, ErrorCode and UpstreamSession are the response's own, once their bytes have gone by.
func (w *FetchWalker) ThrottleMillis() int32  { return w.throttle }
func (w *FetchWalker) ErrorCode() int16       { return w.errCode }
func (w *FetchWalker) UpstreamSession() int32 { return w.session }

// Done tells whether the whole frame has gone by.
func (w *FetchWalker) Done() bool { return w.field == walkEnd && w.frame == 0 }

// Ahead is how many bytes from here on are record bytes, which Walk need not see.
func (w *FetchWalker) Ahead() int {
	if w.field != walkRecordBytes {
		return 0
	}
	return w.left
}

// Skip lets up to limit of the bytes that come next go by without Walk, as far as they are record bytes, and says how many. They count as walked.
func (w *FetchWalker) Skip(limit int) int {
	n := min(limit, w.Ahead())
	if n <= 0 {
		return 0
	}
	w.left -= n
	w.frame -= n
	if w.left == 0 {
		// A field of no bytes cannot fail here: what follows records is read byte by byte.
		_ = w.next()
	}
	return n
}

// Walk steps over the next bytes of the frame, from its size on, and changes in place what is to be changed. After an error the walker is of no use.
func (w *FetchWalker) Walk(chunk []byte) error {
	for len(chunk) > 0 {
		if w.field == walkEnd {
			return w.trailing(len(chunk))
		}
		n, done, err := w.take(chunk)
		if err != nil {
			return err
		}
		if w.started {
			if w.frame -= n; w.frame < 0 {
				return fmt.Errorf("%w: Fetch response runs beyond its frame", ErrMalformed)
			}
		}
		chunk = chunk[n:]
		if done {
			if err := w.next(); err != nil {
				return err
			}
		}
		if w.started && w.frame == 0 && w.field != walkEnd {
			return fmt.Errorf("%w: Fetch response is longer than its frame", ErrMalformed)
		}
	}
	return nil
}

// trailing bytes are let by as every decoder lets them by, within the frame.
func (w *FetchWalker) trailing(n int) error {
	if w.frame -= n; w.frame < 0 {
		return fmt.Errorf("%w: bytes behind a Fetch response's frame", ErrMalformed)
	}
	return nil
}

// take gives the field under way what it needs of the chunk.
func (w *FetchWalker) take(chunk []byte) (n int, done bool, err error) {
	switch w.kind {
	case walkSkip:
		n = min(w.left, len(chunk))
		w.left -= n
		return n, w.left == 0, nil
	case walkName:
		n = min(w.left, len(chunk))
		w.name = append(w.name, chunk[:n]...)
		w.left -= n
		return n, w.left == 0, nil
	case walkFixed:
		n = min(w.left, len(chunk))
		copy(w.buf[w.got:], chunk[:n])
		if w.field == walkSession && w.SetSession {
			var id [4]byte
			binary.BigEndian.PutUint32(id[:], uint32(w.Session))
			copy(chunk[:n], id[w.got:])
		}
		w.got += n
		w.left -= n
		return n, w.left == 0, nil
	}
	return w.takeVarint(chunk)
}

func (w *FetchWalker) takeVarint(chunk []byte) (int, bool, error) {
	for i, b := range chunk {
		if w.field == walkTagKey && w.home == walkTopTags && w.HideNodes && w.shift == 0 && b&0x7f == 0 {
			if b != 0 {
				// Might be a 0 spelt long, which no encoder writes; its end may not be in this chunk.
				return 0, false, fmt.Errorf("%w: a tag number of unusual length", ErrMalformed)
			}
			chunk[i] = neutralTag
		}
		w.varint |= uint64(b&0x7f) << w.shift
		w.shift += 7
		if b < 0x80 {
			if w.varint > 1<<32-1 {
				return 0, false, fmt.Errorf("%w: a number of more than 32 bits", ErrMalformed)
			}
			return i + 1, true, nil
		}
		if w.shift >= 35 {
			return 0, false, fmt.Errorf("%w: a number of more than 32 bits", ErrMalformed)
		}
	}
	return len(chunk), false, nil
}

func (w *FetchWalker) fixed(f walkField, n int) {
	w.field, w.kind, w.left, w.got = f, walkFixed, n, 0
}

func (w *FetchWalker) uvarint(f walkField) {
	w.field, w.kind, w.varint, w.shift = f, walkVarint, 0, 0
}

// bytes starts a field of n bytes that is not kept, or is a name. The frame bounds it.
func (w *FetchWalker) bytes(f walkField, kind walkKind, n int) error {
	if n < 0 || n > w.frame {
		return fmt.Errorf("%w: %d bytes announced, %d left in the Fetch response", ErrMalformed, n, w.frame)
	}
	w.field, w.kind, w.left = f, kind, n
	if n == 0 {
		return w.next()
	}
	return nil
}

// count starts reading the length of an array, string or bytes in the version's encoding: compact, or so many bytes.
func (w *FetchWalker) count(f walkField, bytes int) {
	if w.flexible {
		w.uvarint(f)
		return
	}
	w.fixed(f, bytes)
}

// counted is the length read; -1 for null.
func (w *FetchWalker) counted() int {
	switch {
	case w.kind == walkVarint:
		return int(w.varint) - 1
	case w.got == 2:
		return int(int16(binary.BigEndian.Uint16(w.buf[:])))
	}
	return int(w.int32(0))
}

// elements is the length of an array: one that is no positive int32 has none, as kmsg has it.
func (w *FetchWalker) elements() int { return max(0, int(int32(w.counted()))) }

func (w *FetchWalker) int32(at int) int32 { return int32(binary.BigEndian.Uint32(w.buf[at:])) }
func (w *FetchWalker) int64(at int) int64 { return int64(binary.BigEndian.Uint64(w.buf[at:])) }

// FetchHead is what a Fetch response begins with.
type FetchHead struct {
	ThrottleMillis int32
	ErrorCode      int16
	SessionID      int32
}

// FetchHeadBytes is enough of a frame for ParseFetchHead, unless the header carries tags, which no broker sends.
const FetchHeadBytes = 4 + 4 + 1 + 4 + 2 + 4

// ParseFetchHead reads the beginning of a frame, size and header included. ErrorCode and SessionID are 0 below v7.
func ParseFetchHead(frame []byte, version int16) (FetchHead, error) {
	w, err := NewFetchWalker(version)
	if err != nil {
		return FetchHead{}, err
	}
	for i := range frame {
		if w.field == walkTopics {
			break
		}
		// Byte by byte, so that it ends where the head does. Nothing is to be changed, so the frame stays as it is.
		if err := w.Walk(frame[i : i+1]); err != nil {
			return FetchHead{}, err
		}
	}
	if w.field != walkTopics {
		return FetchHead{}, fmt.Errorf("%w: the first %d bytes of a Fetch response do not hold its head", ErrMalformed, len(frame))
	}
	return FetchHead{w.throttle, w.errCode, w.session}, nil
}
