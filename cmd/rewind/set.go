package main

import (
	"errors"
	"fmt"
	"strings"
)

// setPairs sets keys as --set gives them, name=value, each with the error of its own.
func setPairs(set func(key, value string) error, pairs []string) error {
	var errs []error
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok {
			errs = append(errs, fmt.Errorf("--set %q: want name=value", p))
			continue
		}
		errs = append(errs, set(k, v))
	}
	return errors.Join(errs...)
}
