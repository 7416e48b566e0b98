package difftest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// side is one of the two brokers, asked over one connection. One goroutine uses it.
type side struct {
	name   string
	addr   string
	nc     net.Conn // nil: to be dialled
	id     int32
	topics map[[16]byte]string // ids that the cases may meet
	keys   []int16             // that our broker serves
}

// answer is what came of a request: a message, or nothing.
type answer struct {
	resp kmsg.Response
	how  string // "closed", "silent", "unreadable ..." where there is no message
}

const (
	// patience is how long a request may go without an answer before it counts as one that is never answered.
	patience      = 3 * time.Second
	setupPatience = 60 * time.Second
)

var errNoAnswer = errors.New("no answer")

func (s *side) close() {
	if s.nc != nil {
		s.nc.Close()
		s.nc = nil
	}
}

func (s *side) frame(req kmsg.Request) []byte {
	s.id++
	client := "difftest"
	return wire.AppendRequest(nil, req, s.id, &client)
}

// send sends a frame, whose answer is one to req, and waits for it.
func (s *side) send(frame []byte, req kmsg.Request, wait time.Duration) answer {
	if s.nc == nil {
		nc, err := net.DialTimeout("tcp", s.addr, setupPatience)
		if err != nil {
			return answer{how: fmt.Sprintf("unreachable: %v", err)}
		}
		s.nc = nc
	}
	s.nc.SetDeadline(time.Now().Add(wait))
	a := s.exchange(frame, req)
	if a.resp == nil {
		s.close()
	}
	return a
}

func (s *side) exchange(frame []byte, req kmsg.Request) answer {
	if _, err := s.nc.Write(frame); err != nil {
		return answer{how: "closed"}
	}
	got, err := wire.ReadFrame(s.nc, 64<<20, nil)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return answer{how: "silent"}
	case err != nil:
		return answer{how: "closed"}
	}
	id, body, err := wire.ResponseBody(got, req.Key(), req.GetVersion())
	if err == nil && id != int32(binary.BigEndian.Uint32(frame[8:])) {
		err = fmt.Errorf("the answer is to request %d", id)
	}
	resp := req.ResponseKind()
	if err == nil {
		err = resp.ReadFrom(body)
	}
	if err != nil {
		return answer{how: fmt.Sprintf("unreadable: %v: %.200x", err, got)}
	}
	return answer{resp: resp}
}

// ask is for setting things up: an answer there must be.
func ask[R kmsg.Response](s *side, req kmsg.Request) (r R, err error) {
	a := s.send(s.frame(req), req, setupPatience)
	if a.resp == nil {
		return r, fmt.Errorf("%s: %s v%d: %w: %s", s.name, kmsg.NameForKey(req.Key()), req.GetVersion(), errNoAnswer, a.how)
	}
	return a.resp.(R), nil
}
