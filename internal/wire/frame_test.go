package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func frameOf(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestReadFrame(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789"), 50_000)
	for _, body := range [][]byte{{}, []byte("x"), big[:firstRead], big[:firstRead+1], big} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader} {
			r := wrap(bytes.NewReader(append(frameOf(body), "next"...)))
			got, err := ReadFrame(r, 1<<20, nil)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%s, %d bytes: got %d, %v", name, len(body), len(got), err)
			}
			if rest, _ := io.ReadAll(r); string(rest) != "next" {
				t.Errorf("%s, %d bytes: %d bytes left", name, len(body), len(rest))
			}
		}
	}
}

func TestReadFrameUsesTheBuffer(t *testing.T) {
	buf := make([]byte, 100)
	got, err := ReadFrame(bytes.NewReader(frameOf([]byte("hello"))), 100, buf)
	if err != nil || &got[0] != &buf[0] {
		t.Error("another buffer was taken", err)
	}
}

// A sender that claims a large frame and sends little must not make us allocate what it claimed.
func TestReadFrameMemoryFollowsArrival(t *testing.T) {
	claim := binary.BigEndian.AppendUint32(nil, 1<<30)
	r := bytes.NewReader(append(claim, make([]byte, 100)...))
	allocs := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			r.Reset(append(claim, make([]byte, 100)...))
			if _, err := ReadFrame(r, 1<<30, nil); !errors.Is(err, io.ErrUnexpectedEOF) {
				b.Fatal(err)
			}
		}
	})
	if got := allocs.AllocedBytesPerOp(); got > 2*firstRead {
		t.Errorf("%d bytes allocated for a claim of 1 GiB and 100 bytes sent", got)
	}
}

func TestReadFrameErrors(t *testing.T) {
	tests := []struct {
		name, in string
		want     error
		text     string
	}{
		{"closed between frames", "", io.EOF, ""},
		{"cut size", "\x00\x00", io.ErrUnexpectedEOF, ""},
		{"cut body", "\x00\x00\x00\x05ab", io.ErrUnexpectedEOF, ""},
		{"nothing of the body", "\x00\x00\x00\x05", io.ErrUnexpectedEOF, ""},
		{"too large", "\x00\x01\x00\x00", ErrFrameTooLarge, "65536 bytes, limit 1000"},
		{"negative", "\xff\xff\xff\xff", ErrMalformed, "-1"},
		{"TLS alert", "\x15\x03\x03\x00\x02", ErrFrameTooLarge, "TLS"},
		{"TLS hello", "\x16\x03\x01\x02", ErrFrameTooLarge, "TLS"},
		{"HTTP", "HTTP/1.1 400", ErrFrameTooLarge, "HTTP"},
	}
	for _, tt := range tests {
		_, err := ReadFrame(strings.NewReader(tt.in), 1000, nil)
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x05hello"), 3)
	f.Add([]byte("\x7f\xff\xff\xffhello"), 0)
	f.Fuzz(func(t *testing.T, in []byte, have int) {
		r := bytes.NewReader(in)
		got, err := ReadFrame(r, 1<<20, make([]byte, min(max(have, 0), 1<<16)))
		if err != nil {
			return
		}
		if !bytes.Equal(got, in[4:4+len(got)]) || r.Len() != len(in)-4-len(got) {
			t.Errorf("read %d bytes, %d are left of %d", len(got), r.Len(), len(in))
		}
	})
}
