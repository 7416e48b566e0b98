package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

const (
	// FetchUnit is about what one of a request's topics or partitions takes once it is decoded.
	FetchUnit = 64
	// tagUnits is what the first tag of a section takes, and any other half of it at the most.
	tagUnits = 6
)

// FetchRequestUnits says how much memory decoding the body of a Fetch request takes, in units of FetchUnit, before any is taken: the arrays that it announces may be 32 times as
// large as they are on the wire. It looks no further once it has counted most. An error is one of decoding, too.
func FetchRequestUnits(body []byte, version int16, most int) (int, error) {
	c := fetchCounter{r: kbin.Reader{Src: body}, version: version, flexible: version >= 12, most: most}
	c.request()
	if c.units > most {
		return c.units, nil
	}
	if err := c.r.Complete(); err != nil {
		return c.units, fmt.Errorf("%w: Fetch request of version %d: %w", ErrMalformed, version, err)
	}
	return c.units, nil
}

type fetchCounter struct {
	r           kbin.Reader
	version     int16
	flexible    bool
	units, most int
}

func (c *fetchCounter) goesOn() bool { return c.r.Ok() && c.units <= c.most }

func (c *fetchCounter) request() {
	fixed := 4 + 4 // max wait, min bytes
	for _, f := range [...]struct {
		from, to int16
		bytes    int
	}{{0, 14, 4}, {3, 99, 4}, {4, 99, 1}, {7, 99, 8}} { // replica id, max bytes, isolation level, session
		if c.version >= f.from && c.version <= f.to {
			fixed += f.bytes
		}
	}
	c.r.Span(fixed)
	for range c.array(1) {
		c.name()
		c.partitions()
		c.tags()
		if !c.goesOn() {
			return
		}
	}
	if c.version >= 7 {
		for range c.array(1) {
			c.name()
			n := c.length()
			c.units += int(n) / (FetchUnit / 4)
			c.r.Span(int(4 * n))
			c.tags()
			if !c.goesOn() {
				return
			}
		}
	}
	if c.version >= 11 {
		c.string()
	}
	c.tags()
}

func (c *fetchCounter) partitions() {
	n := c.array(1)
	size := 4 + 8 + 4 // partition, fetch offset, limit
	for _, f := range [...]struct {
		from  int16
		bytes int
	}{{9, 4}, {12, 4}, {5, 8}} { // current leader epoch, last fetched epoch, log start
		if c.version >= f.from {
			size += f.bytes
		}
	}
	if !c.flexible {
		c.r.Span(int(n) * size)
		return
	}
	for range n {
		c.r.Span(size)
		if c.tags(); !c.goesOn() {
			return
		}
	}
}

// array is the length of an array whose elements take so many units. It is 0 where not all of them are to be looked at.
func (c *fetchCounter) array(units int) int64 {
	n := c.length()
	c.units += int(n) * units
	if !c.goesOn() {
		return 0
	}
	return n
}

// length is that of an array; none is 0. More elements than bytes cannot be.
func (c *fetchCounter) length() int64 {
	n := int64(0)
	if c.flexible {
		n = int64(int32(c.r.Uvarint())) - 1
	} else {
		n = int64(c.r.Int32())
	}
	if n > int64(len(c.r.Src)) {
		c.r.Span(len(c.r.Src) + 1)
	}
	return max(n, 0)
}

func (c *fetchCounter) name() {
	if c.version >= 13 {
		c.r.Span(16)
		return
	}
	c.string()
}

func (c *fetchCounter) string() {
	if c.flexible {
		c.r.Span(int(int32(c.r.Uvarint())) - 1)
		return
	}
	c.r.Span(int(c.r.Int16()))
}

func (c *fetchCounter) tags() {
	if !c.flexible {
		return
	}
	n := c.r.Uvarint()
	if n > 0 {
		c.units += tagUnits
	}
	for ; n > 0 && c.goesOn(); n-- {
		c.units += tagUnits / 2
		c.r.Uvarint()
		c.r.Span(int(c.r.Uvarint()))
	}
}
