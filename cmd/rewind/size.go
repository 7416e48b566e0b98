package main

import (
	"reflect"

	"github.com/alecthomas/kong"

	"github.com/rewind-kafka/rewind/internal/bytesize"
)

// size is a number of bytes on the command line: 512MiB, 100MB, 1048576.
type size int64

var sizeType = reflect.TypeFor[size]()

var sizeMapper = kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	var s string
	if err := ctx.Scan.PopValueInto("size", &s); err != nil {
		return err
	}
	n, err := bytesize.Parse(s)
	if err != nil {
		return err
	}
	target.SetInt(n)
	return nil
})
