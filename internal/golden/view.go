package golden

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/internal/epoch"
	"github.com/rewind-kafka/rewind/internal/remotelog"
	"github.com/rewind-kafka/rewind/internal/segment"
)

// Index applies every metadata record of the set to a new index.
func (s *Set) Index(tb testing.TB) *remotelog.Index { return s.IndexFile(tb, "metadata.jsonl") }

// IndexFile is Index for a metadata file of another name.
func (s *Set) IndexFile(tb testing.TB, name string) *remotelog.Index {
	tb.Helper()
	x := remotelog.NewIndex()
	for _, rec := range s.MetadataFile(tb, name) {
		r, err := remotelog.Parse(rec.Value)
		if err != nil {
			tb.Fatalf("%s: record %d of metadata partition %d: %v", s.Name, rec.Offset, rec.Partition, err)
		}
		if err := x.Apply(r); err != nil {
			tb.Fatalf("%s: record %d of metadata partition %d: %v", s.Name, rec.Offset, rec.Partition, err)
		}
	}
	return x
}

// View is what the leader of a golden partition knew: internal/locate's View without a broker.
type View struct {
	Epochs  *epoch.Cache
	Start   int64
	Entries []segment.AbortedTxn // of the local log
}

// Lineage is the partition's leader epoch history.
func (v *View) Lineage() *epoch.Cache { return v.Epochs }

// LogStart is the log start offset.
func (v *View) LogStart() int64 { return v.Start }

// LocalAborted looks through the local transaction indexes. All that lies in the remote tier was decided when the set was made.
func (v *View) LocalAborted(from, upTo int64) ([]segment.AbortedTxn, bool) {
	var out []segment.AbortedTxn
	for _, e := range v.Entries {
		if e.Overlaps(from, upTo) {
			out = append(out, e)
		}
	}
	return out, true
}

// LocalPartition is the folder of a partition's local log; "" if the set has none.
func (s *Set) LocalPartition(tb testing.TB, p *Partition) string {
	tb.Helper()
	dir := s.LocalDir(tb)
	if dir == "" {
		return ""
	}
	dir = filepath.Join(dir, p.Topic+"-"+strconv.Itoa(int(p.TopicIDPartition.Partition)))
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// View builds the view of a partition: from its local folder, and without one from what the broker answered.
func (s *Set) View(tb testing.TB, p *Partition) *View {
	tb.Helper()
	v := &View{Start: p.LogStartOffset, Epochs: epoch.New(p.Epochs())}
	dir := s.LocalPartition(tb, p)
	if dir == "" {
		return v
	}
	b, err := os.ReadFile(filepath.Join(dir, "leader-epoch-checkpoint"))
	if err != nil {
		tb.Fatal(err)
	}
	entries, err := epoch.ParseCheckpoint(b)
	if err != nil {
		tb.Fatal(err)
	}
	v.Epochs = epoch.New(entries)
	for _, f := range LocalFiles(tb, dir, segment.TxnIndexSuffix) {
		b, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		aborted, err := segment.ParseTxnIndex(b)
		if err != nil {
			tb.Fatalf("%s: %v", f, err)
		}
		v.Entries = append(v.Entries, aborted...)
	}
	return v
}

// LocalFiles lists a partition folder's files with a suffix, by base offset.
func LocalFiles(tb testing.TB, dir, suffix string) []string {
	tb.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	var out []string
	for _, f := range all {
		if strings.HasSuffix(f.Name(), suffix) {
			out = append(out, filepath.Join(dir, f.Name()))
		}
	}
	return out
}
