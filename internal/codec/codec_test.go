package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/s2"
)

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var d Decoder
	defer d.Close()
	for _, size := range []int{0, 1, 100, 40_000, 1 << 20} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rng.IntN(4))
		}
		for c := int8(None); c <= Zstd; c++ {
			b, err := Encode([]byte("before"), c, data)
			if err != nil || !bytes.HasPrefix(b, []byte("before")) {
				t.Fatalf("codec %d: %v", c, err)
			}
			b = b[len("before"):]
			got, err := d.Decode(nil, c, b, size)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("codec %d, %d bytes: %d back, %v", c, size, len(got), err)
			}
			if c == None || size == 0 {
				continue
			}
			if _, err := d.Decode(nil, c, b, size-1); !errors.Is(err, ErrTooLarge) {
				t.Errorf("codec %d over the limit: %v", c, err)
			}
			if _, err := d.Decode(nil, c, b[:len(b)-len(b)/3-1], size); !errors.Is(err, ErrCorrupt) {
				t.Errorf("codec %d cut: %v", c, err)
			}
		}
	}
	if _, err := d.Decode(nil, 5, nil, 1); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, err := Encode(nil, 5, nil); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// TestRawSnappy: producers that are not Java leave the framing away.
func TestRawSnappy(t *testing.T) {
	var d Decoder
	data := bytes.Repeat([]byte("abc"), 1000)
	got, err := d.Decode(nil, Snappy, s2.EncodeSnappy(nil, data), len(data))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := d.Decode(nil, Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x07, 0}, 1<<31-1); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a block that claims to be huge: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for c := int8(None); c <= Zstd; c++ {
		b, err := Encode(nil, c, []byte("some records, some records"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(c, b)
	}
	f.Fuzz(func(t *testing.T, c int8, b []byte) {
		var d Decoder
		defer d.Close()
		out, err := d.Decode(nil, c, b, 1<<16)
		if c != None && err == nil && len(out) > 1<<16 {
			t.Fatal(fmt.Sprint(len(out), " bytes"))
		}
	})
}
