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

// TestShapes walks requests of every served key and version: each must be walked to its end, tags excepted.
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
				req.SetVersion(version)
				body := req.AppendTo(nil)
				if err := checkBody(key, version, body); err != nil {
					t.Fatalf("%s v%d: %v: % x", kmsg.NameForKey(key), version, err, body)
				}
				if key == keyDescribeTopicPartitions {
					continue // a nullable struct without arrays follows, which is not walked
				}
				w := newWalker(key, version, body)
				w.fields(shape)
				w.tags()
				if len(w.r.Src) != 0 || !w.r.Ok() {
					t.Fatalf("%s v%d: %d bytes left of %d", kmsg.NameForKey(key), version, len(w.r.Src), len(body))
				}
			}
		}
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
