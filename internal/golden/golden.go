// Package golden loads the golden data under testdata/golden: what a real Apache Kafka wrote to its disk and to an object store, and what it answered about
// it. Only tests import it. It finds the data by walking up from the test's directory to the repository's root, so that the data can stay a module of
// its own that users of the library never download.
package golden

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// Root is the repository's root directory.
func Root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "testdata", "golden")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			tb.Fatal("testdata/golden is in no directory above the test")
		}
		dir = parent
	}
}

// Set is one folder of golden data.
type Set struct {
	Name string // kafka/b-txn
	Dir  string
}

// KafkaSets are the sets that Apache Kafka wrote, each whole: a store, its metadata and answers.
func KafkaSets(tb testing.TB) []*Set { return sets(tb, "kafka", "batches.jsonl.gz") }

// AivenSets are the sets that Aiven's plug-in wrote.
func AivenSets(tb testing.TB) []*Set { return sets(tb, "aiven", "metadata.jsonl") }

func sets(tb testing.TB, family, mark string) []*Set {
	tb.Helper()
	found, err := filepath.Glob(filepath.Join(Root(tb), "testdata", "golden", family, "*", mark))
	if err != nil || len(found) == 0 {
		tb.Fatalf("no golden sets of %s: %v", family, err)
	}
	var out []*Set
	for _, f := range found {
		dir := filepath.Dir(f)
		out = append(out, &Set{Name: family + "/" + filepath.Base(dir), Dir: dir})
	}
	return out
}

// Load returns one set, named like kafka/b-txn.
func Load(tb testing.TB, name string) *Set {
	tb.Helper()
	s := &Set{Name: name, Dir: filepath.Join(Root(tb), "testdata", "golden", filepath.FromSlash(name))}
	if _, err := os.Stat(s.Dir); err != nil {
		tb.Fatal(err)
	}
	return s
}

// Open opens a file of the set, unpacked if only name.gz is there.
func (s *Set) Open(tb testing.TB, name string) io.Reader {
	tb.Helper()
	path := filepath.Join(s.Dir, filepath.FromSlash(name))
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && !strings.HasSuffix(path, ".gz") {
		b, err = os.ReadFile(path + ".gz")
		path += ".gz"
	}
	if err != nil {
		tb.Fatal(err)
	}
	if !strings.HasSuffix(path, ".gz") {
		return bytes.NewReader(b)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return z
}

// Has tells whether the set has a file or folder.
func (s *Set) Has(name string) bool {
	for _, n := range []string{name, name + ".gz"} {
		if _, err := os.Stat(filepath.Join(s.Dir, filepath.FromSlash(n))); err == nil {
			return true
		}
	}
	return false
}

// Lines decodes a file of JSON lines.
func Lines[T any](tb testing.TB, s *Set, name string) []T {
	tb.Helper()
	var out []T
	sc := bufio.NewScanner(s.Open(tb, name))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var v T
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			tb.Fatalf("%s: %s: line %d: %v", s.Name, name, len(out)+1, err)
		}
		out = append(out, v)
	}
	if err := sc.Err(); err != nil {
		tb.Fatalf("%s: %s: %v", s.Name, name, err)
	}
	return out
}

// Hex is a byte string in hexadecimal; null stays nil.
type Hex []byte

// UnmarshalJSON reads a JSON string or null.
func (h *Hex) UnmarshalJSON(b []byte) error {
	var s *string
	if err := json.Unmarshal(b, &s); err != nil || s == nil {
		return err
	}
	v, err := hex.DecodeString(*s)
	*h = append([]byte{}, v...)
	return err
}

// MetadataRecord is one record of `__remote_log_metadata`. Decoded is what Apache Kafka's serde made of it; in the sets of Aiven's plug-in it is only a text.
type MetadataRecord struct {
	Partition     int32           `json:"metadataPartition"`
	AivenPart     int32           `json:"partition"`
	Offset        int64           `json:"offset"`
	Timestamp     int64           `json:"timestamp"`
	Key           Hex             `json:"key"`
	Value         Hex             `json:"value"`
	AivenValueHex Hex             `json:"value_hex"`
	DecodedJSON   json.RawMessage `json:"decoded"`
}

