package httpfetcher

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// StatusError is an answer of the store that is none of remotestorage's errors: worth a retry for 429 and the 500s.
type StatusError struct {
	Status     int
	RetryAfter time.Duration // 0: the store did not say
}

func (e *StatusError) Error() string {
	return "store answered " + strconv.Itoa(e.Status) + " " + http.StatusText(e.Status)
}

// ErrAnswer: the store answered something else than it was asked for.
var ErrAnswer = errors.New("store's answer is not the range that was asked for")

// accept turns an answer into the range's bytes, or into an error that callers branch on.
func accept(resp *http.Response, u *url.URL, start, end int64) (io.ReadCloser, error) {
	switch resp.StatusCode {
	case http.StatusPartialContent:
		return acceptPartial(resp, u, start, end)
	case http.StatusOK:
		return acceptWhole(resp, u, start, end)
	}
	err := statusError(resp)
	discard(resp)
	return nil, fmt.Errorf("reading %s: %w", object(u), err)
}

func statusError(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		// 400 is what some stores say of an expired signature. Where it means something else, a new location is the right next step all the same.
		return fmt.Errorf("status %d: %w", resp.StatusCode, remotestorage.ErrDenied)
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("status %d: %w", resp.StatusCode, remotestorage.ErrNotFound)
	case http.StatusRequestedRangeNotSatisfiable:
		return fmt.Errorf("status %d: %w", resp.StatusCode, remotestorage.ErrRange)
	}
	e := &StatusError{Status: resp.StatusCode}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = time.Duration(min(s, 3600)) * time.Second
	}
	return e
}

func acceptPartial(resp *http.Response, u *url.URL, start, end int64) (io.ReadCloser, error) {
	refuse := func(what string) (io.ReadCloser, error) {
		_ = resp.Body.Close() // unread: the connection ends
		return nil, fmt.Errorf("reading %s: %s: %w", object(u), what, ErrAnswer)
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return refuse("encoded body")
	}
	first, last, size, ok := parseContentRange(resp.Header.Get("Content-Range"))
	if !ok {
		return refuse("no single range")
	}
	if size >= 0 && start >= size {
		_ = resp.Body.Close() // Azurite answers an empty range where Azure answers 416
		return nil, fmt.Errorf("reading %s: object has %d bytes: %w", object(u), size, remotestorage.ErrRange)
	}
	if first != start || last >= end {
		return refuse(fmt.Sprintf("bytes %d to %d", first, last))
	}
	if last < first || size >= 0 && last >= size {
		return refuse(fmt.Sprintf("bytes %d to %d of %d", first, last, size))
	}
	if last != end-1 && last != size-1 {
		return refuse(fmt.Sprintf("bytes up to %d of %d, asked for up to %d", last, size, end-1))
	}
	n := last - first + 1
	if resp.ContentLength >= 0 && resp.ContentLength != n {
		return refuse(fmt.Sprintf("body of %d bytes for a range of %d", resp.ContentLength, n))
	}
	return &body{rc: resp.Body, left: n, object: object(u)}, nil
}

// acceptWhole takes the answer of a server that ignores ranges, if the object's beginning was asked for: that costs nothing.
func acceptWhole(resp *http.Response, u *url.URL, start, end int64) (io.ReadCloser, error) {
	enc := resp.Header.Get("Content-Encoding")
	if start != 0 || resp.ContentLength < 0 || enc != "" && enc != "identity" {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("reading %s: whole object instead of bytes %d to %d: %w", object(u), start, end-1, ErrAnswer)
	}
	return &body{rc: resp.Body, left: min(end, resp.ContentLength), object: object(u)}, nil
}

// parseContentRange reads "bytes first-last/size"; size is -1 for "*". Whether the numbers make sense is the caller's to say.
func parseContentRange(s string) (first, last, size int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	if !ok {
		return 0, 0, 0, false
	}
	span, total, ok := strings.Cut(s, "/")
	if !ok {
		return 0, 0, 0, false
	}
	a, b, ok := strings.Cut(span, "-")
	if !ok {
		return 0, 0, 0, false
	}
	if first, ok = parsePosition(a); !ok {
		return 0, 0, 0, false
	}
	if last, ok = parsePosition(b); !ok {
		return 0, 0, 0, false
	}
	size = -1
	if total != "*" {
		if size, ok = parsePosition(total); !ok {
			return 0, 0, 0, false
		}
	}
	return first, last, size, true
}

// parsePosition takes digits only.
func parsePosition(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}

// discard reads the rest of a short answer, so that its connection can serve the next range.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	_ = resp.Body.Close()
}

// body is as long as the range, or fails.
type body struct {
	rc     io.ReadCloser
	left   int64
	object string
}

func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.rc.Read(p)
	b.left -= int64(n)
	switch {
	case err == nil:
		return n, nil
	case b.left == 0 && errors.Is(err, io.EOF):
		return n, io.EOF
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return n, fmt.Errorf("reading %s: %w", b.object, withoutURL(err))
}

// Close gives the connection back if the whole body was read.
func (b *body) Close() error {
	if b.left == 0 { // net/http keeps a connection only once the body's end was seen
		var one [1]byte
		_, _ = b.rc.Read(one[:])
	}
	return b.rc.Close()
}
