package clientconn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

type filterFuncs struct {
	handlerFuncs
	wantsResponse func(key, version int16) bool
	filter        func(key, version int16, frame []byte) ([]byte, error)
}

func (f filterFuncs) WantsResponse(k, v int16) bool { return f.wantsResponse(k, v) }
func (f filterFuncs) FilterResponse(k, v int16, b []byte) ([]byte, error) {
	return f.filter(k, v, b)
}

// longer doubles the body of every response to Metadata.
var longer = filterFuncs{
	wantsResponse: func(k, v int16) bool { return k == 3 && v == 1 },
	filter: func(_, _ int16, frame []byte) ([]byte, error) {
		frame = append(frame, frame[8:]...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		return frame, nil
	},
}

func TestFilterTakesResponsesWhole(t *testing.T) {
	h := longer
	h.wants = func(k, v int16) bool { return k == 3 && v == 1 }
	h.answer = func(context.Context, wire.RequestHeader) (Answer, error) { return Answer{}, ErrForward }
	for name, handler := range map[string]Handler{"streamed requests": longer, "requests given back": h} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, handler, Options{})
			r.send(2, 1, 10, nil) // not wanted
			r.send(3, 1, 11, nil)
			r.send(3, 2, 12, nil) // another version
			body := bytes.Repeat([]byte("meta"), 50_000)
			for i := range 3 {
				q := r.arrived()
				go r.answer(q.CorrelationID, body)
				want := string(body)
				if i == 1 {
					want += want
				}
				r.expect(10+int32(i), want)
			}
		})
	}
}

// What is ours never passes a filter.
func TestFilterLeavesOwnResponsesAlone(t *testing.T) {
	h := longer
	h.wantsResponse = func(int16, int16) bool { return true }
	r := newRig(t, h, Options{})
	got := make(chan error)
	go func() {
		_, err := r.conn.Request(context.Background(), kmsg.NewPtrApiVersionsRequest())
		got <- err
	}()
	r.answer(r.arrived().CorrelationID, kmsg.NewPtrApiVersionsResponse().AppendTo(nil))
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestFilterFails(t *testing.T) {
	mine := errors.New("mine")
	h := longer
	h.filter = func(int16, int16, []byte) ([]byte, error) { return nil, mine }
	r := newRig(t, h, Options{})
	r.send(3, 1, 1, nil)
	r.answer(r.arrived().CorrelationID, []byte("m"))
	if err := <-r.done; !errors.Is(err, mine) {
		t.Error(err)
	}
}

func TestFilterMakesNoFrame(t *testing.T) {
	for name, out := range map[string]string{"short": "\x00\x00\x00\x00", "another size": "\x00\x00\x00\x05\x00\x00\x00\x01", "another id": "\x00\x00\x00\x04\x00\x00\x00\x02"} {
		t.Run(name, func(t *testing.T) {
			h := longer
			h.filter = func(int16, int16, []byte) ([]byte, error) { return []byte(out), nil }
			r := newRig(t, h, Options{})
			r.send(3, 1, 1, nil)
			r.answer(r.arrived().CorrelationID, []byte("m"))
			if err := <-r.done; !errors.Is(err, wire.ErrMalformed) {
				t.Error(err)
			}
		})
	}
}

func TestFilterHasALimit(t *testing.T) {
	r := newRig(t, longer, Options{MaxFilteredBytes: 100})
	r.send(3, 1, 1, nil)
	r.answer(r.arrived().CorrelationID, make([]byte, 96))
	r.expect(1, string(make([]byte, 192)))
	r.send(3, 1, 1, nil)
	r.answer(r.arrived().CorrelationID, make([]byte, 97))
	if err := <-r.done; !errors.Is(err, wire.ErrFrameTooLarge) {
		t.Error(err)
	}
}

// SASL tokens have no header: they pass by every filter, in v0 as in v1.
func TestFilterAndAuthentication(t *testing.T) {
	h := longer
	r := newRig(t, h, Options{})
	r.send(17, 0, 1, []byte("\x00\x05PLAIN"))
	q := r.arrived()
	r.answer(q.CorrelationID, []byte("hs"))
	r.expect(1, "hs")
	r.raw([]byte("\x00\x00\x00\x00\x00\x03\x00\x01"))
	if f, err := wire.ReadFrame(r.fromUs, 100, nil); err != nil || string(f) != "\x00\x03\x00\x01" {
		t.Fatalf("%q %v", f, err)
	}
	if _, err := r.broker.Write([]byte("\x00\x00\x00\x02ok")); err != nil {
		t.Fatal(err)
	}
	expectBytes(t, r.toThem, "\x00\x00\x00\x02ok")
	r.send(3, 1, 2, nil)
	r.answer(r.arrived().CorrelationID, []byte("m"))
	r.expect(2, "mm")
}
