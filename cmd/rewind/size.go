package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// size is a number of bytes on the command line: 512MiB, 100MB, 1048576.
type size int64

var sizeType = reflect.TypeFor[size]()

var sizeMapper = kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	var s string
	if err := ctx.Scan.PopValueInto("size", &s); err != nil {
		return err
	}
	n, err := parseSize(s)
	if err != nil {
		return err
	}
	target.SetInt(n)
	return nil
})

// units, longest first, so that MiB is not read as B.
var units = []struct {
	name string
	n    int64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12}, {"b", 1}, {"", 1},
}

func parseSize(s string) (int64, error) {
	low := strings.ToLower(strings.TrimSpace(s))
	for _, u := range units {
		num, ok := strings.CutSuffix(low, u.name)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil || f < 0 || f*float64(u.n) > 1<<62 {
			break
		}
		return int64(f * float64(u.n)), nil
	}
	return 0, fmt.Errorf("%q is not a size: use a number of bytes, or one with a unit such as 512MiB or 100MB", s)
}
