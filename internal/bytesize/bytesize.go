// Package bytesize reads and writes numbers of bytes as people do: 64MiB, 100MB, 1048576. Configuration, command line and printed distances share it, so
// that a size means the same wherever it is written. Any package may import it; it keeps nothing and starts no goroutines.
package bytesize

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrSyntax: a text that is no number of bytes.
var ErrSyntax = errors.New("expected bytes, or a size such as 64MiB or 100MB")

// units, with names that end in others before them: MiB is not to be read as B.
var units = [...]struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// Parse reads a number of bytes, 0 or more: plain, or with a unit, whose letters may be of either case. kB, MB, GB and TB are powers of ten; KiB, MiB, GiB
// and TiB are powers of two. With a unit the number may have a fraction.
func Parse(s string) (int64, error) {
	number, unit := split(s)
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n < 0 || n > math.MaxInt64/unit {
			return 0, fmt.Errorf("%q: %w", s, ErrSyntax)
		}
		return n * unit, nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if bytes := f * float64(unit); err == nil && unit > 1 && bytes >= 0 && bytes < math.MaxInt64 {
		return int64(bytes), nil
	}
	return 0, fmt.Errorf("%q: %w", s, ErrSyntax)
}

func split(s string) (number string, unit int64) {
	s = strings.TrimSpace(s)
	for _, u := range units {
		at := len(s) - len(u.name)
		if at >= 0 && strings.EqualFold(s[at:], u.name) {
			return strings.TrimSpace(s[:at]), u.bytes
		}
	}
	return s, 1
}

// ParseRate reads bytes a second: what Parse reads, with or without "/s".
func ParseRate(s string) (int64, error) {
	return Parse(strings.TrimSuffix(strings.TrimSpace(s), "/s"))
}

// Format writes n in the unit that it is the fewest whole ones of, so that Parse gives n back.
func Format(n int64) string {
	best, name := n, "B"
	for _, u := range units {
		if n != 0 && n%u.bytes == 0 && n/u.bytes < best {
			best, name = n/u.bytes, u.name
		}
	}
	return strconv.FormatInt(best, 10) + name
}
