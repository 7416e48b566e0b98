package clientconn

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// Filter is an optional part of a Handler: it changes responses of the broker to requests that were forwarded, those included that the handler gave back
// by ErrForward. Both methods are called on the goroutine that reads upstream, and must not block for long.
type Filter interface {
	// WantsResponse: the response to a request of this kind is to be taken whole, bounded by Options.MaxFilteredBytes, and given to FilterResponse.
	WantsResponse(key, version int16) bool
	// FilterResponse returns the frame to send in the response's place. Both are whole, with size and the client's correlation id. The version is the
	// request's; a response to an ApiVersions request may be of version 0 all the same (error 35). The frame is FilterResponse's to keep or change.
	FilterResponse(key, version int16, frame []byte) ([]byte, error)
}

// filtered takes a response whole and sends what the filter makes of it.
func (c *Conn) filtered(br *bufio.Reader, size int, p *pending) error {
	if size > int(c.opts.MaxFilteredBytes) {
		return fmt.Errorf("the broker's response to key %d version %d: %w: %d bytes, limit %d", p.key, p.version, wire.ErrFrameTooLarge, size, c.opts.MaxFilteredBytes)
	}
	// First its turn: what the client has not taken of the answers before must not keep the room from others. They are being written, so nothing waits for upstream meanwhile.
	if err := c.awaitTurn(p.slot); err != nil {
		return err
	}
	give, err := c.opts.Held.response(c.ctx, size)
	if err != nil {
		return fmt.Errorf("reading from the broker: %w", err)
	}
	out, err := c.filteredFrame(br, size, p)
	if err != nil {
		give()
		return err
	}
	taken := c.opts.Held.hurryResponse(size, func() {
		c.end(fmt.Errorf("answering the client: %w: it has not taken %d bytes within %v, and others wait for their room", ErrHeld, size, slowPatience))
	})
	defer taken()
	return c.respond(p.slot, Answer{Frame: net.Buffers{out}, Release: give})
}

// filteredFrame is what the filter makes of the next response.
func (c *Conn) filteredFrame(br *bufio.Reader, size int, p *pending) ([]byte, error) {
	c.fromUpstream.sips = false
	body, err := wire.ReadFrame(br, c.opts.MaxFilteredBytes, nil)
	if err != nil {
		return nil, fmt.Errorf("reading from the broker: %w", midFrame(err))
	}
	frame := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+size), uint32(size)), body...)
	putCorrelationID(frame, p.slot.correlationID)
	out, err := c.filter.FilterResponse(p.key, p.version, frame)
	if err != nil {
		return nil, fmt.Errorf("the broker's response to key %d version %d: %w", p.key, p.version, err)
	}
	if len(out) < 8 || int(binary.BigEndian.Uint32(out)) != len(out)-4 || int32(binary.BigEndian.Uint32(out[4:])) != p.slot.correlationID {
		return nil, fmt.Errorf("the broker's response to key %d version %d: %w: what the filter made of it is no frame, or another's", p.key, p.version, wire.ErrMalformed)
	}
	return out, nil
}
