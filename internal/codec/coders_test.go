package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/klauspost/compress/s2"
)

// levels are those that a topic may ask for.
var levels = map[int8][]int{None: {0}, Gzip: {-1, 1, 5, 9}, Snappy: {0}, LZ4: {1, 8, 9, 10, 17}, Zstd: {-131072, -1, 0, 1, 3, 7, 10, 22}}

func samples() [][]byte {
	rng := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	return [][]byte{{7}, bytes.Repeat([]byte("some words, "), 30_000), noise, make([]byte, 1<<20)}
}

func TestCodersRoundTrip(t *testing.T) {
	var c Coders
	var d Decoder
	defer d.Close()
	for codec, ls := range levels {
		for _, level := range ls {
			for _, data := range samples() {
				name := fmt.Sprintf("codec %d level %d, %d bytes", codec, level, len(data))
				b, err := c.Encode([]byte("before"), codec, level, data, 2<<20)
				if err != nil || !bytes.HasPrefix(b, []byte("before")) {
					t.Fatalf("%s: %v", name, err)
				}
				b = b[len("before"):]
				if back, err := d.Decode(nil, codec, b, len(data)); err != nil || !bytes.Equal(back, data) {
					t.Errorf("%s: the decoder gives %d bytes, %v", name, len(back), err)
				}
				size := int64(len(data))
				most, sure := Room(codec, b, size)
				if !sure {
					most = size
				}
				room := make([]byte, 3, 3+most)
				back, err := c.Decode(room, codec, b, size)
				if codec != None && (err != nil || !bytes.Equal(back[3:], data) || &back[0] != &room[0]) {
					t.Errorf("%s: %d bytes in their place, %v", name, len(back), err)
				}
				if _, err := c.Encode(nil, codec, level, data, len(b)); err != nil {
					t.Errorf("%s: as much as it takes: %v", name, err)
				}
				if _, err := c.Encode(nil, codec, level, data, len(b)-1); !errors.Is(err, ErrTooLarge) {
					t.Errorf("%s: a byte less: %v", name, err)
				}
				if codec == None {
					continue
				}
				if _, err := c.Decode(room[:0], codec, b, size-1); !errors.Is(err, ErrTooLarge) {
					t.Errorf("%s: with a lower limit: %v", name, err)
				}
				if _, err := c.Decode(room[:0:most-1], codec, b, size); !errors.Is(err, ErrTooLarge) {
					t.Errorf("%s: into a byte less: %v", name, err)
				}
				if codec != LZ4 && len(data) > 1 && most != size {
					t.Errorf("%s: said to take %d", name, most)
				}
			}
		}
	}
	if _, err := c.Decode(nil, 5, []byte{1}, 1); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, err := c.Encode(nil, 5, 0, []byte{1}, 10); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// TestLevels: one that is much higher makes less of the same.
func TestLevels(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var data []byte
	for len(data) < 200_000 {
		data = fmt.Appendf(data, "{\"user\":%d,\"action\":\"view\",\"page\":\"/products/%d\",\"ms\":%d}\n", rng.IntN(5000), rng.IntN(300), rng.IntN(90))
	}
	var c Coders
	size := func(codec int8, level int) int {
		b, err := c.Encode(nil, codec, level, data, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	for _, tc := range []struct {
		codec     int8
		low, high int
	}{{Gzip, 1, 9}, {LZ4, lz4Default, 17}, {Zstd, 3, 22}} {
		if low, high := size(tc.codec, tc.low), size(tc.codec, tc.high); high >= low {
			t.Errorf("codec %d: %d bytes at level %d, %d at level %d", tc.codec, low, tc.low, high, tc.high)
		}
	}
}

// TestCodersServeMany: what they keep is nobody's but the one's that is at work with it.
func TestCodersServeMany(t *testing.T) {
	var c Coders
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			codec := int8(i%4 + 1)
			data := bytes.Repeat(fmt.Appendf(nil, "%d ", i), 5000)
			for range 20 {
				b, err := c.Encode(nil, codec, levels[codec][0], data, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				if back, err := c.Decode(make([]byte, 0, len(data)), codec, b, 1<<20); err != nil || !bytes.Equal(back, data) {
					t.Errorf("codec %d: %d bytes, %v", codec, len(back), err)
				}
				if _, err := c.Decode(make([]byte, 0, len(data)), codec, b[:len(b)/2], 1<<20); err == nil {
					t.Errorf("codec %d: half of it was taken for all", codec)
				}
			}
		})
	}
	all.Wait()
}

// TestCodersTakeNoMoreThanTheyAreGiven: what says that it is huge, and what is.
func TestCodersTakeNoMoreThanTheyAreGiven(t *testing.T) {
	const room = 64 << 10
	zeros := make([]byte, 64<<20)
	for codec := int8(Gzip); codec <= Zstd; codec++ {
		bomb, err := Encode(nil, codec, zeros)
		if err != nil {
			t.Fatal(err)
		}
		var c Coders
		dst := make([]byte, 0, room)
		if _, err := c.Decode(dst, codec, bomb, room); !errors.Is(err, ErrTooLarge) { // makes what is kept
			t.Errorf("codec %d: %v", codec, err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = c.Decode(dst, codec, bomb, room)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrTooLarge) || took > 1<<20 {
			t.Errorf("codec %d: %d bytes were taken, %v", codec, took, err)
		}
	}
	// A frame of zstd that claims a window of 128 MiB, and a content of 2 GiB, and holds a byte.
	lying := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xc0, 17 << 3}
	lying = binary.LittleEndian.AppendUint64(lying, 2<<30)
	lying = append(lying, 9, 0, 0, 'x')
	var c Coders
	var before, after runtime.MemStats
	if _, err := c.Decode(make([]byte, 0, room), Zstd, lying, room); err == nil {
		t.Error("it was taken for good")
	}
	runtime.ReadMemStats(&before)
	_, _ = c.Decode(make([]byte, 0, room), Zstd, lying, room)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("%d bytes were taken for a claim", took)
	}
}

