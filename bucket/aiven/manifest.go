package aiven

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/rewind-kafka/rewind/remotestorage"
)

const (
	// maxManifest bounds what is read of a manifest: a few KiB as a rule, and the list of maxChunks sizes at most.
	maxManifest = 16 << 20
	// maxIndex is the largest index that is read. Kafka's segment.index.bytes is 10 MiB unless somebody raised it.
	maxIndex = 64 << 20

	knownVersion = "1"
	indexTypes   = 5
)

var (
	// errUnknown and errTooLarge: nothing is wrong with the object, but it is not read here.
	errUnknown  = remotestorage.ErrUnsupported
	errTooLarge = fmt.Errorf("%w: too large", remotestorage.ErrUnsupported)
	// puffinMagic begins the files that the plug-in keeps with an Iceberg table.
	puffinMagic = []byte("PFA1")
)

// manifest describes the objects of one segment. The plug-in uploads it last.
type manifest struct {
	chunks     chunkIndex
	indexes    [indexTypes]indexRange // by remotestorage.IndexType
	compressed bool
	encrypted  bool
	key        wrappedKey
	aad        []byte
}

// indexRange is where an index lies in the object .indexes. Size 0: it is empty, or, for transactions, there is none.
type indexRange struct{ position, size int64 }

type manifestJSON struct {
	Version         any             `json:"version"`
	ChunkIndex      *chunkIndexJSON `json:"chunkIndex"`
	SegmentIndexes  *indexesJSON    `json:"segmentIndexes"`
	Compression     *bool           `json:"compression"`
	Encryption      *encryptionJSON `json:"encryption"`
	SegmentMetadata struct {
		ID struct {
			ID string `json:"id"`
		} `json:"remoteLogSegmentId"`
	} `json:"remoteLogSegmentMetadata"`
}

type indexesJSON struct {
	Offset           *indexJSON      `json:"offset"`
	Timestamp        *indexJSON      `json:"timestamp"`
	ProducerSnapshot *indexJSON      `json:"producerSnapshot"`
	LeaderEpoch      *indexJSON      `json:"leaderEpoch"`
	Transaction      json.RawMessage `json:"transaction"` // null says that there is none; it must be said
}

type indexJSON struct {
	Position *int64 `json:"position"`
	Size     *int64 `json:"size"`
}

type encryptionJSON struct {
	DataKey string `json:"dataKey"`
	AAD     string `json:"aad"`
}

// parseManifest reads the manifest of the segment id.
func parseManifest(b []byte, id remotestorage.UUID) (*manifest, error) {
	if bytes.HasPrefix(b, puffinMagic) {
		return nil, fmt.Errorf("%w: an Iceberg segment (the plug-in's segment.format=iceberg); only segment.format=kafka is read", errUnknown)
	}
	var j manifestJSON
	var typeError *json.UnmarshalTypeError
	if err := json.Unmarshal(b, &j); errors.As(err, &typeError) && j.Version != any(knownVersion) && j.Version != nil {
		return nil, unknownVersion(j.Version) // its fields may well be others
	} else if err != nil {
		return nil, err
	}
	if j.Version == nil {
		return nil, errors.New("version is missing")
	}
	if j.Version != any(knownVersion) {
		return nil, unknownVersion(j.Version)
	}
	if got := j.SegmentMetadata.ID.ID; got != "" && got != id.String() {
		return nil, fmt.Errorf("it describes segment %q", got)
	}
	return j.manifest()
}

func unknownVersion(v any) error {
	return fmt.Errorf("%w: manifest version %v; this program reads version %s: look for a newer one", errUnknown, v, knownVersion)
}

func (j *manifestJSON) manifest() (*manifest, error) {
	switch {
	case j.ChunkIndex == nil:
		return nil, errors.New("chunkIndex is missing")
	case j.SegmentIndexes == nil:
		return nil, errors.New("segmentIndexes is missing")
	case j.Compression == nil:
		return nil, errors.New("compression is missing")
	}
	m := &manifest{compressed: *j.Compression, encrypted: j.Encryption != nil}
	var err error
	if m.chunks, err = parseChunkIndex(j.ChunkIndex); err != nil {
		return nil, fmt.Errorf("chunkIndex: %w", err)
	}
	if err := m.chunks.check(m.compressed, m.encrypted); err != nil {
		return nil, fmt.Errorf("chunkIndex: %w", err)
	}
	if m.encrypted {
		if m.key, err = parseWrappedKey(j.Encryption.DataKey); err != nil {
			return nil, fmt.Errorf("encryption: %w", err)
		}
		if m.aad, err = base64.StdEncoding.DecodeString(j.Encryption.AAD); err != nil {
			return nil, fmt.Errorf("encryption: aad: %w", err)
		}
	}
	return m, m.takeIndexes(j.SegmentIndexes)
}

func (m *manifest) takeIndexes(j *indexesJSON) error {
	var transaction *indexJSON
	if len(j.Transaction) == 0 {
		return errors.New("segmentIndexes: transaction is missing, where null would say that there is none")
	}
	if err := json.Unmarshal(j.Transaction, &transaction); err != nil {
		return fmt.Errorf("segmentIndexes: transaction: %w", err)
	}
	byType := [indexTypes]*indexJSON{
		remotestorage.IndexOffset: j.Offset, remotestorage.IndexTimestamp: j.Timestamp, remotestorage.IndexProducerSnapshot: j.ProducerSnapshot,
		remotestorage.IndexLeaderEpoch: j.LeaderEpoch, remotestorage.IndexTransaction: transaction,
	}
	for t, x := range byType {
		if x == nil && remotestorage.IndexType(t) == remotestorage.IndexTransaction {
			continue
		}
		if err := m.indexes[t].take(x, m.encrypted); err != nil {
			return fmt.Errorf("segmentIndexes: %s index: %w", remotestorage.IndexType(t), err)
		}
	}
	return nil
}

func (r *indexRange) take(j *indexJSON, encrypted bool) error {
	if j == nil {
		return errors.New("it is missing")
	}
	if err := takeSize("position", j.Position, &r.position, 0); err != nil {
		return err
	}
	if err := takeSize("size", j.Size, &r.size, 0); err != nil {
		return err
	}
	switch {
	case r.position+r.size > math.MaxInt32:
		return fmt.Errorf("%d bytes at %d", r.size, r.position)
	case r.size > maxIndex+sealSize:
		return fmt.Errorf("%w: %d bytes", errTooLarge, r.size)
	case encrypted && r.size > 0 && r.size < sealSize:
		return fmt.Errorf("%d bytes, of which encryption alone takes %d", r.size, sealSize)
	}
	return nil
}

// transformed tells whether the log object is something else than the log.
func (m *manifest) transformed() bool { return m.compressed || m.encrypted }

// weight is about what the manifest takes in memory.
func (m *manifest) weight() int64 {
	return 2048 + 4*int64(cap(m.chunks.ends)) + int64(len(m.aad)+len(m.key.ciphertext))
}
