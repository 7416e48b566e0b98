package wire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kmsg's own formatter is the judge: what it writes must be read, and we must write the same.
func TestRequestHeaderAgainstKmsg(t *testing.T) {
	id := "a client"
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		req := kmsg.RequestForKey(key)
		if req == nil || key == 7 { // ControlledShutdown v0 alone has no client id; brokers of today have no v0
			continue
		}
		for version := int16(0); version <= req.MaxVersion(); version++ {
			req.SetVersion(version)
			frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(id)).AppendRequest(nil, req, 1234)
			if ours := AppendRequest(nil, req, 1234, &id); !bytes.Equal(ours, frame) {
				t.Errorf("key %d version %d: we write\n%x\nkmsg\n%x", key, version, ours, frame)
			}
			h, err := ParseRequestHeader(frame[4:])
			if err != nil || h.Key != key || h.Version != version || h.CorrelationID != 1234 || h.ClientID == nil || *h.ClientID != id {
				t.Errorf("key %d version %d: %+v %v", key, version, h, err)
			}
			if body := req.AppendTo(nil); !bytes.Equal(h.Body, body) {
				t.Errorf("key %d version %d: body %x, want %x", key, version, h.Body, body)
			}
		}
	}
}

func TestResponseHeader(t *testing.T) {
	tests := []struct {
		resp  kmsg.Response
		v     int16
		bytes int
	}{
		{kmsg.NewPtrApiVersionsResponse(), 4, 4}, {kmsg.NewPtrApiVersionsResponse(), 0, 4},
		{kmsg.NewPtrMetadataResponse(), 8, 4}, {kmsg.NewPtrMetadataResponse(), 9, 5}, {kmsg.NewPtrSASLHandshakeResponse(), 1, 4},
	}
	for _, tt := range tests {
		tt.resp.SetVersion(tt.v)
		if h := AppendResponseHeader(nil, tt.resp.Key(), tt.v, 5); len(h) != tt.bytes {
			t.Errorf("key %d version %d: %d bytes", tt.resp.Key(), tt.v, len(h))
		}
		frame := AppendResponse(nil, tt.resp, 5)
		corr, body, err := ResponseBody(frame[4:], tt.resp.Key(), tt.v)
		if err != nil || corr != 5 || !bytes.Equal(body, tt.resp.AppendTo(nil)) {
			t.Errorf("key %d version %d: %d %x %v", tt.resp.Key(), tt.v, corr, body, err)
		}
	}
}

func TestParseRequestHeaderErrors(t *testing.T) {
	for name, in := range map[string]string{
		"empty": "", "short": "\x00\x01\x00\x04\x00\x00\x00\x01\x00", "client id cut": "\x00\x01\x00\x04\x00\x00\x00\x01\x00\x05ab",
		"negative version": "\x00\x01\xff\xff\x00\x00\x00\x01\xff\xff", "no tags in a flexible header": "\x00\x01\x00\x0c\x00\x00\x00\x01\xff\xff",
	} {
		if _, err := ParseRequestHeader([]byte(in)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownKeyKeepsItsCorrelationID(t *testing.T) {
	h, err := ParseRequestHeader([]byte("\x7f\x01\x00\x63\x00\x00\x00\x09\xff\xffrest"))
	if err != nil || h.Key != 0x7f01 || h.Version != 99 || h.CorrelationID != 9 || h.ClientID != nil {
		t.Errorf("%+v %v", h, err)
	}
}

func FuzzParseRequestHeader(f *testing.F) {
	for _, key := range []int16{0, 1, 17, 18} {
		req := kmsg.RequestForKey(key)
		req.SetVersion(req.MaxVersion())
		f.Add(AppendRequest(nil, req, 1, kmsg.StringPtr("c"))[4:])
	}
	f.Add([]byte("\x00\x01\x00\x0c\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := ParseRequestHeader(in)
		if err == nil && (len(h.Body) > len(in)-10 || !bytes.HasSuffix(in, h.Body)) {
			t.Errorf("body %x of %x", h.Body, in)
		}
	})
}
