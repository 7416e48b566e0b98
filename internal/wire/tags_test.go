package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/remotestorage"
)

// The tags must survive the way through a whole request, in every flexible version, and vanish where there are no tags.
func TestTagsTravel(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		part := kmsg.NewFetchRequestTopicPartition()
		SetLocationRequested(&part, true)
		SetRemotePartitionMaxBytes(&part, 4<<20)
		topic := kmsg.NewFetchRequestTopic()
		topic.Partitions = append(topic.Partitions, part)
		req := kmsg.NewPtrFetchRequest()
		req.Version = version
		req.Topics = append(req.Topics, topic)
		SetSupportedStorageFormatVersions(req, []string{"ApacheKafkaV1", "Later"})

		got := kmsg.NewPtrFetchRequest()
		got.Version = version
		if err := got.ReadFrom(req.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		p := &got.Topics[0].Partitions[0]
		asked, err1 := LocationRequested(p)
		limit, err2 := RemotePartitionMaxBytes(p)
		formats, err3 := SupportedStorageFormatVersions(got)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		if version < 12 {
			if asked || limit != -1 || formats != nil {
				t.Errorf("v%d: %v %d %v", version, asked, limit, formats)
			}
			continue
		}
		if !asked || limit != 4<<20 || !reflect.DeepEqual(formats, []string{"ApacheKafkaV1", "Later"}) {
			t.Errorf("v%d: %v %d %v", version, asked, limit, formats)
		}
	}
}

func TestTagsUnset(t *testing.T) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.UnknownTags.Set(77, []byte("kept"))
	SetLocationRequested(&p, true)
	SetLocationRequested(&p, false)
	SetRemotePartitionMaxBytes(&p, 5)
	SetRemotePartitionMaxBytes(&p, -1)
	if asked, err := LocationRequested(&p); asked || err != nil {
		t.Error(asked, err)
	}
	if n, err := RemotePartitionMaxBytes(&p); n != -1 || err != nil {
		t.Error(n, err)
	}
	if v, ok := findTag(&p.UnknownTags, 77); !ok || string(v) != "kept" || p.UnknownTags.Len() != 1 {
		t.Error("another's tag was lost")
	}
}

func TestTagsMalformed(t *testing.T) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.UnknownTags.Set(TagRemoteLogSegmentLocationRequested, nil)
	p.UnknownTags.Set(TagRemotePartitionMaxBytes, []byte{1})
	r := kmsg.NewPtrFetchRequest()
	r.UnknownTags.Set(TagSupportedStorageFormatVersions, []byte{0xff, 0xff, 0xff, 0x7f})
	_, err1 := LocationRequested(&p)
	_, err2 := RemotePartitionMaxBytes(&p)
	_, err3 := SupportedStorageFormatVersions(r)
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
	}
}

// Golden bytes: the encoding of docs/format/wire.md must not change by accident, or a client of last year stops reading directly.
const goldenLocation = "010203000000000000000000000000000e4170616368654b61666b6156310000000000000064000000000000038400000000000003200000000000001388" +
	"000000000000000a0000000000000fa01073333a2f2f6275636b65742f6b65791c68747470733a2f2f73746f72652f6b65793f7369676e61747572650000011f71fb04cb03090800"

func TestLocationGolden(t *testing.T) {
	got := AppendLocation(nil, testLocation())
	if hex.EncodeToString(got) != goldenLocation {
		t.Errorf("got %x", got)
	}
	l, err := ParseLocation(got)
	if err != nil || !reflect.DeepEqual(l, testLocation()) {
		t.Errorf("%+v %v", l, err)
	}
	got[0] = 99
	if l.RemoteLogSegmentID[0] == 99 {
		t.Error("the location aliases the bytes it was read from")
	}
}

// A later writer may add tags; a reader of today steps over them.
func TestLocationMayGrow(t *testing.T) {
	b := AppendLocation(nil, testLocation())
	b = append(b[:len(b)-1], 1, 3, 2, 0xaa, 0xbb)
	if l, err := ParseLocation(b); err != nil || !reflect.DeepEqual(l, testLocation()) {
		t.Errorf("%+v %v", l, err)
	}
}

func TestLocationMalformed(t *testing.T) {
	for name, change := range map[string]func(*remotestorage.Location){
		"last before base":     func(l *remotestorage.Location) { l.LastOffset = l.BaseOffset - 1 },
		"end before last":      func(l *remotestorage.Location) { l.EndOffset = l.LastOffset - 1 },
		"negative base":        func(l *remotestorage.Location) { l.BaseOffset = -1 },
		"negative start":       func(l *remotestorage.Location) { l.StartPosition = -1 },
		"end before start":     func(l *remotestorage.Location) { l.EndPosition = l.StartPosition - 1 },
		"end behind the file":  func(l *remotestorage.Location) { l.EndPosition = l.SegmentSizeInBytes + 1 },
		"a URL without bounds": func(l *remotestorage.Location) { l.RemoteLogSegmentLocation = string(make([]byte, maxURL+1)) },
	} {
		l := testLocation()
		change(l)
		if _, err := ParseLocation(AppendLocation(nil, l)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := AppendLocation(nil, testLocation())
	for n := range good {
		if _, err := ParseLocation(good[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if _, err := ParseLocation(append(good, 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("with a byte too many: %v", err)
	}
}

func FuzzParseLocation(f *testing.F) {
	golden, err := hex.DecodeString(goldenLocation)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add(golden[:60])
	f.Fuzz(func(t *testing.T, in []byte) {
		l, err := ParseLocation(in)
		if err != nil {
			return
		}
		again, err := ParseLocation(AppendLocation(nil, l))
		if err != nil || !reflect.DeepEqual(l, again) {
			t.Errorf("%+v became %+v, %v", l, again, err)
		}
	})
}

func FuzzTags(f *testing.F) {
	f.Add([]byte{1}, []byte{0, 0, 1, 0}, []byte("\x02\x0eApacheKafkaV1"))
	f.Add([]byte{}, []byte{}, []byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		p := kmsg.NewFetchRequestTopicPartition()
		p.UnknownTags.Set(TagRemoteLogSegmentLocationRequested, a)
		p.UnknownTags.Set(TagRemotePartitionMaxBytes, b)
		r := kmsg.NewPtrFetchRequest()
		r.UnknownTags.Set(TagSupportedStorageFormatVersions, c)
		_, _ = LocationRequested(&p)
		if n, err := RemotePartitionMaxBytes(&p); err == nil && n < -1 {
			t.Error(n)
		}
		formats, err := SupportedStorageFormatVersions(r)
		if err != nil || len(formats) == 0 {
			return
		}
		SetSupportedStorageFormatVersions(r, formats)
		if again, err := SupportedStorageFormatVersions(r); err != nil || !reflect.DeepEqual(formats, again) {
			t.Errorf("%q became %q, %v", formats, again, err)
		}
		if raw, _ := findTag(&r.UnknownTags, TagSupportedStorageFormatVersions); bytes.Equal(raw, nil) {
			t.Error("no tag")
		}
	})
}
