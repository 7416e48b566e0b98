package history

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
	"github.com/rewind-kafka/rewind/remotestorage"
)

var update = flag.Bool("update", false, "write the frames of testdata that are not there yet")

// today names the frames that are written now. When what is sent changes: a new name here, -update, and the old files stay, for there are peers that send them.
const today = "1"

// golden compares a frame with the one that is kept, in hexadecimal digits.
func golden(t *testing.T, name string, frame []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+"-"+today+".hex")
	want, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && *update {
		var b strings.Builder
		for line := range slices.Chunk(frame, 32) {
			fmt.Fprintf(&b, "%x\n", line)
		}
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(b.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(unhex(t, want), frame) {
		t.Errorf("%s is\n%x\nand was\n%x\nPeers of both versions will meet: is it meant?", name, frame, unhex(t, want))
	}
}

func unhex(t *testing.T, text []byte) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// kept gives every frame of a name that is kept, of today and of before.
func kept(t *testing.T, name string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", name+"-*.hex"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in testdata, %v", name, err)
	}
	frames := make(map[string][]byte)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		frames[f] = unhex(t, text)
	}
	return frames
}

var goldenLocation = remotestorage.Location{
	RemoteLogSegmentID: remotestorage.UUID{0, 0, 7, 1}, StorageFormatVersion: remotestorage.StorageFormatApacheKafkaV1, BaseOffset: 0, EndOffset: 49, LastOffset: 49,
	SegmentSizeInBytes: 5500, StartPosition: 1000, EndPosition: 5500, RemoteLogSegmentLocation: "s3://bucket/history-0/0.log",
	SignedRemoteLogSegmentLocation: "https://bucket.s3.amazonaws.com/history-0/0.log?signature=example", SignedLocationExpiryMs: 1_900_000_000_000, CustomMetadata: []byte{1, 2, 3},
}

// What the library asks today: a fetch with all our tags.
func TestGoldenRequest(t *testing.T) {
	for _, version := range []int16{12, 17} {
		name := fmt.Sprintf("library-fetch-request-v%d", version)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		d := newDialer(t, dialOptions{RemoteMaxPartitionFetchBytes: 1 << 20})
		client, err := d.DialContext(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		p := &fakePart{topic: &fakeTopic{name: "history", id: remotestorage.UUID{0: 1, 15: 9}}}
		(&rawClient{t: t, conn: client}).send(fetchOf(version, 0, ask{p, 20, 3, 2}))
		broker, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer broker.Close()
		if err := broker.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		frame, err := wire.ReadFrame(broker, 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, frame)
		for file, frame := range kept(t, name) {
			h, err := wire.ParseRequestHeader(frame)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			req := kmsg.NewPtrFetchRequest()
			req.Version = h.Version
			if err := req.ReadFrom(h.Body); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			part := &req.Topics[0].Partitions[0]
			asks, err1 := wire.LocationRequested(part)
			formats, err2 := wire.SupportedStorageFormatVersions(req)
			limit, err3 := wire.RemotePartitionMaxBytes(part)
			if err := errors.Join(err1, err2, err3); err != nil || !asks || !slices.Equal(formats, []string{"ApacheKafkaV1"}) || limit != 1<<20 || part.FetchOffset != 20 || !capable(req) {
				t.Errorf("%s: asks %t, formats %q, limit %d, offset %d, %v", file, asks, formats, limit, part.FetchOffset, err)
			}
		}
	}
}

// What the gateway answers today: a location, and what the library makes of it.
func TestGoldenResponse(t *testing.T) {
	for _, version := range []int16{12, 17} {
		name := fmt.Sprintf("gateway-fetch-response-v%d", version)
		b := newFakeBroker(t)
		p := b.topic("history", 1).parts[0]
		b.history(p, 1, 5, 10, 1000)
		b.set(func() {
			p.aborted = []abortedTxn{{7, 30, 90}}
			b.change = func(_ *fakePart, l *remotestorage.Location) { *l = goldenLocation }
		})
		d, _ := resolving(t, b, dialOptions{Change: offering})
		c := dialRaw(t, d, b)
		c.send(asking(version, true, at(p, 20)))
		frame, err := wire.ReadFrame(c.conn, 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, frame)
		for file, frame := range kept(t, name) {
			_, body, err := wire.ResponseBody(frame, keyFetch, version)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			resp := kmsg.NewPtrFetchResponse()
			resp.Version = version
			if err := resp.ReadFrom(body); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			part := &resp.Topics[0].Partitions[0]
			l, err := wire.PartitionLocation(part)
			if err != nil || l == nil || !reflect.DeepEqual(*l, goldenLocation) || part.HighWatermark != 60 || len(part.AbortedTransactions) != 1 || len(part.RecordBatches) > 0 {
				t.Errorf("%s: %+v, %v; %+v", file, l, err, part)
			}
		}
	}
}
