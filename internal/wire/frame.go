package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// firstRead is what a frame may take before its bytes have come; from there on memory doubles as they arrive.
const firstRead = 64 << 10

// ReadFrame reads one size-prefixed frame and returns it without its size. It uses buf's memory as far as it goes. Beyond it, memory grows with the
// bytes that have arrived, never with the size that the sender claims. io.EOF means that the peer closed between two frames,
// io.ErrUnexpectedEOF that it closed within one.
func ReadFrame(r io.Reader, limit int32, buf []byte) ([]byte, error) {
	// The size is read into buf too: a local array would escape through the interface, once per frame.
	if cap(buf) < 4 {
		buf = make([]byte, 4, 512)
	}
	buf = buf[:4]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	size, err := FrameSize(buf, limit)
	if err != nil {
		return nil, err
	}
	got := 0
	for got < size {
		want := min(size, max(firstRead, 2*got, cap(buf)))
		if want > cap(buf) {
			grown := make([]byte, want)
			copy(grown, buf[:got])
			buf = grown
		}
		n, err := io.ReadFull(r, buf[got:want])
		got += n
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
	return buf[:size], nil
}

// FrameSize reads the four bytes before a frame and checks them against the limit.
func FrameSize(prefix []byte, limit int32) (int, error) {
	size := int32(binary.BigEndian.Uint32(prefix))
	if size < 0 || size > limit {
		if other := OtherProtocol(prefix); other != "" {
			return 0, fmt.Errorf("%w: the peer seems to speak %s, not plain Kafka", ErrFrameTooLarge, other)
		}
	}
	if size < 0 {
		return 0, fmt.Errorf("%w: frame size %d", ErrMalformed, size)
	}
	if size > limit {
		return 0, fmt.Errorf("%w: %d bytes, limit %d", ErrFrameTooLarge, size, limit)
	}
	return int(size), nil
}

// OtherProtocol names what the first four bytes of a connection are, if they are one of the usual mix-ups; "" if not. Read as a size they are absurd, but
// not all are above every limit.
func OtherProtocol(b []byte) string {
	switch {
	case b[0] == 0x16 && b[1] == 3, b[0] == 0x15 && b[1] == 3:
		return "TLS"
	case string(b) == "HTTP", string(b) == "GET ", string(b) == "POST", string(b) == "HEAD":
		return "HTTP"
	}
	return ""
}
