package history

import (
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Reason says why direct reading of a partition ended.
type Reason string

const (
	// ReasonLocal: the rest is in the broker's local log, or the broker wants to serve it itself. No fall back: it may be read directly again at once.
	ReasonLocal Reason = "local"
	// ReasonBroker: the broker answered with an error (not leader, fenced epoch, out of range, ...), which the client gets to see. No fall back.
	ReasonBroker Reason = "broker"

	// The others leave the partition to the broker for a while.

	ReasonDenied      Reason = "denied"      // the store refused twice, a new location included
	ReasonNotFound    Reason = "not-found"   // the object is gone
	ReasonDamaged     Reason = "damaged"     // wrong bytes: checksum, order, length
	ReasonFormat      Reason = "format"      // records of an old format, or a segment format that was not asked for
	ReasonCrowded     Reason = "crowded"     // no memory came free to read with; or it made room for another partition of its connection, and waits for its next turn
	ReasonUnavailable Reason = "unavailable" // the store did not deliver within the deadline
	ReasonUntrusted   Reason = "untrusted"   // the location is not one that may be opened
	ReasonMalformed   Reason = "malformed"   // the location contradicts itself or the question
	ReasonUnanswered  Reason = "unanswered"  // the broker gave neither the location that it was asked for nor records
	ReasonRefresh     Reason = "refresh"     // the partition's offsets could not be learnt any more
	ReasonOther       Reason = "other"
)

// LocationCause says why upstream was asked for a location.
type LocationCause string

const (
	LocationFound   LocationCause = "found"   // came with an ordinary fetch
	LocationNext    LocationCause = "next"    // for the segment that follows
	LocationRenewed LocationCause = "renewed" // before the signature ends
	LocationRefused LocationCause = "refused" // the store refused the last one
)

// Bytes are those of the records in one answer, by where they came from.
type Bytes struct {
	Direct   int // read here, from the store or the cache of its chunks
	Cached   int // of these, what the cache had
	Upstream int // through the broker
}

// Located is a location that a client was given.
type Located struct {
	Partition                  remotestorage.TopicIDPartition
	FetchOffset                int64 // where the client begins
	LastOffset                 int64 // how far the location is good
	StartPosition, EndPosition int64 // of the object's bytes that it grants
	Signed                     bool
}

// Hooks hear of what happens on a connection. Methods are called from many goroutines and must not block. Embed NoHooks to be safe from new ones.
type Hooks interface {
	// Delivered: one answer left for the client.
	Delivered(b Bytes)
	// Located: an answer with this location left for the client.
	Located(l Located)
	// Asked: upstream was asked for a location and gave one.
	Asked(cause LocationCause)
	// Ended: direct reading of a partition ended. With fellBack the partition is left to the broker for a while.
	Ended(reason Reason, fellBack bool)
	// Begin is asked before a partition is read directly: false leaves it to the broker, and it is asked again a second later. done is called once, when the reading ends.
	Begin() (done func(), ok bool)
	// Grant tells how many of so many bytes of the store a location may grant, so that Throttle does not hold the principal back for long for it.
	Grant(bytes int64) int64
	// Throttle charges the connection's principal for bytes of the store, read here or granted with a location, and tells how long it is to be held back: that
	// becomes the answer's throttle time, and the next fetch waits as long.
	Throttle(bytes int64) time.Duration
}

// NoHooks hears nothing.
type NoHooks struct{}

func (NoHooks) Delivered(Bytes)              {}
func (NoHooks) Located(Located)              {}
func (NoHooks) Asked(LocationCause)          {}
func (NoHooks) Ended(Reason, bool)           {}
func (NoHooks) Begin() (func(), bool)        { return func() {}, true }
func (NoHooks) Grant(bytes int64) int64      { return bytes }
func (NoHooks) Throttle(int64) time.Duration { return 0 }
