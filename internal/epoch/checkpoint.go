package epoch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// ErrCheckpoint: the bytes are not a leader-epoch-checkpoint.
var ErrCheckpoint = errors.New("leader epoch checkpoint is malformed")

// ParseCheckpoint reads a leader-epoch-checkpoint, local or remote: a line "0" (version), a line with the count, then a line "epoch start" for
// each entry, ascending in both. A file that is cut short or has more lines than it says is refused whole.
func ParseCheckpoint(b []byte) ([]remotestorage.EpochStart, error) {
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if len(lines) < 2 {
		return nil, fmt.Errorf("%w: %d lines", ErrCheckpoint, len(lines))
	}
	if v := strings.TrimSpace(lines[0]); v != "0" {
		return nil, fmt.Errorf("%w: version %.20q", ErrCheckpoint, v)
	}
	count, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	if err != nil || count != len(lines)-2 {
		return nil, fmt.Errorf("%w: count %.20q, %d entries", ErrCheckpoint, lines[1], len(lines)-2)
	}
	entries := make([]remotestorage.EpochStart, 0, count)
	for _, line := range lines[2:] {
		e, err := parseEntry(line)
		if err != nil {
			return nil, err
		}
		if n := len(entries); n > 0 && (entries[n-1].LeaderEpoch >= e.LeaderEpoch || entries[n-1].StartOffset >= e.StartOffset) {
			return nil, fmt.Errorf("%w: entry %.50q is not above the one before", ErrCheckpoint, line)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func parseEntry(line string) (remotestorage.EpochStart, error) {
	var e remotestorage.EpochStart
	first, second, ok := strings.Cut(strings.TrimSpace(line), " ")
	epoch, err1 := strconv.ParseInt(first, 10, 32)
	start, err2 := strconv.ParseInt(strings.TrimSpace(second), 10, 64)
	if !ok || err1 != nil || err2 != nil || epoch < 0 || start < 0 {
		return e, fmt.Errorf("%w: entry %.50q", ErrCheckpoint, line)
	}
	return remotestorage.EpochStart{LeaderEpoch: int32(epoch), StartOffset: start}, nil
}

// AppendCheckpoint appends entries in the form that ParseCheckpoint reads, byte for byte as Apache Kafka writes it.
func AppendCheckpoint(dst []byte, entries []remotestorage.EpochStart) []byte {
	dst = append(dst, "0\n"...)
	dst = strconv.AppendInt(dst, int64(len(entries)), 10)
	dst = append(dst, '\n')
	for _, e := range entries {
		dst = strconv.AppendInt(dst, int64(e.LeaderEpoch), 10)
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, e.StartOffset, 10)
		dst = append(dst, '\n')
	}
	return dst
}
