// Package versionshim stands between two peers of today and makes each look to the other like one of another version: it decodes the fetches that go by, has a test
// change them, and passes everything else on as it is.
//
// Tests import it. A Shim owns its goroutines; Close waits for them.
package versionshim

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

const (
	keyFetch = 1
	maxFrame = 100 << 20
)

// Change is what happens to fetches on their way; nil: nothing.
type Change struct {
	Request  func(*kmsg.FetchRequest)
	Response func(*kmsg.FetchResponse)
}

// Shim is a listener whose connections lead to one address.
type Shim struct {
	l      net.Listener
	to     string
	change Change

	running sync.WaitGroup
	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	closed  bool
	err     error // of what could not be understood
}

// Listen opens a Shim before an address.
func Listen(to string, c Change) (*Shim, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Shim{l: l, to: to, change: c, conns: make(map[net.Conn]struct{})}
	s.running.Go(s.accept)
	return s, nil
}

// Addr is where it listens.
func (s *Shim) Addr() string { return s.l.Addr().String() }

// Close ends all connections, and tells what could not be understood of what went by.
func (s *Shim) Close() error {
	err := s.l.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return errors.Join(err, s.err)
}

func (s *Shim) accept() {
	for {
		client, err := s.l.Accept()
		if err != nil {
			return
		}
		s.running.Go(func() { s.carry(client) })
	}
}

// keep takes note of an end that Close is to close; false if it has.
func (s *Shim) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	return !s.closed
}

func (s *Shim) drop(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *Shim) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errors.Join(s.err, err)
}

// asked is a request whose response is to come.
type asked struct{ key, version int16 }

func (s *Shim) carry(client net.Conn) {
	defer s.drop(client)
	if !s.keep(client) {
		return
	}
	server, err := net.Dial("tcp", s.to)
	if err != nil {
		return // whoever dials hears of it
	}
	defer s.drop(server)
	if !s.keep(server) {
		return
	}
	// More than any client has under way: who asks never waits for who answers.
	owed := make(chan asked, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.responses(server, client, owed)
		_ = client.Close()
	}()
	s.requests(client, server, owed)
	_ = server.Close()
	<-done
}

func (s *Shim) requests(from, to net.Conn, owed chan<- asked) {
	for {
		frame, err := wire.ReadFrame(from, maxFrame, nil)
		if err != nil {
			return
		}
		h, err := wire.ParseRequestHeader(frame)
		if err != nil {
			s.failed(err)
			return
		}
		out := whole(frame)
		if h.Key == keyFetch && s.change.Request != nil {
			req := kmsg.NewPtrFetchRequest()
			req.Version = h.Version
			if err := req.ReadFrom(h.Body); err != nil {
				s.failed(fmt.Errorf("fetch request, version %d: %w", h.Version, err))
				return
			}
			s.change.Request(req)
			out = wire.AppendRequest(nil, req, h.CorrelationID, h.ClientID)
		}
		owed <- asked{h.Key, h.Version}
		if _, err := to.Write(out); err != nil {
			return
		}
	}
}

func (s *Shim) responses(from, to net.Conn, owed <-chan asked) {
	for {
		frame, err := wire.ReadFrame(from, maxFrame, nil)
		if err != nil {
			return
		}
		q, out := <-owed, whole(frame)
		if q.key == keyFetch && s.change.Response != nil {
			id, body, err := wire.ResponseBody(frame, q.key, q.version)
			resp := kmsg.NewPtrFetchResponse()
			resp.Version = q.version
			if err == nil {
				err = resp.ReadFrom(body)
			}
			if err != nil {
				s.failed(fmt.Errorf("fetch response, version %d: %w", q.version, err))
				return
			}
			s.change.Response(resp)
			out = wire.AppendResponse(nil, resp, id)
		}
		if _, err := to.Write(out); err != nil {
			return
		}
	}
}

func whole(frame []byte) []byte {
	n := len(frame)
	return slices.Concat([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, frame)
}
