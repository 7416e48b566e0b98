package main

import (
	"errors"
	"reflect"

	"github.com/alecthomas/kong"
)

// pathMapper is for flags of type "path". kong's own makes the working directory of an empty one, which is what a script with an unset variable gives:
// a broker would then put its log there.
var pathMapper = kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	var s string
	if err := ctx.Scan.PopValueInto("path", &s); err != nil {
		return err
	}
	if s == "" {
		return errors.New("a path is needed, this one is empty")
	}
	target.SetString(kong.ExpandPath(s))
	return nil
})
