package metadatatopic_test

import (
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rewind-kafka/rewind/bucket/aiven"
	"github.com/rewind-kafka/rewind/bucket/file"
	"github.com/rewind-kafka/rewind/internal/golden"
	"github.com/rewind-kafka/rewind/internal/locate"
	"github.com/rewind-kafka/rewind/internal/remote"
	"github.com/rewind-kafka/rewind/metadatatopic"
)

// aivenStore opens the objects of a set with the keys that belong to it.
func aivenStore(t *testing.T, s *golden.Set) *aiven.Manager {
	t.Helper()
	store, err := file.Open(s.ObjectsDir(), file.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if s.Name == "aiven/zstd" {
		store.Prefix = "tiered/golden-1/"
	}
	keys := make(map[string]*rsa.PrivateKey)
	files, err := filepath.Glob(filepath.Join(s.Dir, "keys", "*.private.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if keys[strings.TrimSuffix(filepath.Base(f), ".private.pem")], err = aiven.LoadKey(f); err != nil {
			t.Fatal(err)
		}
	}
	m, err := aiven.NewManager(aiven.Options{Store: store, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// consumed is a record as the Java consumer got it.
type consumed struct {
	Isolation string  `json:"isolation"`
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	Timestamp int64   `json:"timestamp"`
	Key       *string `json:"key_sha256"`
	Value     *string `json:"value_sha256"`
}

func (c consumed) String() string {
	text := func(s *string) string {
		if s == nil {
			return "null"
		}
		return *s
	}
	return fmt.Sprintf("%d-%d at %d: %s %s", c.Partition, c.Offset, c.Timestamp, text(c.Key), text(c.Value))
}

func consumedOf(r *kgo.Record) consumed {
	sum := func(b []byte) *string {
		if b == nil {
			return nil
		}
		h := sha256.Sum256(b)
		s := hex.EncodeToString(h[:])
		return &s
	}
	return consumed{Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: sum(r.Key), Value: sum(r.Value)}
}

// TestGoldenAivenRead is the whole way on a cluster with Aiven's plug-in: from the metadata topic over manifests and chunks to the records that the Java consumer got,
// at both isolation levels.
func TestGoldenAivenRead(t *testing.T) {
	for _, s := range golden.AivenSets(t) {
		t.Run(strings.TrimPrefix(s.Name, "aiven/"), func(t *testing.T) {
			var said aivenOffsets
			if err := json.NewDecoder(s.Open(t, "offsets.json")).Decode(&said); err != nil {
				t.Fatal(err)
			}
			c, tps := recordedAiven(t, s, &said)
			r := open(t, c, metadatatopic.Options{Storage: aivenStore(t, s)})
			ready(t, r)
			reader := remote.NewReader(remote.Options{ReadAhead: true})
			defer reader.Close()
			all := golden.Lines[consumed](t, s, "records.jsonl")
			for _, committed := range []bool{false, true} {
				isolation := "read_uncommitted"
				if committed {
					isolation = "read_committed"
				}
				for i, p := range said.Partitions {
					var want []string
					for _, w := range all {
						if w.Partition == p.Partition && w.Isolation == isolation && w.Offset < p.Local.Offset {
							want = append(want, w.String())
						}
					}
					var got []string
					undecided := false
					for offset := p.Start.Offset; offset < p.Local.Offset; {
						data, records, err := readOnce(t, r, reader, tps[i], offset, committed)
						if errors.Is(err, locate.ErrUndecided) && committed {
							undecided = true // the broker's, up to the edge
							break
						}
						if err != nil {
							t.Fatalf("%s offset %d, committed %v: %v", tps[i], offset, committed, err)
						}
						for _, rec := range records {
							if !rec.Attrs.IsControl() {
								got = append(got, consumedOf(rec).String())
							}
						}
						offset = data.NextOffset
					}
					if len(got) < 50 || !undecided && len(got) != len(want) || len(got) > len(want) {
						t.Fatalf("%s, committed %v: %d records, want %d; undecided %v", tps[i], committed, len(got), len(want), undecided)
					}
					for n := range got {
						if got[n] != want[n] {
							t.Fatalf("%s, committed %v: record %s, want %s", tps[i], committed, got[n], want[n])
						}
					}
					t.Logf("%s, committed %v: %d of %d records, undecided %v", tps[i], committed, len(got), len(want), undecided)
				}
			}
		})
	}
}
