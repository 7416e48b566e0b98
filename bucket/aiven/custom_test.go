package aiven

import (
	"encoding/hex"
	"testing"

	"github.com/rewind-kafka/rewind/remotestorage"
)

func TestCustomMetadata(t *testing.T) {
	for text, want := range map[string]customMetadata{
		"":                         {remoteSize: -1},
		"00":                       {remoteSize: -1},
		"020002c801020404666f6f":   {remoteSize: 100, key: "foo", hasObject: true},
		"010101" + "01":            {remoteSize: -1, hasPrefix: true}, // an empty prefix is one
		"02" + "01020278" + "0700": {remoteSize: -1, prefix: "x", hasPrefix: true},
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseCustomMetadata(b); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"01", "0100", "010002c8", "010003c80101", "0001", "020002c8010002c801", "ffffffffffffffffffff01", "0102020566", "01020100", "010100", "ff00", "01808080801000",
	} {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseCustomMetadata(b); err == nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// TestBaseOfKey: a recorded key that is not of the segment's name says nothing.
func TestBaseOfKey(t *testing.T) {
	var id remotestorage.RemoteLogSegmentID
	id.Topic, id.Partition, id.ID = "t", 3, remotestorage.UUID{1}
	name := segmentName(id, 42)
	if name != "t-AAAAAAAAAAAAAAAAAAAAAA/3/00000000000000000042-AQAAAAAAAAAAAAAAAAAAAA" {
		t.Errorf("name %s", name)
	}
	for key, want := range map[string]bool{
		name: true, name + ".log": true, name[:len(name)-1]: false, "x" + name: false, "": false, segmentName(remotestorage.RemoteLogSegmentID{}, 42): false,
		"t-AAAAAAAAAAAAAAAAAAAAAA/3/0000000000000000004x-AQAAAAAAAAAAAAAAAAAAAA": false,
	} {
		c := customMetadata{key: key}
		if base, ok := c.base(id); ok != want || ok && base != 42 {
			t.Errorf("%q: %d, %v", key, base, ok)
		}
	}
}

func TestBufferClasses(t *testing.T) {
	last := -1
	for n := 1; n <= maxChunk+sealSize+zstdSlack; n += 1 + n/50 {
		place, size := class(n)
		again, sizeAgain := class(size)
		if size < n || n > 8192 && size > n+n/8+1 || again != place || sizeAgain != size || place < last || place >= classCount {
			t.Fatalf("%d bytes: class %d of %d bytes, which is in class %d of %d", n, place, size, again, sizeAgain)
		}
		last = place
	}
}
