package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewind-kafka/rewind/internal/bytesize"
)

// check accepts a value and returns its canonical form, or says why not.
type check func(value string) (string, error)

func boolean(v string) (string, error) {
	switch strings.ToLower(v) {
	case "true":
		return "true", nil
	case "false":
		return "false", nil
	}
	return "", errors.New("expected true or false")
}

// integer says what is wrong in Apache Kafka's words, as oneOf does.
func integer(bits int, low, high int64) check {
	return func(v string) (string, error) {
		n, err := strconv.ParseInt(v, 10, bits)
		if err != nil {
			return "", fmt.Errorf("Not a number of type %s", map[int]string{16: "SHORT", 32: "INT", 64: "LONG"}[bits])
		}
		if n < low {
			return "", fmt.Errorf("Value must be at least %d", low)
		}
		if n > high {
			return "", fmt.Errorf("Value must be no more than %d", high)
		}
		return strconv.FormatInt(n, 10), nil
	}
}

func float(low, high float64) check {
	return func(v string) (string, error) {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsNaN(f) {
			return "", errors.New("not a number")
		}
		if f < low || f > high {
			return "", fmt.Errorf("value must be between %g and %g", low, high)
		}
		return strconv.FormatFloat(f, 'g', -1, 64), nil
	}
}

func oneOf(allowed ...string) check {
	return func(v string) (string, error) {
		if slices.Contains(allowed, v) {
			return v, nil
		}
		return "", fmt.Errorf("String must be one of: %s", strings.Join(allowed, ", "))
	}
}

// listOf is a comma separated list, which may be empty. A member that is given twice counts once.
func listOf(allowed ...string) check {
	return func(v string) (string, error) {
		items, kept := SplitList(v), []string(nil)
		for i, item := range items {
			if !slices.Contains(allowed, item) {
				return "", fmt.Errorf("must be one or more of: %s", strings.Join(allowed, ", "))
			}
			if !slices.Contains(items[:i], item) {
				kept = append(kept, item)
			}
		}
		return strings.Join(kept, ","), nil
	}
}

// SplitList takes a value of kind List apart.
func SplitList(v string) []string {
	var items []string
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func anyText(v string) (string, error) { return v, nil }

// singleDirectory is log.dirs, of which this broker serves one.
func singleDirectory(v string) (string, error) {
	items := SplitList(v)
	if len(items) != 1 {
		return "", errors.New("exactly one directory is expected")
	}
	return items[0], nil
}

// address is host:port, with or without Kafka's listener name before it.
func address(v string) (string, error) {
	if v == "" {
		return "", nil
	}
	if strings.Contains(v, ",") {
		return "", errors.New("exactly one listener is expected")
	}
	if name, rest, ok := strings.Cut(v, "://"); ok {
		if name != "PLAINTEXT" {
			return "", fmt.Errorf("listener %s is not supported, only PLAINTEXT", name)
		}
		v = rest
	}
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return "", errors.New("expected host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > math.MaxUint16 {
		return "", fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return v, nil
}

// unit says how a person may write a number: plain numbers in Kafka's unit are always right.
type unit int8

const (
	noUnit unit = iota
	bytesUnit
	rateUnit // bytes a second
	millisUnit
)

func (u unit) plain(v string) (string, error) {
	if _, err := strconv.ParseInt(v, 10, 64); err == nil || u == noUnit || v == "" {
		return v, nil
	}
	var n int64
	var err error
	switch u {
	case millisUnit:
		var d time.Duration
		if d, err = time.ParseDuration(v); err != nil {
			return "", errors.New("expected milliseconds, or a duration such as 30s")
		}
		n = d.Milliseconds()
	case rateUnit:
		n, err = bytesize.ParseRate(v)
	default:
		n, err = bytesize.Parse(v)
	}
	if err != nil {
		return "", bytesize.ErrSyntax // Invalid names the value
	}
	return strconv.FormatInt(n, 10), nil
}

// only is a key of Kafka's that has one value here: better a refusal than a promise that is not kept.
func only(value, why string) check {
	return func(v string) (string, error) {
		if strings.EqualFold(v, value) {
			return value, nil
		}
		return "", fmt.Errorf("only %s is supported: %s", value, why)
	}
}

func gzipLevel(v string) (string, error) {
	if v == "-1" {
		return v, nil
	}
	n, err := integer(32, math.MinInt32, maxInt)(v)
	if err == nil && (number(n) < 1 || number(n) > 9) {
		err = errors.New("Value must be between 1 and 9 or equal to -1")
	}
	return n, err
}

// throttledReplicas is a list of partition:broker, or all of them.
func throttledReplicas(v string) (string, error) {
	items := SplitList(v)
	if len(items) == 1 && items[0] == "*" {
		return "*", nil
	}
	for _, item := range items {
		partition, broker, ok := strings.Cut(item, ":")
		if _, err := strconv.ParseUint(partition, 10, 31); err != nil || !ok {
			return "", fmt.Errorf("%q is not of the form partition:broker", item)
		}
		if _, err := strconv.ParseUint(broker, 10, 31); err != nil {
			return "", fmt.Errorf("%q is not of the form partition:broker", item)
		}
	}
	return strings.Join(items, ","), nil
}
