package clientconn

import (
	"bufio"
	"io"
	"net"
)

// spliceFrom is the least that is worth a splice: two system calls and a pipe, against a copy out of the reader's buffer.
const spliceFrom = 256 << 10

// sip is how much is read at once where a body may follow that the kernel is to move: bytes that have come into the buffer are copied, twice, and cost more than those left in
// the socket.
const sip = 4 + headPeek

// source is a connection's bytes on the way into a buffered reader.
type source struct {
	io.Reader
	sips bool // large bodies come, and their bytes are to stay in the socket
}

func (s *source) Read(p []byte) (int, error) {
	if s.sips && len(p) > sip {
		p = p[:sip]
	}
	return s.Reader.Read(p)
}

// expect is told the size of the frame that comes.
func (s *source) expect(size int) {
	if size < spliceFrom {
		s.sips = false
	}
}

// stream passes bytes from a buffered reader on without a buffer of its own.
type stream struct {
	from     *bufio.Reader
	source   *source // what from reads
	write    func([]byte) error
	src, dst *net.TCPConn // from's socket and write's, if the kernel may move bytes between them; else nil
	see      func([]byte) error
	skip     Skipper
	life     *life  // told while the client's bytes are waited for; nil: they are not the client's
	renew    func() // grants the client time to take what comes next; nil: it is not for the client
}

// pass moves n bytes.
func (s stream) pass(n int) error {
	if n >= spliceFrom && s.dst != nil && (s.see == nil || s.skip != nil) {
		defer cork(s.dst)()
	}
	for n > 0 {
		m := s.unseen(n)
		if m >= spliceFrom && s.from.Buffered() == 0 {
			if err := s.splice(m); err != nil {
				return err
			}
			s.source.sips = true // another may follow, here or in the next frame
			n -= m
			continue
		}
		if m < spliceFrom && m > 0 {
			s.source.sips = false
		}
		m, err := s.chunk(n)
		if err != nil {
			return err
		}
		n -= m
	}
	return nil
}

// unseen is how many of the next n bytes nobody has to see.
func (s stream) unseen(n int) int {
	switch {
	case s.dst == nil:
		return 0
	case s.see == nil:
		return n
	case s.skip == nil:
		return 0
	}
	return min(n, s.skip.Ahead())
}

// heardEvery is how much the kernel moves in one go: in between it is known that the client is still there.
const heardEvery = 1 << 20

// splice has the kernel move bytes: nothing of theirs is in the buffer.
func (s stream) splice(n int) error {
	if s.see != nil {
		s.skip.Skip(n)
	}
	if s.life != nil {
		defer s.life.heard()
	}
	for ; n > 0; n -= min(n, heardEvery) {
		if s.life != nil {
			s.life.listen()
		}
		if s.renew != nil {
			s.renew()
		}
		if err := s.move(min(n, heardEvery)); err != nil {
			return err
		}
	}
	return nil
}

func (s stream) move(n int) error {
	m, err := s.dst.ReadFrom(&io.LimitedReader{R: s.src, N: int64(n)})
	if err == nil && m < int64(n) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// chunk passes what the buffer holds of the next n bytes, or what the next read gives.
func (s stream) chunk(n int) (int, error) {
	if _, err := s.from.Peek(1); err != nil {
		return 0, midFrame(err)
	}
	b, err := s.from.Peek(min(n, s.from.Buffered()))
	if err != nil {
		return 0, err
	}
	if s.see != nil {
		if err := s.see(b); err != nil {
			return 0, err
		}
	}
	if err := s.write(b); err != nil {
		return 0, err
	}
	return s.from.Discard(len(b))
}

func midFrame(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
