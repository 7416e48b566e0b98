// Package segment reads and writes the files that make up one log segment in Apache Kafka's formats: offset, time and transaction index, and the
// log itself as a run of batches. Everything works on bytes or an io.ReaderAt that the caller owns: the same code reads a local file and a copy in
// an object store. It knows no directory, keeps nothing and has no goroutines. docs/format/log.md has the layouts.
package segment

import (
	"fmt"
	"strconv"
	"strings"
)

// Suffixes of the files of a segment.
const (
	LogSuffix       = ".log"
	IndexSuffix     = ".index"
	TimeIndexSuffix = ".timeindex"
	TxnIndexSuffix  = ".txnindex"
	SnapshotSuffix  = ".snapshot"
	// DeletedSuffix, CleanedSuffix and SwapSuffix are added behind the others.
	DeletedSuffix = ".deleted"
	CleanedSuffix = ".cleaned"
	SwapSuffix    = ".swap"
)

// FileName is the name of the file with this suffix of the segment that begins at base.
func FileName(base int64, suffix string) string { return fmt.Sprintf("%020d%s", base, suffix) }

// ParseFileName splits "00000000000000000042.log.deleted" into 42 and ".log.deleted"; false for anything that is not a segment's file.
func ParseFileName(name string) (base int64, suffix string, ok bool) {
	if len(name) < 21 || name[20] != '.' || strings.IndexFunc(name[:20], func(r rune) bool { return r < '0' || r > '9' }) >= 0 {
		return 0, "", false
	}
	base, err := strconv.ParseInt(name[:20], 10, 64)
	if err != nil {
		return 0, "", false
	}
	return base, name[20:], true
}
