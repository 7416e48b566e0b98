package wire

import (
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchOf is a request of so many topics, each with so many partitions and forgotten ones, and tags where there may be some.
func fetchOf(version int16, topics, partitions, tags int) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.Rack = version, "rack"
	for i := range topics {
		t, f := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestForgottenTopic()
		t.Topic, t.TopicID = "topic", [16]byte{byte(i)}
		f.Topic, f.TopicID = t.Topic, t.TopicID
		for j := range partitions {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition = int32(j)
			for k := range tags {
				p.UnknownTags.Set(uint32(1000+k), []byte{1})
			}
			t.Partitions, f.Partitions = append(t.Partitions, p), append(f.Partitions, p.Partition)
		}
		req.Topics, req.ForgottenTopics = append(req.Topics, t), append(req.ForgottenTopics, f)
	}
	SetSupportedStorageFormatVersions(req, []string{"ApacheKafkaV1"})
	return req
}

func TestFetchRequestUnits(t *testing.T) {
	for version := int16(0); version <= 18; version++ {
		for _, n := range [][3]int{{0, 0, 0}, {1, 1, 0}, {3, 100, 0}, {100, 3, 2}, {1000, 0, 0}} {
			body := fetchOf(version, n[0], n[1], n[2]).AppendTo(nil)
			got, err := FetchRequestUnits(body, version, math.MaxInt)
			want := n[0] * (1 + n[1])
			if version >= 7 {
				want += n[0] * (1 + n[1]/(FetchUnit/4))
			}
			if version >= 12 {
				if want += tagUnits + tagUnits/2; n[2] > 0 {
					want += n[0] * n[1] * (tagUnits + n[2]*tagUnits/2)
				}
			}
			if err != nil || got != want {
				t.Errorf("version %d, %v: %d units, want %d, %v", version, n, got, want, err)
			}
			if got, err = FetchRequestUnits(body, version, want/2); err != nil || want > 1 && got <= want/2 {
				t.Errorf("version %d, %v: %d units, more than %d, %v", version, n, got, want/2, err)
			}
			if _, err = FetchRequestUnits(body[:len(body)-1], version, math.MaxInt); !errors.Is(err, ErrMalformed) {
				t.Errorf("version %d, %v, cut: %v", version, n, err)
			}
		}
	}
}

// What decoding takes is not much more than was said of it, whatever the request is made of.
func TestDecodingTakesWhatWasSaid(t *testing.T) {
	announced := kbin.AppendArrayLen(make([]byte, 4+4+4+4+1+8), 100_000) // topics without a name and partitions
	announced = append(announced, make([]byte, 6*100_000+4+2)...)
	for name, x := range map[string]struct {
		version int16
		body    []byte
	}{
		"topics": {11, announced}, "names": {11, fetchOf(11, 30_000, 1, 0).AppendTo(nil)}, "partitions": {11, fetchOf(11, 1, 100_000, 0).AppendTo(nil)},
		"tags": {17, fetchOf(17, 1, 30_000, 1).AppendTo(nil)}, "many tags": {17, fetchOf(17, 1, 100, 1000).AppendTo(nil)},
	} {
		units, err := FetchRequestUnits(x.body, x.version, math.MaxInt)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		req := kmsg.NewPtrFetchRequest()
		req.Version = x.version
		if err := req.ReadFrom(x.body); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		took, said := int(after.TotalAlloc-before.TotalAlloc), units*FetchUnit
		if took > 2*said {
			t.Errorf("%s: %d bytes on the wire took %d, and %d were said", name, len(x.body), took, said)
		}
		t.Logf("%s: %d bytes on the wire took %d, and %d were said", name, len(x.body), took, said)
		runtime.KeepAlive(req)
	}
}

func FuzzFetchRequestUnits(f *testing.F) {
	for _, version := range []int16{4, 7, 11, 12, 13, 18} {
		f.Add(version, fetchOf(version, 2, 3, 1).AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		version &= 31
		if version > 18 {
			return
		}
		units, err := FetchRequestUnits(body, version, math.MaxInt)
		req := kmsg.NewPtrFetchRequest()
		req.Version = version
		if req.ReadFrom(body) != nil {
			return
		}
		n := len(req.Topics) + len(req.ForgottenTopics)
		for _, t := range req.Topics {
			n += len(t.Partitions)
		}
		if err != nil || units < n {
			t.Errorf("version %d: %d units for %d elements, %v", version, units, n, err)
		}
	})
}
