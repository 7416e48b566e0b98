// Package remotestorage holds the nouns of Kafka's tiered storage (KIP-405) and of direct reads (KIP-1248), and the two
// interfaces that a store is reached through: RemoteStorageManager on the server's side, RemoteStorageFetcher on the client's.
//
// It is a leaf: it imports only the standard library, so that a program that brings its own store takes nothing else with it.
package remotestorage

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
)

// Errors that callers branch on. An implementation wraps them with what it knows of the place; it never puts a signed URL into the text.
var (
	// ErrNotFound: the object is not in the store (any more). Retention may have taken it; ask the broker.
	ErrNotFound = errors.New("object not found")
	// ErrNoBucket: not even the bucket, or what the store calls it, is there, or it is another one. It is not an ErrNotFound: nothing is said of the object.
	ErrNoBucket = errors.New("bucket does not exist")
	// ErrDenied: the store refused: a signature has expired or is wrong, or the credentials do not reach. Ask for a new location once.
	ErrDenied = errors.New("access denied by the store")
	// ErrNotSigned: the store or its configuration cannot sign a URL.
	ErrNotSigned = errors.New("store does not sign locations")
	// ErrRange: the range asked for starts at or past the object's end.
	ErrRange = errors.New("range outside the object")
	// ErrUntrusted: the location names an address that the client was not allowed to open.
	ErrUntrusted = errors.New("location is not allowed by the configuration")
	// ErrDamaged: what the store has is not what was put there: its own checksums, or the metadata, say so, more than once. Ask the broker.
	ErrDamaged = errors.New("remote segment is damaged")
	// ErrUnsupported: the segment is in a format that this program does not read. Ask the broker.
	ErrUnsupported = errors.New("format of the remote segment is not supported")
)

// UUID is Kafka's Uuid: 16 bytes, written as URL-safe base64 without padding (22 characters).
type UUID [16]byte

// String is Kafka's text form.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// IsZero tells whether the id is Kafka's ZERO_UUID, which stands for "none".
func (u UUID) IsZero() bool { return u == UUID{} }

// RandomUUID makes an id as Kafka's Uuid.randomUuid does: random (version 4), and never one whose text begins with a dash, which commands take for an option.
func RandomUUID() UUID {
	var u UUID
	for {
		rand.Read(u[:]) // never fails
		u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
		if u.String()[0] != '-' {
			return u
		}
	}
}

// ParseUUID reads Kafka's text form.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return u, fmt.Errorf("parsing id %q: %w", s, err)
	}
	if len(b) != len(u) {
		return u, fmt.Errorf("parsing id %q: %d bytes, want %d", s, len(b), len(u))
	}
	copy(u[:], b)
	return u, nil
}

// TopicIDPartition names a partition of one incarnation of a topic: a topic deleted and created again has another id.
type TopicIDPartition struct {
	TopicID   UUID
	Topic     string
	Partition int32
}

func (t TopicIDPartition) String() string { return fmt.Sprintf("%s-%d", t.Topic, t.Partition) }

// RemoteLogSegmentID names one copy of a segment in the store; a retried copy has another id.
type RemoteLogSegmentID struct {
	TopicIDPartition
	ID UUID
}

func (r RemoteLogSegmentID) String() string { return r.TopicIDPartition.String() + "/" + r.ID.String() }

// SegmentState is KIP-405's RemoteLogSegmentState.
type SegmentState int8

const (
	CopySegmentStarted    SegmentState = 0
	CopySegmentFinished   SegmentState = 1
	DeleteSegmentStarted  SegmentState = 2
	DeleteSegmentFinished SegmentState = 3
)

func (s SegmentState) String() string {
	switch s {
	case CopySegmentStarted:
		return "COPY_SEGMENT_STARTED"
	case CopySegmentFinished:
		return "COPY_SEGMENT_FINISHED"
	case DeleteSegmentStarted:
		return "DELETE_SEGMENT_STARTED"
	case DeleteSegmentFinished:
		return "DELETE_SEGMENT_FINISHED"
	}
	return fmt.Sprintf("SegmentState(%d)", int8(s))
}

// EpochStart is the first offset that a leader epoch has in a segment or a log.
type EpochStart struct {
	LeaderEpoch int32
	StartOffset int64
}

// RemoteLogSegmentMetadata is KIP-405's record of one copied segment.
type RemoteLogSegmentMetadata struct {
	RemoteLogSegmentID
	StartOffset      int64 // first offset of the segment
	EndOffset        int64 // last offset of the segment, inclusive
	BrokerID         int32
	MaxTimestampMs   int64
	EventTimestampMs int64
	// SegmentLeaderEpochs is ascending; the first entry may start before StartOffset.
	SegmentLeaderEpochs []EpochStart
	SegmentSizeInBytes  int32
	// CustomMetadata is what CopyLogSegmentData returned; nil if nothing.
	CustomMetadata []byte
	State          SegmentState
	// TxnIndexEmpty true says that the segment has no transaction index. False says nothing: older writers never set it.
	TxnIndexEmpty bool
}

