package clustertest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Segment is a remote segment as its object tells it.
type Segment struct {
	Base, Last int64
	Path       string // of the log object
}

// Segments are a partition's objects in the store, those of abandoned histories and of unfinished copies too, by base offset.
func (c *Cluster) Segments(t testing.TB, topic string, partition int32) (all []Segment) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(c.Store(), fmt.Sprintf("%s-%d-*", topic, partition), "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		base, err := strconv.ParseInt(strings.TrimLeft(filepath.Base(path)[:19], "0")+filepath.Base(path)[19:20], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // retention
		}
		if err != nil {
			t.Fatal(err)
		}
		s := Segment{Base: base, Last: base - 1, Path: path}
		for len(b) >= 61 { // the head of a batch: its offset, its length behind that, and where its last offset is
			s.Last = int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[23:]))
			b = b[min(len(b), 12+int(binary.BigEndian.Uint32(b[8:]))):]
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Segment) int { return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.Last, b.Last)) })
	return all
}
