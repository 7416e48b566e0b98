package layout

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rewind-kafka/rewind/remotestorage"
)

var id = remotestorage.RemoteLogSegmentID{
	TopicIDPartition: remotestorage.TopicIDPartition{
		TopicID: remotestorage.UUID{0xbd, 0x8c, 0x07, 0x0c, 0x67, 0x3b, 0x4d, 0x78, 0xa1, 0x22, 0x10, 0x33, 0xde, 0x80, 0xff, 0x21}, Topic: "tiered",
	},
	ID: remotestorage.UUID{0xac, 0x3c, 0x08, 0x69, 0xd9, 0x28, 0x49, 0x7e, 0xb2, 0xc2, 0x1c, 0x77, 0xfc, 0x1c, 0x6d, 0xa7},
}

func TestNames(t *testing.T) {
	if got, want := ObjectName(id, 16061, Log), "tiered-0-vYwHDGc7TXihIhAz3oD_IQ/00000000000000016061-rDwIadkoSX6ywhx3_Bxtpw.log"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := ObjectName(id, math.MaxInt64, TransactionIndex); !strings.Contains(got, "/09223372036854775807-") {
		t.Errorf("%s: the largest offset does not fit", got)
	}
}

// TestGoldenNames: each object that Apache Kafka wrote is understood, and written again under the same name.
func TestGoldenNames(t *testing.T) {
	const golden = "../../testdata/golden/kafka"
	sets, err := os.ReadDir(golden)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[Suffix]int)
	for _, set := range sets {
		objects := filepath.Join(golden, set.Name(), "objects")
		err := filepath.WalkDir(objects, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) && path == objects {
				return fs.SkipAll
			}
			if err != nil || d.IsDir() {
				return err
			}
			name, _ := filepath.Rel(objects, path)
			name = strings.TrimSuffix(name, ".gz")
			o, err := ParseObject(name)
			if err != nil {
				t.Error(err)
				return nil
			}
			if got := ObjectName(o.RemoteLogSegmentID, o.BaseOffset, o.Suffix); got != name {
				t.Errorf("%s, want %s", got, name)
			}
			seen[o.Suffix]++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []Suffix{Log, OffsetIndex, TimeIndex, TransactionIndex, LeaderEpoch, ProducerSnapshot} {
		if seen[s] == 0 {
			t.Errorf("no %s among the golden objects", s)
		}
	}
}

func TestOddTopics(t *testing.T) {
	for _, topic := range []string{"a", "a-1", "1-2-3", "-", "a.b_c", "x-0-vYwHDGc7TXihIhAz3oD_IQ", "...", strings.Repeat("t", 249)} {
		o := id
		o.Topic, o.Partition, o.TopicID[0] = topic, math.MaxInt32, 0xf8 // the id begins with '-'
		got, err := ParseObject(ObjectName(o, 5, LeaderEpoch))
		if err != nil || got.RemoteLogSegmentID != o || got.BaseOffset != 5 || got.Suffix != LeaderEpoch {
			t.Errorf("topic %s: %+v, %v", topic, got, err)
		}
	}
}

func TestNotNames(t *testing.T) {
	const dir, file = "t-0-vYwHDGc7TXihIhAz3oD_IQ", "00000000000000016061-rDwIadkoSX6ywhx3_Bxtpw.log"
	if _, err := ParseObject(dir + "/" + file); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"", "/", dir, dir + "/", "/" + file, "x/" + dir + "/" + file, dir + "//" + file, dir + "/x/" + file,
		dir + "/" + file + ".attrs", dir + "/" + strings.Replace(file, ".log", ".tmp", 1), dir + "/" + strings.Replace(file, ".log", "", 1),
		dir + "/0" + file, dir + "/" + file[1:], dir + "/+" + file[1:], dir + "/99999999999999999999" + file[20:],
		strings.Replace(dir, "t-0", "t-00", 1) + "/" + file, strings.Replace(dir, "t-0", "t-2147483648", 1) + "/" + file,
		"-0-vYwHDGc7TXihIhAz3oD_IQ/" + file, "..-0-vYwHDGc7TXihIhAz3oD_IQ/" + file, "t t-0-vYwHDGc7TXihIhAz3oD_IQ/" + file,
		"t-0-vYwHDGc7TXihIhAz3oD_IR/" + file, // the same bytes in another spelling
		"t-0-vYwHDGc7TXihIhAz3oD+IQ/" + file,
	} {
		if o, err := ParseObject(name); !errors.Is(err, ErrName) {
			t.Errorf("%q: %+v, %v", name, o, err)
		}
	}
}

func TestCustomMetadata(t *testing.T) {
	b := AppendCustomMetadata(nil, 1<<40+7)
	if base, ok := ParseCustomMetadata(b); !ok || base != 1<<40+7 {
		t.Errorf("%d, %v", base, ok)
	}
	if base, ok := ParseCustomMetadata(append(b, 1, 2, 3)); !ok || base != 1<<40+7 {
		t.Errorf("with bytes of a later version: %d, %v", base, ok)
	}
	aiven := []byte{0x02, 0x00, 0x02, 0xc8, 0x01, 0x02, 0x04, 0x04, 0x66, 0x6f, 0x6f}
	for _, b := range [][]byte{nil, {}, b[:9], aiven, {'R', 2, 0, 0, 0, 0, 0, 0, 0, 1}, {'R', 1, 0xff, 0, 0, 0, 0, 0, 0, 1}} {
		if base, ok := ParseCustomMetadata(b); ok {
			t.Errorf("%x: %d", b, base)
		}
	}
}

func TestIndexSuffixes(t *testing.T) {
	for i := remotestorage.IndexOffset; i <= remotestorage.IndexLeaderEpoch; i++ {
		if _, err := IndexSuffix(i); err != nil {
			t.Error(err)
		}
	}
	if s, err := IndexSuffix(99); err == nil {
		t.Errorf("index type 99 has suffix %s", s)
	}
}

func FuzzParseObject(f *testing.F) {
	f.Add("tiered-0-vYwHDGc7TXihIhAz3oD_IQ/00000000000000016061-rDwIadkoSX6ywhx3_Bxtpw.log")
	f.Add("a-b-3-AAAAAAAAAAAAAAAAAAAAAA/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAA.leader_epoch_checkpoint")
	f.Add("t-0-vYwHDGc7TXihIhAz3oD_IR/x")
	f.Fuzz(func(t *testing.T, name string) {
		o, err := ParseObject(name)
		if err != nil {
			return
		}
		if got := ObjectName(o.RemoteLogSegmentID, o.BaseOffset, o.Suffix); got != name {
			t.Errorf("%q is written as %q", name, got)
		}
	})
}