// Decoded is a metadata record as Apache Kafka's serde sees it.
type Decoded struct {
	Type                string     `json:"type"`
	Topic               string     `json:"topic"`
	TopicID             string     `json:"topicId"`
	Partition           int32      `json:"partition"`
	SegmentID           string     `json:"segmentId"`
	StartOffset         int64      `json:"startOffset"`
	EndOffset           int64      `json:"endOffset"`
	BrokerID            int32      `json:"brokerId"`
	MaxTimestampMs      int64      `json:"maxTimestampMs"`
	EventTimestampMs    int64      `json:"eventTimestampMs"`
	SegmentLeaderEpochs [][2]int64 `json:"segmentLeaderEpochs"`
	SegmentSizeInBytes  int32      `json:"segmentSizeInBytes"`
	CustomMetadata      Hex        `json:"customMetadata"`
	State               string     `json:"state"`
	TxnIdxEmpty         bool       `json:"txnIdxEmpty"`
}

// Metadata returns the records of the metadata topic, in the order of the file, in which each metadata partition is in order.
func (s *Set) Metadata(tb testing.TB) []MetadataRecord { return s.MetadataFile(tb, "metadata.jsonl") }

// MetadataFile is Metadata for a file of another name: e-deleted has several, taken at different times.
func (s *Set) MetadataFile(tb testing.TB, name string) []MetadataRecord {
	tb.Helper()
	recs := Lines[MetadataRecord](tb, s, name)
	for i := range recs {
		if recs[i].AivenValueHex != nil {
			recs[i].Value, recs[i].Partition = recs[i].AivenValueHex, recs[i].AivenPart
		}
	}
	return recs
}

// Batch is a batch as a raw fetch returned it.
type Batch struct {
	Topic         string `json:"topic"`
	Partition     int32  `json:"partition"`
	BaseOffset    int64  `json:"baseOffset"`
	LastOffset    int64  `json:"lastOffset"`
	Size          int    `json:"size"`
	LeaderEpoch   int32  `json:"leaderEpoch"`
	Attributes    int16  `json:"attributes"`
	MaxTimestamp  int64  `json:"maxTimestamp"`
	ProducerID    int64  `json:"producerId"`
	ProducerEpoch int16  `json:"producerEpoch"`
	Count         int32  `json:"count"`
	SHA256        string `json:"sha256"`
}

// Batches returns every batch of the set, by partition and offset.
func (s *Set) Batches(tb testing.TB) []Batch { return Lines[Batch](tb, s, "batches.jsonl") }

// Aborted is an entry of a fetch's aborted list.
type Aborted struct {
	ProducerID  int64 `json:"producerId"`
	FirstOffset int64 `json:"firstOffset"`
}

// Fetch is a raw fetch of one partition and what was answered.
type Fetch struct {
	Topic             string    `json:"topic"`
	Partition         int32     `json:"partition"`
	FetchOffset       int64     `json:"fetchOffset"`
	Isolation         int8      `json:"isolation"` // 1: read_committed
	PartitionMaxBytes int32     `json:"partitionMaxBytes"`
	FetchMaxBytes     int32     `json:"fetchMaxBytes"`
	MinBytes          int32     `json:"minBytes"`
	MaxWaitMs         int32     `json:"maxWaitMs"`
	Error             int16     `json:"error"`
	PartitionError    int16     `json:"partitionError"`
	HighWatermark     int64     `json:"highWatermark"`
	LastStableOffset  int64     `json:"lastStableOffset"`
	LogStartOffset    int64     `json:"logStartOffset"`
	Aborted           []Aborted `json:"abortedTransactions"` // nil: null
	RecordsNull       bool      `json:"recordsNull"`
	RecordsBytes      int       `json:"recordsBytes"`
	WholeBatches      int       `json:"wholeBatches"`
	TrailingBytes     int       `json:"trailingBytes"`
	FirstBaseOffset   *int64    `json:"firstBaseOffset"`
	LastOffset        *int64    `json:"lastOffset"`
	RecordsSHA256     string    `json:"recordsSha256"`
}

// AbortedFetches returns the read_committed fetches of aborted.jsonl.gz.
func (s *Set) AbortedFetches(tb testing.TB) []Fetch { return Lines[Fetch](tb, s, "aborted.jsonl.gz") }

// Probes returns the fetches at edges of probes.jsonl.gz.
func (s *Set) Probes(tb testing.TB) []Fetch { return Lines[Fetch](tb, s, "probes.jsonl.gz") }

// ObjectsDir is the root of the set's object store.
func (s *Set) ObjectsDir() string { return filepath.Join(s.Dir, "objects") }

// TopicID parses an id of the golden data.
func TopicID(tb testing.TB, text string) remotestorage.UUID {
	tb.Helper()
	id, err := remotestorage.ParseUUID(text)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}
