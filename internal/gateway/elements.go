package gateway

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// maxElements bounds the elements of all arrays, and the tags, of one request that is decoded here. kmsg allocates an array as long as the sender says if one byte is left for each
// element, which takes up to a hundred: without this, a client that nobody knows yet would make the gateway take that many times the size of what it sends.
const maxElements = 200_000

// elements walks a request that is not decoded yet, without allocating.
type elements struct {
	r        kbin.Reader
	version  int16
	flexible bool
	left     int
}

// checkElements tells whether a request may be decoded: its elements are there, and not too many. Keys that are not decoded here are not looked at.
func checkElements(req wire.RequestHeader) error {
	e := &elements{r: kbin.Reader{Src: req.Body}, version: req.Version, left: maxElements}
	if r := kmsg.RequestForKey(req.Key); r != nil {
		r.SetVersion(req.Version)
		e.flexible = r.IsFlexible()
	}
	switch req.Key {
	case keyFetch:
		e.fetch()
	case keyShareFetch:
		e.shareFetch()
	case keyApiVersions:
		if e.version >= 3 {
			e.text()
			e.text()
		}
		if e.version >= 5 {
			e.text()
			e.r.Span(4)
		}
	case keySaslHandshake:
		e.text()
	case keySaslAuthenticate:
		e.span(e.length())
	default:
		return nil
	}
	e.tags()
	if e.left < 0 {
		return fmt.Errorf("%s request, version %d: %w: arrays of more than %d elements", kmsg.NameForKey(req.Key), req.Version, wire.ErrMalformed, maxElements)
	}
	if err := e.r.Complete(); err != nil {
		return fmt.Errorf("%s request, version %d: %w: %w", kmsg.NameForKey(req.Key), req.Version, wire.ErrMalformed, err)
	}
	return nil
}

// size is that of fields of fixed size, each with the first version that has it.
func (e *elements) size(fields map[int16]int) (n int) {
	for since, size := range fields {
		if e.version >= since {
			n += size
		}
	}
	return n
}

func (e *elements) fetch() {
	n := 8 + e.size(map[int16]int{3: 4, 4: 1, 7: 8}) // wait and bytes; most bytes; isolation; session and its epoch
	if e.version <= 14 {
		n += 4 // replica
	}
	e.r.Span(n)
	partition := 16 + e.size(map[int16]int{5: 8, 9: 4, 12: 4}) // partition, offset, bytes; log start; leader epoch; last epoch
	e.array(func() {
		e.topic()
		e.array(func() { e.r.Span(partition); e.tags() })
		e.tags()
	})
	if e.version >= 7 {
		e.array(func() {
			e.topic()
			e.numbers(4)
			e.tags()
		})
	}
	if e.version >= 11 {
		e.text()
	}
}

// topic is a name, or an id.
func (e *elements) topic() {
	if e.version >= 13 {
		e.r.Span(16)
		return
	}
	e.text()
}

func (e *elements) shareFetch() {
	e.text()
	e.text()
	e.r.Span(16 + e.size(map[int16]int{1: 8, 2: 2})) // session epoch, wait, bytes; records and batch; how they are acquired
	partition := 4
	if e.version == 0 {
		partition += 4 // most bytes
	}
	e.array(func() {
		e.r.Span(16)
		e.array(func() {
			e.r.Span(partition)
			e.array(func() {
				e.r.Span(16)
				e.numbers(1)
				e.tags()
			})
			e.tags()
		})
		e.tags()
	})
	e.array(func() {
		e.r.Span(16)
		e.numbers(4)
		e.tags()
	})
}

func (e *elements) length() int64 {
	if e.flexible {
		return int64(e.r.Uvarint()) - 1
	}
	return int64(e.r.Int32())
}

func (e *elements) span(n int64) {
	if n > 0 {
		e.r.Span(int(n))
	}
}

func (e *elements) text() {
	if e.flexible {
		e.span(e.length())
		return
	}
	e.span(int64(e.r.Int16()))
}

// count takes an array's elements off what is left.
func (e *elements) count() int64 {
	n := e.length()
	if n > int64(e.left) {
		e.left = -1
		return 0
	}
	e.left -= int(max(n, 0))
	return n
}

func (e *elements) array(element func()) {
	for n := e.count(); n > 0 && e.left >= 0 && e.r.Ok(); n-- {
		element()
	}
}

// numbers is an array of fields of one size.
func (e *elements) numbers(size int) {
	if n := e.count(); n > 0 {
		e.r.Span(int(n) * size)
	}
}

// tags count as elements: those that are unknown are kept.
func (e *elements) tags() {
	if !e.flexible {
		return
	}
	for n := e.r.Uvarint(); n > 0 && e.left >= 0 && e.r.Ok(); n-- {
		e.left--
		e.r.Uvarint()
		e.span(int64(e.r.Uvarint()))
	}
}