// TestZstdWithoutContentSize: as Java's producers write it, with blocks of any kind. There is room for it by what the blocks say, and what is damaged is not taken
// for what is too large, or the other way round.
func TestZstdWithoutContentSize(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var c Coders
	for _, size := range []int{1, 1000, zstdBlock - 1, zstdBlock, zstdBlock + 1, 1 << 20} {
		for kind, data := range map[string][]byte{"zeros": make([]byte, size), "words": bytes.Repeat([]byte("word "), size/5+1)[:size], "noise": make([]byte, size)} {
			if kind == "noise" {
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
			}
			b, err := Encode(nil, Zstd, data) // a stream
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, b...)
			data = append(data, data...)
			want := int64(len(data))
			most, sure := Room(Zstd, b, want)
			got, err := c.Decode(make([]byte, 0, most), Zstd, b, want)
			if !sure || most > want+2*zstdBlock || err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes of %s: room %d, %t: %d bytes, %v", size, kind, most, sure, len(got), err)
			}
			if _, err := c.Decode(make([]byte, 0, most), Zstd, b, want-1); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%d bytes of %s, a lower limit: %v", size, kind, err)
			}
			for _, at := range []int{len(b) - 1, len(b) / 3} {
				broken := bytes.Clone(b)
				broken[at] ^= 0xff
				most, _ := Room(Zstd, broken, want)
				if _, err := c.Decode(make([]byte, 0, most), Zstd, broken, want); err == nil {
					t.Errorf("%d bytes of %s, broken at %d: taken", size, kind, at)
				}
			}
		}
	}
}

// TestCodersReadAsKafka: where Kafka's clients stop, and what they read on.
func TestCodersReadAsKafka(t *testing.T) {
	data := bytes.Repeat([]byte("abc"), 30_000)
	twice := append(data[:len(data):len(data)], data...)
	var c Coders
	read := func(codec int8, b []byte) ([]byte, error) { return c.Decode(make([]byte, 0, 1<<20), codec, b, 1<<20) }
	for codec, want := range map[int8][]byte{Gzip: twice, Snappy: twice, LZ4: data, Zstd: twice} {
		one, err := Encode(nil, codec, data)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(codec, append(one[:len(one):len(one)], one...)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("codec %d twice: %d bytes, %v", codec, len(got), err)
		}
	}
	if got, err := read(Snappy, s2.EncodeSnappy(nil, data)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("snappy without framing: %d bytes, %v", len(got), err)
	}
	lz4, err := Encode(nil, LZ4, data)
	if err != nil {
		t.Fatal(err)
	}
	dependent := bytes.Clone(lz4)
	dependent[4] &^= 0x20
	for name, b := range map[string][]byte{"nothing": nil, "dependent blocks": dependent, "without its end": lz4[:len(lz4)-4], "a skippable frame": {0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0}} {
		if _, err := read(LZ4, b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("lz4, %s: %v", name, err)
		}
	}
	if _, err := read(Snappy, append(bytes.Clone(xerialHeader), 0x82, 'S', 'N', 'A', 'P')); !errors.Is(err, ErrCorrupt) {
		t.Errorf("snappy, a second header that is cut off: %v", err)
	}
}

// FuzzCoders: whatever comes, it stays in its place.
// What Coders have let in, behind whatever the frame is, the Decoder that opens it later reads the same: or one such batch would stop the compaction of its log for good.
func TestWhatWasLetInIsRead(t *testing.T) {
	data := bytes.Repeat([]byte("some records, "), 5000)
	for c := int8(Gzip); c <= Zstd; c++ {
		b, err := Encode(nil, c, data)
		if err != nil {
			t.Fatal(err)
		}
		for _, behind := range [][]byte{nil, {0}, []byte("something else that follows"), make([]byte, 8), b} {
			var coders Coders
			var d Decoder
			src := slices.Concat(b, behind)
			let, err := coders.Decode(make([]byte, 0, 1<<20), c, src, 1<<20)
			if err != nil {
				continue
			}
			if got, err := d.Decode(nil, c, src, 1<<20); err != nil || !bytes.Equal(got, let) {
				t.Errorf("codec %d, %d bytes behind it: %d bytes, let in as %d: %v", c, len(behind), len(got), len(let), err)
			}
			d.Close()
		}
	}
}

func FuzzCoders(f *testing.F) {
	for codec := int8(Gzip); codec <= Zstd; codec++ {
		b, err := Encode(nil, codec, bytes.Repeat([]byte("a seed "), 50))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(codec, b)
		f.Add(codec, append(b[:len(b):len(b)], b...))
	}
	var c Coders
	f.Fuzz(func(t *testing.T, codec int8, b []byte) {
		if codec == None {
			return
		}
		room := make([]byte, 1<<16)
		got, err := c.Decode(room[:0], codec, b, 1<<16)
		if most, _ := Room(codec, b, 1<<16); most < 0 || most > 1<<16+zstdLoose {
			t.Errorf("room of %d", most)
		}
		if err == nil && len(got) > 0 && (&got[0] != &room[0] || len(got) > len(room)) {
			t.Errorf("%d bytes elsewhere", len(got))
		}
	})
}
