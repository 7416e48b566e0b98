//go:build !unix

package partlog

import "errors"

func ftruncate(uintptr, int64) error { return errors.ErrUnsupported }
