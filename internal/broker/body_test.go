package broker

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/wire"
)

// fill sets every field of a request at random, without tags, so that it can be encoded in any version.
func fill(rnd *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if rnd.IntN(4) == 0 {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(rnd, v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			if t := v.Addr().Interface().(*kmsg.Tags); rnd.IntN(2) == 0 {
				t.Set(rnd.Uint32()|1<<20, make([]byte, rnd.IntN(9)))
			}
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name == "Version" {
				continue
			}
			fill(rnd, v.Field(i))
		}
	case reflect.Slice:
		n := rnd.IntN(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(rnd, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(rnd, v.Index(i))
		}
	case reflect.String:
		v.SetString("abcdefgh"[:rnd.IntN(9)])
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(rnd.IntN(100)))
	case reflect.Uint8:
		v.SetUint(uint64(rnd.IntN(100)))
	}
}

// untagged takes the tags out that kmsg writes in versions that do not have them.
func untagged(r *kmsg.FetchRequest) {
	r.ReplicaState = kmsg.NewFetchRequestReplicaState()
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			p := &r.Topics[i].Partitions[j]
			clean := kmsg.NewFetchRequestTopicPartition()
			p.ReplicaDirectoryID, p.HighWatermark = clean.ReplicaDirectoryID, clean.HighWatermark
		}
	}
}

// TestShapes walks requests of every served key and version: each must be walked to its end.
func TestShapes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for key, shape := range shapes {
		req := kmsg.RequestForKey(key)
		for version := int16(0); version <= req.MaxVersion(); version++ {
			if key == keyShareFetch && version == 0 {
				continue // was dropped before a release: kmsg writes something that is none
			}
			for range 200 {
				req := kmsg.RequestForKey(key)
				fill(rnd, reflect.ValueOf(req).Elem())
				if fetch, ok := req.(*kmsg.FetchRequest); ok && version < 18 {
					untagged(fetch)
				}
				req.SetVersion(version)
				body := req.AppendTo(nil)
				if err := checkBody(key, version, body); err != nil {
					t.Fatalf("%s v%d: %v: % x", kmsg.NameForKey(key), version, err, body)
				}
				w := newWalker(key, version, body)
				w.fields(shape)
				w.tags(shape)
				if len(w.r.Src) != 0 || !w.r.Ok() {
					t.Fatalf("%s v%d: %d bytes left of %d", kmsg.NameForKey(key), version, len(w.r.Src), len(body))
				}
			}
		}
	}
}

// TestShapesAreThere: a request whose shape is not in the table would be decoded without a look at what it claims.
func TestShapesAreThere(t *testing.T) {
	for key := range startBroker(t, t.TempDir()).apis {
		if _, ok := shapes[key]; !ok {
			t.Errorf("%s is in no shape", kmsg.NameForKey(key))
		}
	}
}

// TestNullsAndTags: what the protocol does not have is refused, in the versions that do not have it.
func TestNullsAndTags(t *testing.T) {
	fetch := func(change func(*kmsg.FetchRequest)) *kmsg.FetchRequest {
		req := kmsg.NewPtrFetchRequest()
		req.Topics = []kmsg.FetchRequestTopic{{Partitions: []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}}}
		change(req)
		return req
	}
	for _, tc := range []struct {
		what    string
		req     kmsg.Request
		version int16
		refused bool
	}{
		{"topics that may be null", kmsg.NewPtrMetadataRequest(), 1, false},
		{"topics that may be null in the next version", kmsg.NewPtrMetadataRequest(), 0, true},
		{"records that are null", &kmsg.ProduceRequest{Topics: []kmsg.ProduceRequestTopic{{Partitions: []kmsg.ProduceRequestTopicPartition{{}}}}}, 12, false},
		{"a tag of this version", fetch(func(r *kmsg.FetchRequest) { r.ReplicaState.ID = 5 }), 15, false},
		{"a tag of the next version", fetch(func(r *kmsg.FetchRequest) { r.UnknownTags.Set(1, []byte{0}) }), 14, true},
		{"a partition's tag of the next version", fetch(func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].UnknownTags.Set(1, make([]byte, 8)) }), 17, true},
		{"a tag that nobody knows", fetch(func(r *kmsg.FetchRequest) { r.UnknownTags.Set(77, []byte{0}) }), 14, false},
	} {
		tc.req.SetVersion(tc.version)
		body := tc.req.AppendTo(nil)
		if tc.req.Key() == keyMetadata && tc.version == 0 {
			body = []byte{255, 255, 255, 255} // kmsg writes none
		}
		if err := checkBody(tc.req.Key(), tc.version, body); (err != nil) != tc.refused {
			t.Errorf("%s: %v", tc.what, err)
		}
	}
}

// TestTagsAreBounded: kmsg keeps those that it does not know, also behind the last field.
func TestTagsAreBounded(t *testing.T) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.SetVersion(4)
	for i := range uint32(maxElements + 1) {
		req.UnknownTags.Set(100+i, nil)
	}
	if err := checkBody(keyHeartbeat, 4, req.AppendTo(nil)); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("got %v, want ErrMalformed", err)
	}
}

// TestArraysAreNotBelieved: a body that claims as many elements as it has bytes must be refused before anything is allocated for them.
func TestArraysAreNotBelieved(t *testing.T) {
	const size = 4 << 20
	body := make([]byte, size)
	binary.BigEndian.PutUint32(body[4+4+4+4+1+4+4:], size-64) // Fetch v7: the topics
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := checkBody(keyFetch, 7, body)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, wire.ErrMalformed) {
		t.Fatalf("got %v, want ErrMalformed", err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
		t.Errorf("judging the frame allocated %d bytes", got)
	}
}

// TestElementsAreBounded: elements that are really there are still limited in number.
func TestElementsAreBounded(t *testing.T) {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = make([]string, maxElements+1)
	if err := checkBody(keyDeleteGroups, 0, req.AppendTo(nil)); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("%d elements: got %v, want ErrMalformed", len(req.Groups), err)
	}
	req.Groups = req.Groups[:maxElements]
	if err := checkBody(keyDeleteGroups, 0, req.AppendTo(nil)); err != nil {
		t.Errorf("%d elements: %v", len(req.Groups), err)
	}
}

// FuzzBody: whatever passes the walk must not make kmsg allocate out of proportion, nor panic.
func FuzzBody(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for key := range shapes {
		req := kmsg.RequestForKey(key)
		fill(rnd, reflect.ValueOf(req).Elem())
		req.SetVersion(req.MaxVersion())
		f.Add(key, req.MaxVersion(), req.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		req := kmsg.RequestForKey(key)
		if req == nil || version < 0 || version > req.MaxVersion() {
			return
		}
		if _, ok := shapes[key]; !ok || checkBody(key, version, body) != nil {
			return
		}
		req.SetVersion(version)
		if err := req.ReadFrom(body); err == nil {
			req.AppendTo(nil)
		}
	})
}
