package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const keyApiVersions = 18

// RequestHeader is what stands before every request's body.
type RequestHeader struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      *string
	Body          []byte // aliases the frame
}

// flexible tells whether kmsg knows the request as a flexible one (KIP-482). Versions above those that kmsg knows count as the newest.
func flexible(key, version int16) bool {
	req := kmsg.RequestForKey(key)
	if req == nil {
		return false
	}
	req.SetVersion(version)
	return req.IsFlexible()
}

// ParseRequestHeader reads header version 1 or 2, whichever the key and version ask for. A key that is not known at all is read as version 1, so
// that its correlation id can be answered or logged; its body is then not to be looked at.
func ParseRequestHeader(frame []byte) (RequestHeader, error) {
	var h RequestHeader
	if len(frame) < 10 {
		return h, fmt.Errorf("%w: request header of %d bytes", ErrMalformed, len(frame))
	}
	be := binary.BigEndian
	h.Key = int16(be.Uint16(frame))
	h.Version = int16(be.Uint16(frame[2:]))
	h.CorrelationID = int32(be.Uint32(frame[4:]))
	if h.Version < 0 {
		return h, fmt.Errorf("%w: request version %d", ErrMalformed, h.Version)
	}
	b := kbin.Reader{Src: frame[8:]}
	h.ClientID = b.NullableString()
	if flexible(h.Key, h.Version) {
		skipTags(&b)
	}
	if err := b.Complete(); err != nil {
		return h, fmt.Errorf("%w: request header: %w", ErrMalformed, err)
	}
	h.Body = b.Src
	return h, nil
}

// ResponseBody strips the correlation id and, where the header is flexible, its tags, from a response frame.
func ResponseBody(frame []byte, key, version int16) (correlationID int32, body []byte, err error) {
	if len(frame) < 4 {
		return 0, nil, fmt.Errorf("%w: response of %d bytes", ErrMalformed, len(frame))
	}
	correlationID = int32(binary.BigEndian.Uint32(frame))
	b := kbin.Reader{Src: frame[4:]}
	if key != keyApiVersions && flexible(key, version) {
		skipTags(&b)
	}
	if err := b.Complete(); err != nil {
		return correlationID, nil, fmt.Errorf("%w: response header: %w", ErrMalformed, err)
	}
	return correlationID, b.Src, nil
}

// AppendResponseHeader appends what stands between a response frame's size and its body. ApiVersions keeps the old header in every version: its
// reader does not yet know what the writer speaks.
func AppendResponseHeader(dst []byte, key, version int16, correlationID int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if key != keyApiVersions && flexible(key, version) {
		dst = append(dst, 0)
	}
	return dst
}

// AppendRequest appends a whole frame: size, header and body.
func AppendRequest(dst []byte, req kmsg.Request, correlationID int32, clientID *string) []byte {
	at := len(dst)
	be := binary.BigEndian
	dst = append(dst, 0, 0, 0, 0)
	dst = be.AppendUint16(dst, uint16(req.Key()))
	dst = be.AppendUint16(dst, uint16(req.GetVersion()))
	dst = be.AppendUint32(dst, uint32(correlationID))
	dst = kbin.AppendNullableString(dst, clientID)
	if req.IsFlexible() {
		dst = append(dst, 0)
	}
	dst = req.AppendTo(dst)
	return setSize(dst, at)
}

// AppendResponse appends a whole frame: size, header and body.
func AppendResponse(dst []byte, resp kmsg.Response, correlationID int32) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendResponseHeader(dst, resp.Key(), resp.GetVersion(), correlationID)
	dst = resp.AppendTo(dst)
	return setSize(dst, at)
}

func setSize(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// skipTags steps over a tag section. Each tag takes two bytes at least, so the bytes that are there bound the loop.
func skipTags(b *kbin.Reader) {
	for n := b.Uvarint(); n > 0 && b.Ok(); n-- {
		b.Uvarint()
		b.Span(int(b.Uvarint()))
	}
}