// IndexType is KIP-405's RemoteStorageManager.IndexType: the files that are kept beside a segment's log.
type IndexType int8

const (
	IndexOffset IndexType = iota
	IndexTimestamp
	IndexProducerSnapshot
	IndexTransaction
	IndexLeaderEpoch
)

func (t IndexType) String() string {
	switch t {
	case IndexOffset:
		return "offset"
	case IndexTimestamp:
		return "timestamp"
	case IndexProducerSnapshot:
		return "producer snapshot"
	case IndexTransaction:
		return "transaction"
	case IndexLeaderEpoch:
		return "leader epoch"
	}
	return fmt.Sprintf("IndexType(%d)", int8(t))
}

// SegmentFile is one file to be copied: size known before, opened as often as a retry needs.
type SegmentFile struct {
	Size int64
	Open func() (io.ReadCloser, error)
}

// LogSegmentData is what CopyLogSegmentData copies. Transaction is nil where the segment has no transaction index.
type LogSegmentData struct {
	Log, OffsetIndex, TimeIndex, ProducerSnapshot SegmentFile
	Transaction                                   *SegmentFile
	LeaderEpochIndex                              []byte
}

// RemoteStorageManager is KIP-405's plug-in as a Go interface, with KIP-1248's signing method. Implementations are safe for concurrent use.
type RemoteStorageManager interface {
	// CopyLogSegmentData stores a segment under the id in metadata and returns custom metadata to be recorded with it (nil: none).
	// It returns nil only when every object is whole in the store, checked by size and, where the store gives one, checksum.
	CopyLogSegmentData(ctx context.Context, metadata RemoteLogSegmentMetadata, data LogSegmentData) (customMetadata []byte, err error)
	// FetchLogSegment opens the log's bytes [start, end). A shorter object gives what is there. ErrNotFound if there is no object.
	FetchLogSegment(ctx context.Context, metadata RemoteLogSegmentMetadata, start, end int64) (io.ReadCloser, error)
	// FetchIndex opens one index, whole. ErrNotFound if there is none.
	FetchIndex(ctx context.Context, metadata RemoteLogSegmentMetadata, t IndexType) (io.ReadCloser, error)
	// DeleteLogSegmentData removes every object of the segment. Objects already gone are no error.
	DeleteLogSegmentData(ctx context.Context, metadata RemoteLogSegmentMetadata) error
	// GetSignedRemoteLogSegmentLocation is KIP-1248's: a URL that opens the log object without credentials until it expires.
	// ErrNotSigned where the store cannot sign.
	GetSignedRemoteLogSegmentLocation(ctx context.Context, id RemoteLogSegmentID, customMetadata []byte) (SignedLocation, error)
	// RemoteLogSegmentLocation is the URI that a client opens with its own credentials (s3://bucket/key, gs://, azblob://, file://); "" if the
	// store has none.
	RemoteLogSegmentLocation(ctx context.Context, id RemoteLogSegmentID, customMetadata []byte) (string, error)
}

// SignedLocation is a presigned URL and its end. It must not be logged.
type SignedLocation struct {
	URL      string
	ExpiryMs int64 // epoch milliseconds
}

// StorageFormatApacheKafkaV1 is a plain Kafka segment file, bytes as on a broker's disk (KIP-1248's SupportedStorageFormatVersions).
const StorageFormatApacheKafkaV1 = "ApacheKafkaV1"

// Location is KIP-1248's answer to a Fetch: where a remote log segment is, and what of it may be read. docs/format/wire.md has its encoding.
type Location struct {
	RemoteLogSegmentID   UUID
	StorageFormatVersion string
	BaseOffset           int64 // first offset of the segment
	EndOffset            int64 // last offset of the segment, inclusive
	LastOffset           int64 // last offset that this location is good for, <= EndOffset
	SegmentSizeInBytes   int64 // of the log file
	StartPosition        int64 // byte position of a batch at or before the fetch offset
	EndPosition          int64 // exclusive end of what may be read
	// RemoteLogSegmentLocation is a URI for the client's own credentials; "" if none.
	RemoteLogSegmentLocation string
	// SignedRemoteLogSegmentLocation is a presigned URL; "" if none. It must not be logged.
	SignedRemoteLogSegmentLocation string
	SignedLocationExpiryMs         int64 // epoch milliseconds, -1 if not signed
	CustomMetadata                 []byte
}

// RemoteStorageFetcher is KIP-1254's client-side reader: it opens a byte range of a segment that a Location names.
// Implementations are safe for concurrent use, refuse what they were not allowed to open with ErrUntrusted, and never follow a redirect to another host.
type RemoteStorageFetcher interface {
	// FetchLogSegment opens the bytes [start, end) of the log object. ErrDenied, ErrNotFound and ErrRange as described there; anything else
	// is worth a retry.
	FetchLogSegment(ctx context.Context, location *Location, start, end int64) (io.ReadCloser, error)
}
